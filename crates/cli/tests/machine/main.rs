//! Tests that look at the whole machine, its free huge pages and its memory in one piece: this
//! program runs alone (`scripts/units.py`).

mod alignment;
mod page_faults;
#[path = "../support/mod.rs"]
mod support;
