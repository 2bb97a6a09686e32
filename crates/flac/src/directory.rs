//! Where a cache lies: a directory for each volume, in it one for each era.
//!
//! `/run/solera/UUID/cache`, if somebody has made that (`solera cache create`: a tmpfs with huge
//! pages), else `/dev/shm/solera-cache-UUID`, which the first process makes. It must be the
//! process's own user's or the volume's owner's, and nobody else may write to it.
//!
//! An era's directory has its name, and holds `index` and the segments. The first process of an era
//! that knows the cache gets the directory of the era before, if that one ended in order: it takes
//! the index over, then renames the directory. A process has a shared lock on `index`; what nobody
//! has locked, and is of another era, goes.
//!
//! A process may die between any two steps: an index that was taken over and not renamed is never
//! taken over again, and a directory that was not finished has a name of its own.

use crate::index::Index;
use crate::inject::{Bug, injected};
use crate::layout::{GRANULE, Layout};
use crate::segments;
use os::InternalFd;
use pmem::{Class, OpenOptions, Purpose, Region};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use vfs::versions::Eras;

/// The name of the index in an era's directory.
const INDEX: &str = "index";
/// Where `solera cache create` makes directories.
const MADE: &str = "/run/solera";
/// Where a process makes one itself.
const SHARED: &str = "/dev/shm";
/// How the directory is called that a process makes itself, before the UUID.
const OWN: &str = "solera-cache-";
/// A text of the kernel's, another one in each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How a directory is called that is being made.
const NEW: &str = "new-";
/// How often an index is looked for that is just being made or removed.
const TRIES: usize = 16;
/// A directory that is being made is left alone for so long, in seconds.
const PATIENCE: u64 = 10;

/// Why there is no cache: a sentence.
pub type Refusal = String;

/// Who and what a cache is for.
#[derive(Clone, Debug)]
pub struct VolumeId {
    /// The volume's, in its usual form.
    pub uuid: String,
    /// The owner of the volume's file.
    pub owner: u32,
}

/// An era's directory, in use.
pub(crate) struct Directory {
    /// It itself.
    pub(crate) fd: InternalFd,
    /// Its index, locked.
    pub(crate) lock: InternalFd,
}

/// The directory of a volume's cache: what was asked for, or the one that is there.
#[must_use]
pub fn place(whose: &VolumeId, asked: Option<&Path>) -> PathBuf {
    let made = made(whose);
    if asked.is_none() && is_dir(&made) { made } else { below(asked, &whose.uuid) }
}

/// The directory that a process makes itself.
fn below(asked: Option<&Path>, uuid: &str) -> PathBuf {
    asked.unwrap_or(Path::new(SHARED)).join(format!("{OWN}{uuid}"))
}

/// All directories that the caches of a volume have: what programs have made before `solera cache
/// create` stays beside what that makes. The one that is used comes first.
pub fn places(whose: &VolumeId, asked: Option<&Path>) -> Result<Vec<PathBuf>, Refusal> {
    let own = below(asked, &whose.uuid);
    let mut all = if asked.is_none() { vec![made(whose), own] } else { vec![own] };
    all.retain(|place| is_dir(place));
    if all.is_empty() {
        let place = place(whose, asked);
        return Err(format!(
            "there is no cache in {}; `solera run --cache SIZE` makes one",
            place.display()
        ));
    }
    Ok(all)
}

/// The caches that are there, of all volumes, those that are gone as well: their UUIDs and where
/// they lie.
pub(crate) fn everywhere(asked: Option<&Path>) -> Vec<(String, PathBuf)> {
    let names_of = |dir: &Path| {
        let dir = open_dir(rustix::fs::CWD, dir).ok();
        dir.and_then(|dir| names(dir.as_fd()).ok()).unwrap_or_default()
    };
    let mut all = Vec::new();
    let own = asked.unwrap_or(Path::new(SHARED));
    for name in names_of(own) {
        if let Some(uuid) = name.strip_prefix(OWN).filter(|uuid| is_uuid(uuid)) {
            all.push((uuid.to_owned(), own.join(&name)));
        }
    }
    let made = if asked.is_none() { names_of(Path::new(MADE)) } else { Vec::new() };
    for uuid in made.into_iter().filter(|uuid| is_uuid(uuid)) {
        let place = Path::new(MADE).join(&uuid).join("cache");
        if is_dir(&place) {
            all.push((uuid, place));
        }
    }
    all.sort();
    all
}

