//! Which part of a sampled test runs: another one at each commit, so that ten commits see nearly
//! all of it.
//!
//! The *seed* is the name of the commit (`git rev-parse HEAD`), or what `SOLERA_ROTATION` says: so
//! a failure is found again by the seed that it names. A case runs if the digest of the seed and of
//! the case's identity says so; cases that are added or go change nothing for the others.
//! `SOLERA_TEST_LONG` runs every case. Scripts ask `scripts/rotation.py`, which decides alike.

use std::env;
use std::panic;
use std::process::Command;
use std::sync::LazyLock;

use ring::digest::{SHA256, digest};

/// The seed, and whether every case runs.
struct Rotation {
    seed: String,
    all: bool,
}

static ROTATION: LazyLock<Rotation> = LazyLock::new(|| {
    let seed = env::var("SOLERA_ROTATION").ok().or_else(commit).unwrap_or_default();
    let all = env::var_os("SOLERA_TEST_LONG").is_some();
    if !all {
        let (told, before) = (seed.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            eprintln!("note: what ran was chosen by SOLERA_ROTATION={told}");
        }));
    }
    Rotation { seed, all }
});

/// The commit that is tested, if this is a clone.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| name.trim().to_owned())
}

/// Whether every case runs, whatever the seed: in the long run.
#[must_use]
pub fn all() -> bool {
    ROTATION.all
}

/// What chooses: a failure should name it where no panic does.
#[must_use]
pub fn seed() -> &'static str {
    &ROTATION.seed
}

/// Whether the case of this identity is in the one of `parts` parts that runs.
///
/// `identity` names the case among all of its test, the same at each commit.
///
/// # Panics
///
/// If `parts` is 0.
#[must_use]
pub fn chosen(identity: &str, parts: u32) -> bool {
    all() || part(seed(), identity, parts) == 0
}

/// A number from `0..parts` for a test that has one case of many: which it is.
///
/// # Panics
///
/// If `parts` is 0.
#[must_use]
pub fn turn(identity: &str, parts: u32) -> u32 {
    part(seed(), identity, parts)
}

/// Which of `parts` parts a case is in: by the digest's first four bytes.
fn part(seed: &str, identity: &str, parts: u32) -> u32 {
    let digest = digest(&SHA256, format!("{seed} {identity}").as_bytes());
    let (first, _) = digest.as_ref().split_first_chunk::<4>().expect("32 bytes");
    u32::from_be_bytes(*first) % parts
}

#[cfg(test)]
mod tests {
    use super::part;

    /// Ten seeds see nearly all of what is split in four, and each about a quarter.
    #[test]
    fn ten_seeds_see_nearly_all() {
        let seeds: Vec<String> = (0..10).map(|seed| format!("seed {seed}")).collect();
        let cases: Vec<String> = (0..1000).map(|case| format!("case {case}")).collect();
        let runs = |seed: &String, case: &String| part(seed, case, 4) == 0;
        for seed in &seeds {
            let share = cases.iter().filter(|case| runs(seed, case)).count();
            assert!((200..300).contains(&share), "{seed}: {share}");
        }
        let seen = cases.iter().filter(|case| seeds.iter().any(|seed| runs(seed, case))).count();
        assert!(seen > 900, "{seen}");
    }

    /// `scripts/rotation.py` says the same.
    #[test]
    fn the_digest_is_that_of_the_script() {
        let parts: Vec<u32> =
            ["a", "b", "strict/rename"].iter().map(|case| part("0123abcd", case, 1000)).collect();
        assert_eq!(parts, [546, 218, 344]);
    }
}
