//! Symlinks of another file system that lead to the volume are followed, wherever they stand in a
//! path, by calls that follow them.

use crate::support::same;

#[test]
fn links_from_outside_lead_to_the_volume() {
    same("outside");
}
