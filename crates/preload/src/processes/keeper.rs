//! A mount for a program that no library can enter: asked of a *keeper*, a process of the command's
//! (`vfs::keeper`), which mounts the volumes in a name space of mounts that the program is executed
//! in. Nobody else sees that.
//!
//! Whoever asks first starts the keeper. Its socket has an abstract name that says for what its
//! mounts stand: the name spaces and root directory of which it has a copy, what is mounted there,
//! and the volumes with all that is asked of them. So two that ask at once find one keeper, and one
//! whose answer would be another does not find it. A name that is taken by another user is left to
//! it: then the keeper is this program's alone. It is no child that the program could wait for.
//!
//! Only a process that may enter a name space has one (root).

use std::arch::asm;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use vfs::Errno;
use vfs::keeper::{ANSWER_MAX, COMMAND, READY, REQUIRED, is_permitted};

use crate::entry::pending_signals::set_mask;
use crate::entry::process::{Process, VolumeView};
use crate::runtime::environment;

/// How long a keeper may take until its mounts are there.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// How often a keeper that ends in the moment in which it is asked is followed by another one.
const TRIES: u32 = 4;
/// How often, once a millisecond, it is asked for by its name where nobody listens yet.
const LOOKS: u32 = 200;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The name space that a keeper keeps.
pub struct Mounts {
    names: OwnedFd,
    root: OwnedFd,
    /// Directories that others stand in for.
    stand_ins: Vec<Vec<u8>>,
    connection: OwnedFd,
}

/// Whether this image executes no program without the volume.
pub fn is_required() -> bool {
    environment::value(REQUIRED.as_bytes()).is_some_and(|value| !value.is_empty())
}

/// Asks for mounts of all volumes that have none. `None`: this process may have no keeper, or needs
/// none. The error is for people.
pub fn ask(process: &Process) -> Option<Result<Mounts, String>> {
    let command = environment::value(COMMAND.as_bytes()).filter(|path| !path.is_empty())?;
    if process.volumes().all(|seen| seen.mounted) || !is_permitted() {
        return None;
    }
    Some(Service::new(process, command)?.mounts())
}

/// What a keeper is asked for.
struct Service {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    address: SocketAddrUnix,
}

/// The variables of a process that do not concern its keeper.
const UNCONCERNED: [&[u8]; 4] =
    [b"SOLERA_REPORT=", b"SOLERA_PROFILE", b"SOLERA_BYPASS=", b"SOLERA_STRICT_SUPPORT="];

impl Service {
    fn new(process: &Process, command: &CStr) -> Option<Self> {
        let mut environment = process.environment();
        environment.retain(|text| !UNCONCERNED.iter().any(|name| text.starts_with(name)));
        let is_read_only = |number: usize| {
            let name = match number {
                0 => "SOLERA_READ_ONLY=".to_owned(),
                number => format!("SOLERA_READ_ONLY_{}=", number + 1),
            };
            let mut values = environment.iter().filter_map(|it| it.strip_prefix(name.as_bytes()));
            values.any(|value| !value.is_empty())
        };
        let mut arguments = vec![command.to_owned(), c"keeper".to_owned()];
        for (number, seen) in process.volumes().enumerate().filter(|(_, seen)| !seen.mounted) {
            arguments.push(CString::new(&*seen.source).ok()?);
            arguments.push(CString::new(&*seen.prefix).ok()?);
            arguments.push(if is_read_only(number) { c"ro" } else { c"rw" }.to_owned());
        }
        let stood_for = what_it_stands_for(process, &arguments, &environment).ok()?;
        let name = format!("solera-keeper-{:032x}", hash(&stood_for));
        let environment = environment.into_iter().filter_map(|text| CString::new(text).ok());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
        Some(Self { arguments, environment: environment.collect(), address })
    }

