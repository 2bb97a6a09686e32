//! Decides which volume a program is to see, and where: as the command line says, or as it is
//! mounted.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use console::failure::Failure;
use rustix::fs::{Access, access};
use vfs::mounts::{self, Identity, Mount};

use super::split::{Split, check_apart};
use crate::commands::run::RunArgs;

/// A volume and where it is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The volume's file or device.
    pub volume: PathBuf,
    /// Where it appears.
    pub at: PathBuf,
    /// It is mounted there.
    pub mounted: bool,
    /// The mount is all that the program may use: the volume cannot be opened, or is mounted
    /// read-only.
    pub by_mount_only: bool,
    /// What the mount says that it serves.
    pub serves: Option<Identity>,
    /// Why it was chosen, though neither command line nor working directory name it.
    pub guessed: Option<&'static str>,
}

/// Why it may be guessed.
const ONLY: &str =
    "no other volume is mounted; neither the working directory nor an argument is there";
/// See `ONLY`.
const ALL: &str = "it is profiled, and several volumes are mounted (--no-volume for none of them)";

impl Binding {
    /// One that is not mounted.
    pub fn alone(volume: PathBuf, at: PathBuf) -> Self {
        let (mounted, by_mount_only, serves, guessed) = (false, false, None, None);
        Self { volume, at, mounted, by_mount_only, serves, guessed }
    }

    /// Whether a path lies on it, and the kernel does not know it.
    pub fn alone_has(&self, path: &Path) -> bool {
        !self.mounted && path.starts_with(&self.at)
    }

    /// Refused if the program would see another volume below the mount than other programs do.
    fn of_mount(mount: Mount) -> Result<Self, Failure> {
        let both = Access::READ_OK | Access::WRITE_OK;
        let by_mount_only = mount.read_only || access(&mount.volume, both).is_err();
        let serves = mount.serves();
        if !by_mount_only && mount.has_lost_its_file(serves.as_ref()) {
            let advice = "or show the new one elsewhere: --volume, --at";
            return Err(Failure::replaced(
                format!("run at {}", mount.at.display()),
                &mount,
                advice,
            ));
        }
        let (volume, at) = (mount.volume, mount.at);
        Ok(Self { volume, at, mounted: true, by_mount_only, serves, guessed: None })
    }
}

/// Finds it, or all that the command line names, and checks that what has to lie on a volume, or
/// below the directory that is served besides, does. With such a directory there need be none, nor
/// where a profile is asked for.
pub fn find(args: &RunArgs, split: Option<&Split>) -> Result<Vec<Binding>, Failure> {
    let places = match (args.volume.as_slice(), args.at.as_slice()) {
        ([], []) if split.is_some() || args.profile.no_volume => Vec::new(),
        ([], []) if args.profile.is_asked() => profiled(&mounts::list().unwrap_or_default(), args)?,
        ([], []) => vec![mounted(&mounts::list().unwrap_or_default(), None, args)?],
        (volumes, all) => named(volumes, all, args)?,
    };
    apart(&places)?;
    let directory = split.map(|split| &*split.directory);
    directory.map_or(Ok(()), |directory| check_apart(directory, &places))?;
    let prefixes: Vec<&Path> = places.iter().map(|place| &*place.at).chain(directory).collect();
    require(&args.require, &prefixes)?;
    Ok(places)
}

/// Those that the command line names: volumes, and where each of them is to be seen.
pub fn named(
    volumes: &[PathBuf],
    prefixes: &[PathBuf],
    args: &RunArgs,
) -> Result<Vec<Binding>, Failure> {
    let listed = mounts::list().unwrap_or_default();
    let volumes = volumes.iter().map(|path| check_volume(path));
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    match (volumes.as_slice(), prefixes) {
        ([volume], []) => Ok(vec![mounted(&listed, Some(volume), args)?]),
        ([], all) => all.iter().map(|at| at_path(&listed, None, at)).collect(),
        (volumes, all) if volumes.len() == all.len() => {
            let both = volumes.iter().zip(all);
            both.map(|(volume, at)| at_path(&listed, Some(volume.clone()), at)).collect()
        }
        (volumes, all) => {
            let found = format!("{} --volume and {} --at are given", volumes.len(), all.len());
            let advice = "say for each volume where the program is to see it: --volume A --at /a \
                          --volume B --at /b";
            Err(Failure::new("show several volumes", found, advice))
        }
    }
}

