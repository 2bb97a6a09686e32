//! Mounts of volumes, as the kernel lists them: type `fuse.solera`, the volume's file as the
//! source.
//!
//! A face that finds its volume mounted uses the mount's path and device number, so that files look
//! the same through both. The source is only a path, and another volume may lie there by now: the
//! mount itself says what it serves ([`Mount::serves`]).

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The file system's type, in the kernel's lists.
pub const TYPE: &str = "fuse.solera";

/// The attribute by which a mount says what it serves: an [`Identity`].
pub const IDENTITY: &str = "solera.identity";
/// Bytes that it has at most.
const IDENTITY_BYTES_MAX: usize = 128;

/// Names in a mount's root that stand for open file descriptions begin so.
const DESCRIPTION: &[u8] = b".solera-description-";

/// Identifies a volume, whatever its path leads to by now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Device and inode number of its file or device.
    pub file: (u64, u64),
    /// The volume in it.
    pub uuid: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.file.0, self.file.1, self.uuid)
    }
}

impl Identity {
    /// From the text that it is displayed as.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let file = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { file, uuid: parts.next()?.to_owned() })
    }
}

/// A mount of a volume's root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The kernel's number of it.
    pub id: u32,
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

    /// What it serves. `None` if its server has died or does not say, or this user may not look
    /// into it.
    pub fn serves(&self) -> Option<Identity> {
        let mut said = [0; IDENTITY_BYTES_MAX];
        let length = rustix::fs::getxattr(&self.at, IDENTITY, &mut said[..]).ok()?;
        Identity::parse(std::str::from_utf8(&said[..length]).ok()?)
    }

    /// Device and inode number of what it serves; if it does not say, of what its volume's path
    /// leads to.
    pub fn file(&self) -> Option<(u64, u64)> {
        let there = || rustix::fs::stat(&self.volume).ok().map(|stat| (stat.st_dev, stat.st_ino));
        self.serves().map(|served| served.file).or_else(there)
    }

    /// Whether its volume's path leads to another file than it says that it serves (`None`: it does
    /// not say): the file was removed or renamed, and a new one made.
    pub fn has_lost_its_file(&self, serves: Option<&Identity>) -> bool {
        let (Some(serves), Ok(there)) = (serves, rustix::fs::stat(&self.volume)) else {
            return false;
        };
        serves.file != (there.st_dev, there.st_ino)
    }

    /// Whether its path leads to it: nothing is mounted over it, and it is still there.
    pub fn is_on_top(&self) -> std::io::Result<bool> {
        let text = std::fs::read("/proc/self/mountinfo")?;
        let at_path = lines(&text).filter(|line| line.at == self.at);
        Ok(at_path.last().is_some_and(|top| (top.id, top.device) == (self.id, self.device)))
    }

    /// Whether something is mounted on it: at a directory in it, or over it.
    pub fn bears_others(&self) -> std::io::Result<bool> {
        let text = std::fs::read("/proc/self/mountinfo")?;
        Ok(lines(&text).any(|line| line.parent == self.id))
    }
}

/// The mounts of this process's name space, the oldest first. Bind mounts of their subdirectories
/// are not among them.
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
    let of_volume = |line: Line<'_>| {
        let Line { id, device, at, read_only, .. } = line;
        let is_volume = line.kind == TYPE.as_bytes() && line.root == b"/";
        is_volume.then(|| Mount { id, volume: path(line.source), at, device, read_only })
    };
    lines(text).filter_map(of_volume).collect()
}

/// A mount of whatever kind.
struct Line<'a> {
    id: u32,
    parent: u32,
    device: u64,
    root: &'a [u8],
    at: PathBuf,
    read_only: bool,
    kind: &'a [u8],
    source: &'a [u8],
}

fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line)
}

/// `ID PARENT MAJOR:MINOR ROOT AT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS`
fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut word = || std::str::from_utf8(fields.next()?).ok();
    let (id, parent) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let (major, minor) = word()?.split_once(':')?;
    let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
    let (root, at, options) = (fields.next()?, fields.next()?, fields.next()?);
    let read_only = options.split(|&byte| byte == b',').any(|option| option == b"ro");
    let kind = fields.by_ref().skip_while(|&field| field != b"-").nth(1)?;
    let source = fields.next()?;
    Some(Line { id, parent, device, root, at: path(at), read_only, kind, source })
}

fn path(text: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(text)))
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
            id: 90,
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
    fn reads_what_it_says() {
        let identity = Identity { file: (24, 1_234_567), uuid: "12-34".to_owned() };
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
        assert_eq!(Identity::parse("1"), None);
        assert_eq!(Identity::parse("1:x:12-34"), None);
    }

    #[test]
    fn names_descriptions() {
        let name = description_name(0x12_3456_789A);
        assert_eq!(description_of_name(&name), Some(0x12_3456_789A));
        assert_eq!(description_of_name(b".solera-description-12"), None);
        assert_eq!(description_of_name(b"file"), None);
    }
}
