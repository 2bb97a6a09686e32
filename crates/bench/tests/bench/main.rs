//! `solera bench` and `solera age`: what they print, what they refuse, and that they leave nothing
//! behind. No figure is judged here.

#[path = "../../../cli/tests/support/mod.rs"]
mod support;

/// Whether a whole benchmark runs at this commit: one in three does, by rotation; in long tests
/// all.
fn has_turn(benchmark: &str) -> bool {
    let turn = rotation::chosen(&format!("bench/{benchmark}"), 3);
    if !turn {
        println!("{benchmark}: at another commit (SOLERA_ROTATION), or in `make test-long`");
    }
    turn
}

mod age;
mod ddmap;
mod door;
mod flac;
mod micro;
mod programs;
mod sqlite;
