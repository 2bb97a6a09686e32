//! `libsolera_preload.so`: unmodified programs on a volume.
//!
//! The dynamic linker loads this library before glibc (`LD_PRELOAD`), so that its functions stand
//! for glibc's of the same names. Calls that concern the volume are served in the process itself;
//! all others go on to glibc.
//!
//! | file | subject |
//! |---|---|
//! | `init` | attaching, taking over after an exec |
//! | `entry` | the way in: who serves a call, `errno` |
//! | `pointers` | the program's pointers |
//! | `thread`, `signal`, `sigaction`, `cancel` | when the program's own code may run |
//! | `process`, `lifecycle`, `fork`, `cwd` | what the kernel keeps for a process |
//! | `heap` | the library's own memory |
//! | `paths` | whose a path is |
//! | `fdtable`, `parked`, `fcntl`, `handover` | descriptors: the table, copies, crossing exec |
//! | `open`, `rw`, `limit`, `splice`, `stat`, `names`, `attrs`, `dir` | the calls on files |
//! | `mapping`, `mmap`, `mremap`, `touched`, `large`, `maptable` | files mapped |
//! | `identity` | the names under which `/proc` shows what is ours |
//! | `sockets` | local sockets by path |
//! | `stdio`, `wide`, `format`, `temp`, `tree`, `loader`, `aio`, `composed` | what glibc does inside itself |
//! | `spawn`, `exec`, `loadable`, `variadic` | the same, of programs |
//! | `syscall`, `openat2` | system calls by number |
//! | `beneath`, `beneath_calls`, `beneath_serve` | the second engine: files of a kernel file system |
//! | `refused`, `rings`, `report` | what is not served, and why |

mod aio;
mod attrs;
mod beneath;
mod beneath_calls;
mod beneath_serve;
mod cancel;
mod composed;
mod credentials;
mod cwd;
mod dir;
mod entry;
mod exec;
mod fcntl;
mod fdtable;
mod fork;
mod format;
mod handover;
mod heap;
mod identity;
mod init;
mod large;
mod lifecycle;
mod limit;
mod links;
mod loadable;
mod loader;
mod lock;
mod mapping;
mod maptable;
mod messages;
mod mmap;
mod mounted;
mod mremap;
mod names;
mod open;
mod openat2;
mod owners;
mod parked;
mod paths;
mod pointers;
mod process;
mod refused;
mod report;
mod rings;
mod rw;
mod sigaction;
mod sigmask;
mod signal;
mod sockets;
mod spawn;
mod special;
mod splice;
mod stat;
mod stdio;
mod syscall;
mod temp;
mod thread;
mod touched;
mod tree;
mod variadic;
mod waiting;
mod wide;
