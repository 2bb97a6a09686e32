//! `solera top` on a terminal: looks, draws, and hears keys, until it is ended.
//!
//! The terminal is given back as it was, however this ends: by a key, a signal, an error, or a
//! panic (whose hook restores it before it prints); also while it is stopped.
//!
//! Keys are read by a thread of their own, which nobody waits for: crossterm's reader neither comes
//! back from half a sequence of a key, nor from a terminal that has gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use console::failure::{Failure, Outcome};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGTSTP};
use signal_hook::low_level::raise;

use crate::commands::node::end;
use crate::commands::top::rows::{Rates, Row, Sample, sorted};
use crate::commands::top::screen::{self, View};
use crate::commands::top::{Column, TopArgs};

/// A signal is noticed that late at most.
const TICK: Duration = Duration::from_millis(200);

/// What a key asks for.
#[derive(PartialEq, Eq, Debug)]
enum Action {
    Nothing,
    Draw,
    Look,
    /// The shell is to have the terminal for a while.
    Stop,
    End,
}

/// What is shown, between two looks.
struct Display {
    last: Sample,
    rows: Vec<Row>,
    rates: Option<Rates>,
    sort: Column,
    first: usize,
    problem: Option<String>,
}

impl Display {
    /// The first look; so nothing is known of what is done in a second.
    fn new(first: Sample, sort: Column) -> Self {
        let mut rows = first.rows(&first);
        for row in &mut rows {
            row.rates = None;
        }
        Self { last: first, rows: sorted(rows, sort), rates: None, sort, first: 0, problem: None }
    }

    /// Looks once more; what was seen stays where that fails.
    fn look(&mut self, args: &TopArgs) {
        match Sample::take(&args.volume) {
            Ok(now) => {
                self.rows = sorted(now.rows(&self.last), self.sort);
                self.rates = now.rates(&self.last);
                self.last = now;
                self.problem = None;
                self.first = self.first.min(self.rows.len().saturating_sub(1));
            }
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    fn sort(&mut self, by: Column) -> Action {
        self.sort = by;
        self.rows = sorted(std::mem::take(&mut self.rows), by);
        Action::Draw
    }

    /// The next column, or the one before.
    fn sort_beside(&mut self, step: isize) -> Action {
        let all = Column::value_variants();
        let at = all.iter().position(|&one| one == self.sort).unwrap_or(0) as isize;
        self.sort(all[(at + step).rem_euclid(all.len() as isize) as usize])
    }

    fn scroll(&mut self, by: isize) -> Action {
        let last = self.rows.len().saturating_sub(1);
        self.first = self.first.saturating_add_signed(by).min(last);
        Action::Draw
    }

    fn hear(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if key.kind == KeyEventKind::Release => Action::Nothing,
            KeyCode::Char('c' | 'd') if control => Action::End,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Action::End,
            KeyCode::Char(' ') => Action::Look,
            KeyCode::Char('l') if control => Action::Look,
            KeyCode::Char('z') if control => Action::Stop,
            KeyCode::Char(letter) => match letter.to_ascii_lowercase() {
                'p' => self.sort(Column::Pid),
                'n' => self.sort(Column::Program),
                'c' => self.sort(Column::Calls),
                'r' => self.sort(Column::Read),
                'w' => self.sort(Column::Written),
                'l' => self.sort(Column::Locks),
                'a' => self.sort(Column::Awaited),
                'f' => self.sort(Column::Files),
                'm' => self.sort(Column::Mapped),
                _ => Action::Nothing,
            },
            KeyCode::Right => self.sort_beside(1),
            KeyCode::Left => self.sort_beside(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::Up => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            _ => Action::Nothing,
        }
    }
}

/// Shows it until a key or a signal ends it.
pub fn run(args: &TopArgs, first: Sample) -> Outcome {
    let over = end()?;
    signal_hook::flag::register(SIGHUP, Arc::clone(&over))
        .map_err(|error| Failure::io("wait for signals", &error))?;
    let outcome = on_terminal(|terminal| {
        let mut shown = Display::new(first, args.sort);
        watch(terminal, args, &mut shown, &Input { events: listen(), over })
    });
    match outcome {
        // Nobody is left to be told.
        Err(_) if has_gone() => Ok(0),
        other => other.map(|()| 0).map_err(|error| Failure::io("use the terminal", &error)),
    }
}

/// Has the terminal for a full screen meanwhile.
fn on_terminal(body: impl FnOnce(&mut DefaultTerminal) -> io::Result<()>) -> io::Result<()> {
    let outcome = ratatui::try_init().and_then(|mut terminal| {
        let outcome = body(&mut terminal);
        if has_gone() {
            // Its end would show the cursor, complain where nobody hears it, and panic.
            std::mem::forget(terminal);
        }
        outcome
    });
    // Also what was begun by a start that failed.
    let restored = ratatui::try_restore();
    outcome.and(restored)
}

/// Gives the terminal back, and is stopped by its shell until it is to go on.
fn stop(terminal: &mut DefaultTerminal) -> io::Result<()> {
    terminal.show_cursor()?;
    ratatui::try_restore()?;
    // Where no shell could wake it this does nothing.
    raise(SIGTSTP)?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    // All of it is drawn anew. (`clear` asks the terminal where the cursor is, and its answer goes
    // to the thread that reads keys.)
    let size = terminal.size()?;
    terminal.resize(size.into())
}

/// What ends or changes what is shown.
struct Input {
    events: Receiver<io::Result<Event>>,
    /// A signal came.
    over: Arc<AtomicBool>,
}

/// What is typed from here on.
fn listen() -> Receiver<io::Result<Event>> {
    let (sender, events) = mpsc::channel();
    thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                break;
            }
        }
    });
    events
}

