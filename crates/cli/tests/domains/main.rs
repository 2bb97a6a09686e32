//! Domains (`solera node`, `solera domain`, `run --ddmap`): nodes are processes on loopback.

mod access_contexts;
mod commands;
mod copies;
#[path = "../support/domain.rs"]
mod domain;
mod equivalence;
mod failures;
mod formats;
#[path = "../support/group.rs"]
mod group;
mod handover;
mod leadership;
mod map;
mod migration;
mod nodes;
mod placement;
mod programs;
#[path = "../support/mod.rs"]
mod support;
