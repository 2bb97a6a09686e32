//! The subcommands, one file each, each with a `run` that gives the exit code.

pub mod cache;
pub mod cat;
pub mod cp;
pub mod defrag;
pub mod detach;
pub mod df;
pub mod domain;
pub mod export;
pub mod format;
pub mod fsck;
pub mod generate;
pub mod grow;
pub mod import;
pub mod info;
pub mod log;
pub mod ls;
pub mod map;
pub mod metrics;
pub mod mount;
pub mod node;
pub mod numa;
pub mod recover;
pub mod rm;
pub mod run;
pub mod snapshot;
pub mod top;
pub mod trim;
pub mod umount;

mod program;