/// Refuses two volumes of which one hides the other, and one volume at two places.
pub fn apart(places: &[Binding]) -> Result<(), Failure> {
    if places.len() > vfs::composite::MEMBERS_MAX {
        let (count, most) = (places.len(), vfs::composite::MEMBERS_MAX);
        let found = format!("a program can see {most}");
        return Err(Failure::new(format!("show {count} volumes"), found, "mount the others"));
    }
    for (number, one) in places.iter().enumerate() {
        let asked = || format!("show {} at {}", one.volume.display(), one.at.display());
        for other in &places[..number] {
            let at = other.at.display();
            if one.at.starts_with(&other.at) || other.at.starts_with(&one.at) {
                let found = format!("the volume {} is to be at {at}", other.volume.display());
                let advice = "choose paths of which none lies below another";
                return Err(Failure::new(asked(), found, advice));
            }
            if is_same(&one.volume, &other.volume) {
                let found = format!("the program sees it at {at}");
                return Err(Failure::new(asked(), found, "give each volume once"));
            }
        }
    }
    Ok(())
}

/// Whether two paths lead to one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    one == other || place(one).is_some_and(|found| place(other) == Some(found))
}

/// The volume that is to be seen at a path, or is mounted there.
fn at_path(listed: &[Mount], volume: Option<PathBuf>, at: &Path) -> Result<Binding, Failure> {
    // A mount whose server has died cannot be looked at, but it is listed.
    let real = resolved(at);
    let mount = listed.iter().rev().find(|mount| mount.at == real);
    match (mount, volume) {
        (Some(mount), None) => Binding::of_mount(mount.clone()),
        (Some(mount), Some(volume)) if mount.is_of(&volume) => Binding::of_mount(mount.clone()),
        (Some(mount), Some(volume)) => Err(Failure::new(
            format!("show {} at {}", volume.display(), at.display()),
            format!("{} is mounted there", mount.volume.display()),
            "choose another path",
        )),
        (None, Some(volume)) => Ok(Binding::alone(volume, check_prefix(at)?)),
        (None, None) => Err(Failure::new(
            format!("find the volume at {}", at.display()),
            "no volume is mounted there",
            "name it: --volume",
        )),
    }
}

/// Refuses if one of the directories lies neither on a mounted volume nor below one of those
/// `served`, where the program will see its own.
pub fn require(directories: &[PathBuf], served: &[&Path]) -> Result<(), Failure> {
    let listed = mounts::list().unwrap_or_default();
    for directory in directories {
        let real = resolved(directory);
        if served.iter().any(|served| real.starts_with(served)) {
            continue;
        }
        let asked = format!("run with {} on a volume", directory.display());
        if directory.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(Failure::new(asked, "it does not exist", "check the path"));
        }
        if mount_of(&listed, directory).is_none() {
            let advice = "mount one first: solera mount VOLUME DIRECTORY";
            return Err(Failure::new(asked, "no volume is mounted there", advice));
        }
    }
    Ok(())
}

/// The mount that a directory lies in, by whatever path.
fn mount_of(listed: &[Mount], directory: &Path) -> Option<Mount> {
    match directory.metadata() {
        Ok(meta) => listed.iter().rev().find(|mount| mount.device == meta.dev()).cloned(),
        // A mount that this user may not look into, or whose server has died.
        Err(_) => mounts::around(listed, &resolved(directory)),
    }
}

/// What a program is to see whose calls are profiled: what it would see without. Where that is not
/// known it is nothing if nothing is mounted, and all that is mounted if that is more than one.
fn profiled(listed: &[Mount], args: &RunArgs) -> Result<Vec<Binding>, Failure> {
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    if listed.len() == 1 || meant(listed, args)?.is_some() {
        return Ok(vec![mounted(listed, None, args)?]);
    }
    let place =
        |mount: &Mount| Ok(Binding { guessed: Some(ALL), ..Binding::of_mount(mount.clone())? });
    let places = listed.iter().map(place).collect::<Result<Vec<_>, Failure>>()?;
    match apart(&places) {
        Ok(()) => Ok(places),
        // One lies in another, or is there twice.
        Err(_) => Err(several()),
    }
}

fn several() -> Failure {
    let asked = "find out which volume the program is to see";
    let advice = "say which: --at, or --volume; or, for a profile, none: --no-volume";
    Failure::new(asked, "several volumes are mounted", advice)
}

/// The mount that a --require names, or of the working directory, or which the program's arguments
/// speak of.
fn meant(listed: &[Mount], args: &RunArgs) -> Result<Option<Mount>, Failure> {
    // What is required lies on a mount, or there is nothing to choose from.
    require(&args.require, &[])?;
    let required = args.require.iter().find_map(|directory| mount_of(listed, directory));
    let here = || mounts::around(listed, &std::env::current_dir().ok()?);
    Ok(required.or_else(here).or_else(|| spoken_of(listed, &args.program)))
}

