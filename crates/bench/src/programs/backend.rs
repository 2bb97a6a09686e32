//! A place where programs run: a volume, a directory of a kernel file system, or such a directory
//! with the second engine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where programs see a volume.
pub const AT: &str = "/solera-bench";

/// A build of Solera.
#[derive(Clone)]
pub struct Build {
    pub command: PathBuf,
    /// A copy that every user may load.
    pub library: PathBuf,
}

/// Through what programs see the place.
pub enum Access {
    /// A volume of its own, in a mode, by a build.
    Volume { region: PathBuf, mode: String, build: Build },
    /// A directory that `solera run --split` serves.
    Split { build: Build },
    /// By the kernel alone; what its file calls take is told by a build.
    Kernel { build: Build },
}

pub struct Backend {
    /// As tables call it.
    pub name: String,
    pub access: Access,
    /// For what programs make, as they see it.
    pub directory: PathBuf,
}

impl Backend {
    pub fn volume(name: String, region: PathBuf, mode: &str, build: &Build) -> Self {
        let access = Access::Volume { region, mode: mode.to_owned(), build: build.clone() };
        Self { name, access, directory: PathBuf::from(AT) }
    }

    /// Whether Solera serves it.
    pub fn is_served(&self) -> bool {
        !matches!(self.access, Access::Kernel { .. })
    }

    /// What stands before a program's name, and the library that is then preloaded. `outside`:
    /// programs that see the place as the kernel has it.
    pub fn before(&self, outside: &[&str]) -> (Vec<OsString>, Option<&Path>) {
        if self.is_served() { self.run(outside, &[]) } else { (Vec::new(), None) }
    }

    /// The same, with the file calls of what runs there profiled, but for what is outside.
    pub fn profiled(&self, outside: &[&str], file: &Path) -> (Vec<OsString>, Option<&Path>) {
        self.run(outside, &["--json".into(), "--profile-file".into(), file.into()])
    }

    fn run(&self, outside: &[&str], options: &[OsString]) -> (Vec<OsString>, Option<&Path>) {
        let (build, at) = match &self.access {
            Access::Volume { region, mode, build } => {
                let region = region.as_os_str().to_owned();
                let words = ["--volume".into(), region, "--at".into(), AT.into(), "--mode".into()];
                (build, [&words[..], &[mode.into()]].concat())
            }
            Access::Split { build } => {
                let over = self.directory.as_os_str().to_owned();
                (build, vec!["--split".into(), over])
            }
            Access::Kernel { build } => (build, vec!["--no-volume".into()]),
        };
        let mut words: Vec<OsString> = vec![build.command.clone().into(), "run".into()];
        words.extend(at);
        words.extend_from_slice(options);
        for name in outside {
            words.extend(["--bypass".into(), name.into()]);
        }
        words.push("--".into());
        (words, Some(build.library.as_path()))
    }

    /// The words of [`Backend::before`] for people.
    pub fn shown(&self, outside: &[&str]) -> String {
        let words = self.before(outside).0;
        let mut words = words.iter().map(|word| word.to_string_lossy().into_owned());
        let command = words.next().map(|_| "solera".to_owned());
        command.into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }
}
