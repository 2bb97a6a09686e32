//! `solera run --split DIR`: the files below a directory of the kernel's are served by the second
//! engine, alone or beside volumes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::output;
use split::Mode;

use super::binding::Binding;
use crate::commands::run::RunArgs;

/// The directory, and how it is to be served.
pub struct Split {
    /// It, without symlinks.
    pub directory: PathBuf,
    mode: String,
    /// What the memory below cannot keep, and is promised all the same.
    emulates: bool,
    emulate: bool,
    relink: Option<String>,
}

impl Split {
    /// What the command line asks for, if it does, once it was checked.
    pub fn find(args: &RunArgs, asked: &str) -> Result<Option<Self>, Failure> {
        let Some(given) = &args.split else { return Ok(None) };
        let serve = format!("serve {}", given.display());
        let wrong = |found: &dyn std::fmt::Display, advice: &str| {
            Failure::new(&serve, found.to_string(), advice)
        };
        let directory = given.canonicalize().map_err(|error| wrong(&error, "name a directory"))?;
        let alone = args.volume.is_empty() && args.at.is_empty();
        if alone && (args.no_guard || args.class()?.class.is_some()) {
            let option = match args.class.class {
                _ if args.no_guard => "--no-guard",
                Some(_) => "--class",
                None => "--emulate pm",
            };
            let found = format!("{option} is about a volume, and none is named");
            return Err(wrong(&found, "leave it out, or name one: --volume, --at"));
        }
        if !directory.is_dir() {
            return Err(wrong(&"it is not a directory", "name a directory"));
        }
        if volume::is_in_anchor(&directory) {
            return Err(Failure::new(serve, volume::Kept::Anchor, "name another directory"));
        }
        let mode = args.mode.clone().unwrap_or_else(|| "posix".to_owned());
        let word: Mode = mode.parse().map_err(|found: String| Failure::new(asked, found, ""))?;
        let direct =
            split::maps_directly(&directory).map_err(|errno| Failure::outside(serve, errno))?;
        let emulates = word != Mode::Posix && !direct;
        if emulates && !args.emulates_modes() {
            return Err(Failure::new(
                format!("keep what mode {mode} promises in {}", given.display()),
                "its file system does not map with MAP_SYNC (no DAX)",
                "use --mode posix, or --emulate: then it holds when processes die, not when power \
                 fails",
            ));
        }
        let (emulate, relink) = (args.emulates_modes(), args.relink.clone());
        Ok(Some(Self { directory, mode, emulates, emulate, relink }))
    }

    /// Says what its mode is worth here.
    pub fn tell_of_memory(&self) {
        if self.emulates {
            let (directory, mode) = (self.directory.display(), &self.mode);
            output::tell(format!(
                "{directory} is emulated memory: mode {mode} holds when processes die, not when \
                 power fails"
            ));
        }
    }

    /// What the preload library reads; `beside`: there are volumes, which have a mode of their own.
    pub fn variables(&self, beside: bool) -> Vec<(String, OsString)> {
        let mode = if beside { "SOLERA_SPLIT_MODE" } else { "SOLERA_MODE" };
        let mut all = vec![
            ("SOLERA_SPLIT".to_owned(), self.directory.clone().into_os_string()),
            (mode.to_owned(), self.mode.clone().into()),
        ];
        if let Some(backend) = &self.relink {
            all.push(("SOLERA_SPLIT_RELINK".to_owned(), backend.into()));
        }
        if self.emulate {
            all.push(("SOLERA_EMULATE".to_owned(), "1".into()));
        }
        all
    }
}

/// Refuses a directory that lies where the program is to see one of these volumes.
pub fn check_apart(directory: &Path, places: &[Binding]) -> Result<(), Failure> {
    let hides = |place: &&Binding| directory.starts_with(&place.at);
    let Some(place) = places.iter().find(hides) else { return Ok(()) };
    let (volume, at) = (place.volume.display(), place.at.display());
    Err(Failure::new(
        format!("serve {}", directory.display()),
        format!("the program is to see the volume {volume} at {at}"),
        "name a directory that does not lie there",
    ))
}
