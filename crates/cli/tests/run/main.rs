//! `solera run`: its options, and what programs do on a volume.

mod align;
mod attach;
mod cache;
mod cache_coherence;
#[path = "../support/domain.rs"]
mod domain;
mod explicit_library;
mod full_memory;
#[path = "../support/group.rs"]
mod group;
mod library_access;
mod low_limit;
mod nesting;
mod numa;
mod options;
mod profile;
mod sqlite;
mod sqlite_concurrency;
#[path = "../support/sqlite_volume.rs"]
mod sqlite_volume;
#[path = "../support/mod.rs"]
mod support;
mod volumes;
