//! `libsolera_profile.so`: says where a program's time in file calls goes.
//!
//! `solera run --profile` preloads this library in front of `libsolera_preload.so`, so that it sees
//! the program's calls as the program makes them; no other program loads it. Each function takes
//! the time, calls the next one of its name, and counts, in words of its own thread (`record`).
//! Arguments, answers and `errno` are the program's and the next function's.
//!
//! No locks, no allocation, and no system call but where a descriptor is made, a thread begins, or
//! a descriptor is met that came from elsewhere. A call that never comes back (a cancelled thread,
//! `longjmp`) is not counted.
//!
//! | file | subject |
//! |---|---|
//! | `symbols` | the exported functions: bytes, names, streams, users, calls by number |
//! | `timed` | a call around which the time is taken; what is counted of it |
//! | `process` | the mapped file, the process's place in it, its threads' |
//! | `descriptors` | which file a descriptor is of, and who serves it |
//! | `paths` | numbers of paths, the working directory, whose a path is |
//! | `next` | the next function of a name |

mod descriptors;
mod next_symbol;
mod paths;
mod process;
mod symbols;
mod timing;
