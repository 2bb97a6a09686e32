//! Volumes that are mounted: what programs see there, by both faces, and who may.

mod coherence;
#[path = "../support/face.rs"]
mod face;
mod locks;
mod mount;
mod permissions;
mod read_only;
mod replacement;
mod served_mounts;
#[path = "../support/mod.rs"]
mod support;
