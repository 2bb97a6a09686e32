//! Names of files that lead through symbolic links, and what directories hold. The functions of
//! `std` for these ask the C library, which allocates in the program's heap.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// How many symbolic links one path leads through, as for the kernel.
const LINKS_MAX: usize = 40;

/// Sets a file's size by its path (`truncate`).
///
/// # Errors
///
/// What the kernel says; `ENAMETOOLONG` for a path with a NUL.
pub fn truncate(path: &[u8], size: u64) -> Result<(), Errno> {
    let path = CString::new(path).map_err(|_| Errno::NAMETOOLONG)?;
    let size = usize::try_from(size).map_err(|_| Errno::FBIG)?;
    let arguments = [path.as_ptr() as usize, size, 0, 0, 0, 0];
    // SAFETY: a text that lives until the call's end.
    unsafe { crate::interrupt::system_call(libc::SYS_truncate, arguments) }.map(drop)
}

/// The absolute path of what is there, without symbolic links, `.` and `..`
/// (`std::fs::canonicalize`).
///
/// # Errors
///
/// What the kernel says of a path that leads to nothing: `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut rest: VecDeque<OsString> = components(path);
    let mut real = if path.is_absolute() { PathBuf::from("/") } else { working_directory()? };
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        real.push(name);
        match rustix::fs::readlink(&real, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                real.pop();
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                for name in components(&target).into_iter().rev() {
                    rest.push_front(name);
                }
            }
            // It is there, and no link.
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !rest.is_empty() && !is_directory(&real)? {
            return Err(Errno::NOTDIR.into());
        }
    }
    if path.as_os_str().as_bytes().ends_with(b"/") && !is_directory(&real)? {
        return Err(Errno::NOTDIR.into());
    }
    Ok(real)
}

fn is_directory(path: &Path) -> io::Result<bool> {
    let found = rustix::fs::stat(path)?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

/// The names in a path; of a link's target and of a path, no root and no `.`.
fn components(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

fn working_directory() -> io::Result<PathBuf> {
    let path = rustix::process::getcwd(Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

/// The names in a directory, without `.` and `..`, in no order (`std::fs::read_dir`).
///
/// # Errors
///
/// What the kernel says where it cannot be opened or read.
pub fn names_in(directory: &Path) -> io::Result<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = Dir::new(rustix::fs::open(directory, flags, Mode::empty())?)?;
    let mut names = Vec::new();
    for entry in opened {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Removes a directory and all that is in it (`std::fs::remove_dir_all`). Links are not followed.
///
/// # Errors
///
/// What the kernel says of the first entry that cannot be removed.
pub fn remove_all(directory: &Path) -> io::Result<()> {
    for name in names_in(directory)? {
        let entry = directory.join(name);
        match rustix::fs::unlink(&entry) {
            Err(Errno::ISDIR) => remove_all(&entry)?,
            removed => removed?,
        }
    }
    Ok(rustix::fs::rmdir(directory)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_removed_and_what_links_lead_to_is_not() {
        let at = std::env::temp_dir().join(format!("solera-tree-{}", std::process::id()));
        fs::create_dir_all(at.join("gone/a/b")).unwrap();
        fs::create_dir_all(at.join("kept")).unwrap();
        fs::write(at.join("kept/file"), "").unwrap();
        fs::write(at.join("gone/a/file"), "").unwrap();
        symlink(at.join("kept"), at.join("gone/a/b/link")).unwrap();
        remove_all(&at.join("gone")).unwrap();
        assert!(!at.join("gone").exists() && at.join("kept/file").exists());
        assert_eq!(remove_all(&at.join("gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(at).unwrap();
    }

    #[test]
    fn real_paths_are_those_of_the_standard_library() {
        let at = std::env::temp_dir().join(format!("solera-paths-{}", std::process::id()));
        fs::create_dir_all(at.join("a/b")).unwrap();
        fs::write(at.join("a/file"), "").unwrap();
        symlink("a/b", at.join("relative")).unwrap();
        symlink(at.join("a"), at.join("absolute")).unwrap();
        symlink("absolute/../relative/../file", at.join("far")).unwrap();
        symlink("itself", at.join("itself")).unwrap();
        symlink("nowhere", at.join("dangling")).unwrap();
        for path in [
            "",
            ".",
            "a",
            "a/",
            "a/./b/..",
            "relative",
            "relative/..",
            "absolute/file",
            "far",
            "itself",
            "dangling",
            "a/file/",
            "a/file/..",
            "a/none",
            "a/none/..",
            "absolute/b/../b",
        ] {
            let path = if path.is_empty() { PathBuf::new() } else { at.join(path) };
            let (found, wanted) = (real_path(&path), fs::canonicalize(&path));
            let code = |error: io::Error| error.raw_os_error();
            assert_eq!(found.map_err(code), wanted.map_err(code), "{}", path.display());
        }
        assert_eq!(real_path(Path::new("..")).unwrap(), fs::canonicalize("..").unwrap());
        let mut names = names_in(&at).unwrap();
        names.sort();
        assert_eq!(names, ["a", "absolute", "dangling", "far", "itself", "relative"]);
        assert!(names_in(&at.join("a/file")).is_err());
        fs::remove_dir_all(&at).unwrap();
    }
}
