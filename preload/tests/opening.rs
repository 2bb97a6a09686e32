//! How files are opened, flag by flag, against a kernel file system.

mod support;

use support::same;

#[test]
fn every_pair_of_flags() {
    same("open_flags");
}
