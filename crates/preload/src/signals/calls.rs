//! The calls of this room: signal stacks.

use std::ffi::c_int;

use crate::entry::pointers::Out;
use crate::interposed::bodies;
use crate::signals::altstack;

bodies! {
    fn sigaltstack(new: Out<libc::stack_t>, old: Out<libc::stack_t>) -> c_int = |_, _| {
        altstack::exchange(new, old)
    }
}
