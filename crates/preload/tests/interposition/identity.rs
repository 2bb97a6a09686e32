//! The identity and the name of a file: every face of the library gives the same answer, the
//! kernel's where it has one.

use crate::support::same;

#[test]
fn identity() {
    same("identity");
}
