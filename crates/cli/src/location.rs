//! `VOLUME:/path`: how a command line names a place on a volume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use volume::Kept;

use crate::domains;

/// A file-system object named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A path of the kernel's.
    Local(PathBuf),
    /// A path on a volume; it begins with `/`.
    OnVolume {
        /// The volume's region file or device.
        volume: PathBuf,
        /// From the volume's root.
        path: Vec<u8>,
    },
}

impl Location {
    /// What exists under the whole text is local. Otherwise the text is split at its first `:/`, or
    /// at a `:` that ends it (the root); without either it is local. A volume may be one of a
    /// domain, `DOMAIN/VOLUME`: then its region is meant. Refused is a local name that begins with
    /// a volume and a colon, unless it begins with `./`: the slash was forgotten.
    pub fn parse(text: &OsStr) -> Result<Self, Failure> {
        let local = || Ok(Self::Local(PathBuf::from(text)));
        if Path::new(text).symlink_metadata().is_ok() {
            return local();
        }
        // In a directory that is there, a file of that name may be meant to be made.
        if !Path::new(text).parent().is_some_and(Path::is_dir)
            && let Some(region) = domains::to_use(Path::new(text))?
        {
            return Ok(Self::Local(region));
        }
        let bytes = text.as_bytes();
        let split = bytes.windows(2).position(|two| two == b":/");
        match split.or_else(|| bytes.strip_suffix(b":").map(<[u8]>::len)) {
            Some(at) if at > 0 => Ok(Self::OnVolume {
                volume: domains::volume(PathBuf::from(OsStr::from_bytes(&bytes[..at])))?,
                path: if at + 1 < bytes.len() { bytes[at + 1..].to_vec() } else { b"/".to_vec() },
            }),
            _ if bytes.starts_with(b"./") => local(),
            _ => slash_forgotten(bytes).map_or_else(local, Err),
        }
    }

    /// As [`Location::parse`], but a text without a path means the root of the volume of that name.
    pub fn on_volume(text: &OsStr) -> Result<(PathBuf, Vec<u8>), Failure> {
        Ok(match Self::parse(text)? {
            Self::Local(volume) => (domains::volume(volume)?, b"/".to_vec()),
            Self::OnVolume { volume, path } => (volume, path),
        })
    }
}

/// Refuses `VOLUME:name`, where there is such a volume.
fn slash_forgotten(text: &[u8]) -> Option<Failure> {
    let mut colons = text.iter().enumerate().filter(|&(_, &byte)| byte == b':').map(|(at, _)| at);
    let is_volume = |at: usize| {
        let path = Path::new(OsStr::from_bytes(&text[..at]));
        let kept = path.metadata().ok().and_then(|_| volume::check_ordinary(path, false).err());
        matches!(kept, Some(Kept::Volume | Kept::InUse | Kept::DaxDevice))
    };
    let at = colons.find(|&at| at > 0 && is_volume(at))?;
    let (volume, name) = (display(&text[..at]), display(&text[at + 1..]));
    let found = format!("{volume} is a volume, and a path on it begins with a slash");
    let advice =
        format!("did you mean {volume}:/{name}? A local file of such a name is written with ./");
    Some(Failure::new(format!("find {}", display(text)), found, &advice))
}

/// The last component of a path, without trailing slashes; empty for a root.
pub fn base_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    &path[start..end]
}

/// `dir/name`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// A path for messages.
pub fn display(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Location, base_name, join};
    use std::ffi::OsStr;
    use std::path::PathBuf;

    fn on_volume(volume: &str, path: &str) -> Location {
        Location::OnVolume { volume: PathBuf::from(volume), path: path.as_bytes().to_vec() }
    }

    #[test]
    fn splits_volume_from_path() {
        let parse = |text: &str| Location::parse(OsStr::new(text)).expect("no volume is named");
        assert_eq!(parse("v.pm:/a/b"), on_volume("v.pm", "/a/b"));
        assert_eq!(parse("/no/v.pm:"), on_volume("/no/v.pm", "/"));
        assert_eq!(parse("v.pm:/a:/b"), on_volume("v.pm", "/a:/b"));
        assert_eq!(parse("no/such"), Location::Local("no/such".into()));
        assert_eq!(parse("time 12:30"), Location::Local("time 12:30".into()));
        assert_eq!(parse(":/a"), Location::Local(":/a".into()));
        assert_eq!(parse("/"), Location::Local("/".into()));
    }

    #[test]
    fn takes_paths_apart_and_together() {
        assert_eq!(base_name(b"/a/b//"), b"b");
        assert_eq!(base_name(b"b"), b"b");
        assert_eq!(base_name(b"//"), b"");
        assert_eq!(join(b"/", b"x"), b"/x");
        assert_eq!(join(b"/a", b"x"), b"/a/x");
    }
}
