//! `libsolera_align.so`: `malloc` and its kin give multiples of 2 MiB from 2 MiB on.
//!
//! `solera run --align` preloads this library behind `libsolera_preload.so`, so that the buffers of
//! unmodified programs are congruent to the 2 MiB chunks of files: reads of whole chunks can then
//! be attached. No other program loads it.
//!
//! It is no allocator. A request below 2 MiB goes on to the next definition of the function as it
//! is; a larger one asks that allocator (glibc's, or one that is preloaded or linked as a library)
//! for the alignment. So each block is one of the allocator's own, and its `free`, which this
//! library does not define, takes it back. The alignment is a wish: where the allocator cannot give
//! it, the request goes on as it is, and fails as it would without this library, with the
//! allocator's `errno`.
//!
//! The library allocates nothing itself, takes no lock and cannot panic. A program whose own file
//! defines `malloc` and `free` keeps them, without alignment.
//!
//! | file | subject |
//! |---|---|
//! | `symbols` | the exported functions |
//! | `blocks` | aligned blocks: made, cleared, resized |
//! | `next` | the next definition of each function, and whether they belong together |

mod blocks;
mod next_symbol;
mod symbols;
