//! The crash explorer, and the model it judges by.
//!
//! - [`workload`]: actions on a file system, and what they give; [`content`]: what is written.
//! - [`model`], [`engine`], [`kernel`]: the three systems that actions are applied to: the contract
//!   in memory, an engine behind the contract, a directory of a kernel file system.
//! - [`cases`]: start states and the calls explored on them; [`random`]: sequences drawn by a seed;
//!   [`pairs`]: a set of calls, all pairs; [`sequences`]: campaigns of both; [`concurrent`]: two
//!   calls at once; [`deaths`]: a process dies inside any call of the set, another goes on, in one
//!   process and one trace; [`extent_release`]: the same beside a call that has found a name which
//!   goes; [`survivor`]: the same with processes that are killed, on the start states;
//!   [`lifecycle`]: what happens to whole volumes; [`flex_log`], [`flex_file`]: the log and the
//!   files of `flex`.
//! - [`states`]: which images a power cut can leave of a traced run; [`image`]: the images.
//! - [`recovery`]: recovery, and crashes inside it; [`comparison`], [`oracle`]: what a recovered
//!   volume must hold; [`exploration`]: one case; [`campaign`]: all; `mutate`: what shows that a
//!   flush or fence is missing.

mod cached;
pub mod campaign;
pub mod campaigns;
pub mod cases;
pub mod comparison;
pub mod content;
pub mod engine;
pub mod exploration;
pub mod image;
pub mod kernel;
pub mod model;
#[cfg(feature = "inject")]
pub mod mutation;
pub mod oracle;
pub mod recovery;
pub mod states;
pub mod workload;

pub use campaigns::{
    concurrent, deaths, extent_release, flex_file, flex_log, lifecycle, pairs, random, sequences,
    survivor,
};
