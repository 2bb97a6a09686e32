//! A terminal on which a program draws: a pseudo-terminal, and what is on its screen.
//!
//! Of a terminal's language it knows what full-screen programs need: places, colours, erasing.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long something may take to appear: others may have the machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A place on the screen: its letter, and whether it stands out.
type Cell = (char, bool);

/// A program with a terminal.
pub struct Screen {
    child: Child,
    side: File,
    /// The program's side, to compare its settings.
    other: OwnedFd,
    settings: libc::termios,
    size: (u16, u16),
    cells: Vec<Cell>,
    at: (usize, usize),
    stands_out: bool,
    /// What has come of a sequence that is not over.
    sequence: Vec<u8>,
    pub all: Vec<u8>,
}

fn settings(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: plain numbers, which the call fills.
    let mut found: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: an open terminal, and a place for its settings.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut found) }, 0);
    found
}

fn window((columns, lines): (u16, u16)) -> libc::winsize {
    libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Screen {
    /// Starts a program on a terminal of so many columns and lines.
    pub fn start(mut command: Command, size: (u16, u16)) -> Self {
        let (mut side, mut other, mut shape) = (-1, -1, window(size));
        let none = std::ptr::null_mut();
        // SAFETY: places for two numbers, and a size.
        let opened = unsafe {
            libc::openpty(&raw mut side, &raw mut other, none, none.cast(), &raw mut shape)
        };
        assert_eq!(opened, 0, "a pseudo-terminal");
        // SAFETY: both were just opened, and nobody else has them.
        let (side, other) = unsafe { (OwnedFd::from_raw_fd(side), OwnedFd::from_raw_fd(other)) };
        for fd in [&side, &other] {
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).unwrap();
        }
        let end = || Stdio::from(other.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let settings = settings(&other);
        let child = command.spawn().expect("it starts");
        drop(command);
        let cells = vec![(' ', false); usize::from(size.0) * usize::from(size.1)];
        Self {
            child,
            side: side.into(),
            settings,
            other,
            size,
            cells,
            at: (0, 0),
            stands_out: false,
            sequence: Vec::new(),
            all: Vec::new(),
        }
    }

    pub fn child(&self) -> &Child {
        &self.child
    }

    pub fn key(&mut self, key: &str) {
        self.side.write_all(key.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, size: (u16, u16)) {
        let shape = window(size);
        // SAFETY: an open terminal, and a size. The program is told by hand: it has not the
        // terminal for its own.
        let set = unsafe { libc::ioctl(self.side.as_raw_fd(), libc::TIOCSWINSZ, &raw const shape) };
        assert_eq!(set, 0);
        self.size = size;
        self.cells = vec![(' ', false); usize::from(size.0) * usize::from(size.1)];
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::WINCH).unwrap();
    }

    /// Takes what comes within that time; whether anything did.
    pub fn read(&mut self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap();
        let mut waited = [PollFd::new(&self.side, PollFlags::IN)];
        if poll(&mut waited, Some(&patience)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let Ok(read) = self.side.read(&mut bytes) else { return false };
        self.all.extend_from_slice(&bytes[..read]);
        bytes[..read].iter().for_each(|&byte| self.take(byte));
        read > 0
    }

    fn take(&mut self, byte: u8) {
        self.sequence.push(byte);
        match self.sequence[..] {
            [0x1b, b'[', .., last] if (0x40..=0x7e).contains(&last) => self.obey(),
            [0x1b] | [0x1b, b'[', ..] => return,
            [0x1b, ..] => {}
            [b'\r'] => self.at.0 = 0,
            [b'\n'] => self.at.1 += 1,
            _ => {
                // A letter may take several bytes.
                let Ok(text) = std::str::from_utf8(&self.sequence) else { return };
                let letter = text.chars().next().unwrap();
                let at = self.at.1 * usize::from(self.size.0) + self.at.0;
                if let Some(cell) = self.cells.get_mut(at)
                    && !letter.is_control()
                {
                    *cell = (letter, self.stands_out);
                }
                self.at.0 += 1;
            }
        }
        self.sequence.clear();
    }

    fn obey(&mut self) {
        let text = String::from_utf8_lossy(&self.sequence[2..self.sequence.len() - 1]).into_owned();
        let number = |at: usize, default: usize| {
            text.split(';').nth(at).and_then(|one| one.parse().ok()).unwrap_or(default)
        };
        match self.sequence.last() {
            Some(b'H') => self.at = (number(1, 1).max(1) - 1, number(0, 1).max(1) - 1),
            Some(b'J') => self.cells.fill((' ', false)),
            Some(b'm') => {
                for (at, one) in text.split(';').enumerate() {
                    match one {
                        // A colour's numbers follow.
                        "38" | "48" => break,
                        "7" => self.stands_out = true,
                        "0" | "" | "27" => self.stands_out = false,
                        _ => assert!(at < 16, "{text}"),
                    }
                }
            }
            _ => {}
        }
    }

    /// What is on it, line by line.
    pub fn text(&self) -> String {
        let line = |line: &[Cell]| line.iter().map(|cell| cell.0).collect::<String>();
        self.cells.chunks(usize::from(self.size.0)).map(line).collect::<Vec<_>>().join("\n")
    }

    /// What stands out.
    pub fn reversed(&self) -> String {
        let shown = self.cells.iter().filter(|cell| cell.1).map(|cell| cell.0).collect::<String>();
        shown.trim().to_owned()
    }

    /// Waits until it shows something.
    #[track_caller]
    pub fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is(self) {
            self.read(Duration::from_millis(50));
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{what}: it has ended: {ended:?}\n{}", self.text());
            assert!(begun.elapsed() < PATIENCE, "{what}\n{}", self.text());
        }
    }

    /// Waits until these words are on it.
    #[track_caller]
    pub fn shows(&mut self, words: &str) {
        self.until(words, |screen| screen.text().contains(words));
    }

    /// Waits until the program ends.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        let status = loop {
            self.read(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on\n{}", self.text());
        };
        while self.read(Duration::from_millis(20)) {}
        status
    }

    /// The terminal is as it was before: its settings, the other screen, the cursor.
    #[track_caller]
    pub fn is_given_back(&self) {
        let (now, before) = (settings(&self.other), self.settings);
        assert_eq!(
            (now.c_iflag, now.c_oflag, now.c_cflag, now.c_lflag),
            (before.c_iflag, before.c_oflag, before.c_cflag, before.c_lflag)
        );
        let all = String::from_utf8_lossy(&self.all);
        for (on, off) in [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")] {
            let (last_on, last_off) = (all.rfind(on), all.rfind(off));
            assert!(last_on.is_some() && last_off > last_on, "{on:?}: {last_on:?} {last_off:?}");
        }
    }

    /// The program ends with 0 and gives the terminal back.
    #[track_caller]
    pub fn ends_well(mut self) {
        let status = self.ended();
        assert!(status.success(), "{status}\n{}", self.text());
        self.is_given_back();
    }

    /// The terminal goes away, as a connection that is lost; the program has not the terminal for
    /// its own, and gets no signal. How it ends.
    #[track_caller]
    pub fn hang_up(mut self) -> ExitStatus {
        drop(std::mem::replace(&mut self.side, File::open("/dev/null").unwrap()));
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
