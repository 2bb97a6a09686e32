//! The ground of Solera: regions of byte-addressable memory, and the only code that touches them.
//!
//! - [`Region`] maps a range of persistent (or emulated) memory and knows what a fence promises
//!   there ([`Class`]).
//! - A store gives [`Dirty`], a flush makes it [`InFlight`], one fence turns many into [`Durable`];
//!   commits take `&Durable`.
//! - [`UserIn`] and [`UserOut`] are the program's buffers, valid or not. A fault on our side is
//!   [`Fault::Region`] (`EIO`; [`or_no_memory`] tells whether for lack of memory), on the caller's
//!   [`Fault::Caller`] (`EFAULT`); see [`install_fault_handler`].
//! - A [`Hook`] sees every store, flush and fence: [`trace`] records them for the crash explorer,
//!   [`costs`] counts them.
//! - [`Policy`] says what of this a region needs: memory that a reboot empties needs nothing.
//! - [`Dispatch`] names the instructions in use; [`checksum`] is made for small structures.
//!
//! - A [`Pager`] brings pages that lie elsewhere.
//! - [`key`] keeps the program's own code out of a region; [`stray`] says what it did there.
//!
//! The instructions themselves are the crate `memory`'s, from which this hands on what users of
//! regions need. Slower memory is emulated by the crate `emulation` ([`Region::slow_down`]). No
//! function here calls what a preload library interposes: system calls go through rustix's raw
//! backend.

mod access;
#[cfg(feature = "inject")]
pub mod inject;
mod persistence;
mod recording;
mod region;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("Solera runs on x86-64 Linux");

pub use access::counters;
pub use access::span::{OwnedSpan, Span};
pub use memory::{
    CopyKind, Dispatch, Fault, FaultService, FlushKind, UserIn, UserOut, checksum, checksum_after,
    checksum_words, fence, handle_fault, install_fault_handler, key, own_fault_handler, prefetch,
    serve_touches, stray, supply_pages_by, text_length,
};
pub use persistence::locality::Locality;
pub use persistence::tokens::{Dirty, Durable, FenceBatch, InFlight};
pub use recording::{costs, trace};
pub use region::holes::{BackingSpace, or_no_memory};
pub use region::hook::Hook;
pub use region::pager::{APART, Access, Hint, Pager};
pub use region::policy::Policy;
pub use region::source::{
    Class, OpenError, OpenOptions, Purpose, class_of, needs_class, open_to_read, policy_of,
};
pub use region::{ForeignMemory, Region};
