//! The report: one HTML file that needs nothing else, neither a network nor a script.
//!
//! Charts are inline SVG whose widths are percentages, so that text beside them keeps its size on a
//! narrow screen; colours follow what the reader prefers (`page.css`).

use std::fmt::Write;

use super::results::{Cell, Results, ratio, ratio_text, time};
use super::runner::{Measured, Row};
use super::suite::installation;
use crate::harness::statistics::median_and_spread;

const STYLE: &str = include_str!("page.css");
/// No bar is longer than so many times its peer's.
const LONGEST: f64 = 2.0;

/// The whole page.
pub fn page(results: &Results) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Programs on Solera</title>\n<style>\n",
    );
    out += STYLE;
    out += "</style>\n</head>\n<body>\n<h1>Programs on Solera</h1>\n";
    head(&mut out, results);
    overview(&mut out, results);
    for measured in &results.measured {
        program(&mut out, results, measured);
    }
    left_out(&mut out, results);
    out += "</body>\n</html>\n";
    out
}

fn head(out: &mut String, results: &Results) {
    let aged = results.aged.map_or_else(String::new, |part| {
        format!(", on volumes and file systems aged until files fill {:.0} % of them", part * 100.0)
    });
    let _ = writeln!(
        out,
        "<p>Time of unchanged programs, beside what else they run on; shorter is better. Medians \
         of {} ({}{aged}), places in turns, after a turn that does not count. A ratio below \
         1 is faster; the line on a bar goes from the fastest turn to the slowest; the percentage \
         says how far these lie apart. What of it was spent in file calls, by all threads and \
         processes together, is told by one more turn, which is profiled.</p>",
        results.repeat,
        results.scale.name(),
    );
    *out += "<dl>\n";
    for (name, value) in results.machine.facts() {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
    }
    *out += "</dl>\n<p class=\"quiet key\">";
    for (class, text) in [("volume", "a volume"), ("split", "--split"), ("kernel", "the kernel")] {
        let _ = write!(out, "<span style=\"background: var(--{class})\"></span>{text}");
    }
    *out += "</p>\n";
}

/// Of each program the geometric mean of its rows: the first place that Solera serves over each
/// peer.
fn overview(out: &mut String, results: &Results) {
    let peers = results.peers();
    let Some(own) = (0..results.backends.len()).find(|backend| !peers.contains(backend)) else {
        return;
    };
    for peer in peers {
        let (name, over) = (escaped(&results.backends[own]), escaped(&results.backends[peer]));
        let _ = writeln!(out, "<h3>All programs: {name} over {over}</h3>");
        let means: Vec<(&str, f64)> = results
            .measured
            .iter()
            .filter_map(|measured| Some((measured.program.name, mean(measured, own, peer)?)))
            .collect();
        let longest = means.iter().fold(1.0, |most: f64, (_, mean)| most.max(*mean)).min(LONGEST);
        let class = class(&results.backends[own]);
        for (name, mean) in means {
            let bar = Bar { class, value: mean, least: mean, most: mean, scale: longest };
            line(out, name, &bar, &format!("{mean:.2}"));
        }
    }
}

