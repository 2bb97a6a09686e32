//! A picture of a volume: one square for each 2 MiB chunk, in the order of the region, as SVG.
//!
//! A volume of more than 4,096 chunks gets a square for several that lie together, in the mean of
//! their colours.

use std::fmt::Write as _;

use console::runs::CHUNK;
use console::size;
use volume::ChunkUse;

/// What a chunk is drawn as.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Chunk {
    /// Nothing lies in it.
    Free,
    /// Blocks of files, so many of the whole (0 to 1), with holes between them or of several files.
    Mixed(f64),
    /// One aligned piece of one file: a huge page wherever it is mapped.
    Huge,
    /// Inodes, names, maps, in so much of it.
    Metadata(f64),
}

type Colour = [f64; 3];

const FREE: Colour = [236.0, 240.0, 241.0];
const HUGE: Colour = [22.0, 128.0, 105.0];
const EMPTY: Colour = [253.0, 232.0, 190.0];
const FULL: Colour = [214.0, 110.0, 24.0];
const METADATA: Colour = [110.0, 84.0, 168.0];

/// Squares at most.
const SQUARES: usize = 4096;
/// Squares side by side.
const COLUMNS: usize = 64;
/// The side of a square and the gap behind it, in the picture's units.
const SIDE: usize = 11;
const GAP: usize = 1;
const MARGIN: usize = 24;
const HEAD: usize = 64;
const LEGEND_LINE: usize = 24;

impl Chunk {
    /// From what the volume says of a chunk, and whether it is a huge page of a file.
    pub fn new(used: ChunkUse, is_huge: bool) -> Self {
        let part = used.bytes() as f64 / CHUNK as f64;
        match used {
            ChunkUse::Free => Self::Free,
            ChunkUse::Data(_) if is_huge => Self::Huge,
            ChunkUse::Data(_) => Self::Mixed(part),
            ChunkUse::Metadata(_) => Self::Metadata(part),
        }
    }

    fn colour(self) -> Colour {
        match self {
            Self::Free => FREE,
            Self::Mixed(part) => mix(EMPTY, FULL, part),
            Self::Huge => HUGE,
            Self::Metadata(part) => mix(EMPTY, METADATA, part.mul_add(0.6, 0.4)),
        }
    }

    fn used(self) -> f64 {
        match self {
            Self::Free => 0.0,
            Self::Mixed(part) | Self::Metadata(part) => part,
            Self::Huge => 1.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Mixed(_) => "files, in pieces",
            Self::Huge => "huge page of a file",
            Self::Metadata(_) => "metadata",
        }
    }
}

fn mix(from: Colour, to: Colour, part: f64) -> Colour {
    std::array::from_fn(|index| (to[index] - from[index]).mul_add(part, from[index]))
}

fn bytes(colour: Colour) -> [u8; 3] {
    colour.map(|part| part.round().clamp(0.0, 255.0) as u8)
}

/// A square where there are letters only: its colour, and a letter that says how full it is.
pub type Square = ([u8; 3], char);

/// The picture in so many squares at most.
pub fn squares(chunks: &[Chunk], most: usize) -> Vec<Square> {
    const FILLS: [char; 5] = ['\u{b7}', '\u{2591}', '\u{2592}', '\u{2593}', '\u{2588}'];
    let square = |group: &[Chunk]| {
        let fill = (used(group) * (FILLS.len() - 1) as f64).ceil() as usize;
        (bytes(mean(group)), FILLS[fill.min(FILLS.len() - 1)])
    };
    chunks.chunks(chunks.len().div_ceil(most.max(1)).max(1)).map(square).collect()
}

fn hex(colour: Colour) -> String {
    let [red, green, blue] = bytes(colour);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Text as XML has it.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The picture. `name`: what stands above it.
pub fn draw(name: &str, chunks: &[Chunk]) -> String {
    let each = chunks.len().div_ceil(SQUARES).max(1);
    let squares = chunks.len().div_ceil(each);
    let rows = squares.div_ceil(COLUMNS);
    let width = 2 * MARGIN + COLUMNS * (SIDE + GAP);
    let foot = MARGIN + HEAD + rows * (SIDE + GAP) + MARGIN;
    let height = foot + 5 * LEGEND_LINE + MARGIN;
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" fill=\"#2c3e50\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (MARGIN, MARGIN + 18), 20, name);
    text(&mut svg, (MARGIN, MARGIN + 42), 13, &summary(chunks, each));
    for (index, group) in chunks.chunks(each).enumerate() {
        let (column, row) = (index % COLUMNS, index / COLUMNS);
        let (x, y) = (MARGIN + column * (SIDE + GAP), MARGIN + HEAD + row * (SIDE + GAP));
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{SIDE}\" height=\"{SIDE}\" rx=\"2\" fill=\"{}\">\
             <title>{}</title></rect>",
            hex(mean(group)),
            label(index * each, group)
        );
    }
    legend(&mut svg, chunks, foot);
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (usize, usize), height: usize, words: &str) {
    let words = escape(words);
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"{height}\">{words}</text>");
}

