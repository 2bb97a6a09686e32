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
//! - [`Dispatch`] names the instructions in use; [`checksum`] is made for small structures.
//!
//! - A [`Pager`] brings pages that lie elsewhere.
//! - [`SlowMemory`] emulates slower memory, for regions ([`Region::slow_down`]) and for peers.
//! - [`Window`] maps a part of a file that the kernel keeps.
//! - [`key`] keeps the program's own code out of a region; [`stray`] says what it did there.
//!
//! No other crate stores or flushes by inline assembly or intrinsics. No function here calls what a
//! preload library interposes: system calls go through rustix's raw backend.

mod access;
mod emulation;
mod faults;
#[cfg(feature = "inject")]
pub mod inject;
mod instructions;
mod persistence;
mod recording;
mod region;
mod window;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("Solera runs on x86-64 Linux");

pub use access::counters;
pub use access::span::{OwnedSpan, Span};
pub use emulation::{Model, SlowMemory, Transfer};
pub use faults::handler::{handle_fault, install_fault_handler, own_fault_handler};
pub use faults::service::{FaultService, serve_touches};
pub use faults::user_memory::{Fault, UserIn, UserOut, supply_pages_by, text_length};
pub use faults::{key, stray};
pub use instructions::checksum::{checksum, checksum_after, checksum_words};
pub use instructions::dispatch::{CopyKind, Dispatch, FlushKind};
pub use persistence::tokens::{Dirty, Durable, FenceBatch, InFlight};
pub use recording::{costs, trace};
pub use region::holes::{BackingSpace, or_no_memory};
pub use region::hook::Hook;
pub use region::pager::{APART, Access, Hint, Pager};
pub use region::source::{
    Class, OpenError, OpenOptions, Purpose, class_of, needs_class, open_to_read,
};
pub use region::{ForeignMemory, Region};
pub use window::{Window, fence, prefetch};
