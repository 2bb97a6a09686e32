//! Which volume a program is to see, and where: as the command line says, or as it is mounted.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, access};
use vfs::mounts::{self, Mount};

use crate::args::RunArgs;
use crate::failure::Failure;

/// A volume and where it is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The volume's file or device.
    pub volume: PathBuf,
    /// Where it appears.
    pub at: PathBuf,
    /// It is mounted there.
    pub mounted: bool,
    /// The mount is all that the program may use: the volume cannot be opened, or is mounted
    /// read-only.
    pub by_mount_only: bool,
}

impl Place {
    fn of_mount(mount: Mount) -> Self {
        let both = Access::READ_OK | Access::WRITE_OK;
        let by_mount_only = mount.read_only || access(&mount.volume, both).is_err();
        Self { volume: mount.volume, at: mount.at, mounted: true, by_mount_only }
    }
}

/// Finds it.
pub fn find(args: &RunArgs) -> Result<Place, Failure> {
    let listed = mounts::list().unwrap_or_default();
    let volume = args.volume.as_deref().map(check_volume).transpose()?;
    let Some(at) = &args.at else {
        return mounted(&listed, volume.as_deref(), &args.program).map(Place::of_mount);
    };
    // A mount whose server has died cannot be looked at, but it is listed.
    let real = at.canonicalize().unwrap_or_else(|_| at.clone());
    let mount = listed.iter().rev().find(|mount| mount.at == real);
    match (mount, volume) {
        (Some(mount), None) => Ok(Place::of_mount(mount.clone())),
        (Some(mount), Some(volume)) if mount.is_of(&volume) => Ok(Place::of_mount(mount.clone())),
        (Some(mount), Some(volume)) => Err(Failure::new(
            format!("show {} at {}", volume.display(), at.display()),
            format!("{} is mounted there", mount.volume.display()),
            "choose another path",
        )),
        (None, Some(volume)) => {
            Ok(Place { volume, at: check_prefix(at)?, mounted: false, by_mount_only: false })
        }
        (None, None) => Err(Failure::new(
            format!("find the volume at {}", at.display()),
            "no volume is mounted there",
            "name it: --volume",
        )),
    }
}

/// The mount that is meant: the volume's; or that of the working directory, or the one that the
/// program's arguments speak of, or the only one.
fn mounted(
    listed: &[Mount],
    volume: Option<&Path>,
    program: &[OsString],
) -> Result<Mount, Failure> {
    if let Some(volume) = volume {
        let mount = listed.iter().rev().find(|mount| mount.is_of(volume));
        return mount.cloned().ok_or_else(|| {
            let advice = "say where the program is to see it: --at /pm; or mount it";
            Failure::new(format!("show {}", volume.display()), "it is not mounted", advice)
        });
    }
    let here = std::env::current_dir().ok().and_then(|here| mounts::around(listed, &here));
    let named = || {
        let speaks = |mount: &&Mount| {
            program.iter().any(|argument| contains(argument, mount.at.as_os_str()))
        };
        listed.iter().filter(speaks).max_by_key(|mount| mount.at.as_os_str().len()).cloned()
    };
    let only = || match listed {
        [mount] => Some(mount.clone()),
        _ => None,
    };
    here.or_else(named).or_else(only).ok_or_else(|| {
        let asked = "find out which volume the program is to see";
        if listed.is_empty() {
            let advice = "`solera mount` one, or say --volume and --at";
            return Failure::new(asked, "no volume is mounted", advice);
        }
        Failure::new(asked, "several volumes are mounted", "say which: --at, or --volume")
    })
}

fn contains(text: &OsStr, part: &OsStr) -> bool {
    let part = part.as_bytes();
    text.as_bytes().windows(part.len()).any(|window| window == part)
}

/// The volume's absolute path. That it is a volume, and which, is found out by who attaches it.
fn check_volume(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| {
        Failure::new(
            format!("find the volume {}", path.display()),
            error,
            "check the path, or make a volume with `solera format`",
        )
    })
}

/// The prefix, absolute and without `.`, `..` and doubled slashes.
fn check_prefix(at: &Path) -> Result<PathBuf, Failure> {
    let asked = format!("show the volume at {}", at.display());
    if !at.is_absolute() {
        return Err(Failure::new(asked, "the path is relative", "give an absolute path: --at /pm"));
    }
    let mut prefix = PathBuf::from("/");
    for component in at.components() {
        match component {
            Component::Normal(name) => prefix.push(name),
            Component::ParentDir => {
                prefix.pop();
            }
            _ => {}
        }
    }
    if prefix == Path::new("/") {
        return Err(Failure::new(
            asked,
            "the volume cannot be the root directory",
            "give --at /pm",
        ));
    }
    let found = match fs::symlink_metadata(&prefix) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(prefix),
        Err(error) => error.to_string(),
        Ok(meta) if !meta.is_dir() => "there is something that is not a directory".to_owned(),
        Ok(_) => match fs::read_dir(&prefix).map(|mut entries| entries.next().is_none()) {
            Ok(true) => return Ok(prefix),
            Ok(false) => "there is a directory with files in it, which would be hidden".to_owned(),
            Err(error) => error.to_string(),
        },
    };
    Err(Failure::new(asked, found, "choose a path where nothing is, or an empty directory"))
}

#[cfg(test)]
mod tests {
    use super::check_prefix;
    use std::path::{Path, PathBuf};

    #[test]
    fn prefixes_are_normalised_or_refused() {
        let check = |path: &str| check_prefix(Path::new(path));
        assert_eq!(check("/no-such/./a//b/../c/").ok(), Some(PathBuf::from("/no-such/a/c")));
        for wrong in ["pm", "./pm", "/", "/..", "/etc", "/etc/passwd", "/etc/passwd/x"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
