//! What `solera top` draws: the space with its picture, what all processes do, and each of them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row as TableRow, Table};
use volume::{Activity, Life};

use crate::commands::top::Column;
use crate::commands::top::rows::{HEAD, Rates, Row, cells};
use crate::commands::top::{deaths, recoveries, summary, unclean};
use crate::picture::{self, Chunk};

/// What it takes, at least: columns and lines.
const LEAST: (u16, u16) = (60, 12);
/// Lines of the picture.
const PICTURE: u16 = 4;
/// Between two columns.
const GAP: u16 = 2;

const KEYS: &str = "q: quit   space: look   sort: Pid Name Calls Read Written Locks Awaited \
                    Files Mapped \u{2190} \u{2192}   scroll: \u{2191} \u{2193}";

/// What is drawn.
pub struct View<'v> {
    pub name: &'v str,
    pub activity: &'v Activity,
    pub rows: &'v [Row],
    pub rates: Option<Rates>,
    pub sort: Column,
    /// The first process that is shown.
    pub first: usize,
    /// Why the last look failed.
    pub problem: Option<&'v str>,
    /// Whether colours are wanted.
    pub colours: bool,
}

/// The place of a column in [`HEAD`].
pub const fn place(column: Column) -> usize {
    match column {
        Column::Pid => 0,
        Column::Program => 1,
        Column::Calls => 3,
        Column::Read => 4,
        Column::Written => 5,
        Column::Locks => 6,
        Column::Awaited => 7,
        Column::Files => 8,
        Column::Mapped => 9,
    }
}

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!(
            "the terminal is too small: {}x{}, it takes {}x{}; q quits",
            area.width, area.height, LEAST.0, LEAST.1
        );
        frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
        return;
    }
    let summary: Vec<Line<'_>> = summary(view.activity, view.rates).map(Line::from).to_vec();
    let notes: Vec<Line<'_>> = notes(view);
    let heights = [
        Constraint::Length(1),
        Constraint::Length(summary.len() as u16),
        Constraint::Length(notes.len() as u16),
        Constraint::Length(PICTURE.min(area.height.saturating_sub(LEAST.1) / 2)),
        Constraint::Min(2),
        Constraint::Length(1),
    ];
    let [title, above, told, picture, table, keys] = Layout::vertical(heights).areas(area);
    frame.render_widget(Line::from(head(view)).style(Modifier::BOLD), title);
    frame.render_widget(Paragraph::new(summary), above);
    frame.render_widget(Paragraph::new(notes), told);
    frame.render_widget(Paragraph::new(squares(view, picture)), picture);
    processes(frame, view, table);
    frame.render_widget(Line::from(KEYS).style(Modifier::DIM), keys);
}

fn head(view: &View<'_>) -> String {
    let info = &view.activity.info;
    let label = if info.label.is_empty() { String::new() } else { format!(" ({})", info.label) };
    let count = view.rows.iter().filter(|row| row.is.life == Life::Lives).count();
    let state = match count {
        0 if info.clean => "in order, attached by no process".to_owned(),
        0 => "attached by no living process".to_owned(),
        1 => "attached by one process".to_owned(),
        more => format!("attached by {more} processes"),
    };
    format!("{}{label}: {state}, class {}", view.name, info.class)
}

/// What is not always to be said.
fn notes<'v>(view: &View<'v>) -> Vec<Line<'v>> {
    let warning = |text: String| {
        let colour = if view.colours { Color::Red } else { Color::Reset };
        Line::from(text).style(Style::new().fg(colour).add_modifier(Modifier::BOLD))
    };
    let mut lines: Vec<Line<'v>> =
        view.problem.map(|why| warning(why.to_owned())).into_iter().collect();
    lines.extend(recoveries(view.rows).into_iter().map(warning));
    lines.extend(unclean(view.activity).map(|text| warning(text.to_owned())));
    if let Some(why) = view.activity.info.unasked {
        lines.push(Line::from(format!("which processes live may not be asked: {why}")));
    }
    lines.extend(deaths(view.activity).map(Line::from));
    lines
}

