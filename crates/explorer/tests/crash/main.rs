//! No power cut, and no death of a process, leaves anything but what is promised.
//!
//! `cargo test --release -p solera-explorer --features inject --test crash`. The faults that this
//! feature builds in are not there unless they are selected, which nothing here does: the limits of
//! `fences.rs`, which the engine without them keeps in its own tests, hold here, too.
//!
//! What runs is drawn anew at each commit (`SOLERA_ROTATION`); all of it with `SOLERA_TEST_LONG`.

mod campaigns;
mod death;
#[path = "../../../volume/tests/contract/fences.rs"]
mod fences;
mod flex;
mod model;
mod regressions;
mod sqlite_cuts;
mod survivor;
