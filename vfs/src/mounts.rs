//! Mounts of volumes, as the kernel lists them: type `fuse.solera`, the volume's file as the source.
//!
//! A face that finds its volume mounted uses the mount's path and device number, so that what it
//! serves itself and what the kernel serves through the mount look the same.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The file system's type, in the kernel's lists.
pub const TYPE: &str = "fuse.solera";

/// Names in a mount's root that stand for open file descriptions begin so.
const DESCRIPTION: &[u8] = b".solera-description-";

/// A mount of a volume's root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The volume's file or device.
    pub volume: PathBuf,
    /// Where it is mounted.
    pub at: PathBuf,
    /// Its device number: what `st_dev` says there.
    pub device: u64,
    /// Nothing can be changed through it.
    pub read_only: bool,
}

impl Mount {
    /// Whether it is this volume's, whatever name the volume was mounted by.
    pub fn is_of(&self, volume: &Path) -> bool {
        let file = |path: &Path| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
        self.volume == volume || file(volume).is_some_and(|own| file(&self.volume) == Some(own))
    }
}

/// The mounts of this process's name space, the oldest first. Bind mounts of their subdirectories are
/// not among them.
pub fn list() -> std::io::Result<Vec<Mount>> {
    std::fs::read("/proc/self/mountinfo").map(|text| parse(&text))
}

/// The mount at a path: the last, which hides the others.
pub fn at(path: &Path) -> std::io::Result<Option<Mount>> {
    Ok(list()?.into_iter().rev().find(|mount| mount.at == path))
}

/// The mount that `path` (absolute, without symlinks) lies in.
pub fn around(mounts: &[Mount], path: &Path) -> Option<Mount> {
    let above = mounts.iter().rev().filter(|mount| path.starts_with(&mount.at));
    above.max_by_key(|mount| mount.at.as_os_str().len()).cloned()
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// `ID PARENT MAJOR:MINOR ROOT AT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
    let (root, at, options) = (fields.next()?, fields.next()?, fields.next()?);
    let read_only = options.split(|&byte| byte == b',').any(|option| option == b"ro");
    let kind = fields.by_ref().skip_while(|&field| field != b"-").nth(1)?;
    let source = fields.next()?;
    if kind != TYPE.as_bytes() || root != b"/" {
        return None;
    }
    let path = |text| PathBuf::from(OsString::from_vec(unescape(text)));
    Some(Mount { volume: path(source), at: path(at), device, read_only })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// The name in a mount's root by which the open file description that was handed over as `name` can
/// be opened: for programs that cannot be preloaded.
pub fn description_name(name: u64) -> Vec<u8> {
    [DESCRIPTION, format!("{name:016x}").as_bytes()].concat()
}

/// What [`description_name`] was given.
pub fn description_of_name(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name.strip_prefix(DESCRIPTION)?).ok()?;
    if digits.len() == 16 { u64::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/root rw
90 22 0:60 / /mnt/p\\040m rw,nosuid,nodev shared:7 master:2 - fuse.solera /dev/shm/v.pm rw,user_id=0
91 22 0:60 /sub /mnt/bind ro - fuse.solera /dev/shm/v.pm rw
92 22 0:61 / /mnt/p\\040m/in ro,relatime - fuse.solera /v\\134w rw
";

    #[test]
    fn finds_the_mounts_of_volumes() {
        let found = parse(LINES);
        let at = |path: &str| PathBuf::from(path);
        let first = Mount {
            volume: at("/dev/shm/v.pm"),
            at: at("/mnt/p m"),
            device: libc::makedev(0, 60),
            read_only: false,
        };
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], first);
        assert_eq!((&found[1].volume, found[1].read_only), (&at("/v\\w"), true));
        assert_eq!(around(&found, Path::new("/mnt/p m/x")), Some(first));
        assert_eq!(around(&found, Path::new("/mnt/p m/in/x")), Some(found[1].clone()));
        assert_eq!(around(&found, Path::new("/mnt/p mx")), None);
    }

    #[test]
    fn names_descriptions() {
        let name = description_name(0x12_3456_789A);
        assert_eq!(description_of_name(&name), Some(0x12_3456_789A));
        assert_eq!(description_of_name(b".solera-description-12"), None);
        assert_eq!(description_of_name(b"file"), None);
    }
}
