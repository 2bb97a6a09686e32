//! A test that needs a process of its own runs itself there.

use std::process::{Command, Output};

/// Set in such a process.
const ALONE: &str = "SOLERA_TEST_ALONE";

/// Whether this process was started by [`run_alone`].
pub fn alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs one test (its module and its name) in a process of its own, with its own environment.
pub fn run_alone(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    command.envs(variables.iter().copied()).output().unwrap()
}
