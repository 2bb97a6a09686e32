//! Functions of the C library that the library exports and that are no system call of one row: what
//! makes processes and threads, sets identities and actions, and what the volume answers otherwise
//! than the C library.

use crate::{Function, Numbers, Split};

/// Some that are alike.
const fn alike(symbols: &'static [&'static str], numbers: Numbers, split: Split) -> Function {
    Function { symbols, numbers, split }
}

/// All of them; functions that are alike stand together.
pub const COMPOSED: &[Function] = &[
    alike(
        &[
            "__getcwd_chk",
            "dlmopen",
            "dlopen",
            "fpathconf",
            "get_current_dir_name",
            "getcwd",
            "initgroups",
            "pathconf",
            "pthread_cancel",
            "pthread_setcanceltype",
        ],
        Numbers::Unchanged,
        Split::Passed,
    ),
    alike(
        &[
            "aio_fsync",
            "aio_fsync64",
            "aio_read",
            "aio_read64",
            "aio_write",
            "aio_write64",
            "lio_listio",
            "lio_listio64",
        ],
        Numbers::Makes,
        Split::HandedOver,
    ),
    alike(&["pthread_create"], Numbers::Thread, Split::Passed),
];
