//! How files are opened, flag by flag, and by programs that do it their own way, against a kernel
//! file system.

use crate::support::same;

#[test]
fn every_pair_of_flags() {
    same("open_flags");
}

#[test]
fn a_program_with_functions_of_its_own() {
    same("own_names");
}
