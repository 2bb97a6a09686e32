//! What commands print: text for people, JSON for programs, progress for the impatient.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vfs::variable;

use crate::failure::{Failure, Outcome};

/// Writes `text` to standard output in one go. A reader that went away ends the process quietly, as
/// SIGPIPE would.
pub fn emit(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(141),
        Err(error) => Err(Failure::io("write to standard output", &error)),
    }
}

/// Writes a line to standard error, after the command's name. If that is full or closed the line is
/// lost.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "solera: {text}");
}

/// How a command that gave this ends: what failed is told.
pub fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            tell(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Writes one JSON document, indented, with a newline at its end.
pub fn emit_json(value: &serde_json::Value) -> Result<(), Failure> {
    emit(format!("{value:#}\n").as_bytes())
}

/// Bold on a terminal, plain otherwise or where `NO_COLOR` is set.
pub fn heading(text: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if !plain && io::stdout().is_terminal() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A table with aligned columns: the first to the left, the others to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let columns = cells.iter().zip(&widths).enumerate();
        let text: String = columns
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            })
            .collect();
        text.trim_end().to_owned()
    };
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = heading(&line(&head));
    text.push('\n');
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

/// The variable that says how long.
const PATIENCE: &str = "SOLERA_PROGRESS";

/// How long a thing may take before its progress is shown.
fn patience() -> Duration {
    // What is wrong has been told at the start.
    let said = variable::number(PATIENCE).unwrap_or_default();
    Duration::from_secs(said.unwrap_or(2))
}

/// Refuses another patience than a number of seconds.
pub fn check_patience() -> Result<(), String> {
    match variable::number(PATIENCE) {
        Ok(_) => Ok(()),
        Err(wrong) => Err(format!("{wrong}: seconds are meant")),
    }
}

/// A progress bar on standard error that shows itself after two seconds, on terminals only.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
    patience: Duration,
    shown: bool,
}

impl Progress {
    /// `what` is the word before the bar.
    pub fn new(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style("{prefix} {wide_bar} {percent}% {eta}"));
        bar.set_prefix(what.to_owned());
        Self { bar, begun: Instant::now(), patience: patience(), shown: false }
    }

    /// Another word before the bar.
    pub fn name(&self, what: &str) {
        self.bar.set_prefix(what.to_owned());
    }

    /// `done` of `total`, in any unit.
    pub fn update(&mut self, done: u64, total: u64) {
        self.show();
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// So many bytes are done, of an unknown number.
    pub fn count(&mut self, bytes: u64) {
        if self.show() {
            self.bar.set_style(style("{prefix} {bytes} in {elapsed}"));
        }
        self.bar.set_position(bytes);
    }

    /// Shows the bar if it is time; whether it was not shown before.
    fn show(&mut self) -> bool {
        let now = !self.shown && self.begun.elapsed() >= self.patience;
        if now {
            self.shown = true;
            // indicatif stays silent by itself where standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        now
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Does something that cannot tell how far it is: after two seconds a line says, on terminals only,
/// that it goes on.
pub fn busy<T>(what: &str, work: impl FnOnce() -> T) -> T {
    /// How often the time is shown anew.
    const STEP: Duration = Duration::from_millis(250);
    if !io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    bar.set_style(style("{prefix} {spinner} {elapsed}"));
    bar.set_prefix(what.to_owned());
    let patience = patience();
    let show = || {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.tick();
    };
    let mut shown = patience.is_zero();
    if shown {
        show();
    }
    let (ended, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (bar, show) = (&bar, &show);
        scope.spawn(move || {
            let mut wait = patience;
            while end.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                if shown {
                    bar.tick();
                } else {
                    show();
                }
                (wait, shown) = (STEP, true);
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(ended);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["long".into(), "1000".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name     n\na        1\nlong  1000\n");
    }
}
