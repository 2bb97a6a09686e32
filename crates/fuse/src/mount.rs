//! Mounts and unmounts: by the system calls where this process may, else by `fusermount3`, which
//! every user may run on directories of that user's own.

use std::ffi::{CString, OsStr, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use vfs::Errno;
use vfs::mounts::{self, Mount};

/// Mounts for users that may not mount.
pub const HELPER: &str = "fusermount3";

/// How a volume is to be mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of its own.
pub struct MountOptions {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users than the mounting one may use it.
    pub allow_other: bool,
    /// Set-user-id programs on it get their user.
    pub suid: bool,
    /// Device nodes on it can be opened.
    pub dev: bool,
    /// Programs on it cannot be executed.
    pub no_exec: bool,
    /// Times of access are not kept.
    pub no_atime: bool,
}

impl MountOptions {
    fn flags(&self) -> MountFlags {
        let wanted = [
            (self.read_only, MountFlags::RDONLY),
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (self.no_exec, MountFlags::NOEXEC),
            (self.no_atime, MountFlags::NOATIME),
        ];
        wanted.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag).collect()
    }
}

/// A mount that was made.
#[derive(Debug)]
pub struct Made {
    /// The connection to the kernel.
    pub device: OwnedFd,
    /// The helper's remarks, for people: options that it has left out. May be empty.
    pub said: String,
}

/// Mounts a volume at a directory. The error is for people.
pub fn mount(volume: &Path, at: &Path, options: &MountOptions) -> Result<Made, String> {
    let device = open_device()?;
    match mount_here(&device, volume, at, options) {
        Ok(()) => Ok(Made { device, said: String::new() }),
        Err(Errno::PERM) => mount_by_helper(volume, at, options),
        Err(errno) => Err(format!("mounting there failed: {}", text(errno))),
    }
}

/// Whether the kernel has FUSE, and this user may use it; the error is for people.
pub fn check_device() -> Result<(), String> {
    open_device().map(drop)
}

fn open_device() -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(no_device)?;
    if rustix::fs::fstat(&device).is_ok_and(|stat| stat.st_rdev != rustix::fs::makedev(10, 229)) {
        return Err("/dev/fuse is another device than FUSE's (10, 229); make it anew".into());
    }
    Ok(device)
}

fn text(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn no_device(errno: Errno) -> String {
    let advice = match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "load the kernel's module (`modprobe fuse`), or give the container the device"
        }
        _ => "ask for permission to open it",
    };
    format!("/dev/fuse cannot be opened: {}; {advice}", text(errno))
}

fn mount_here(
    device: &OwnedFd,
    volume: &Path,
    at: &Path,
    options: &MountOptions,
) -> Result<(), Errno> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions",
        device.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(volume, at, mounts::TYPE, options.flags(), &*data)
}

/// The helper's own list of options: what is in a path must not look like another option.
fn helper_options(volume: &Path, options: &MountOptions) -> OsString {
    let mut list = OsString::from("default_permissions,subtype=solera,fsname=");
    let mut name = Vec::new();
    for &byte in volume.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            name.push(b'\\');
        }
        name.push(byte);
    }
    list.push(OsStr::from_bytes(&name));
    let wanted = [
        (options.read_only, ",ro"),
        (options.allow_other, ",allow_other"),
        (options.suid, ",suid"),
        (options.dev, ",dev"),
        (options.no_exec, ",noexec"),
        (options.no_atime, ",noatime"),
    ];
    for (_, option) in wanted.into_iter().filter(|(given, _)| *given) {
        list.push(option);
    }
    list
}

fn mount_by_helper(volume: &Path, at: &Path, options: &MountOptions) -> Result<Made, String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let (own, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )
    .map_err(|errno| failed("no socket for it", &errno))?;
    rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::CLOEXEC)
        .map_err(|errno| failed("no socket for it", &errno))?;
    let mut child = Command::new(HELPER)
        .arg("-o")
        .arg(helper_options(volume, options))
        .arg("--")
        .arg(at)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed("only root mounts without fusermount3 (package fuse3)", &error))?;
    drop(theirs);
    let device = receive(&own);
    let said = child.stderr.take().map(std::io::read_to_string).and_then(Result::ok);
    let said = said.unwrap_or_default().trim().replace("fusermount3: ", "fusermount3 says: ");
    let status = child.wait().map_err(|error| failed(HELPER, &error))?;
    match device {
        Some(device) if status.success() => Ok(Made { device, said }),
        _ => Err(said),
    }
}

/// The descriptor that the helper sends.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    loop {
        match rustix::net::recvmsg(socket, &mut data, &mut control, flags) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Takes a mount away, and no other: `EBUSY` if something is mounted over it. `lazy`: at once out
/// of the tree, though in use, with all that is mounted in it. `EBUSY`, `EINVAL` (no mount);
/// `EPERM` also where the helper refuses.
pub fn unmount(mount: &Mount, lazy: bool) -> Result<(), Errno> {
    let at = &mount.at;
    if !mount.is_on_top().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))? {
        return Err(if mount.bears_others().unwrap_or(false) { Errno::BUSY } else { Errno::INVAL });
    }
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazy {
        flags |= UnmountFlags::DETACH;
    }
    match rustix::mount::unmount(at, flags) {
        Err(Errno::PERM) => unmount_by_helper(at, lazy),
        result => result,
    }
}

fn unmount_by_helper(at: &Path, lazy: bool) -> Result<(), Errno> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(at).output().map_err(|_| Errno::PERM)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(Errno::BUSY),
        false => Err(Errno::PERM),
    }
}
