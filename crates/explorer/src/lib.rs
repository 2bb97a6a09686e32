//! The crash explorer, and the model it judges by.
//!
//! - [`workload`]: actions on a file system, and what they give; [`content`]: what is written.
//! - [`model`], [`engine`], [`kernel`]: the three systems that actions are applied to: the contract
//!   in memory, an engine behind the contract, a directory of a kernel file system.
//! - [`cases`]: start states and the calls explored on them; [`random`]: sequences drawn by a seed;
//!   [`pairs`]: a set of calls, all pairs; [`sequences`]: campaigns of both; [`concurrent`]: two
//!   calls at once; [`deaths`]: a process dies inside any call of the set, another goes on, in one
//!   process and one trace; [`announced`]: the same beside a call that has found a name which goes;
//!   [`survived`]: the same with processes that are killed, on the start states; [`lifecycle`]:
//!   what happens to whole volumes; [`flex_log`], [`flex_file`]: the log and the files of `flex`.
//! - [`states`]: which images a power cut can leave of a traced run; [`lab`]: the images.
//! - [`recover`]: recovery, and crashes inside it; [`compare`], [`judge`]: what a recovered volume
//!   must hold; [`explore`]: one case; [`campaign`]: all; `mutate`: what shows that a flush or
//!   fence is missing.

pub mod announced;
mod cached;
pub mod campaign;
pub mod cases;
pub mod compare;
pub mod concurrent;
pub mod content;
pub mod deaths;
pub mod engine;
pub mod explore;
pub mod flex_file;
pub mod flex_log;
pub mod judge;
pub mod kernel;
pub mod lab;
pub mod lifecycle;
pub mod model;
#[cfg(feature = "inject")]
pub mod mutate;
pub mod pairs;
pub mod random;
pub mod recover;
pub mod sequences;
pub mod states;
pub mod survived;
pub mod workload;
