//! What the library still takes from other objects: a call may come from under the C library's own
//! locks, so none of this may be called from inside a served one.

use std::collections::BTreeSet;

use object::{Object, ObjectSymbol};

use crate::support::library;

/// Data, and what the compiler's start-up files name.
const ALLOWED: &[&str] = &[
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__gmon_start__",
    // Called when the library is unloaded, which never happens.
    "__cxa_finalize",
    // Where the kernel has put arguments, variables and the auxiliary vector.
    "__libc_stack_end",
    "environ",
    // What is loaded.
    "_r_debug",
    // Where the thread's `errno` is: one instruction.
    "__errno_location",
];

/// Functions that the program's own call of such a function leads to, outside of all locks: each
/// goes with what calls it.
const WITH_THEIR_CALLERS: &[(&str, &[&str])] = &[
    ("cancellation", &["pause", "pthread_join", "pthread_setcancelstate"]),
    (
        "threads of the library's own, which begin at the start",
        &[
            "pthread_attr_destroy",
            "pthread_attr_getguardsize",
            "pthread_attr_getstack",
            "pthread_attr_init",
            "pthread_attr_setstacksize",
            "pthread_detach",
            "pthread_getattr_np",
            "pthread_setname_np",
        ],
    ),
    // Takes no lock.
    ("a guest's call that makes a thread", &["pthread_getcpuclockid"]),
];

#[test]
fn nothing_but_this_is_taken_from_other_objects() {
    let bytes = std::fs::read(library()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found: BTreeSet<_> = file
        .dynamic_symbols()
        .filter(object::ObjectSymbol::is_undefined)
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect();
    let allowed: BTreeSet<_> = WITH_THEIR_CALLERS
        .iter()
        .flat_map(|(_, names)| *names)
        .chain(ALLOWED)
        .map(|name| (*name).to_owned())
        .collect();
    let new: Vec<_> = found.difference(&allowed).collect();
    assert!(new.is_empty(), "taken from the C library: {new:?}; define them in `runtime`");
    let gone: Vec<_> = allowed.difference(&found).collect();
    assert!(gone.is_empty(), "no longer needed: {gone:?}; take them out of the list");
}