    fn mounts(&self) -> Result<Mounts, String> {
        let failed = |errno: Errno| format!("its keeper cannot be asked: {errno}");
        for _ in 0..TRIES {
            let Some(connection) = self.connect().map_err(failed)? else {
                let command = self.arguments[0].to_string_lossy();
                return Err(format!("{command} does not start as its keeper"));
            };
            match answer(connection) {
                Ok(Some(mounts)) => return mounts,
                // It has ended meanwhile.
                Ok(None) | Err(Errno::CONNRESET) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err("its keeper ends before it answers".to_owned())
    }

    /// A connection to the keeper, which is started if there is none. `None`: it does not start.
    fn connect(&self) -> Result<Option<OwnedFd>, Errno> {
        let listener = socket()?;
        for _ in 0..LOOKS {
            match rustix::net::bind(&listener, &self.address) {
                Ok(()) => return self.start(&listener),
                Err(Errno::ADDRINUSE) => {}
                Err(errno) => return Err(errno),
            }
            let connection = socket()?;
            match rustix::net::connect(&connection, &self.address) {
                Ok(()) => {
                    let own = rustix::process::geteuid();
                    if sockopt::socket_peercred(&connection)?.uid == own {
                        return Ok(Some(connection));
                    }
                    break;
                }
                // It has just been given this name and listens in a moment, or is about to end.
                Err(Errno::CONNREFUSED) => {
                    let _ = rustix::thread::nanosleep(&LOOK);
                }
                Err(errno) => return Err(errno),
            }
        }
        rustix::net::bind(&listener, &SocketAddrUnix::new_unnamed())?;
        self.start(&listener)
    }

    /// Starts a keeper that listens there.
    fn start(&self, listener: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
        rustix::net::listen(listener, 16)?;
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        let start = Start {
            command: self.arguments[0].as_ptr(),
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            listener: listener.as_raw_fd(),
        };
        // No handler of the program's runs in what shares its memory.
        let mask = set_mask(u64::MAX);
        let ended = start.run();
        set_mask(mask);
        if !ended? {
            return Ok(None);
        }
        let connection = socket()?;
        let name = rustix::net::getsockname(listener)?;
        let address = SocketAddrUnix::try_from(name)?;
        rustix::net::connect(&connection, &address)?;
        Ok(Some(connection))
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// All that a keeper's mounts depend on, as text.
fn what_it_stands_for(
    process: &Process,
    arguments: &[CString],
    environment: &[Vec<u8>],
) -> Result<Vec<u8>, Errno> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let spaces = ["mnt", "user", "pid"].map(|name| format!("/proc/thread-self/ns/{name}"));
    for path in spaces.iter().map(String::as_str).chain(["/"]) {
        let stat = rustix::fs::stat(path)?;
        let _ = write!(text, "{}:{};", stat.st_dev, stat.st_ino);
    }
    for seen in process.volumes() {
        let _ = write!(text, "{}:{};", seen.texts.file.0, seen.texts.file.1);
        // What stands in for the directory above the prefix has the entries of now.
        if rustix::fs::stat(&*seen.prefix).is_err() {
            let above = (1..seen.prefix.len()).rev().filter(|&at| seen.prefix[at] == b'/');
            let mut above = above.map(|at| &seen.prefix[..at]).chain([b"/".as_slice()]);
            if let Some(stat) = above.find_map(|above| rustix::fs::stat(above).ok()) {
                let _ = write!(text, "{}:{}.{};", stat.st_ino, stat.st_mtime, stat.st_mtime_nsec);
            }
        }
    }
    let mut text = text.into_bytes();
    for argument in arguments {
        text.extend_from_slice(argument.as_bytes_with_nul());
    }
    for variable in environment {
        text.extend_from_slice(variable);
        text.push(0);
    }
    text.extend(std::fs::read("/proc/thread-self/mountinfo").map_err(|_| Errno::NOENT)?);
    Ok(text)
}

/// FNV-1a of 128 bits.
fn hash(text: &[u8]) -> u128 {
    const PRIME: u128 = (1 << 88) + (1 << 8) + 0x3b;
    text.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    })
}

/// What a keeper says. `None`: it has ended.
fn answer(connection: OwnedFd) -> Result<Option<Result<Mounts, String>>, Errno> {
    let mut polled = [PollFd::new(&connection, PollFlags::IN)];
    while match poll(&mut polled, Some(&PATIENCE)) {
        Ok(0) => return Ok(Some(Err("its keeper does not answer".to_owned()))),
        Ok(_) => false,
        Err(Errno::INTR) => true,
        Err(errno) => return Err(errno),
    } {}
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; ANSWER_MAX];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&connection, &mut [IoSliceMut::new(&mut text)], &mut control, flags)
    })?;
    text.truncate(got.bytes);
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = descriptors.next().into_iter().flatten();
    match (text.split_first(), descriptors.next(), descriptors.next()) {
        (Some((&READY, stand_ins)), Some(names), Some(root)) => {
            let stand_ins = stand_ins.split(|&byte| byte == 0).filter(|at| !at.is_empty());
            let stand_ins = stand_ins.map(<[u8]>::to_vec).collect();
            Ok(Some(Ok(Mounts { names, root, stand_ins, connection })))
        }
        (Some(_), None, _) => Ok(Some(Err(String::from_utf8_lossy(&text).into_owned()))),
        (None, ..) => Ok(None),
        _ => Ok(Some(Err("there are too few descriptors for a mount".to_owned()))),
    }
}

/// What becomes a keeper.
struct Start {
    command: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    listener: c_int,
}

impl Start {
    /// Executes it in a process of its own, which has ended when this returns: the keeper is its
    /// child. `false`: it could not. Signals are blocked. No SIGCHLD tells the program of it.
    fn run(&self) -> Result<bool, Errno> {
        let flags = (libc::CLONE_VM | libc::CLONE_VFORK) as usize;
        let pid: isize;
        // SAFETY: as `vfork`: this thread goes on when the child has executed something or has
        // ended. The child runs on this thread's stack below what is in use, and never comes back.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "mov rdi, r9",
                "call {child}",
                "ud2",
                "2:",
                child = sym become_keeper,
                inlateout("rax") libc::SYS_clone as isize => pid,
                inlateout("rdi") flags => _,
                inlateout("rsi") 0 => _,
                inlateout("rdx") 0 => _,
                inlateout("r10") 0 => _,
                inlateout("r8") 0 => _,
                inlateout("r9") std::ptr::from_ref(self) => _,
                clobber_abi("C"),
            );
        }
        if pid < 0 {
            return Err(Errno::from_raw_os_error(-pid as i32));
        }
        let mut status = 0;
        let wait = || {
            let arguments =
                [pid as usize, &raw mut status as usize, libc::__WALL as usize, 0, 0, 0];
            // SAFETY: the child of above, and a number of this frame's.
            unsafe { os::interrupt::system_call(libc::SYS_wait4, arguments) }
        };
        rustix::io::retry_on_intr(wait)?;
        Ok(status == 0)
    }
}

