//! A picture of what is free: a square for each 2 MiB of the medium, in its order, as SVG.

use std::fmt::Write;
use std::path::Path;

use console::failure::{Failure, describe};
use console::file;
use console::runs::{CHUNK, Run};
use rustix::io::Errno;

/// Squares in a row, and the pixels of one.
const COLUMNS: u64 = 64;
const SIDE: u64 = 8;
/// Pixels above the squares.
const HEAD: u64 = 24;

/// Colours: a whole free huge page; then by how much is free of what is broken, from little to
/// most.
const WHOLE: &str = "#2e9e5b";
const FULL: &str = "#3b4252";
const BROKEN: [&str; 4] = ["#8a6d5a", "#b8763e", "#dd8a2b", "#f2b134"];

/// Free bytes of each chunk up to the end of the last run.
fn free_of_chunks(free: &[Run]) -> Vec<u64> {
    let end = free.iter().map(|run| run.place + run.length).max().unwrap_or(0);
    let mut chunks = vec![0; end.div_ceil(CHUNK) as usize];
    for run in free {
        let mut at = run.place;
        while at < run.place + run.length {
            let next = (at / CHUNK + 1) * CHUNK;
            let to = next.min(run.place + run.length);
            chunks[(at / CHUNK) as usize] += to - at;
            at = to;
        }
    }
    chunks
}

fn colour(free: u64) -> &'static str {
    match free {
        0 => FULL,
        CHUNK => WHOLE,
        free => BROKEN[(free * BROKEN.len() as u64 / CHUNK) as usize],
    }
}

/// The picture of the free space of something called `name`.
fn draw(name: &str, free: &[Run]) -> String {
    let chunks = free_of_chunks(free);
    let rows = (chunks.len() as u64).div_ceil(COLUMNS);
    let (width, height) = (COLUMNS * SIDE, rows * SIDE + HEAD);
    let whole = chunks.iter().filter(|&&free| free == CHUNK).count();
    let broken = chunks.iter().filter(|&&free| free > 0 && free < CHUNK).count();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"white\"/>\n<text x=\"2\" y=\"15\">{name}: free 2 MiB {whole} (green), partly free \
         {broken} (yellow to brown), full {} (dark)</text>\n",
        chunks.len() - whole - broken
    );
    for (at, free) in (0..).zip(chunks) {
        let (x, y) = (at % COLUMNS * SIDE, at / COLUMNS * SIDE + HEAD);
        let side = SIDE - 1;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"{}\"/>",
            colour(free)
        );
    }
    svg + "</svg>\n"
}

/// Writes the picture to a file. `EOPNOTSUPP` where the file system does not tell what is free.
pub fn write(path: &Path, name: &str, free: Option<&[Run]>) -> Result<(), Failure> {
    let asked = || format!("draw {}", path.display());
    let Some(free) = free else {
        let advice = "ext4, XFS and volumes tell what is free";
        return Err(Failure::new(asked(), describe(Errno::OPNOTSUPP), advice));
    };
    let name: String = name.chars().filter(|at| !"<>&".contains(*at)).collect();
    file::write(asked(), path, &draw(&name, free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_is_drawn_for_each_chunk() {
        let run = |place, length| Run { offset: place, place, length };
        let free = [run(CHUNK, CHUNK), run(2 * CHUNK + 4096, 8192), run(4 * CHUNK, CHUNK / 2)];
        assert_eq!(free_of_chunks(&free), [0, CHUNK, 8192, 0, CHUNK / 2]);
        let svg = draw("it", &free);
        let count = |colour: &str| svg.matches(&format!("\"{colour}\"")).count();
        assert_eq!((count(WHOLE), count(FULL), count(BROKEN[0]), count(BROKEN[2])), (1, 2, 1, 1));
        assert!(svg.contains("free 2 MiB 1 (green), partly free 2 "));
        let long = [run(CHUNK / 2, 2 * CHUNK)];
        assert_eq!(free_of_chunks(&long), [CHUNK / 2, CHUNK, CHUNK / 2]);
    }
}
