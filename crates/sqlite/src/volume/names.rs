//! Names of files on volumes: `VOLUME:/path`.
//!
//! A database is named so by itself, or by its parameter `volume`, or by a path below a mount of
//! the volume. The parameter is looked for in the name that is made a full one, and nowhere else:
//! there SQLite gives the name with its parameters behind.
//!
//! A local name costs a search for `:/`, and once, when it is made a full one, a `statfs` of its
//! directory.
//!
//! Locks: `MET`, under which no volume is attached or left.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flex::volumes::{self, Names};
use flex::{Error, Result};
use rustix::io::Errno;

const FUSE_MAGIC: i64 = 0x6573_5546;
/// Symlinks that a name may go by.
const LINKS: usize = 40;

/// Where a name leads to.
pub enum FileName {
    /// Nowhere on a volume.
    Local,
    /// To a volume that `solera run` shows at this path.
    Shown(CString),
    /// To this path below the volume's root.
    Volume(Arc<dyn Names>, PathBuf),
}

/// A full name.
pub enum FullName {
    /// `VOLUME:/path`.
    Volume(CString),
    /// A path of the process's, not yet a full one.
    Shown(CString),
}

/// A volume that was met.
struct Met {
    name: PathBuf,
    names: Weak<dyn Names>,
    /// Until a file on it is opened.
    kept: Option<Arc<dyn Names>>,
    /// The name leads to no file.
    given: bool,
}

static MET: Mutex<Vec<Met>> = Mutex::new(Vec::new());

/// The volume of a name that was met, if it is there yet.
fn met(name: &Path) -> Option<Arc<dyn Names>> {
    let all = MET.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().find(|met| met.name == name)?;
    found.names.upgrade().filter(|names| names.is_here())
}

/// The root of a volume, attached if it is not yet.
fn meet(name: &Path) -> Result<Arc<dyn Names>> {
    if let Some(names) = met(name) {
        return Ok(names);
    }
    // What panics there has attached nothing.
    let found = catch_unwind(AssertUnwindSafe(|| volumes::find(name, true)));
    let names = found.unwrap_or(Ok(None))?.ok_or_else(|| {
        let why = format!("{} is no volume", name.display());
        Error::System(why, Errno::NOTDIR)
    })?;
    let fresh = Met {
        name: name.to_owned(),
        names: Arc::downgrade(&names),
        kept: Some(Arc::clone(&names)),
        given: false,
    };
    keep(fresh);
    Ok(names)
}

/// Gives a volume a name that leads to no file, instead of what had it: for tests.
pub fn show(name: &Path, names: &Arc<dyn Names>) {
    keep(Met { name: name.to_owned(), names: Arc::downgrade(names), kept: None, given: true });
}

/// Whether a name was given.
fn is_given(name: &Path) -> bool {
    let all = MET.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().any(|met| met.given && met.name == name)
}

fn keep(fresh: Met) {
    let mut all = MET.lock().unwrap_or_else(PoisonError::into_inner);
    // What it takes the place of is dropped behind the lock.
    let old = if let Some(at) = all.iter().position(|met| met.name == fresh.name) {
        Some(std::mem::replace(&mut all[at], fresh))
    } else {
        all.push(fresh);
        None
    };
    drop(all);
    drop(old);
}

/// A file of the volume is open, or cannot be: it keeps the volume, or nothing does.
pub fn opened(names: &Arc<dyn Names>) {
    let mut all = MET.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |met: &&mut Met| met.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, names));
    let kept = all.iter_mut().find(is_it).and_then(|met| met.kept.take());
    drop(all);
    drop(kept);
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn c_string(bytes: Vec<u8>) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::Invalid("a NUL stands in the name"))
}

/// The volume that a name begins with, and the path behind it. What exists as a whole is local.
fn split(name: &[u8]) -> Option<(&Path, &[u8])> {
    let mut colons = name.iter().enumerate().filter(|&(_, &byte)| byte == b':');
    let at = colons.find(|&(at, _)| name.get(at + 1) == Some(&b'/'))?.0;
    if at == 0 {
        return None;
    }
    let (volume, path) = (path_of(&name[..at]), &name[at + 1..]);
    if met(volume).is_some() {
        return Some((volume, path));
    }
    if path_of(name).symlink_metadata().is_ok() {
        return None;
    }
    let may_be = volume.metadata().is_ok_and(|found| !found.is_dir());
    may_be.then_some((volume, path))
}

/// A volume, or nothing where there is none.
fn meet_if_any(volume: &Path) -> Result<Option<Arc<dyn Names>>> {
    match meet(volume) {
        Err(Error::System(_, Errno::NOTDIR)) => Ok(None),
        met => met.map(Some),
    }
}

/// Where a full name leads to.
pub fn file_name(name: &[u8]) -> Result<FileName> {
    let Some((volume, path)) = split(name) else { return Ok(FileName::Local) };
    let Some(names) = meet_if_any(volume)? else { return Ok(FileName::Local) };
    if let Some(at) = names.shown_at() {
        return shown(at, path).map(FileName::Shown);
    }
    Ok(FileName::Volume(names, below(path).into()))
}

