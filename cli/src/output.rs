//! What commands print: text for people, JSON for programs, progress for the impatient.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::io::Errno;

use crate::failure::Failure;

/// Writes `text` to standard output in one go. A reader that went away ends the process quietly, as
/// SIGPIPE would.
pub fn emit(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(141),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(Failure::errno("write to standard output", errno))
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

/// A progress bar on standard error that shows itself after two seconds, on terminals only.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
    shown: bool,
}

impl Progress {
    /// How long a thing may take before it owes an explanation.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// `what` is the word before the bar.
    pub fn new(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what.to_owned());
        Self { bar, begun: Instant::now(), shown: false }
    }

    /// `done` of `total`, in any unit.
    pub fn update(&mut self, done: u64, total: u64) {
        if !self.shown && self.begun.elapsed() >= Self::PATIENCE {
            self.shown = true;
            // indicatif stays silent by itself where standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
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