/// The picture of the space, line by line.
fn squares(view: &View<'_>, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let chunks: Vec<Chunk> =
        view.activity.chunks.iter().map(|&used| Chunk::new(used, false)).collect();
    let squares = picture::squares(&chunks, width * usize::from(area.height));
    let span = |&([red, green, blue], letter): &picture::Square| {
        let colour = if view.colours { Color::Rgb(red, green, blue) } else { Color::Reset };
        Span::styled(letter.to_string(), Style::new().fg(colour))
    };
    squares.chunks(width.max(1)).map(|line| line.iter().map(span).collect::<Line<'_>>()).collect()
}

/// The columns that fit, in their order; those that matter most are there longest.
fn fitting(widths: &[u16; HEAD.len()], most: u16) -> Vec<usize> {
    const ORDER: [usize; HEAD.len()] = [0, 1, 3, 4, 5, 10, 6, 8, 7, 9, 2];
    let mut left = most + GAP;
    let mut found: Vec<usize> = ORDER
        .into_iter()
        .take_while(|&at| match left.checked_sub(widths[at] + GAP) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .collect();
    found.sort_unstable();
    found
}

fn processes(frame: &mut Frame<'_>, view: &View<'_>, area: Rect) {
    if view.rows.is_empty() {
        frame.render_widget(Line::from("no process has attached it"), area);
        return;
    }
    let rows: Vec<[String; HEAD.len()]> = view.rows.iter().map(cells).collect();
    let mut widths = HEAD.map(|name| name.len() as u16);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count() as u16);
        }
    }
    let columns = fitting(&widths, area.width);
    let aligned = |at: usize, cell: &str| {
        let line = Line::from(cell.to_owned());
        // Names to the left, numbers to the right.
        if matches!(at, 1 | 2 | 10) { line } else { line.right_aligned() }
    };
    let head = TableRow::new(columns.iter().map(|&at| {
        let sorted = at == place(view.sort);
        let style = if sorted { Modifier::REVERSED | Modifier::BOLD } else { Modifier::BOLD };
        aligned(at, HEAD[at]).style(style)
    }));
    let shown = rows.iter().zip(view.rows).skip(view.first).map(|(cells, row)| {
        let line = TableRow::new(columns.iter().map(|&at| aligned(at, &cells[at])));
        let dead = row.is.life != Life::Lives && view.colours;
        if dead { line.style(Style::new().fg(Color::Red)) } else { line }
    });
    let lengths = columns.iter().map(|&at| Constraint::Length(widths[at]));
    frame.render_widget(Table::new(shown, lengths).header(head).column_spacing(GAP), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::rows::tests::row;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// What is on a screen of this size, line by line.
    fn screen(width: u16, height: u16, rows: &[Row], first: usize) -> Vec<String> {
        let place = format!("/dev/shm/solera-screen-{}-{width}-{first}", std::process::id());
        std::fs::create_dir(&place).expect("a place for a volume");
        let path = &std::path::Path::new(&place).join("v.pm");
        let options = volume::FormatOptions { size: Some(64 << 20), ..Default::default() };
        volume::format(path, &options).expect("a volume");
        let activity = volume::activity(path);
        std::fs::remove_dir_all(&place).expect("removed");
        let view = View {
            name: "v.pm",
            activity: &activity.expect("looked at"),
            rows,
            rates: None,
            sort: Column::Calls,
            first,
            problem: Some("it went away"),
            colours: true,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(frame, &view)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn three() -> Vec<Row> {
        vec![row(1, "sqlite3", 5.0, Some(4096)), row(2, "tar", 1.0, None), row(3, "x", 9.0, None)]
    }

    #[test]
    fn a_screen_has_space_picture_and_processes() {
        let lines = screen(120, 24, &three(), 0);
        let all = lines.join("\n");
        assert!(lines[0].starts_with("v.pm: attached by 3 processes, class volatile"), "{all}");
        assert!(lines[1].starts_with("64.00 MiB: data 0 B (0 %)"), "{all}");
        assert!(all.contains("it went away"), "{all}");
        assert!(all.contains("\u{b7}\u{b7}\u{b7}"), "the picture: {all}");
        let head = lines.iter().position(|line| line.contains("written/s")).expect("a head");
        assert!(lines[head].contains("mode") && lines[head].contains("mapped"), "{all}");
        assert!(
            lines[head + 1].contains("sqlite3") && lines[head + 1].contains("4.00 KiB"),
            "{all}"
        );
        assert!(lines[head + 3].contains("strict, ro"), "{all}");
        assert!(lines[23].contains("q: quit"), "{all}");
    }

    #[test]
    fn a_narrow_screen_has_what_matters_most() {
        let all = screen(60, 20, &three(), 1).join("\n");
        assert!(all.contains("program") && all.contains("written/s"), "{all}");
        assert!(!all.contains("mapped  ") && !all.contains("strict"), "{all}");
        assert!(all.contains("tar") && !all.contains("sqlite3"), "scrolled: {all}");
        assert!(screen(90, 20, &[], 0).join("\n").contains("no process has attached it"));
    }

    #[test]
    fn a_screen_that_is_too_small_says_so() {
        let all = screen(40, 5, &three(), 0).join(" ");
        assert!(all.contains("too small: 40x5, it takes 60x12"), "{all}");
        assert!(screen(1, 1, &three(), 0)[0].len() <= 1);
    }
}
