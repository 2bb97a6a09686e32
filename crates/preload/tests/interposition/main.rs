//! The library under unmodified programs: what each call answers, beside the kernel's own file
//! systems; what calls cost; what the library exports.
//!
//! One program for all of it: `cargo test --release -p solera-preload --test interposition NAME`
//! takes the tests whose names have `NAME` in them, as `costs::` or `split_engine::random_calls`.

mod arguments;
mod beside;
mod bytes;
mod calls;
mod costs;
mod coverage;
mod descriptors;
mod errors;
mod functions;
mod guard;
mod identity;
mod kernel_aio;
mod late;
mod lines;
mod locks;
mod mapping_table;
mod mappings;
mod media;
mod opening;
mod pointers;
mod processes;
mod signals;
mod split_engine;
#[path = "../support/step.rs"]
mod step;
#[path = "../support/mod.rs"]
mod support;
mod symlinks;
mod two_volumes;
mod undefined;
mod unserved;
