//! Where patched files lie, and which of them are believed.
//!
//! A file has the name of its build-id, below a folder that its owner alone can change: of the
//! package, of the system, of the user. It is a regular file, no link, of root's or one's own, that
//! nobody else can write, in a folder of which the same holds; root believes root's only. It is
//! written once, under another name, and renamed.
//!
//! [`open`] makes raw system calls, and allocates nothing: it is how an armed program finds its
//! file.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use os::interrupt::system_call;
use rustix::io::Errno;

use crate::arm::{self, Armed, Loaded, Refusal};
use crate::elf::BUILD_ID_MAX;
use crate::image::{Footer, Image};

/// The package's folder: profiles and labels of libraries apply there.
pub const PACKAGE: &CStr = c"/usr/lib/x86_64-linux-gnu/solera/door";
/// The system's, where `/usr` cannot be changed.
pub const SYSTEM: &CStr = c"/var/cache/solera/door";
/// The user's, below the home directory.
pub const USER: &str = ".cache/solera/door";

/// Why a file is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// There is none.
    Missing,
    /// The name is a symbolic link.
    Link,
    /// It is no regular file, or its folder is no directory.
    Kind,
    /// It, or its folder, belongs to another user: this one.
    Owner(u32),
    /// It can be written by others than its owner.
    Writable,
    /// Its folder can be.
    FolderWritable,
    /// It lies on a volume, whose programs it is for.
    OnVolume,
    /// It cannot be opened.
    Forbidden(Errno),
    /// What it holds is not believed.
    Contents(Refusal),
    /// Its name is of one build, its contents of another.
    OtherBuild,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is none"),
            Self::Link => f.write_str("it is a symbolic link"),
            Self::Kind => f.write_str("it is no regular file in a directory"),
            Self::Owner(owner) => write!(f, "it, or its folder, belongs to user {owner}"),
            Self::Writable => f.write_str("others than its owner may write it"),
            Self::FolderWritable => f.write_str("others than its owner may write its folder"),
            Self::OnVolume => f.write_str("it lies on a volume"),
            Self::Forbidden(errno) => write!(f, "it cannot be opened: {}", io::Error::from(*errno)),
            Self::Contents(refusal) => refusal.fmt(f),
            Self::OtherBuild => f.write_str("it is of another build than its name says"),
        }
    }
}

/// The name of the file of a build, and a zero: in memory of the caller's.
pub fn file_name(build_id: &[u8], buffer: &mut [u8; NAME_MAX]) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let build_id = &build_id[..build_id.len().min(BUILD_ID_MAX)];
    for (byte, digits) in build_id.iter().zip(buffer.chunks_exact_mut(2)) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 15)];
    }
    let end = build_id.len() * 2;
    buffer[end..end + SUFFIX.len()].copy_from_slice(SUFFIX);
    end + SUFFIX.len()
}

const SUFFIX: &[u8] = b".door\0";
/// The bytes of the longest name.
pub const NAME_MAX: usize = BUILD_ID_MAX * 2 + SUFFIX.len();

/// A descriptor that is closed by a raw call.
struct Raw(i32);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: its own descriptor.
        let _ = unsafe { system_call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

fn open_raw(folder: i32, name: &CStr, flags: i32) -> Result<Raw, Errno> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let arguments = [folder as usize, name.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: a string, and a number that is known to be one.
    unsafe { system_call(libc::SYS_openat, arguments) }.map(|file| Raw(file as i32))
}

fn status(file: &Raw) -> Result<libc::stat, Errno> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills it in; it has the kernel's layout on x86-64.
    unsafe {
        system_call(libc::SYS_fstat, [file.0 as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0])?;
        Ok(status.assume_init())
    }
}

/// Whether what has this status is one's own or root's, and nobody else's to write.
fn judge(status: &libc::stat, kind: u32, own: u32, writable: Distrust) -> Result<(), Distrust> {
    if status.st_mode & libc::S_IFMT != kind {
        return Err(Distrust::Kind);
    }
    if status.st_uid != 0 && status.st_uid != own {
        return Err(Distrust::Owner(status.st_uid));
    }
    // A group of one's own name is the rule on many systems, but nothing says which users are in
    // it.
    if status.st_mode & 0o022 != 0 { Err(writable) } else { Ok(()) }
}