/// Whether the terminal's other side is closed.
fn has_gone() -> bool {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|found| found > 0)
}

fn watch(
    terminal: &mut DefaultTerminal,
    args: &TopArgs,
    shown: &mut Display,
    heard: &Input,
) -> io::Result<()> {
    let name = args.volume.display().to_string();
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    loop {
        let looked = Instant::now();
        loop {
            let view = View {
                name: &name,
                activity: &shown.last.activity,
                rows: &shown.rows,
                rates: shown.rates,
                sort: shown.sort,
                first: shown.first,
                problem: shown.problem.as_deref(),
                colours,
            };
            terminal.draw(|frame| screen::draw(frame, &view))?;
            match asked(args, shown, looked, heard)? {
                Action::End => return Ok(()),
                Action::Look => break,
                Action::Stop => {
                    stop(terminal)?;
                    break;
                }
                Action::Draw | Action::Nothing => {}
            }
        }
        shown.look(args);
    }
}

/// Waits until something is to be done.
fn asked(
    args: &TopArgs,
    shown: &mut Display,
    looked: Instant,
    heard: &Input,
) -> io::Result<Action> {
    while !heard.over.load(Ordering::Relaxed) && !has_gone() {
        let Some(left) = args.interval.checked_sub(looked.elapsed()) else {
            return Ok(Action::Look);
        };
        let asked = match heard.events.recv_timeout(left.min(TICK)) {
            Ok(Ok(Event::Key(key))) => shown.hear(key),
            Ok(Ok(Event::Resize(..))) => Action::Draw,
            Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => Action::Nothing,
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Disconnected) => Action::End,
        };
        if asked != Action::Nothing {
            return Ok(asked);
        }
    }
    Ok(Action::End)
}

#[cfg(test)]
#[path = "../../../tests/support/screen.rs"]
#[allow(dead_code, reason = "a part of it is for others")]
mod pty;

#[cfg(test)]
mod tests {
    use super::*;
    use pty::Screen;
    use std::process::Command;

    /// Says that this is the process that panics.
    const PANICS: &str = "SOLERA_TEST_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let _ = on_terminal(|terminal| {
                terminal.draw(|frame| frame.render_widget("drawn", frame.area()))?;
                panic!("as planned");
            });
            return;
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = "commands::top::terminal::tests::a_panic_gives_the_terminal_back";
        command.args(["--exact", name, "--nocapture"]).env(PANICS, "1");
        let mut screen = Screen::start(command, (80, 24));
        let status = screen.ended();
        let all = String::from_utf8_lossy(&screen.all).into_owned();
        assert_eq!(status.code(), Some(101), "{all}");
        screen.is_given_back();
        // What it died of is read on the terminal that was there before.
        assert!(all.contains("drawn"), "{all}");
        assert!(all.find("as planned") > all.rfind("\x1b[?1049l"), "{all}");
    }
}