/// Whether a text is a UUID in its usual form.
#[must_use]
pub fn is_uuid(text: &str) -> bool {
    let parts = text.split('-').map(str::len);
    let is_plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    parts.eq([8, 4, 4, 4, 12]) && text.bytes().all(is_plain)
}

/// Whether a directory, or where it is to be made, is memory: on a disk a cache would only be a
/// slower copy of the volume.
#[must_use]
pub fn is_memory(place: &Path) -> bool {
    let found = place.ancestors().find_map(|place| rustix::fs::statfs(place).ok());
    found.is_some_and(|found| found.f_type == libc::TMPFS_MAGIC || found.f_type == RAMFS_MAGIC)
}

/// Of a file system like tmpfs, without a limit.
const RAMFS_MAGIC: i64 = 0x8584_58F6;

/// Where `solera cache create` makes a volume's.
#[must_use]
pub fn made(whose: &VolumeId) -> PathBuf {
    Path::new(MADE).join(&whose.uuid).join("cache")
}

fn is_dir(path: &Path) -> bool {
    let found = rustix::fs::stat(path);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

/// Opens a directory; not what a link leads to.
fn open_dir(at: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// What a refusal says of an errno.
fn told(path: &Path, errno: Errno) -> Refusal {
    format!("the cache's directory {}: {}", path.display(), os::describe(errno))
}

/// Opens the directory of the volume's cache, making it if it is not there.
pub(crate) fn open_place(whose: &VolumeId, path: &Path) -> Result<OwnedFd, Refusal> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        // Where one may not write there may be one all the same.
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) if is_dir(path) => {}
        Err(errno) => return Err(told(path, errno)),
    }
    if !is_memory(path) {
        // An empty one that was just made: of another's nothing goes.
        let _ = rustix::fs::rmdir(path);
        return Err(format!(
            "the cache's directory {} is on no tmpfs; choose one that is by --cache-dir",
            path.display()
        ));
    }
    let dir = open_dir(rustix::fs::CWD, path).map_err(|errno| told(path, errno))?;
    let found = rustix::fs::fstat(&dir).map_err(|errno| told(path, errno))?;
    let own = rustix::process::geteuid().as_raw();
    if found.st_uid != own && found.st_uid != whose.owner {
        return Err(format!(
            "the cache's directory {} belongs to user {}, the volume to user {}; remove it, or \
             choose another place by --cache-dir",
            path.display(),
            found.st_uid,
            whose.owner
        ));
    }
    if found.st_mode & 0o022 != 0 {
        return Err(format!(
            "others may write to the cache's directory {} (mode {:03o}); make it 700",
            path.display(),
            found.st_mode & 0o777
        ));
    }
    Ok(dir)
}

/// The name of an era's directory.
fn era_name(era: u64) -> PathBuf {
    PathBuf::from(format!("{era:016x}"))
}

/// Opens the index in an era's directory, and says which file it is.
fn open_index(dir: BorrowedFd<'_>) -> Result<(OwnedFd, Stat), Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let index = rustix::fs::openat(dir, INDEX, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&index)?;
    Ok((index, stat))
}

/// Maps an index that was opened.
fn map(index: &OwnedFd, path: &Path) -> Result<Region, Refusal> {
    // Whatever lies beneath: nothing in it is meant to last.
    let options = OpenOptions {
        write: true,
        force_class: Some(Class::Volatile),
        purpose: Purpose::File,
        ..OpenOptions::default()
    };
    let own = index.try_clone().map_err(|error| format!("the cache's index: {error}"))?;
    Region::adopt(own, &path.join(INDEX), &options).map_err(|error| error.to_string())
}