/// A path from the root, as one below it.
fn below(path: &[u8]) -> OsString {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    OsString::from_vec(path[start..].to_vec())
}

fn shown(at: &Path, path: &[u8]) -> Result<CString> {
    c_string(at.join(below(path)).into_os_string().into_vec())
}

/// The full name of a name of SQLite's. `None`: it leads to no volume, as far as it says itself.
///
/// # Safety
///
/// A string that SQLite's pager gives to `xFullPathname`: parameters follow it, each a string with
/// its value behind, and an empty one ends them.
pub unsafe fn full_name(name: *const c_char) -> Result<Option<FullName>> {
    // SAFETY: the caller's promise.
    let (text, volume) = unsafe { (CStr::from_ptr(name).to_bytes(), parameter(name, b"volume")) };
    if let Some(volume) = volume {
        let volume = path_of(volume.to_bytes());
        return full(volume, text).map(Some);
    }
    let Some((volume, path)) = split(text) else { return Ok(None) };
    if meet_if_any(volume)?.is_none() {
        return Ok(None);
    }
    full(volume, path).map(Some)
}

/// The value of a parameter.
///
/// # Safety
///
/// As [`full_name`].
unsafe fn parameter<'n>(name: *const c_char, key: &[u8]) -> Option<&'n CStr> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = name.add(CStr::from_ptr(name).count_bytes() + 1);
        while *at != 0 {
            let found = CStr::from_ptr(at);
            let value = CStr::from_ptr(at.add(found.count_bytes() + 1));
            if found.to_bytes() == key {
                return Some(value);
            }
            at = value.as_ptr().add(value.count_bytes() + 1);
        }
    }
    None
}

/// The full name of a path on a volume: the volume by its own path, symlinks resolved, since a
/// database's journal lies beside the database itself.
fn full(volume: &Path, path: &[u8]) -> Result<FullName> {
    let own = if is_given(volume) { Ok(volume.to_owned()) } else { std::fs::canonicalize(volume) };
    let own = own.map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Error::System(format!("cannot find the volume {}: {error}", volume.display()), errno)
    })?;
    let names = meet(&own)?;
    if let Some(at) = names.shown_at() {
        return shown(at, path).map(FullName::Shown);
    }
    let mut path = plain(path_of(path));
    for _ in 0..LINKS {
        match names.read_link(&path) {
            // A path from the root replaces what it is joined to.
            Ok(target) => path = plain(&path.parent().unwrap_or(Path::new("")).join(target)),
            Err(_) => break,
        }
    }
    let name = [own.as_os_str().as_bytes(), b":/", path.as_os_str().as_bytes()].concat();
    c_string(name).map(FullName::Volume)
}

/// A path below the root, without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => plain.push(name),
            std::path::Component::ParentDir => {
                plain.pop();
            }
            _ => {}
        }
    }
    plain
}

/// Whether a full local path may lie in a mount of a volume.
///
/// # Safety
///
/// A string.
pub unsafe fn may_be_mounted(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let path = path_of(unsafe { CStr::from_ptr(path) }.to_bytes());
    let directory = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type == FUSE_MAGIC)
}

/// The full name of a local path that lies in a mount of a volume. `None`: it lies in none.
pub fn of_mount(path: &[u8]) -> Result<Option<FullName>> {
    let path = path_of(path);
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let found = catch_unwind(AssertUnwindSafe(|| volumes::mounted(directory)));
    let Some((volume, inside)) = found.unwrap_or(Ok(None))? else { return Ok(None) };
    let inside = inside.join(name);
    full(&volume, inside.as_os_str().as_bytes()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found() {
        let name = b"/my.db\0mode\0rwc\0volume\0/dev/shm/v.pm\0\0";
        let none = b"/my.db\0volumes\0volume\0\0";
        let bare = b"/my.db\0\0";
        // SAFETY: as SQLite lays them out.
        unsafe {
            let found = parameter(name.as_ptr().cast(), b"volume");
            assert_eq!(found, Some(c"/dev/shm/v.pm"));
            assert_eq!(parameter(none.as_ptr().cast(), b"volume"), None);
            assert_eq!(parameter(bare.as_ptr().cast(), b"volume"), None);
        }
    }

    #[test]
    fn local_names_stay_local() {
        for name in ["/tmp/my.db", "/tmp/no.pm:/my.db", ":/my.db", "my.db", "/tmp:/my.db"] {
            assert!(matches!(file_name(name.as_bytes()), Ok(FileName::Local)), "{name}");
        }
    }

    #[test]
    fn paths_are_made_plain() {
        for (path, made) in [("/a/./b//c", "a/b/c"), ("a/../../b", "b"), ("/", ""), ("c", "c")] {
            assert_eq!(plain(Path::new(path)), Path::new(made));
        }
    }
}
