//! Peers: a directory of this machine that is mounted over a network file system, all of it on
//! loopback. Its server, its mount and its keys are made for the run, in a directory of the run,
//! and end with it; nothing listens but on loopback.
//!
//! `sshfs` comes in two forms: over `ssh`, as it is used, and straight over TCP to `sftp-server`,
//! which encrypts nothing, as nodes on loopback do not. `GlusterFS` is one brick, without its
//! management daemon, cache or read-ahead of its own.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::output;
use rustix::fs::Advice;

use super::mapping::Mapping;
use super::program;

/// How long a mount may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where Debian has its server of `sftp`.
const SFTP: &str = "/usr/lib/openssh/sftp-server";
const SSHD: &str = "/usr/sbin/sshd";
/// What `sshd` insists on where root starts it; a service makes it otherwise.
const SEPARATION: &str = "/run/sshd";

/// How the directory is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `sshfs`, to a server of `sftp` without `ssh`.
    Sftp,
    /// `sshfs`, as it comes.
    Ssh,
    /// `GlusterFS`.
    Gluster,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Sftp, Self::Ssh, Self::Gluster];

    /// As tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sftp => "sshfs, not encrypted",
            Self::Ssh => "sshfs",
            Self::Gluster => "GlusterFS",
        }
    }

    /// As the command line of a worker calls it, and its directory.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sftp => "sftp",
            Self::Ssh => "ssh",
            Self::Gluster => "gluster",
        }
    }

    /// Why there is none here.
    pub fn missing(self) -> Option<String> {
        let needed: &[&str] = match self {
            Self::Sftp => &["sshfs", SFTP],
            Self::Ssh => &["sshfs", SSHD, "ssh-keygen"],
            Self::Gluster => &["glusterfs", "glusterfsd"],
        };
        if self == Self::Gluster && !rustix::process::geteuid().is_root() {
            return Some("it takes root".into());
        }
        let absent = needed.iter().find(|program| !is_installed(program))?;
        Some(format!("there is no {absent}"))
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    places.any(|place| place.join(program).exists())
}

/// The mounted directory; gone when this is dropped.
pub struct Share {
    kind: Kind,
    directory: PathBuf,
    servers: Vec<Child>,
    /// This run has made the directory that `sshd` insists on.
    separated: bool,
}

/// A program that ends when this one does, however that is.
fn with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", program]).stdin(Stdio::null());
    command
}

