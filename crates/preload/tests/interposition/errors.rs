//! `errno` behind calls that succeed: what the library does for the program along its way does not
//! show there.

use crate::support::same;

#[test]
fn a_call_that_succeeds_leaves_errno() {
    same("errors");
}
