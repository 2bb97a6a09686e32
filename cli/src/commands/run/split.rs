//! `solera run --split DIR`: a program whose files below a directory of the kernel's are served by
//! the second engine.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use split::Mode;

use super::{execute, find_library, place, preload, refused};
use crate::args::RunArgs;
use crate::commands::program;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Starts the program.
pub fn start(
    args: &RunArgs,
    directory: &Path,
    asked: &str,
    (name, arguments): (&OsString, &[OsString]),
) -> Outcome {
    let given = directory.display();
    let directory = directory
        .canonicalize()
        .map_err(|error| Failure::new(format!("serve {given}"), error, "name a directory"))?;
    if !directory.is_dir() {
        let found = "it is not a directory";
        return Err(Failure::new(format!("serve {given}"), found, "name a directory"));
    }
    if volume::is_in_anchor(&directory) {
        let asked = format!("serve {given}");
        return Err(Failure::new(asked, volume::Kept::Anchor, "name another directory"));
    }
    place::require(&args.require, &[&directory])?;
    let mode = args.mode.as_deref().unwrap_or("posix");
    let word: Mode = mode.parse().map_err(|found: String| Failure::new(asked, found, ""))?;
    let direct = split::maps_directly(&directory)
        .map_err(|errno| Failure::outside(format!("serve {given}"), errno))?;
    if word != Mode::Posix && !direct && !args.emulate {
        return Err(Failure::new(
            format!("keep what mode {mode} promises in {given}"),
            "its file system does not map with MAP_SYNC (no DAX)",
            "use --mode posix, or --emulate: then it holds when processes die, not when power \
             fails",
        ));
    }
    let library = find_library()?;
    let path = program::find(name).map_err(|refusal| refused(asked, refusal))?;
    program::check(&path).map_err(|refusal| refused(asked, refusal))?;
    if word != Mode::Posix && !direct {
        output::tell(format!(
            "{given} is emulated memory: mode {mode} holds when processes die, not when \
             power fails"
        ));
    }
    let mut command = Command::new(path);
    command.arg0(OsStr::new(name)).args(arguments);
    preload(&mut command, &library);
    command
        .env("SOLERA_SPLIT", &directory)
        .env("SOLERA_MODE", mode)
        .env_remove("SOLERA_VOLUME")
        .env_remove("SOLERA_AT")
        .env_remove("SOLERA_EMULATE");
    if let Some(backend) = &args.relink {
        command.env("SOLERA_SPLIT_RELINK", backend);
    }
    if args.emulate {
        command.env("SOLERA_EMULATE", "1");
    }
    execute(asked, command, args)
}