impl Share {
    /// Mounts a directory below this one, which is made.
    pub fn mount(kind: Kind, directory: &Path) -> Result<Self, Failure> {
        let asked = format!("mount a directory by {}", kind.name());
        let failed = |error: &io::Error| Failure::io(&asked, error);
        fs::create_dir(directory).map_err(|error| failed(&error))?;
        let servers = Vec::new();
        let mut share = Self { kind, directory: directory.into(), servers, separated: false };
        for path in [share.served(), share.mounted()] {
            fs::create_dir(path).map_err(|error| failed(&error))?;
        }
        let before = share.device().map_err(|error| failed(&error))?;
        let started = match kind {
            Kind::Sftp | Kind::Ssh => share.sshfs(),
            Kind::Gluster => share.gluster(),
        };
        started.map_err(|error| failed(&error))?;
        let begun = Instant::now();
        while share.device().ok() == Some(before) {
            if share.has_ended() || begun.elapsed() > PATIENCE {
                let said = share.said();
                return Err(Failure::new(asked, format!("it does not appear: {said}"), ""));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(share)
    }

    /// The directory as its server sees it.
    pub fn served(&self) -> PathBuf {
        self.directory.join("served")
    }

    /// The directory as it is mounted.
    pub fn mounted(&self) -> PathBuf {
        self.directory.join("mounted")
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::stat(self.mounted())?.st_dev)
    }

    fn has_ended(&mut self) -> bool {
        self.servers.iter_mut().any(|server| matches!(server.try_wait(), Ok(Some(_))))
    }

    /// The last line of what its programs have said.
    fn said(&self) -> String {
        let text = |name| fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        let all = ["log", "client.log", "server.log"].map(text).concat();
        all.lines().last().unwrap_or("nothing was said").to_owned()
    }

    /// Starts a program; what it says goes to the log.
    fn start(&mut self, command: &mut Command) -> io::Result<()> {
        let log = File::options().append(true).create(true).open(self.directory.join("log"))?;
        let child = command.stderr(log).spawn()?;
        self.servers.push(child);
        Ok(())
    }

    fn sshfs(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let mut server = if self.kind == Kind::Ssh { self.sshd()? } else { with_us(SFTP) };
        let mut command = with_us("sshfs");
        command.args(["-f", "-o"]);
        if self.kind == Kind::Ssh {
            let (key, known) = (self.directory.join("key"), self.directory.join("known"));
            command.arg(format!("port={port},IdentityFile={}", key.display()));
            command.args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no,BatchMode=yes"]);
            command.args(["-o", &format!("UserKnownHostsFile={}", known.display())]);
        } else {
            command.arg(format!("directport={port}"));
        }
        command.arg(format!("127.0.0.1:{}", self.served().display())).arg(self.mounted());
        self.start(command.stdout(Stdio::null()))?;
        let stream = self.accept(&listener)?;
        stream.set_nodelay(true)?;
        let (input, output) = (OwnedFd::from(stream.try_clone()?), OwnedFd::from(stream));
        self.start(server.stdin(input).stdout(output))
    }

    /// The one connection that is served. It is this user's: others may connect to loopback, too,
    /// and a server of `sftp` asks for nothing.
    fn accept(&mut self, listener: &TcpListener) -> io::Result<TcpStream> {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && !self.has_ended() {
            match listener.accept() {
                Ok((stream, from)) if is_ours(from, port)? => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("sshfs does not connect: {}", self.said())))
    }

    /// A server for one connection, that knows one key of this run.
    fn sshd(&mut self) -> io::Result<Command> {
        let path = |name: &str| self.directory.join(name);
        for name in ["host", "key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path(name));
            let made = keygen.stdin(Stdio::null()).status()?;
            if !made.success() {
                return Err(io::Error::other(format!("ssh-keygen: {made}")));
            }
        }
        let config = path("sshd_config");
        let text = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nSubsystem sftp {SFTP}\n",
            path("host").display(),
            path("key.pub").display(),
        );
        fs::write(&config, text)?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
        if rustix::process::geteuid().is_root() {
            self.separated = fs::create_dir(SEPARATION).is_ok();
        }
        let mut command = with_us(SSHD);
        command.args(["-i", "-e", "-f"]).arg(config);
        Ok(command)
    }