/// The mount that is meant: the volume's; or without one see [`meant`], or the only one.
fn mounted(listed: &[Mount], volume: Option<&Path>, args: &RunArgs) -> Result<Binding, Failure> {
    if let Some(volume) = volume {
        let mount = listed.iter().rev().find(|mount| mount.is_of(volume));
        let mount = mount.cloned().ok_or_else(|| {
            let advice = "say where the program is to see it: --at /pm; or mount it";
            Failure::new(format!("show {}", volume.display()), "it is not mounted", advice)
        })?;
        return Binding::of_mount(mount);
    }
    if let Some(mount) = meant(listed, args)? {
        return Binding::of_mount(mount);
    }
    match listed {
        [] => {
            let asked = "find out which volume the program is to see";
            let advice = "`solera mount` one, or say --volume and --at";
            Err(Failure::new(asked, "no volume is mounted", advice))
        }
        [mount] => Ok(Binding { guessed: Some(ONLY), ..Binding::of_mount(mount.clone())? }),
        _ => Err(several()),
    }
}

/// Beyond this many words of the arguments none is looked at: they are a script.
const WORDS_MAX: usize = 4096;
/// What stands between paths in an argument: of shells, of options (`--file=PATH`), of lists.
const SEPARATORS: &[u8] = b" \t\n\"'`=;|&<>(){}[],:$";

/// The innermost mount into which a path of the arguments leads: an absolute one, or one from the
/// working directory.
fn spoken_of(listed: &[Mount], program: &[OsString]) -> Option<Mount> {
    let words = program.iter().flat_map(|argument| {
        let words = argument.as_bytes().split(|byte| SEPARATORS.contains(byte));
        // Blanks and the like may also belong to a name.
        std::iter::once(argument.as_bytes()).chain(words)
    });
    let words = words.filter(|word| !word.is_empty()).take(WORDS_MAX);
    let paths = words.map(|word| resolved(Path::new(OsStr::from_bytes(word))));
    let of_words = paths.filter_map(|path| mounts::around(listed, &path));
    let named = |mount: &&Mount| {
        program.iter().any(|argument| names(argument.as_bytes(), mount.at.as_os_str().as_bytes()))
    };
    let of_names = listed.iter().filter(named).cloned();
    of_words.chain(of_names).max_by_key(|mount| mount.at.as_os_str().len())
}

/// Whether a text has a path that is `at`, or below it.
fn names(text: &[u8], at: &[u8]) -> bool {
    let ends = |rest: &[u8]| rest.first().is_none_or(|&b| b == b'/' || SEPARATORS.contains(&b));
    (0..text.len()).any(|start| text[start..].strip_prefix(at).is_some_and(ends))
}

/// The absolute path; symlinks are followed as far as there is something.
pub fn resolved(path: &Path) -> PathBuf {
    let whole = std::env::current_dir().unwrap_or_default().join(path);
    let real = whole.ancestors().find_map(|above| {
        let rest = whole.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    normalised(&real.unwrap_or(whole))
}

/// The volume's absolute path. That it is a volume, and which, is found out by the attach.
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
    let prefix = normalised(at);
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

/// An absolute path without `.`, `..` and doubled slashes, by its text.
fn normalised(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{check_prefix, spoken_of};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use vfs::mounts::Mount;

    /// A relative path into a mount was no path at all, and `/mnt/pm2` spoke of `/mnt/pm`.
    #[test]
    fn arguments_speak_of_mounts() {
        let here = std::env::current_dir().unwrap();
        let mount =
            |at: PathBuf| Mount { id: 1, volume: "/v".into(), at, device: 1, read_only: false };
        let listed = [
            mount("/no/pm".into()),
            mount("/no/pm/in".into()),
            mount("/no/p m".into()),
            mount(here.join("no-mount")),
        ];
        let told = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            spoken_of(&listed, &arguments).map(|mount| mount.at)
        };
        let found = |at: &str| Some(here.join(at));
        assert_eq!(told(&["cat", "/no/pm/file"]), found("/no/pm"));
        assert_eq!(told(&["dd", "if=/x", "of=/no//pm/./in/file"]), found("/no/pm/in"));
        assert_eq!(told(&["cat", "/no/p m/file"]), found("/no/p m"));
        assert_eq!(told(&["sh", "-c", "cat '/no/p m'/file"]), found("/no/p m"));
        assert_eq!(told(&["cat", "no-mount/file"]), found("no-mount"));
        assert_eq!(told(&["sh", "-c", "echo x >./no-mount/file"]), found("no-mount"));
        assert_eq!(told(&["cat", "../x/../no-mount"]), None);
        for other in ["/no/pm2/file", "no-mounts", "/no", "no", ""] {
            assert_eq!(told(&["cat", other]), None, "{other}");
        }
    }

    #[test]
    fn prefixes_are_normalised_or_refused() {
        let check = |path: &str| check_prefix(Path::new(path));
        assert_eq!(check("/no-such/./a//b/../c/").ok(), Some(PathBuf::from("/no-such/a/c")));
        for wrong in ["pm", "./pm", "/", "/..", "/etc", "/etc/passwd", "/etc/passwd/x"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
