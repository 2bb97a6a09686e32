//! Plain connections: what the network itself takes, without nodes and volumes.
//!
//! The other side is a process of its own, as a holder is. A connection begins with a byte that
//! says whether that side polls. Then each request is 64 bytes: what is wanted, and how many bytes.
//! Who polls gives its processor away between looks, and blocks after 50 us, as nodes do.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a request.
const REQUEST: usize = 64;
/// Bytes that are sent in one go.
const CHUNK: usize = 256 << 10;
/// How long a side polls before it blocks.
const SPIN: Duration = Duration::from_micros(50);

const FETCH: u8 = 1;
const STREAM: u8 = 2;
const SINK: u8 = 3;

/// A side of a connection.
struct Endpoint {
    stream: TcpStream,
    polls: bool,
}

impl Endpoint {
    fn new(stream: TcpStream, polls: bool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(polls)?;
        Ok(Self { stream, polls })
    }

    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        poll(&mut [PollFd::from_borrowed_fd(self.stream.as_fd(), flags)], None)?;
        Ok(())
    }

    fn receive(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        if !self.polls {
            return self.stream.read_exact(into);
        }
        let mut since = Instant::now();
        while !into.is_empty() {
            match self.stream.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    into = &mut into[bytes..];
                    since = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if since.elapsed() < SPIN {
                        rustix::thread::sched_yield();
                    } else {
                        self.wait(PollFlags::IN)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The other side: serves connections until this process's standard input ends.
pub fn serve() -> Outcome {
    let failed = |error: io::Error| Failure::io("serve plain connections", &error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    console::output::emit(format!("{port}\n").as_bytes())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection ends when its other side does.
            std::thread::spawn(move || answer(stream));
        }
    });
    // Nothing comes; the end does.
    let _ = io::stdin().lock().read(&mut [0]);
    Ok(0)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut polls = [0];
    stream.read_exact(&mut polls)?;
    let mut side = Endpoint::new(stream, polls[0] == 1)?;
    let (mut request, mut bytes) = ([0; REQUEST], vec![0x5A; CHUNK]);
    loop {
        side.receive(&mut request)?;
        let [_, count, ..] = *request.as_chunks::<8>().0 else { return Ok(()) };
        let mut left = usize::from_le_bytes(count);
        match request[0] {
            FETCH => side.send(&bytes[..PAGE])?,
            STREAM => {
                while left > 0 {
                    let now = left.min(CHUNK);
                    side.send(&bytes[..now])?;
                    left -= now;
                }
            }
            _ => {
                while left > 0 {
                    let now = left.min(CHUNK);
                    side.receive(&mut bytes[..now])?;
                    left -= now;
                }
                side.send(&request)?;
            }
        }
    }
}

/// The other side's process.
pub struct Responder {
    child: Child,
    port: u16,
    /// It ends when this does.
    _input: Option<ChildStdin>,
}

impl Responder {
    pub fn start(mut command: Command) -> Result<Self, Failure> {
        let failed = |error| Failure::io("start the other side of connections", &error);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (input, mut line) = (child.stdin.take(), String::new());
        if let Some(out) = child.stdout.as_mut() {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let port = line.trim().parse();
        let remote = Self { child, port: port.unwrap_or(0), _input: input };
        if remote.port == 0 { Err(failed(ErrorKind::UnexpectedEof.into())) } else { Ok(remote) }
    }

    /// A new connection.
    pub fn connect(&self, asker_polls: bool, other_polls: bool) -> io::Result<Connection> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.write_all(&[u8::from(other_polls)])?;
        Ok(Connection { side: Endpoint::new(stream, asker_polls)?, buffer: vec![0; CHUNK] })
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to it.
pub struct Connection {
    side: Endpoint,
    buffer: Vec<u8>,
}

impl Connection {
    fn ask(&mut self, what: u8, bytes: usize) -> io::Result<()> {
        let mut request = [0; REQUEST];
        request[0] = what;
        request[8..16].copy_from_slice(&bytes.to_le_bytes());
        self.side.send(&request)
    }

    /// Fetches 4 KiB.
    pub fn fetch(&mut self) -> io::Result<&[u8]> {
        self.ask(FETCH, PAGE)?;
        let into = &mut self.buffer[..PAGE];
        self.side.receive(into)?;
        Ok(into)
    }

    /// Microseconds of each of so many fetches.
    pub fn round_trips(&mut self, count: usize, pause: Duration) -> io::Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            rest(pause);
            let begun = Instant::now();
            self.fetch()?;
            times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        Ok(times)
    }

    /// GB/s of a stream of so many bytes.
    pub fn stream(&mut self, bytes: usize) -> io::Result<f64> {
        let begun = Instant::now();
        self.ask(STREAM, bytes)?;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(CHUNK);
            self.side.receive(&mut self.buffer[..now])?;
            left -= now;
        }
        Ok(bytes as f64 / begun.elapsed().as_nanos() as f64)
    }

    /// Microseconds of this thread's processor for each page of a message of 64 pages, with the
    /// answer that it has arrived.
    pub fn send_cpu(&mut self, messages: usize) -> io::Result<f64> {
        let now = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1000.0
        };
        let begun = now();
        for _ in 0..messages {
            self.ask(SINK, CHUNK)?;
            self.side.send(&self.buffer)?;
            self.side.receive(&mut [0; REQUEST])?;
        }
        Ok((now() - begun) / (messages * CHUNK / PAGE) as f64)
    }
}

/// Does nothing for a while.
pub fn rest(pause: Duration) {
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}
