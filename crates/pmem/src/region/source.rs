//! Finds out where a region's memory comes from, and what a fence promises on it.
//!
//! The class is detected, and never a better one assumed: `cache-line` needs a device-dax node or
//! an accepted `MAP_SYNC`; `byte` needs every nvdimm region of the machine to say `cpu_cache`.
//! `SOLERA_CLASS` or [`OpenOptions::force_class`] overrides what was found; the region says so in
//! its reason.

use crate::region::policy::Policy;
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, open};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What a fence promises on a region, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// eADR: a store is durable once a fence has passed; caches are flushed by the platform.
    Byte,
    /// ADR: a flushed or streamed line is durable once a fence has passed.
    CacheLine,
    /// Memory that outlives processes but not a reboot.
    Volatile,
    /// The page cache of a plain file: power loss may tear it between two `msync` calls.
    Page,
}

const CLASSES: [Class; 4] = [Class::Byte, Class::CacheLine, Class::Volatile, Class::Page];

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Class::Byte => "byte",
            Class::CacheLine => "cache-line",
            Class::Volatile => "volatile",
            Class::Page => "page",
        })
    }
}

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(word: &str) -> Result<Class, String> {
        let known = CLASSES.into_iter().find(|class| class.to_string() == word);
        known.ok_or_else(|| format!("{word} is not one of byte, cache-line, volatile, page"))
    }
}

/// What a file is opened as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A volume: that its file was cut is told on standard error, once, besides by errors.
    #[default]
    Volume,
    /// A file of a program's.
    File,
    /// The same, that may be empty and grows: what is kept for growth is mapped at once, and what
    /// it grows by is there without a call ([`crate::Region::grown`]).
    Growing,
}

/// How a region is to be opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Map for writing too; needs write permission.
    pub write: bool,
    /// Take this class whatever is detected. Goes before `SOLERA_CLASS`.
    pub force_class: Option<Class>,
    /// Flush and fence whatever memory it is: what emulates persistent memory.
    pub flushed: bool,
    /// Accept a plain file ([`Class::Page`]), which may be torn by a power loss.
    pub allow_page: bool,
    /// Address space to keep behind the region for growth, in bytes; none is kept where so much
    /// cannot be had.
    pub reserve: u64,
    /// What it is opened as.
    pub purpose: Purpose,
}

/// Why a region cannot be opened: what was asked for, what was found, and what to do.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    found: String,
    advice: String,
    errno: Errno,
}

impl OpenError {
    pub(crate) fn new(
        path: &Path,
        errno: Errno,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> OpenError {
        OpenError { path: path.to_owned(), found: found.into(), advice: advice.into(), errno }
    }

    /// Whether it is a plain file on an ordinary disk, which class `page` must be asked for by
    /// name.
    pub fn needs_class(&self) -> bool {
        self.errno == Errno::OPNOTSUPP
    }

    /// What was found, without the path.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// What to do.
    pub fn advice(&self) -> &str {
        &self.advice
    }

    /// The error number nearest to this error, for faces that can hand out only a number.
    pub fn errno(&self) -> Errno {
        self.errno
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "cannot use {} as the memory of a volume: {}; {}",
            self.path.display(),
            self.found,
            self.advice
        )
    }
}

impl std::error::Error for OpenError {}

/// What a path leads to.
pub(crate) struct Source {
    pub fd: OwnedFd,
    /// Device and inode number.
    pub file: (u64, u64),
    pub len: u64,
    /// A dax device, whose size is given.
    pub device: bool,
    /// The class that was found; `class` may be forced.
    pub found: Class,
    pub class: Class,
    pub reason: String,
    /// Flags every mapping of this source takes.
    pub flags: MapFlags,
    /// What the start of a mapping is made a multiple of.
    pub align: usize,
    /// What offset and length of any mapping must be multiples of.
    pub unit: u64,
}

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;
pub(crate) const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// 2 MiB: mappings start on a huge page, so that the kernel can use huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// What most files can be mapped by.
pub(crate) const PAGE: u64 = 4096;

/// The first bytes of a small file, such as an attribute in sysfs.
fn read_small(path: &str) -> Option<String> {
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; 128];
    let len = rustix::io::read(&fd, &mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..len]).trim().to_owned())
}

/// True if this machine has nvdimm regions and all of them are flushed by the platform at power
/// loss, caches included.
/// `nd` is the directory of nvdimm devices.
fn caches_are_durable(nd: &str) -> bool {
    let Ok(fd) = open(nd, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    else {
        return false;
    };
    let Ok(entries) = Dir::read_from(&fd) else { return false };
    let mut regions = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("region") {
            let domain = read_small(&format!("{nd}/{name}/persistence_domain"));
            if domain.as_deref() != Some("cpu_cache") {
                return false;
            }
            regions += 1;
        }
    }
    regions > 0
}

/// `byte` or `cache-line` for memory that is known to be mapped directly.
fn direct_class(how: &str) -> (Class, String) {
    if caches_are_durable("/sys/bus/nd/devices") {
        (Class::Byte, format!("{how}; every persistence_domain is cpu_cache"))
    } else {
        (Class::CacheLine, format!("{how}; caches are not durable"))
    }
}