/// The child's part: shares the parent's memory, and changes nothing there. It has no descriptors
/// of the program's, whose readers would wait for their end.
extern "C" fn become_keeper(start: &Start) -> ! {
    let call = |number, a: usize, b: usize, c: usize| {
        // SAFETY: numbers, and texts of the parent's, which waits.
        unsafe { os::interrupt::system_call(number, [a, b, c, 0, 0, 0]) }.unwrap_or(usize::MAX)
    };
    let number = |fd: c_int| fd as usize;
    if start.listener == 0 {
        // Made close-on-exec.
        call(libc::SYS_fcntl, 0, libc::F_SETFD as usize, 0);
    } else {
        call(libc::SYS_dup3, number(start.listener), 0, 0);
    }
    call(libc::SYS_close_range, 1, u32::MAX as usize, 0);
    let null = c"/dev/null".as_ptr() as usize;
    for _ in 1..=2 {
        call(libc::SYS_open, null, libc::O_RDWR as usize, 0);
    }
    let lists = (start.arguments as usize, start.environment as usize);
    call(libc::SYS_execve, start.command as usize, lists.0, lists.1);
    loop {
        call(libc::SYS_exit_group, 127, 0, 0);
    }
}

/// A directory of the mount of a volume, in a keeper's name space.
pub struct Mounted {
    pub directory: OwnedFd,
    pub device: u64,
    /// What it says that it serves: the value of [`crate::paths::mount::VARIABLE`].
    pub serves: Vec<u8>,
}

impl Mounts {
    /// Opens a path there.
    pub fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// The mount of a volume.
    pub fn of(&self, seen: &VolumeView) -> Result<Mounted, Errno> {
        let directory = self.open(&seen.prefix, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let device = rustix::fs::fstat(&directory)?.st_dev;
        let mut said = [0; 256];
        let length = rustix::fs::fgetxattr(&directory, vfs::mounts::IDENTITY, &mut said[..])?;
        Ok(Mounted { directory, device, serves: said[..length].to_vec() })
    }

    /// Whether the kernel's working directory is there by the same path, or one stands in for it:
    /// that.
    pub fn working_directory(&self) -> Option<OwnedFd> {
        let path = rustix::process::getcwd(Vec::new()).ok()?;
        let there = self.open(path.as_bytes(), OFlags::PATH | OFlags::DIRECTORY).ok()?;
        let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let is_same =
            rustix::fs::fstat(&there).ok().map(place) == rustix::fs::stat(".").ok().map(place);
        let stands_in = || self.stand_ins.iter().any(|at| at == path.as_bytes());
        (is_same || stands_in()).then_some(there)
    }
}

impl Drop for Mounts {
    /// No exec there has succeeded: this process does not use the mounts.
    fn drop(&mut self) {
        // If the keeper has died it need not know.
        let _ = rustix::net::send(&self.connection, &[0], SendFlags::NOSIGNAL);
    }
}

/// Where this thread was before it entered a keeper's name space.
pub struct Outside {
    names: OwnedFd,
    root: OwnedFd,
    directory: OwnedFd,
}

impl Outside {
    fn here() -> Result<Self, Errno> {
        let open =
            |path, flags| rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            names: open("/proc/thread-self/ns/mnt", OFlags::RDONLY)?,
            root: open("/", OFlags::PATH)?,
            directory: open(".", OFlags::PATH)?,
        })
    }

    /// Comes back. What cannot be had back would have failed before.
    pub fn come_back(self) {
        let _ = move_to(self.names.as_fd(), self.root.as_fd(), self.directory.as_fd());
    }
}

/// Enters a keeper's name space, in a directory: this thread alone. In a process of several threads
/// it has a root and working directory of its own from then on, which an exec makes the process's.
pub fn enter(mounts: &Mounts, directory: BorrowedFd<'_>) -> Result<Outside, Errno> {
    let outside = Outside::here()?;
    match move_to(mounts.names.as_fd(), mounts.root.as_fd(), directory) {
        Ok(()) => Ok(outside),
        Err(errno) => {
            outside.come_back();
            Err(errno)
        }
    }
}

fn move_to(
    names: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let enter = || move_into_link_name_space(names, Some(LinkNameSpaceType::Mount));
    match enter() {
        // Other threads have the same root and working directory.
        Err(Errno::INVAL) => {
            // SAFETY: what is no longer shared is not memory, nor descriptors.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
            enter()?;
        }
        entered => entered?,
    }
    rustix::process::fchdir(root)?;
    rustix::process::chroot(c".")?;
    rustix::process::fchdir(directory)
}
