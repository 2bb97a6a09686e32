//! Bad pointers and buffers that lie in mappings: a preloaded program gets the kernel's answers.

use crate::support::same;

#[test]
fn pointers() {
    same("pointers");
}

#[test]
fn buffers() {
    same("buffers");
}
