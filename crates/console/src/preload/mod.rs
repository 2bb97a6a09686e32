//! How a program is started with the preload library: where the libraries are, what the program
//! finds in its environment, and whether the loader preloads anything into it.

mod library;
pub mod program;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
pub use library::{ALIGNING, HOST, LIBRARY, PROFILING, find_host, find_library};
use library::{find_aligning, find_profiling};

/// What is preloaded.
#[derive(Default)]
pub struct Libraries {
    /// The library that serves; none: nothing is served.
    pub serving: Option<PathBuf>,
    /// The one that aligns, if there is to be one.
    pub aligning: Option<PathBuf>,
    /// The one that times calls, if they are to be timed.
    pub profiling: Option<PathBuf>,
}

impl Libraries {
    /// Finds the one that serves, and the others if they are asked for.
    pub fn find(aligning: bool, profiling: bool) -> Result<Self, Failure> {
        let library = find_library()?;
        Ok(Self {
            aligning: aligning.then(|| find_aligning(&library)).transpose()?,
            profiling: profiling.then(|| find_profiling(&library)).transpose()?,
            serving: Some(library),
        })
    }

    /// Puts the one that serves behind what is preloaded, an allocator perhaps, the others before
    /// it, and takes away what an outer one was told.
    pub fn preload(&self, command: &mut Command) {
        let given = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let [profiling, serving, aligning] = [&self.profiling, &self.serving, &self.aligning]
            .map(|path| path.iter().map(|path| path.as_os_str()).collect::<Vec<_>>());
        // A `solera run` inside another one replaces its libraries rather than loading them twice.
        let is_own = |other: &[u8]| {
            [LIBRARY, ALIGNING, PROFILING].iter().any(|own| other.ends_with(own.as_bytes()))
        };
        let others = given.as_bytes().split(|&byte| byte == b':' || byte == b' ');
        let others = others.filter(|other| !other.is_empty() && !is_own(other));
        let others: Vec<&OsStr> = others.map(OsStr::from_bytes).collect();
        // The C library's calls arrive at the one that serves all the same.
        let all = [profiling, aligning, others, serving];
        let preload = all.concat().join(OsStr::new(":"));
        command.env("LD_PRELOAD", preload);
        for name in OUTER {
            command.env_remove(name);
        }
        if let Some(aligning) = &self.aligning {
            // At each exec it is put back.
            command.env("SOLERA_ALIGN", aligning);
        }
        for number in 2..=vfs::composite::MEMBERS_MAX {
            for name in ["SOLERA_VOLUME", "SOLERA_AT", "SOLERA_READ_ONLY", "SOLERA_MOUNTED"] {
                command.env_remove(format!("{name}_{number}"));
            }
        }
    }
}

/// What an outer `solera run` has told the library.
const OUTER: [&str; 19] = [
    "SOLERA_VOLUME",
    "SOLERA_AT",
    "SOLERA_SPLIT",
    "SOLERA_SPLIT_MODE",
    "SOLERA_EMULATE",
    "SOLERA_READ_ONLY",
    "SOLERA_MOUNTED",
    "SOLERA_RESUME",
    "SOLERA_REPORT",
    "SOLERA_STRICT_SUPPORT",
    "SOLERA_GUARD",
    "SOLERA_NUMA",
    "SOLERA_CACHE",
    "SOLERA_CACHE_DIR",
    "SOLERA_ALIGN",
    "SOLERA_DDMAP",
    "SOLERA_PROFILE",
    "SOLERA_PROFILE_LIBRARY",
    "SOLERA_BYPASS",
];

/// Sets what the preload library reads at its start, of a volume that is not mounted.
pub fn environment(command: &mut Command, volume: &Path, at: &Path, mode: &str, library: &Path) {
    let serving = Some(library.to_owned());
    Libraries { serving, ..Libraries::default() }.preload(command);
    command.env("SOLERA_MODE", mode).env("SOLERA_VOLUME", volume).env("SOLERA_AT", at);
}

/// Whether this machine can close a volume's memory to a program's own code.
pub fn guard() -> String {
    match pmem::key::available() {
        Ok(()) => "on: a stray pointer of a program cannot reach the volume's memory".to_owned(),
        Err(why) => format!("none: {why}; stray stores of programs are not stopped"),
    }
}
