//! The commands as a user meets them: what each prints, how it ends, what it refuses.

mod aliases;
mod bad_input;
mod contract;
mod damage;
mod defrag;
mod disk_copies;
mod doctor;
#[path = "../support/domain.rs"]
mod domain;
mod door;
mod fifos;
mod formats;
mod fsck;
#[path = "../support/group.rs"]
mod group;
mod install;
mod log;
mod manual;
mod messages;
mod metrics;
mod owner;
mod picture;
mod recovery;
mod removal;
#[path = "../support/screen.rs"]
mod screen;
mod stream;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod top;