/// Opens the patched file of a build in a folder, and looks at who it belongs to: the descriptor
/// may be given to [`arm::by_file`]. `own`: the user that the process runs as, and is going to.
/// Raw system calls; nothing is allocated.
pub fn open(folder: &CStr, build_id: &[u8], own: u32) -> Result<i32, Distrust> {
    let opened = |errno| match errno {
        Errno::NOENT | Errno::NOTDIR => Distrust::Missing,
        Errno::LOOP => Distrust::Link,
        errno => Distrust::Forbidden(errno),
    };
    let folder = open_raw(libc::AT_FDCWD, folder, libc::O_DIRECTORY).map_err(opened)?;
    let mut buffer = [0; NAME_MAX];
    let length = file_name(build_id, &mut buffer);
    let Ok(name) = CStr::from_bytes_with_nul(&buffer[..length]) else {
        return Err(Distrust::Missing);
    };
    let file = open_raw(folder.0, name, libc::O_RDONLY).map_err(opened)?;
    let of_folder = status(&folder).map_err(Distrust::Forbidden)?;
    judge(&of_folder, libc::S_IFDIR, own, Distrust::FolderWritable)?;
    let of_file = status(&file).map_err(Distrust::Forbidden)?;
    judge(&of_file, libc::S_IFREG, own, Distrust::Writable)?;
    let number = file.0;
    std::mem::forget(file);
    Ok(number)
}

/// Arms a loaded library with the first patched file of its build that is believed, in these
/// folders; if there is none, where it is loaded. Raw system calls; nothing is allocated.
///
/// # Safety
///
/// As for [`arm::in_memory`].
pub unsafe fn arm(
    loaded: &Loaded,
    folders: impl Iterator<Item = impl AsRef<CStr>>,
    own: u32,
) -> Result<Armed, Refusal> {
    let build = loaded.build_id()?;
    for folder in folders {
        let Ok(file) = open(folder.as_ref(), build, own) else { continue };
        let file = Raw(file);
        // SAFETY: the caller vouches for the library; a file that was believed.
        match unsafe { arm::by_file(loaded, file.0) } {
            Err(Refusal::Damaged(_) | Refusal::OtherBuild | Refusal::OtherLayout) => {}
            armed => return armed,
        }
    }
    // SAFETY: as above.
    unsafe { arm::in_memory(loaded, &crate::wanted) }
}

/// Whose folder it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The package's.
    Package,
    /// The system's.
    System,
    /// The user's.
    User,
    /// One that was named.
    Named,
}

impl Whose {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::System => "system",
            Self::User => "user",
            Self::Named => "named",
        }
    }
}

/// A folder of patched files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Whose it is.
    pub whose: Whose,
    /// Its path.
    pub path: PathBuf,
}

/// A patched file that is believed.
#[derive(Debug)]
pub struct Held {
    /// Where it lies.
    pub path: PathBuf,
    /// Whose folder that is.
    pub whose: Whose,
    /// What it says of itself.
    pub footer: Footer,
    /// The file, opened to be read.
    pub file: std::fs::File,
}

/// The folders, in the order in which they are searched.
#[derive(Clone, Debug)]
pub struct Cache {
    folders: Vec<Folder>,
    refused: Vec<PathBuf>,
    own: u32,
}

impl Cache {
    /// The usual folders. `home`: of the user; `refused`: directories of volumes, below which
    /// nothing is believed or written.
    pub fn usual(home: Option<&Path>, refused: &[&Path]) -> Self {
        let fixed =
            |whose, path: &CStr| Folder { whose, path: OsStr::from_bytes(path.to_bytes()).into() };
        let mut folders = vec![fixed(Whose::Package, PACKAGE), fixed(Whose::System, SYSTEM)];
        if let Some(home) = home.filter(|home| home.is_absolute()) {
            folders.push(Folder { whose: Whose::User, path: home.join(USER) });
        }
        Self::new(folders, refused)
    }

    /// One folder that was named.
    pub fn named(path: &Path, refused: &[&Path]) -> Self {
        Self::new(vec![Folder { whose: Whose::Named, path: path.into() }], refused)
    }

    fn new(folders: Vec<Folder>, refused: &[&Path]) -> Self {
        let refused = refused.iter().map(|path| path.to_path_buf()).collect();
        Self { folders, refused, own: rustix::process::geteuid().as_raw() }
    }

    /// The folders, in order.
    pub fn folders(&self) -> &[Folder] {
        &self.folders
    }

