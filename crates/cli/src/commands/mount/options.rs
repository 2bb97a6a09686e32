//! The options of a mount: `-o LIST`, as mount(8) has them, and the command line of a mount helper.

use std::ffi::{OsStr, OsString};

use console::class::ClassArg;
use console::failure::Failure;
use console::size;
use fuse::MountOptions;
use volume::Mode;

use crate::commands::cache::CacheArg;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountSettings {
    /// For the kernel.
    pub mount: MountOptions,
    /// Whether other users than the mounting one may use it; `None`: no option says.
    pub others: Option<bool>,
    /// For the volume.
    pub mode: Mode,
    /// What its memory is taken for.
    pub class: ClassArg,
    /// What is kept in DRAM.
    pub cache: CacheArg,
    /// Everything but the mount itself: `mount -f`.
    pub fake: bool,
}

/// Options that ask for the default, or concern other programs.
const ACCEPTED: [&str; 23] = [
    "defaults",
    "rw",
    "exec",
    "nosuid",
    "nodev",
    "atime",
    "relatime",
    "diratime",
    "async",
    "sync",
    "dirsync",
    "default_permissions",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "silent",
    "loud",
];

impl MountSettings {
    /// Takes a list of options, with commas between them. Unknown ones are refused unless `sloppy`.
    pub fn add(&mut self, list: &str, sloppy: bool) -> Result<(), Failure> {
        for option in list.split(',').filter(|option| !option.is_empty()) {
            let mount = &mut self.mount;
            match option {
                "ro" => mount.read_only = true,
                "rw" => mount.read_only = false,
                "allow_other" => self.others = Some(true),
                "noallow_other" => self.others = Some(false),
                "suid" => mount.suid = true,
                "nosuid" => mount.suid = false,
                "dev" => mount.dev = true,
                "nodev" => mount.dev = false,
                "noexec" => mount.no_exec = true,
                "exec" => mount.no_exec = false,
                "noatime" => mount.no_atime = true,
                "fake" => self.fake = true,
                _ if ACCEPTED.contains(&option) => {}
                _ => self.add_with_value(option, sloppy)?,
            }
        }
        Ok(())
    }

    fn add_with_value(&mut self, option: &str, sloppy: bool) -> Result<(), Failure> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "mode" => match value.parse() {
                Ok(mode) => self.mode = mode,
                Err(found) => return Err(Failure::new(format!("take -o {option}"), found, "")),
            },
            "class" => match value.parse() {
                Ok(class) => self.class = ClassArg { class: Some(class) },
                Err(found) => return Err(Failure::new(format!("take -o {option}"), found, "")),
            },
            "cache" => match size::parse(value) {
                Ok(cache) => self.cache.cache = Some(cache),
                Err(found) => return Err(Failure::new(format!("take -o {option}"), found, "")),
            },
            "cache_dir" => self.cache.cache_dir = Some(value.into()),
            // For people, and for systemd.
            "comment" => {}
            _ if name.starts_with("x-") || name.starts_with("X-") || sloppy => {}
            _ => {
                let advice = "`solera mount --help` names the options";
                return Err(Failure::new(format!("take -o {option}"), "no such option", advice));
            }
        }
        Ok(())
    }
}

/// The command line that means the same as a mount helper's: `SPEC DIRECTORY [-sfnv] [-N SPACE]
/// [-o LIST] [-t TYPE]`.
pub fn of_helper(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["solera".into(), "mount".into()];
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-o") => {
                line.push("-o".into());
                line.extend(arguments.next());
            }
            Some("-t" | "-N") => {
                arguments.next();
            }
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        's' => line.push("--sloppy".into()),
                        'f' => line.extend(["-o", "fake"].map(OsString::from)),
                        _ => {}
                    }
                }
            }
            _ => line.push(argument),
        }
    }
    line
}

/// Whether a program was called as the helper of mount(8).
pub fn is_helper(name: &OsStr) -> bool {
    let base = std::path::Path::new(name).file_name();
    base.is_some_and(|base| base == "mount.fuse.solera" || base == "mount.solera")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_lists_of_options() {
        let mut given = MountSettings::default();
        given
            .add("rw,nosuid,nodev,relatime,allow_other,mode=posix,x-systemd.automount", false)
            .unwrap();
        assert!(given.others == Some(true) && !given.mount.read_only);
        assert_eq!(given.mode, Mode::Posix);
        given.add("ro,suid,noallow_other", false).unwrap();
        assert_eq!(given.others, Some(false));
        assert!(given.mount.read_only && given.mount.suid);
        assert!(given.add("quota", false).is_err());
        assert!(given.add("mode=fast", false).is_err());
        given.add("quota", true).unwrap();
    }

    #[test]
    fn understands_mount() {
        let line = |text: &str| of_helper(text.split(' ').map(OsString::from));
        let plain = ["solera", "mount", "/v", "/d", "-o", "rw,noatime"].map(OsString::from);
        assert_eq!(line("/v /d -o rw,noatime"), plain);
        assert_eq!(line("/v /d -n -v -t fuse.solera -o rw,noatime"), plain);
        let fake = ["solera", "mount", "/v", "/d", "--sloppy", "-o", "fake"].map(OsString::from);
        assert_eq!(line("/v /d -sf"), fake);
        assert!(is_helper(OsStr::new("/sbin/mount.fuse.solera")));
        assert!(!is_helper(OsStr::new("solera")));
    }
}
