//! Processes: how they are made, what they execute, how they end.

mod support;

use support::same;

#[test]
fn forks() {
    same("forks");
}

#[test]
fn executes() {
    same("executes");
}