    /// The first patched file of a build that is believed; or why none is, folder by folder. Its
    /// footer is read, its digest is not looked at: [`Image::read`] does that.
    pub fn find(&self, build_id: &[u8]) -> Result<Held, Vec<(PathBuf, Distrust)>> {
        let mut why = Vec::new();
        for folder in &self.folders {
            match self.find_in(folder, build_id) {
                Ok(held) => return Ok(held),
                Err(distrust) => why.push((folder.path.join(name_of(build_id)), distrust)),
            }
        }
        Err(why)
    }

    fn find_in(&self, folder: &Folder, build_id: &[u8]) -> Result<Held, Distrust> {
        if self.is_refused(&folder.path) {
            return Err(Distrust::OnVolume);
        }
        let name =
            CString::new(folder.path.as_os_str().as_bytes()).map_err(|_| Distrust::Missing)?;
        let file = open(&name, build_id, self.own)?;
        // SAFETY: a descriptor that nobody else has.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(file) });
        let footer = arm::footer_of(file.as_raw_fd()).map_err(Distrust::Contents)?;
        if footer.build_id() != build_id {
            return Err(Distrust::OtherBuild);
        }
        let path = folder.path.join(name_of(build_id));
        Ok(Held { path, whose: folder.whose, footer, file })
    }

    /// The build-ids of all files that there are, by their names.
    pub fn builds(&self) -> Vec<Vec<u8>> {
        let mut builds = Vec::new();
        for folder in &self.folders {
            let entries = std::fs::read_dir(&folder.path).into_iter().flatten().flatten();
            builds.extend(entries.filter_map(|entry| build_of(entry.file_name().as_bytes())));
        }
        builds.sort();
        builds.dedup();
        builds
    }

    /// Puts a patched file into the first folder that can be written. One that is there already
    /// and is whole stays: gives where it lies, and whether it was there.
    pub fn install(&self, image: &Image) -> Result<(PathBuf, bool), (PathBuf, io::Error)> {
        let build_id = image.footer.build_id();
        if let Ok(held) = self.find(build_id) {
            let whole = std::fs::read(&held.path).is_ok_and(|bytes| bytes == image.bytes);
            if whole {
                return Ok((held.path, true));
            }
        }
        let mut failed = (PathBuf::new(), io::Error::other("no folder is known"));
        for folder in &self.folders {
            if self.is_refused(&folder.path) {
                let error = io::Error::other("it lies on a volume");
                failed = (folder.path.clone(), error);
                continue;
            }
            match install_in(folder, image) {
                Ok(path) => return Ok((path, false)),
                Err(error) => failed = (folder.path.clone(), error),
            }
        }
        Err(failed)
    }

    fn is_refused(&self, path: &Path) -> bool {
        // The nearest directory that there is, by its real name.
        let real = path.ancestors().find_map(|above| os::real_path(above).ok());
        self.refused.iter().any(|volume| {
            let of_volume = os::real_path(volume).unwrap_or_else(|_| volume.clone());
            path.starts_with(volume)
                || real.as_ref().is_some_and(|real| real.starts_with(&of_volume))
        })
    }
}

/// The name of the file of a build.
pub fn name_of(build_id: &[u8]) -> String {
    let mut buffer = [0; NAME_MAX];
    let length = file_name(build_id, &mut buffer);
    String::from_utf8_lossy(&buffer[..length - 1]).into_owned()
}

/// The build-id that a name is of.
fn build_of(name: &[u8]) -> Option<Vec<u8>> {
    let digits = name.strip_suffix(b".door")?;
    let text = std::str::from_utf8(digits).ok().filter(|text| text.len().is_multiple_of(2))?;
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

fn install_in(folder: &Folder, image: &Image) -> io::Result<PathBuf> {
    let mode = if folder.whose == Whose::User { 0o700 } else { 0o755 };
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(&folder.path)?;
    let name = name_of(image.footer.build_id());
    let (path, temporary) =
        (folder.path.join(&name), folder.path.join(format!(".{name}.{}", std::process::id())));
    let write = || -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)?;
        file.write_all(&image.bytes)?;
        // Whatever the umask: a user that may enter the folder may read it.
        file.set_permissions(std::fs::Permissions::from_mode(0o444))?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        std::fs::File::open(&folder.path)?.sync_all()
    };
    let written = write();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.map(|()| path)
}
