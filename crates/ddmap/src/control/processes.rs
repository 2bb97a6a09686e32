//! Processes of this machine that have a volume, or are about to: who they are, as `/proc` says.

use crate::control::status::UserStatus;
use crate::shared_memory::table;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The variables by which a program hears of volumes begin so.
const VARIABLE: &[u8] = b"SOLERA_VOLUME";

/// What `/proc/PID/stat` says behind the name: the state first.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    Some(behind.split_whitespace().map(str::to_owned).collect())
}

/// Seconds since a process began; 0 if that cannot be told.
fn age(pid: i32) -> u64 {
    let began = stat(pid).and_then(|fields| fields.get(19)?.parse::<u64>().ok());
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let now = uptime.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok());
    let began = began.map(|ticks| ticks / rustix::param::clock_ticks_per_second());
    now.zip(began).map_or(0, |(now, began)| now.saturating_sub(began))
}

/// A process as `domain status` shows it.
pub fn user(pid: i32) -> UserStatus {
    UserStatus { process: table::process_name(pid), seconds: age(pid) }
}

/// A process that has let go of a volume, and may execute a program that attaches it: the kernel
/// closes what it had before it says what the new program's variables are.
pub fn may_execute(pid: i32) -> bool {
    let is_empty = fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| all.is_empty());
    let ends = |fields: Vec<String>| matches!(fields.first().map(String::as_str), Some("Z" | "X"));
    is_empty && !stat(pid).is_none_or(ends)
}

/// The processes of this user, this one apart, whose variables name a region: they see it, or will
/// when they attach it.
pub fn that_name(region: &Path) -> BTreeSet<i32> {
    let pids = os::names_in(Path::new("/proc")).unwrap_or_default();
    let pids = pids.into_iter().filter_map(|name| name.to_str()?.parse::<i32>().ok());
    let own = std::process::id() as i32;
    pids.filter(|pid| *pid != own && names(*pid, region)).collect()
}

fn names(pid: i32, region: &Path) -> bool {
    // Of another user's process it cannot be told, and it cannot attach the volume.
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut values = all.split(|byte| *byte == 0).filter_map(|one| {
        let value = one.strip_prefix(VARIABLE)?;
        let at = value.iter().position(|byte| *byte == b'=')?;
        let is_number = value[..at].iter().all(|byte| *byte == b'_' || byte.is_ascii_digit());
        is_number.then_some(&value[at + 1..])
    });
    values.any(|value| value == region.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_names_a_region_is_found() {
        let region = Path::new("/nowhere/volumes/v/region");
        let sleeps = |name: &str| {
            let mut command = Command::new("sleep");
            command.arg("60").env(name, region).stdin(Stdio::null());
            command.spawn().expect("it starts")
        };
        let mut all =
            [sleeps("SOLERA_VOLUME"), sleeps("SOLERA_VOLUME_2"), sleeps("SOLERA_VOLUMES")];
        let pids = all.each_ref().map(|one| one.id() as i32);
        let found = that_name(region);
        assert!(
            found.contains(&pids[0]) && found.contains(&pids[1]) && found.len() == 2,
            "{found:?}"
        );
        assert!(user(pids[0]).process.contains("(sleep)") && !may_execute(pids[0]));
        for child in &mut all {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
        assert!(!may_execute(pids[0]) && that_name(region).is_empty());
        assert!(age(1) > 0, "the machine runs for a while");
    }
}
