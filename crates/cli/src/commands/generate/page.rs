//! A manual page of a command. `clap_mangen` writes what it knows from the options; what the help
//! has below them, examples and exit codes, gets the sections that manual pages have for it.

use std::fmt::Write as _;
use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// The headings for what stands below the options, in the order of man-pages(7), and how a
/// paragraph begins that goes there; a line that says no more than the heading is left out.
const SECTIONS: [(&str, &[&str]); 4] = [
    ("EXIT STATUS", &["Exit code"]),
    ("ENVIRONMENT", &["Variables:"]),
    ("NOTES", &[]),
    ("EXAMPLES", &["Examples:\n", "Example:\n", "Two commands from nothing"]),
];

/// What a command's page refers to besides the commands around it.
const ALSO: [&str; 2] = ["solera(7)", "solera-volume(5)"];

/// Lines of a page's source are not longer, where they are text.
const COLUMNS: usize = 78;

/// The page of one command.
pub struct Page<'a> {
    command: &'a Command,
    /// The page of the command that this is one of.
    above: Option<String>,
    date: &'a str,
}

impl<'a> Page<'a> {
    /// The pages of a command that was built, and of all in it.
    pub fn of_all(root: &'a Command, date: &'a str) -> Vec<Self> {
        let mut pages = vec![Self { command: root, above: None, date }];
        let mut next = 0;
        while let Some(page) = pages.get(next) {
            let (command, above) = (page.command, Some(page.name()));
            let inner = shown(command).map(|command| Self { command, above: above.clone(), date });
            pages.extend(inner);
            next += 1;
        }
        pages
    }

    /// Under which name man(1) finds it: `solera-domain-leave`.
    fn name(&self) -> String {
        let name = self.command.get_display_name();
        name.unwrap_or_else(|| self.command.get_name()).to_owned()
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.1", self.name())
    }

    /// Its source.
    pub fn text(&self) -> io::Result<String> {
        let version = env!("CARGO_PKG_VERSION");
        let man = Man::new(self.command.clone())
            .title(self.name().to_uppercase())
            .date(self.date)
            .source(format!("solera {version}"))
            .manual("User Commands");
        let mut made = Vec::new();
        man.render_title(&mut made)?;
        man.render_name_section(&mut made)?;
        man.render_synopsis_section(&mut made)?;
        man.render_description_section(&mut made)?;
        if self.command.get_arguments().next().is_some() {
            man.render_options_section(&mut made)?;
        }
        if self.command.has_subcommands() {
            man.render_subcommands_section(&mut made)?;
        }
        let mut rest = Roff::new();
        self.below_the_options(&mut rest);
        self.see_also(&mut rest);
        made.extend(rest.to_roff().into_bytes());
        let text = String::from_utf8(made).map_err(io::Error::other)?;
        Ok(tidy(&text))
    }

    /// Each paragraph in its section.
    fn below_the_options(&self, roff: &mut Roff) {
        let help = self.command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let paragraphs: Vec<&str> = help.split("\n\n").collect();
        for (heading, beginnings) in SECTIONS {
            let is_here = |text: &&str| !text.is_empty() && section(text) == heading;
            for (number, text) in paragraphs.iter().copied().filter(is_here).enumerate() {
                match number {
                    0 => roff.control("SH", [heading]),
                    _ => roff.control("PP", []),
                };
                let mut said = beginnings.iter().filter(|name| name.ends_with('\n'));
                let body = said.find_map(|name| text.strip_prefix(name));
                paragraph(roff, body.unwrap_or(text));
            }
        }
    }

    fn see_also(&self, roff: &mut Roff) {
        let above = self.above.iter().map(|name| format!("{name}(1)"));
        let inner = shown(self.command)
            .filter_map(|inner| Some(format!("{}(1)", inner.get_display_name()?)));
        let pages: Vec<String> = above.chain(inner).chain(ALSO.map(str::to_owned)).collect();
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(pages.join(", "))]);
    }
}

/// The commands in a command that people type.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set())
}

/// The heading under which a paragraph stands.
fn section(text: &str) -> &'static str {
    let begins = |names: &[&str]| names.iter().any(|name| text.starts_with(name));
    let found = SECTIONS.iter().find(|(_, names)| begins(names));
    found.map_or("NOTES", |(heading, _)| heading)
}

/// Lines that are indented stay as they are, the others are text.
fn paragraph(roff: &mut Roff, text: &str) {
    let mut is_kept = false;
    for line in text.lines() {
        let keep = line.starts_with("  ");
        if keep != is_kept {
            roff.control(if keep { "EX" } else { "EE" }, []);
            is_kept = keep;
        }
        roff.text([roman(line)]);
    }
    if is_kept {
        roff.control("EE", []);
    }
}

/// Breaks text where it is too long, and drops what roff has no need of: trailing spaces, and
/// breaks of a line beside an empty one.
fn tidy(source: &str) -> String {
    let (mut made, mut is_kept) = (String::new(), false);
    let lines: Vec<&str> = source.lines().collect();
    for (at, &line) in lines.iter().enumerate() {
        let is_empty = |at: usize| lines.get(at).is_some_and(|line| line.is_empty());
        if line == ".br" && (is_empty(at + 1) || is_empty(at.wrapping_sub(1))) {
            continue;
        }
        is_kept = line.starts_with(".EX") || is_kept && !line.starts_with(".EE");
        let line = line.trim_end();
        if is_kept || line.starts_with(['.', '\'']) {
            let _ = writeln!(made, "{line}");
            continue;
        }
        let mut column = 0;
        for word in line.split(' ') {
            // A line that begins with one of these would be a request.
            let may_begin = !word.starts_with(['.', '\'']) && !word.is_empty();
            if column > 0 && may_begin && column + word.len() >= COLUMNS {
                made.push('\n');
                column = 0;
            } else if column > 0 {
                made.push(' ');
            }
            made.push_str(word);
            column += word.len() + 1;
        }
        made.push('\n');
    }
    made
}
