//! `solera top` on a terminal: looks, draws, and hears keys, until it is ended.
//!
//! The terminal is given back as it was, however this ends: by a key, a signal, an error, or a
//! panic (whose hook restores it before it prints).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::args::{Column, TopArgs};
use crate::commands::node::end;
use crate::commands::top::rows::{Rates, Row, Sample, sorted};
use crate::commands::top::screen::{self, View};
use crate::failure::{Failure, Outcome};

/// A signal is noticed that late at most.
const TICK: Duration = Duration::from_millis(200);

/// What a key asks for.
#[derive(PartialEq, Eq, Debug)]
enum Asked {
    Nothing,
    Draw,
    Look,
    End,
}

/// What is shown, between two looks.
struct Shown {
    last: Sample,
    rows: Vec<Row>,
    rates: Option<Rates>,
    sort: Column,
    first: usize,
    problem: Option<String>,
}

impl Shown {
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

    fn sort(&mut self, by: Column) -> Asked {
        self.sort = by;
        self.rows = sorted(std::mem::take(&mut self.rows), by);
        Asked::Draw
    }

    /// The next column, or the one before.
    fn sort_beside(&mut self, step: isize) -> Asked {
        let all = Column::value_variants();
        let at = all.iter().position(|&one| one == self.sort).unwrap_or(0) as isize;
        self.sort(all[(at + step).rem_euclid(all.len() as isize) as usize])
    }

    fn scroll(&mut self, by: isize) -> Asked {
        let last = self.rows.len().saturating_sub(1);
        self.first = self.first.saturating_add_signed(by).min(last);
        Asked::Draw
    }

    fn hear(&mut self, key: KeyEvent) -> Asked {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if key.kind == KeyEventKind::Release => Asked::Nothing,
            KeyCode::Char('c' | 'd') if control => Asked::End,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Asked::End,
            KeyCode::Char(' ') => Asked::Look,
            KeyCode::Char('l') if control => Asked::Look,
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
                _ => Asked::Nothing,
            },
            KeyCode::Right => self.sort_beside(1),
            KeyCode::Left => self.sort_beside(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::Up => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            _ => Asked::Nothing,
        }
    }
}

/// Shows it until a key or a signal ends it.
pub fn run(args: &TopArgs, first: Sample) -> Outcome {
    let over = end()?;
    let failed = |error: io::Error| Failure::io("use the terminal", &error);
    let outcome = ratatui::try_init().and_then(|mut terminal| {
        let mut shown = Shown::new(first, args.sort);
        watch(&mut terminal, args, &mut shown, &over)
    });
    // Also what was begun by a start that failed.
    let restored = ratatui::try_restore();
    outcome.and(restored).map_err(failed)?;
    Ok(0)
}

fn watch(
    terminal: &mut DefaultTerminal,
    args: &TopArgs,
    shown: &mut Shown,
    over: &AtomicBool,
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
            match asked(args, shown, looked, over)? {
                Asked::End => return Ok(()),
                Asked::Look => break,
                Asked::Draw | Asked::Nothing => {}
            }
        }
        shown.look(args);
    }
}

/// Waits until something is to be done.
fn asked(
    args: &TopArgs,
    shown: &mut Shown,
    looked: Instant,
    over: &AtomicBool,
) -> io::Result<Asked> {
    while !over.load(Ordering::Relaxed) {
        let Some(left) = args.interval.checked_sub(looked.elapsed()) else {
            return Ok(Asked::Look);
        };
        if !event::poll(left.min(TICK))? {
            continue;
        }
        let asked = match event::read()? {
            Event::Key(key) => shown.hear(key),
            Event::Resize(..) => Asked::Draw,
            _ => Asked::Nothing,
        };
        if asked != Asked::Nothing {
            return Ok(asked);
        }
    }
    Ok(Asked::End)
}