/// True if the kernel grants `MAP_SYNC` on this file.
fn grants_map_sync(fd: BorrowedFd<'_>) -> bool {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a fresh mapping that is not accessed.
    let mapped = unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, flags, fd, 0) };
    match mapped {
        Ok(at) => {
            // SAFETY: the mapping made above; nothing points into it.
            let _ = unsafe { munmap(at, 4096) };
            true
        }
        Err(_) => false,
    }
}

/// The class of a regular file, by its file system, which `magic` names.
fn file_class(fd: BorrowedFd<'_>, magic: i64) -> (Class, String, MapFlags) {
    let name = match magic {
        TMPFS_MAGIC => "tmpfs or memfd",
        RAMFS_MAGIC => "ramfs",
        HUGETLBFS_MAGIC => "hugetlbfs",
        _ if grants_map_sync(fd) => {
            let (class, reason) = direct_class("MAP_SYNC granted");
            return (class, reason, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        }
        _ => {
            let reason = format!("a plain file without MAP_SYNC (file system {magic:#x})");
            return (Class::Page, reason, MapFlags::SHARED);
        }
    };
    (Class::Volatile, format!("{name}: memory that a reboot empties"), MapFlags::SHARED)
}

/// The class that the caller or the environment forces.
fn forced(path: &Path, options: &OpenOptions) -> Result<Option<(Class, &'static str)>, OpenError> {
    if let Some(class) = options.force_class {
        return Ok(Some((class, "by request")));
    }
    let Some(word) = std::env::var_os("SOLERA_CLASS") else { return Ok(None) };
    match word.to_string_lossy().parse() {
        Ok(class) => Ok(Some((class, "by SOLERA_CLASS"))),
        Err(wrong) => Err(OpenError::new(
            path,
            Errno::INVAL,
            format!("SOLERA_CLASS={wrong}"),
            "set it to one of these or unset it",
        )),
    }
}

/// What to say about a path that `open` refused.
pub(crate) fn explain_open(path: &Path, errno: Errno, write: bool) -> OpenError {
    let how = if write { "reading and writing" } else { "reading" };
    let (found, advice) = match errno {
        Errno::NOENT => ("there is no such file", "create it with `solera format`"),
        Errno::ISDIR => return no_region(path, FileType::Directory),
        Errno::NXIO if is_socket(path) => return no_region(path, FileType::Socket),
        Errno::NXIO => ("it is a node without a device", "name a file or a dax device"),
        Errno::ACCESS | Errno::PERM => {
            let found = format!("no permission for {how}");
            return OpenError::new(path, errno, found, "ask its owner, or change its mode");
        }
        Errno::ROFS => ("its file system is read-only", "remount it, or open it for reading"),
        _ => {
            let found = format!("opening it for {how} gave: {}", os::describe(errno));
            return OpenError::new(path, errno, found, "check the path and the system's limits");
        }
    };
    OpenError::new(path, errno, found, advice)
}

/// What to say about a path at which no file can be made.
pub(crate) fn explain_create(path: &Path, errno: Errno) -> OpenError {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if errno == Errno::NOENT => {
            let found = format!("the directory {} does not exist", parent.display());
            OpenError::new(path, errno, found, "make it (`mkdir -p`), or name another one")
        }
        _ => explain_open(path, errno, true),
    }
}

fn is_socket(path: &Path) -> bool {
    let kind = rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    kind == Ok(FileType::Socket)
}

/// The refusal of a file of a kind that regions cannot be.
fn no_region(path: &Path, kind: FileType) -> OpenError {
    let (errno, what, advice) = match kind {
        FileType::Directory => (Errno::ISDIR, "directory", "name the volume's file"),
        FileType::BlockDevice => {
            let advice = "use a file on a DAX mount of it, or reconfigure it as device-dax";
            (Errno::NODEV, "block device", advice)
        }
        FileType::Fifo => (Errno::NODEV, "fifo", "name the volume's file"),
        FileType::Socket => (Errno::NODEV, "socket", "name the volume's file"),
        _ => (Errno::NODEV, "thing of another kind", "name the volume's file"),
    };
    let found = format!("it is a {what}, and a volume is a file or a dax device");
    OpenError::new(path, errno, found, advice)
}

/// Opens a file or a device for reading only.
pub fn open_to_read(path: &Path) -> Result<OwnedFd, OpenError> {
    open_path(path, false)
}

/// The kind of an open file; refused if no region can be of that kind.
pub(crate) fn region_kind(path: &Path, fd: &OwnedFd) -> Result<(FileType, Stat), OpenError> {
    let stat = fstat(fd).map_err(|errno| {
        OpenError::new(path, errno, "its kind cannot be read", "check the path")
    })?;
    match FileType::from_raw_mode(stat.st_mode) {
        kind @ (FileType::RegularFile | FileType::CharacterDevice) => Ok((kind, stat)),
        kind => Err(no_region(path, kind)),
    }
}

