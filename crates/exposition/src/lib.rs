//! What a process tells a monitor: the text that Prometheus reads (exposition format 0.0.4), and
//! the few lines of HTTP by which it asks for it.

mod scrape;

use std::fmt::{Arguments, Display, Write};

pub use scrape::{ListenError, ScrapeServer};

/// What the text is, for HTTP.
pub const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names with their values.
pub type Labels<'l> = &'l [(&'l str, &'l str)];

/// A text, family by family. All names in it begin alike.
pub struct Text {
    prefix: &'static str,
    text: String,
}

impl Text {
    /// None yet; `prefix` is put before each name.
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    fn line(&mut self, line: Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
    }

    /// Begins a family: `kind` is `gauge`, `counter` or `histogram`; `help` is one line.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        self.line(format_args!("# HELP {prefix}{name} {help}"));
        self.line(format_args!("# TYPE {prefix}{name} {kind}"));
    }

    /// A value of the family.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let prefix = self.prefix;
        let labels: Vec<String> =
            labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.line(format_args!("{prefix}{name}{labels} {value}"));
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A label's value between its quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::new("solera_");
        text.family("size_bytes", "gauge", "Bytes.");
        text.sample("size_bytes", &[("volume", "a\"b\\c\nd"), ("x", "")], 7);
        text.sample("up", &[], 0.5);
        let lines = text.finish();
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "# HELP solera_size_bytes Bytes.",
                "# TYPE solera_size_bytes gauge",
                r#"solera_size_bytes{volume="a\"b\\c\nd",x=""} 7"#,
                "solera_up 0.5",
            ]
        );
    }
}