fn mean(measured: &Measured, own: usize, peer: usize) -> Option<f64> {
    let ratios = measured.rows.iter().filter_map(|row| ratio(&Results::cells(row), own, peer));
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

fn program(out: &mut String, results: &Results, measured: &Measured) {
    let program = measured.program;
    let (name, title) = (escaped(program.name), escaped(program.title));
    let _ = writeln!(out, "<h2 id=\"{name}\">{title}</h2>\n<p class=\"quiet\">{name}</p>");
    for failed in &measured.failed {
        let (command, found) = (escaped(&failed.command), escaped(&failed.found));
        let _ = writeln!(out, "<p class=\"bad\">failed: {command}</p>\n<pre>{found}</pre>");
    }
    for row in &measured.rows {
        chart(out, results, row);
        table(out, results, row);
    }
    *out += "<details><summary>Exact commands</summary>\n<pre>";
    for command in &measured.commands {
        let _ = writeln!(out, "{}", escaped(command));
    }
    let _ = writeln!(out, "\n{}</pre></details>", escaped(program.text()));
}

/// Bars of all places, in parts of the first peer's time (of the first place's, without one).
fn chart(out: &mut String, results: &Results, row: &Row) {
    let cells = Results::cells(row);
    let peer = results.peers().into_iter().find(|peer| cells[*peer].is_some());
    let Some(of) = peer.or_else(|| cells.iter().position(Option::is_some)) else { return };
    let whole = median_and_spread(&row.times[of]).0;
    let over = escaped(&results.backends[of]);
    let _ = writeln!(
        out,
        "<h3>{}</h3>\n<p class=\"quiet\">in parts of {over}'s time</p>",
        escaped(&row.name)
    );
    let most = |times: &Vec<f64>| times.iter().fold(0.0, |most: f64, ns| most.max(*ns)) / whole;
    let scale = row.times.iter().map(most).fold(1.0, f64::max).min(LONGEST);
    for (number, backend) in results.backends.iter().enumerate() {
        let Some(cell) = cells[number] else { continue };
        let times = &row.times[number];
        let least = times.iter().fold(f64::INFINITY, |least: f64, ns| least.min(*ns)) / whole;
        let bar =
            Bar { class: class(backend), value: cell.ns / whole, least, most: most(times), scale };
        line(out, backend, &bar, &value(cell, whole));
    }
}

fn value(cell: Cell, whole: f64) -> String {
    let share = cell
        .in_file_calls
        .map_or_else(String::new, |share| format!(", {:.0} % in file calls", share * 100.0));
    format!("{:.2} · {} ({:.0} %){share}", cell.ns / whole, time(cell.ns), cell.spread)
}

fn table(out: &mut String, results: &Results, row: &Row) {
    let (cells, peers) = (Results::cells(row), results.peers());
    if peers.len() < 2 {
        // The chart has said it.
        return;
    }
    *out +=
        "<details><summary>Ratios to each peer</summary><div class=\"wide\"><table>\n<tr><th></th>";
    *out += "<th>time</th><th>spread</th>";
    for peer in &peers {
        let _ = write!(out, "<th>× {}</th>", escaped(&results.backends[*peer]));
    }
    *out += "</tr>\n";
    for (number, backend) in results.backends.iter().enumerate() {
        let Some(cell) = cells[number] else { continue };
        let (backend, ns, spread) = (escaped(backend), time(cell.ns), cell.spread);
        let _ = write!(out, "<tr><td>{backend}</td><td>{ns}</td><td>{spread:.0} %</td>");
        for peer in &peers {
            let _ = write!(out, "<td>{}</td>", ratio_text(ratio(&cells, number, *peer)));
        }
        *out += "</tr>\n";
    }
    *out += "</table></div></details>\n";
}

fn left_out(out: &mut String, results: &Results) {
    let nothing = results.skipped.is_empty() && results.missing.is_empty();
    if nothing && results.slower.is_none() && !results.interrupted {
        return;
    }
    *out += "<h2>Besides</h2>\n<dl>\n";
    if results.interrupted {
        *out += "<dt>interrupted</dt><dd>what was not whole is not shown</dd>\n";
    }
    for skipped in &results.skipped {
        let (name, how) = (skipped.program.name, installation(&skipped.packages));
        let _ = writeln!(out, "<dt>{name}</dt><dd>not installed: {how}</dd>");
    }
    for (peer, why) in &results.missing {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escaped(peer), escaped(why));
    }
    for it in results.slower.iter().flatten() {
        let (row, backend) = (escaped(&it.row), escaped(&it.backend));
        let _ = writeln!(
            out,
            "<dt class=\"bad\">slower: {row}</dt><dd>on {backend} by {:.1} %, spread {:.1} %</dd>",
            it.percent, it.spread_percent
        );
    }
    if results.slower.as_ref().is_some_and(Vec::is_empty) {
        *out += "<dt>the other build</dt><dd>nothing is slower than there</dd>\n";
    }
    *out += "</dl>\n";
}

/// A bar: its length, where its whisker begins and ends, and what is the whole width, in parts of
/// the peer's time.
struct Bar {
    class: &'static str,
    value: f64,
    least: f64,
    most: f64,
    scale: f64,
}

fn line(out: &mut String, name: &str, bar: &Bar, value: &str) {
    // The last tenth of the width stays free.
    let part = |value: f64| (value / bar.scale * 90.0).min(100.0);
    let (name, value) = (escaped(name), escaped(value));
    let _ = writeln!(
        out,
        "<div class=\"row\"><span class=\"name\">{name}</span>\
         <svg role=\"img\" aria-label=\"{name}: {value}\">\
         <rect class=\"{}\" x=\"0\" y=\"3\" width=\"{:.2}%\" height=\"10\" rx=\"2\"/>\
         <line class=\"whisker\" x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"8\" y2=\"8\"/>\
         <line class=\"one\" x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"0\" y2=\"16\"/></svg>\
         <span class=\"value\">{value}</span></div>",
        bar.class,
        part(bar.value),
        part(bar.least),
        part(bar.most),
        part(1.0),
        part(1.0),
    );
}

fn class(backend: &str) -> &'static str {
    match backend.split(' ').next() {
        Some("volume") if !backend.ends_with(", against") => "volume",
        Some("split") => "split",
        _ => "kernel",
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{class, escaped};

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn places_have_the_colour_of_what_serves_them() {
        assert_eq!(class("volume strict"), "volume");
        assert_eq!(class("volume strict, against"), "kernel");
        assert_eq!(class("split /srv"), "split");
        assert_eq!(class("tmpfs"), "kernel");
    }
}