/// A number for the boot of this machine.
pub(crate) fn boot() -> u64 {
    let mut id = [0; 36];
    let file = rustix::fs::open(BOOT_ID, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    // Without it, eras tell all the same.
    let _ = file.and_then(|file| rustix::io::read(&file, &mut id));
    u64::from(pmem::checksum(0, &id)) | 1 << 32
}

/// Opens the era's directory and its index, whoever has made it; takes over or makes one if there
/// is none.
pub(crate) fn open(
    whose: &VolumeId,
    place: &Path,
    eras: Eras,
    budget: u64,
) -> Result<(Directory, Index), Refusal> {
    let all = open_place(whose, place)?;
    let name = era_name(eras.now);
    let path = place.join(&name);
    let boot = boot();
    for _ in 0..TRIES {
        match open_dir(all.as_fd(), &name) {
            Ok(dir) => {
                if let Some(found) = join(dir, &path, eras, boot)? {
                    return Ok(found);
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(told(&path, errno)),
        }
        let take = |era| take_over((&all, place), era, boot, &name);
        let mut taken = eras.before.is_some_and(take);
        if injected(Bug::EraSkipped) {
            let any = names(all.as_fd()).unwrap_or_default();
            let any = any.iter().filter_map(|name| segments::era(name));
            taken |= any.into_iter().any(take);
        }
        if !taken {
            make(&all, budget, boot, &name).map_err(|errno| told(&path, errno))?;
        }
        sweep(&all, &name);
    }
    Err(format!("the cache's directory {} changes all the time", path.display()))
}

/// Uses an era's directory. `None`: it is being removed.
fn join(
    dir: OwnedFd,
    path: &Path,
    eras: Eras,
    boot: u64,
) -> Result<Option<(Directory, Index)>, Refusal> {
    let (index, stat) = match open_index(dir.as_fd()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(told(path, errno)),
    };
    if rustix::fs::flock(&index, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(None);
    }
    if !matches!(rustix::fs::statat(&dir, INDEX, AtFlags::SYMLINK_NOFOLLOW),
        Ok(now) if (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino))
    {
        return Ok(None);
    }
    let mapped = map(&index, path).ok();
    let found = mapped.and_then(|region| Index::open(region, eras.now, boot));
    let found = found.ok_or_else(|| {
        format!(
            "the cache's index in {} is damaged; `solera cache drop` makes a new one",
            path.display()
        )
    })?;
    let directory = Directory { fd: InternalFd::new(dir), lock: InternalFd::new(index) };
    Ok(Some((directory, found)))
}

/// Makes the directory of the era before that of this one, if that ended in order.
fn take_over((all, place): (&OwnedFd, &Path), before: u64, boot: u64, name: &Path) -> bool {
    let old = era_name(before);
    let take = || -> Option<()> {
        let dir = open_dir(all.as_fd(), &old).ok()?;
        let (index, _) = open_index(dir.as_fd()).ok()?;
        // Nobody else uses it, and nobody sweeps it away meanwhile.
        rustix::fs::flock(&index, FlockOperation::NonBlockingLockExclusive).ok()?;
        let found = Index::open(map(&index, place).ok()?, before, boot)?;
        if !found.take_over().ok()? {
            return None;
        }
        rustix::fs::renameat_with(all, &old, all, name, RenameFlags::NOREPLACE).ok()
    };
    take().is_some()
}

/// Whether the process may make files so long: the kernel takes `RLIMIT_FSIZE` for those of the
/// cache too, and would send the program a signal.
pub(crate) fn may_grow(length: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.is_none_or(|most| most >= length)
}

/// Makes an empty one. Somebody else may have done so meanwhile.
fn make(all: &OwnedFd, budget: u64, boot: u64, name: &Path) -> Result<(), Errno> {
    let mut random = [0; 24];
    let mut done = 0;
    while done < random.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        done += rustix::rand::getrandom(&mut random[done..], flags)?;
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| random[at * 8 + byte]));
    let new = PathBuf::from(format!("{NEW}{:016x}", word(2)));
    rustix::fs::mkdirat(all, &new, Mode::from_raw_mode(0o700))?;
    let fill = || {
        let dir = open_dir(all.as_fd(), &new)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, INDEX, flags, Mode::from_raw_mode(0o600))?;
        let layout = Layout::of_budget(budget);
        if !may_grow(layout.length()) {
            return Err(Errno::FBIG);
        }
        rustix::fs::ftruncate(&file, layout.length())?;
        let empty = Index::empty(layout, [word(0), word(1)], boot);
        if rustix::io::pwrite(&file, &empty, 0)? < empty.len() {
            return Err(Errno::NOSPC);
        }
        rustix::fs::renameat_with(all, &new, all, name, RenameFlags::NOREPLACE)
    };
    let filled = fill();
    if filled.is_err() {
        remove(all, &new);
    }
    match filled {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Removes what is of other eras and nobody uses.
fn sweep(all: &OwnedFd, own: &Path) {
    let Ok(entries) = names(all.as_fd()) else { return };
    for name in entries.iter().map(Path::new).filter(|&name| name != own) {
        let unused = match open_dir(all.as_fd(), name).and_then(|dir| open_index(dir.as_fd())) {
            Ok((index, _)) => {
                rustix::fs::flock(&index, FlockOperation::NonBlockingLockExclusive).is_ok()
            }
            Err(Errno::NOENT) => is_old(all.as_fd(), name, PATIENCE),
            Err(_) => false,
        };
        if unused {
            remove(all, name);
        }
    }
}

/// Whether a file was changed last more than so many seconds ago.
fn is_old(dir: BorrowedFd<'_>, name: &Path, seconds: u64) -> bool {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let Ok(now) = now.map(|now| now.as_secs()) else { return false };
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| (stat.st_mtime as u64).saturating_add(seconds) < now)
}

/// What is in a directory.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes an era's directory with all that is in it: index last, so that a sweep finds it.
pub(crate) fn remove(all: &OwnedFd, name: &Path) {
    let Ok(dir) = open_dir(all.as_fd(), name) else { return };
    for file in names(dir.as_fd()).unwrap_or_default() {
        if file != INDEX {
            let _ = rustix::fs::unlinkat(&dir, &file, AtFlags::empty());
        }
    }
    let _ = rustix::fs::unlinkat(&dir, INDEX, AtFlags::empty());
    // What was made meanwhile keeps it, for another sweep.
    let _ = rustix::fs::unlinkat(all, name, AtFlags::REMOVEDIR);
}

/// The eras that have a directory, with their indexes.
pub(crate) fn eras(all: &OwnedFd, place: &Path) -> Vec<(PathBuf, OwnedFd, Option<Index>)> {
    let mut found = Vec::new();
    let boot = boot();
    for name in names(all.as_fd()).unwrap_or_default() {
        let Some(era) = segments::era(&name) else { continue };
        let Ok(dir) = open_dir(all.as_fd(), Path::new(&name)) else { continue };
        let index = open_index(dir.as_fd())
            .ok()
            .and_then(|(index, _)| Index::open(map(&index, place).ok()?, era, boot));
        found.push((PathBuf::from(name), dir, index));
    }
    found
}

impl Directory {
    /// Whether a segment is so old that nobody is making it, or gone.
    pub(crate) fn is_old(&self, number: u64) -> bool {
        let name = segments::name(number);
        let there = rustix::fs::statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        !there || is_old(self.fd.as_fd(), Path::new(&name), PATIENCE)
    }

    /// Removes the segments that nobody names, and are so old that nobody is making them. Gives the
    /// bytes of the budget that the others take, as the file system counts them.
    pub(crate) fn sweep(&self, named: &[u64]) -> Option<u64> {
        let mut bytes = 0;
        for file in names(self.fd.as_fd()).ok()? {
            let Some(number) = segments::number(file.as_bytes()) else { continue };
            let unnamed = named.binary_search(&number).is_err();
            if unnamed && is_old(self.fd.as_fd(), Path::new(&file), PATIENCE) {
                let _ = rustix::fs::unlinkat(&self.fd, &file, AtFlags::empty());
            } else if let Ok(stat) = rustix::fs::statat(&self.fd, &file, AtFlags::SYMLINK_NOFOLLOW)
            {
                bytes += (stat.st_blocks as u64 * 512).next_multiple_of(GRANULE);
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{everywhere, is_memory, is_uuid};
    use std::path::Path;

    /// A UUID becomes a part of a path, and what is found there is removed.
    #[test]
    fn only_a_uuid_is_one() {
        assert!(is_uuid("0123abcd-4567-89ef-0000-0123456789ab"));
        for text in [
            "",
            "0123abcd",
            "0123abcd-4567-89ef-0000-0123456789a",
            "0123abcd-4567-89ef-0000-0123456789ag",
            "0123ABCD-4567-89ef-0000-0123456789ab",
            "0123abcd-4567-89ef-0000-0123456789ab-",
            "../../..-....-....-....-............",
        ] {
            assert!(!is_uuid(text), "{text}");
        }
    }

    #[test]
    fn caches_lie_in_memory() {
        assert!(is_memory(Path::new("/dev/shm/not/there/yet")));
        assert!(!is_memory(Path::new("/proc")) && !is_memory(Path::new("/proc/none")));
        assert_eq!(everywhere(Some(Path::new("/proc"))), []);
        assert_eq!(everywhere(Some(Path::new("/dev/shm/not/there"))), []);
    }
}