    fn gluster(&mut self) -> io::Result<()> {
        // Free a moment ago: the daemon takes no listening socket.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let server = format!(
            "volume posix\n type storage/posix\n option directory {}\nend-volume\n\
             volume locks\n type features/locks\n subvolumes posix\nend-volume\n\
             volume brick\n type performance/io-threads\n option thread-count 2\n \
             subvolumes locks\nend-volume\n\
             volume server\n type protocol/server\n option transport-type tcp\n \
             option transport.socket.bind-address 127.0.0.1\n \
             option transport.socket.listen-port {port}\n \
             option auth.addr.brick.allow 127.0.0.1\n subvolumes brick\nend-volume\n",
            self.served().display(),
        );
        let client = format!(
            "volume client\n type protocol/client\n option transport-type tcp\n \
             option remote-host 127.0.0.1\n option remote-port {port}\n \
             option remote-subvolume brick\nend-volume\n"
        );
        for (program, name, text) in
            [("glusterfsd", "server", server), ("glusterfs", "client", client)]
        {
            let path = |what: &str| self.directory.join(format!("{name}.{what}"));
            let (volume, log) = (path("vol"), path("log"));
            fs::write(&volume, text)?;
            let mut command = with_us(program);
            command.arg("-N").arg("-f").arg(volume).arg("-l").arg(log);
            if name == "client" {
                wait_for_server(port)?;
                command.arg(self.mounted());
            }
            self.start(command.stdout(Stdio::null()))?;
        }
        Ok(())
    }

    /// Makes a file of the pages that a program's file has, as the server sees it.
    pub fn fill(&self, bytes: u64) -> Result<(), Failure> {
        program::fill(&self.served().join("file"), bytes as usize)
            .map(drop)
            .map_err(|error| Failure::io(format!("fill a file of {}", self.kind.name()), &error))
    }

    /// Microseconds of each of so many touches of a mapping of that file. None of its pages is in
    /// this machine's cache, and the kernel reads nothing ahead.
    pub fn touches(&self, pages: &[usize], pause: Duration) -> io::Result<Vec<f64>> {
        let file = File::options().read(true).write(true).open(self.mounted().join("file"))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        let map = Mapping::of(&file, file.metadata()?.len() as usize)?;
        let cached = map.cached()?;
        if cached > 0 {
            return Err(io::Error::other(format!("{cached} pages are still in the cache")));
        }
        map.at_random_only()?;
        let times = program::touches(&map, pages.iter().copied(), pause)?;
        Ok(times.into_iter().map(|ns| ns as f64 / 1000.0).collect())
    }
}

/// Until the server listens. (Its client asks again only after seconds.)
fn wait_for_server(port: u16) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Whether the other end of a connection on loopback to a port is a socket of this user.
fn is_ours(from: SocketAddr, to: u16) -> io::Result<bool> {
    let place = |port: u16| format!("0100007F:{port:04X}");
    let (from, to) = (place(from.port()), place(to));
    let table = fs::read_to_string("/proc/net/tcp")?;
    let own = rustix::process::geteuid().as_raw().to_string();
    Ok(table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&from) && fields.next() == Some(&to) && fields.nth(4) == Some(&own)
    }))
}

impl Drop for Share {
    fn drop(&mut self) {
        // What cannot be unmounted or has ended is as it should be.
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(self.mounted()).stderr(Stdio::null());
        if !rustix::process::geteuid().is_root() {
            unmount = Command::new("fusermount3");
            unmount.args(["-u", "-z"]).arg(self.mounted());
        }
        let _ = unmount.status();
        for server in &mut self.servers {
            if let Some(pid) = rustix::process::Pid::from_raw(server.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = server.wait();
        }
        if self.separated {
            let _ = fs::remove_dir(SEPARATION);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A worker: mounts one for another program, says where, and holds it until its input ends.
pub fn hold(kind: &str, directory: &Path) -> Outcome {
    let asked = || format!("mount a directory by `{kind}`");
    let kind = Kind::ALL.into_iter().find(|one| one.word() == kind);
    let kind = kind.ok_or_else(|| Failure::new(asked(), "it is none", "sftp, ssh or gluster"))?;
    if let Some(why) = kind.missing() {
        return Err(Failure::new(asked(), why, ""));
    }
    let share = Share::mount(kind, directory)?;
    let said = serde_json::json!({
        "name": kind.name(), "mounted": share.mounted(), "served": share.served(),
    });
    output::emit(format!("{said}\n").as_bytes())?;
    // Nothing comes; the end does.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::is_ours;

    #[test]
    fn a_connection_of_this_user_is_ours_and_another_one_is_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = listener.local_addr().expect("bound");
        let near = TcpStream::connect(at).expect("it listens");
        let own = near.local_addr().expect("connected");
        assert!(is_ours(own, at.port()).expect("the table of connections"));
        assert!(!is_ours(own, at.port() ^ 1).expect("the table of connections"));
        assert!(!is_ours(at, own.port() ^ 1).expect("the table of connections"));
    }
}