fn mean(group: &[Chunk]) -> Colour {
    let mut sum = [0.0; 3];
    for chunk in group {
        for (sum, part) in sum.iter_mut().zip(chunk.colour()) {
            *sum += part / group.len() as f64;
        }
    }
    sum
}

/// How much of some chunks is in use, from 0 to 1.
fn used(group: &[Chunk]) -> f64 {
    group.iter().map(|chunk| chunk.used()).sum::<f64>() / group.len() as f64
}

/// What is said of a square.
fn label(first: usize, group: &[Chunk]) -> String {
    let used = 100.0 * used(group);
    match group {
        [chunk] => format!("chunk {first}: {}, {used:.0} % in use", chunk.name()),
        _ => format!("chunks {first} to {}: {used:.0} % in use", first + group.len() - 1),
    }
}

fn summary(chunks: &[Chunk], each: usize) -> String {
    let all = chunks.len() as f64 * CHUNK as f64;
    let used = chunks.iter().map(|chunk| chunk.used()).sum::<f64>() * CHUNK as f64;
    let whole = chunks.iter().filter(|&&chunk| chunk == Chunk::Free).count() as f64;
    let aligned = if all > used { 100.0 * whole * CHUNK as f64 / (all - used) } else { 0.0 };
    format!(
        "{} in use of {}; {aligned:.1} % of the free space is whole chunks; a square is {}",
        size::show(used as u64),
        size::show(all as u64),
        size::show(each as u64 * CHUNK)
    )
}

/// A line of the legend: colour, what it means, and whether a chunk belongs to it.
type Kind = (Colour, &'static str, fn(&Chunk) -> bool);

fn legend(svg: &mut String, chunks: &[Chunk], top: usize) {
    let kinds: [Kind; 5] = [
        (HUGE, "huge: one aligned piece of one file", |chunk| *chunk == Chunk::Huge),
        (
            FULL,
            "files in pieces, more than half full",
            |chunk| matches!(chunk, Chunk::Mixed(part) if *part > 0.5),
        ),
        (
            EMPTY,
            "files in pieces, mostly holes",
            |chunk| matches!(chunk, Chunk::Mixed(part) if *part <= 0.5),
        ),
        (METADATA, "metadata: inodes, names, maps", |chunk| matches!(chunk, Chunk::Metadata(_))),
        (FREE, "free: whole chunks", |chunk| *chunk == Chunk::Free),
    ];
    for (line, (colour, words, is_one)) in kinds.into_iter().enumerate() {
        let y = top + line * LEGEND_LINE;
        let fill = hex(colour);
        let _ = writeln!(
            svg,
            "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{fill}\" \
             stroke=\"#b0b8bc\" stroke-width=\"0.5\"/>"
        );
        let count = chunks.iter().filter(|chunk| is_one(chunk)).count();
        let part = 100.0 * count as f64 / chunks.len().max(1) as f64;
        let sum = size::show(count as u64 * CHUNK);
        let words = format!("{words} \u{2013} {count} chunks, {sum} ({part:.1} %)");
        text(svg, (MARGIN + 24, y + 12), 13, &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_volume_is_drawn_by_means() {
        let chunks: Vec<Chunk> =
            (0..24 * SQUARES).map(|n| if n % 2 == 0 { Chunk::Free } else { Chunk::Huge }).collect();
        let svg = draw("a <volume> & more", &chunks);
        let squares = svg.matches("<title>").count();
        assert_eq!(squares, SQUARES);
        assert!(svg.contains("a &lt;volume&gt; &amp; more") && svg.len() < 1 << 20);
        assert!(svg.contains(&hex(mix(FREE, HUGE, 0.5))), "the mean of both");
        assert!(svg.contains(&format!("{} chunks", 12 * SQUARES)));
    }

    #[test]
    fn letters_say_how_full_a_square_is() {
        let chunks = [Chunk::Free, Chunk::Free, Chunk::Free, Chunk::Huge, Chunk::Mixed(0.01)];
        let found = squares(&chunks, 100);
        assert_eq!(
            found.iter().map(|one| one.1).collect::<String>(),
            "\u{b7}\u{b7}\u{b7}\u{2588}\u{2591}"
        );
        assert_eq!(found[3].0, [22, 128, 105]);
        assert_eq!(squares(&chunks, 2).len(), 2);
        assert_eq!(squares(&chunks, 0).len(), 1);
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(squares(&[], 7).is_empty());
        assert!(draw("", &[]).ends_with("</svg>\n"));
    }
}