/// The class that a region is taken for, without mapping it.
pub fn class_of(path: &Path) -> Result<Class, OpenError> {
    let options = OpenOptions { allow_page: true, ..OpenOptions::default() };
    Ok(probe(path, open_path(path, false)?, &options)?.class)
}

/// What a region is taken for, and what its stores need, without mapping it.
pub fn policy_of(path: &Path) -> Result<(Class, Policy), OpenError> {
    let options = OpenOptions { allow_page: true, ..OpenOptions::default() };
    let source = probe(path, open_path(path, false)?, &options)?;
    Ok((source.class, Policy::of(source.found, source.class)))
}

/// Opens a path without following it into something that blocks.
pub(crate) fn open_path(path: &Path, write: bool) -> Result<OwnedFd, OpenError> {
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    open(path, flags, Mode::empty()).map_err(|errno| explain_open(path, errno, write))
}

/// Whether `path` is a plain file on an ordinary disk, and no option or variable accepts that: a
/// process that writes there must ask for class `page`.
pub fn needs_class(path: &Path) -> bool {
    let probed = open_path(path, false).and_then(|fd| probe(path, fd, &OpenOptions::default()));
    probed.is_err_and(|error| error.needs_class())
}

/// Finds out what an open file is and which class it has.
pub(crate) fn probe(path: &Path, fd: OwnedFd, options: &OpenOptions) -> Result<Source, OpenError> {
    let fail = |errno, found: &str, advice: &str| Err(OpenError::new(path, errno, found, advice));
    let (kind, stat) = region_kind(path, &fd)?;
    let device = kind == FileType::CharacterDevice;
    let (len, (mut class, mut reason, flags), unit) = if device {
        let sys = format!(
            "/sys/dev/char/{}:{}",
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev)
        );
        let number = |name| read_small(&format!("{sys}/{name}")).and_then(|n| n.parse().ok());
        let (Some(len), Some(align)) = (number("size"), number("align")) else {
            let advice = "name a /dev/daxX.Y made by `ndctl create-namespace -m devdax`";
            return fail(Errno::NODEV, "it is a device, but not a dax device", advice);
        };
        let (class, reason) = direct_class("device-dax");
        (len, (class, reason, MapFlags::SHARED), align)
    } else {
        let system = fstatfs(&fd).ok();
        // The block size of hugetlbfs is its page size, 2 MiB or 1 GiB.
        let huge = system.filter(|found| found.f_type == HUGETLBFS_MAGIC);
        let unit = huge.map_or(PAGE, |found| found.f_bsize as u64);
        let magic = system.map_or(0, |found| found.f_type);
        (stat.st_size as u64, file_class(fd.as_fd(), magic), unit)
    };
    let (found, mut allow_page) = (class, options.allow_page);
    if let Some((wanted, by)) = forced(path, options)? {
        reason = format!("forced {by}; found {class}: {reason}");
        class = wanted;
        allow_page = true;
    }
    if class == Class::Page && !allow_page {
        let advice = "use tmpfs, a DAX mount or a dax device, or ask for class `page` by name \
                      (`--class page`, or SOLERA_CLASS=page)";
        return fail(Errno::OPNOTSUPP, &format!("{reason}, which a power loss may tear"), advice);
    }
    let align = (unit as usize).max(HUGE_PAGE);
    let file = (stat.st_dev, stat.st_ino);
    Ok(Source { fd, file, len, device, found, class, reason, flags, align, unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of devices as sysfs shows it: names, and what their `persistence_domain` says.
    fn devices(name: &str, entries: &[(&str, &str)]) -> PathBuf {
        let root = PathBuf::from(format!("/dev/shm/solera-nd-{name}-{}", std::process::id()));
        for (device, domain) in entries {
            std::fs::create_dir_all(root.join(device)).unwrap();
            std::fs::write(root.join(device).join("persistence_domain"), domain).unwrap();
        }
        root
    }

    #[test]
    fn caches_are_durable_only_if_every_region_says_so() {
        let durable = |name, entries: &[(&str, &str)]| {
            let root = devices(name, entries);
            let durable = caches_are_durable(root.to_str().unwrap());
            let _ = std::fs::remove_dir_all(root);
            durable
        };
        let (caches, controller) = ("cpu_cache\n", "memory_controller\n");
        assert!(durable("all", &[("region0", caches), ("region1", caches)]));
        assert!(!durable("one", &[("region0", caches), ("region1", controller)]));
        assert!(!durable("unknown", &[("region0", "\n")]));
        assert!(!durable("no-region", &[("nmem0", caches)]));
        assert!(!durable("absent", &[]));
    }

    #[test]
    fn a_refused_open_says_what_was_asked_for() {
        let said = |errno, write| explain_open(Path::new("v"), errno, write).to_string();
        let denied = "cannot use v as the memory of a volume: no permission for reading and \
                      writing; ask its owner, or change its mode";
        assert_eq!(said(Errno::ACCESS, true), denied);
        assert!(said(Errno::PERM, false).contains("no permission for reading;"));
        assert!(said(Errno::ROFS, true).contains("read-only"));
        assert!(said(Errno::MFILE, true).contains("for reading and writing gave: "));
    }
}
