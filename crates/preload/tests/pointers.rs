//! Bad pointers and buffers that lie in mappings: a preloaded program gets the kernel's answers.

mod support;

use support::same;

#[test]
fn pointers() {
    same("pointers");
}

#[test]
fn buffers() {
    same("buffers");
}
