//! Finds the libraries that are preloaded. The loader skips one that it cannot read with a mere
//! warning, and the program would see no volume: so a library that is missing or closed is reported
//! before.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::failure::Failure;

/// The name of the file.
pub const LIBRARY: &str = "libsolera_preload.so";
/// The name of the library that aligns blocks of memory (`--align`).
pub const ALIGNING: &str = "libsolera_align.so";
/// The name of the library that times calls (`--profile`).
pub const PROFILING: &str = "libsolera_profile.so";
/// The name of the program that runs programs without a dynamic linker.
pub const HOST: &str = "solera-host";
/// Symbolic links that the kernel follows in a path.
const LINKS_MAX: u32 = 40;

/// The preload library: `SOLERA_PRELOAD`, or beside this program, or in `../lib` from it.
pub fn find_library() -> Result<PathBuf, Failure> {
    let mut places = Vec::new();
    if let Some(path) = std::env::var_os("SOLERA_PRELOAD") {
        places.push(PathBuf::from(path));
    } else if let Ok(own) = std::env::current_exe()
        && let Some(dir) = own.parent()
    {
        places.extend([dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)]);
    }
    let asked = format!("find the preload library {LIBRARY}");
    find(asked, &places, "set SOLERA_PRELOAD to a copy")
}

/// The host, which runs programs without a dynamic linker: beside the preload library.
pub fn find_host() -> Option<PathBuf> {
    let host = find_library().ok()?.with_file_name(HOST);
    access(&host, Access::EXEC_OK).is_ok().then_some(host)
}

/// The library that aligns: beside the preload library.
pub fn find_aligning(library: &Path) -> Result<PathBuf, Failure> {
    let asked = format!("find {ALIGNING}, which --align takes");
    find(asked, &[library.with_file_name(ALIGNING)], "put a copy beside libsolera_preload.so")
}

/// The library that times calls: beside the preload library.
pub fn find_profiling(library: &Path) -> Result<PathBuf, Failure> {
    let asked = format!("find {PROFILING}, which --profile and --trace take");
    find(asked, &[library.with_file_name(PROFILING)], "put a copy beside libsolera_preload.so")
}

/// The first of these files that is there; `by_hand`: where to put one by hand.
fn find(asked: String, places: &[PathBuf], by_hand: &str) -> Result<PathBuf, Failure> {
    let readable = |place: &PathBuf| File::open(place).and_then(|_| place.canonicalize()).ok();
    if let Some(found) = places.iter().find_map(readable) {
        // ld.so splits LD_PRELOAD at these, and knows no way to quote them.
        if !found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
            return Ok(found);
        }
        return Err(Failure::new(
            format!("preload {}", found.display()),
            "the loader takes no path with a space or a colon in it",
            &format!("install solera elsewhere, or {by_hand}"),
        ));
    }
    if let Some(reason) = places.iter().find_map(|place| closed(place)) {
        return Err(Failure::new(
            asked,
            reason,
            &format!("open it to this user, or {by_hand} that this user may read"),
        ));
    }
    let tried: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::new(
        asked,
        format!("it is not at {}", tried.join(" nor at ")),
        &format!("build it (cargo build --release), or {by_hand}"),
    ))
}

fn is_denied<T>(asked: &io::Result<T>) -> bool {
    asked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Why this user may not read what is at `place`, or may not see whether anything is; `None`: that
/// is not why.
fn closed(place: &Path) -> Option<String> {
    if !is_denied(&File::open(place)) {
        return None;
    }
    let user = rustix::process::geteuid().as_raw();
    let mode = |path: &Path| {
        fs::metadata(path).map_or_else(
            |_| String::new(),
            |meta| format!(" (mode {:04o})", meta.permissions().mode() & 0o7777),
        )
    };
    let Some(directory) = closed_directory(place) else {
        let place_mode = mode(place);
        return Some(format!(
            "{} is there, but user {user} may not read it{place_mode}",
            place.display()
        ));
    };
    let directory_mode = mode(&directory);
    Some(format!(
        "user {user} may not enter {}{directory_mode}, through which {} is reached",
        directory.display(),
        place.display()
    ))
}

/// The directory on the way to `path`, through symbolic links too, that this process may not enter.
fn closed_directory(path: &Path) -> Option<PathBuf> {
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..LINKS_MAX {
        let parts: Vec<&Path> = path.ancestors().collect();
        let shut = *parts.iter().rev().find(|part| is_denied(&fs::metadata(part)))?;
        let Ok(target) = fs::read_link(shut) else { return Some(shut.parent()?.to_owned()) };
        let rest = path.strip_prefix(shut).ok()?;
        path = shut.parent()?.join(target).join(rest);
    }
    None
}
