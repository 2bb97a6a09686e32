//! Answers a monitor over HTTP: `GET /metrics`. It has no thread: the caller waits for it among
//! others, and nothing here waits.

use crate::TYPE;
use rustix::event::{PollFd, PollFlags};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections at once; others wait until one is over.
const CONNECTIONS: usize = 8;
/// A request's head, at most.
const HEAD: usize = 8 << 10;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection of a monitor.
struct Scrape {
    stream: TcpStream,
    asked: Vec<u8>,
    /// What is left of the answer, once there is one.
    answer: Option<Vec<u8>>,
    since: Instant,
}

/// Where monitors connect.
pub struct ScrapeServer {
    listener: TcpListener,
    open: Vec<Scrape>,
}

fn answer(asked: &[u8], metrics: impl FnOnce() -> String) -> Vec<u8> {
    let line = asked.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(path))
            if path.split(|byte| *byte == b'?').next() == Some(b"/metrics") =>
        {
            ("200 OK", TYPE, metrics())
        }
        (Some(b"GET"), Some(_)) => {
            ("404 Not Found", "text/plain", "there is /metrics, and nothing else\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}

impl Scrape {
    /// Does what can be done now: whether there is more to do.
    fn step(&mut self, metrics: impl FnOnce() -> String) -> bool {
        let outcome = match &self.answer {
            None => self.hear(metrics),
            Some(_) => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.send());
        match outcome {
            Ok(()) => self.answer.as_ref().is_none_or(|rest| !rest.is_empty()),
            Err(ErrorKind::WouldBlock | ErrorKind::Interrupted) => self.since.elapsed() < PATIENCE,
            Err(_) => false,
        }
    }

    fn hear(&mut self, metrics: impl FnOnce() -> String) -> Result<(), ErrorKind> {
        let mut bytes = [0; 1024];
        while !self.asked.windows(4).any(|end| end == b"\r\n\r\n") {
            match self.stream.read(&mut bytes).map_err(|error| error.kind())? {
                0 => return Err(ErrorKind::UnexpectedEof),
                _ if self.asked.len() > HEAD => return Err(ErrorKind::InvalidData),
                read => self.asked.extend_from_slice(&bytes[..read]),
            }
        }
        self.answer = Some(answer(&self.asked, metrics));
        Ok(())
    }

    fn send(&mut self) -> Result<(), ErrorKind> {
        let Some(rest) = &mut self.answer else { return Ok(()) };
        while !rest.is_empty() {
            let sent = self.stream.write(rest).map_err(|error| error.kind())?;
            rest.drain(..sent);
        }
        Ok(())
    }
}

/// Why nobody can ask there, and what to do about it.
#[derive(Debug)]
pub struct ListenError {
    /// What is wrong with the address.
    pub found: String,
    /// How to name another one.
    pub advice: String,
}

impl ScrapeServer {
    /// Listens at an address of this machine, which an option names.
    pub fn listen(address: SocketAddr, option: &str) -> Result<Self, ListenError> {
        if address.ip().is_unspecified() {
            let found = "that is every address of this machine".to_owned();
            return Err(ListenError {
                found,
                advice: format!("name one: {option} 127.0.0.1:9470"),
            });
        }
        let failed = |error: std::io::Error| ListenError {
            found: error.to_string(),
            advice: format!("give {option} a free port of an address of this machine"),
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, open: Vec::new() })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// What there is to wait for.
    pub fn waited(&self) -> impl Iterator<Item = PollFd<'_>> {
        let free = self.open.len() < CONNECTIONS;
        let listener = free.then(|| PollFd::new(&self.listener, PollFlags::IN));
        let open = self.open.iter().map(|one| {
            let flags = if one.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&one.stream, flags)
        });
        listener.into_iter().chain(open)
    }

    /// Does what can be done now.
    pub fn step(&mut self, metrics: impl Fn() -> String) {
        while self.open.len() < CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                let (asked, answer, since) = (Vec::new(), None, Instant::now());
                self.open.push(Scrape { stream, asked, answer, since });
            }
        }
        self.open.retain_mut(|one| one.step(&metrics));
    }
}
