//! Mounted volumes: programs see the same by both faces; who may mount, and who may use a mount.

mod coherence;
#[path = "../support/face.rs"]
mod face;
mod keeper;
mod locks;
mod mount;
mod permissions;
mod read_only;
mod replacement;
mod served_mounts;
#[path = "../support/mod.rs"]
mod support;
mod watches;
