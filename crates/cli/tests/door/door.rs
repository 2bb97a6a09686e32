//! The door under test: how a program's calls reach the volume, and what a difference means.
//!
//! By symbols of the C library some programs differ from tmpfs: they are counted and named, and
//! the tests pass. By system calls each difference is a failure. `SOLERA_TEST_DOOR` (symbols, auto)
//! overrides the default.

use std::sync::LazyLock;

use crate::support::solera;

/// The door where the environment names none: the line to change once programs come by `auto`.
const DEFAULT: &str = "auto";

/// How calls reach the volume.
pub struct Door {
    /// What `solera run` is told, before `--`.
    pub options: Vec<String>,
    /// Whether a difference from tmpfs is a failure.
    pub is_strict: bool,
}

/// The door of this run.
///
/// # Panics
///
/// If `auto` is wanted and `solera run` does not have it.
pub static DOOR: LazyLock<Door> = LazyLock::new(|| {
    let name = std::env::var("SOLERA_TEST_DOOR").unwrap_or_else(|_| DEFAULT.to_owned());
    let is_known = solera(["run", "--help"]).ok().contains("--door");
    let is_strict = name != "symbols";
    assert!(is_known || !is_strict, "SOLERA_TEST_DOOR={name}, and `solera run` has no --door");
    let options = if is_known { vec!["--door".to_owned(), name] } else { Vec::new() };
    Door { options, is_strict }
});

/// What was tried is as on tmpfs, or it is said how not: a failure where the door promises it.
#[track_caller]
pub fn judge(what: &str, differences: &[String]) {
    if differences.is_empty() {
        return;
    }
    let text = format!("{what}: {}", differences.join("\n"));
    assert!(!DOOR.is_strict, "{text}");
    eprintln!("known of --door symbols: {text}");
}
