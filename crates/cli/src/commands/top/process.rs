//! What the kernel tells of a process: its program, and what it has mapped of a volume's file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file, as /proc/PID/maps names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    device: (u32, u32),
    inode: u64,
    /// What an attachment maps of it, at least.
    size: u64,
}

/// A piece of a process's memory that is the file's.
struct Piece {
    start: u64,
    end: u64,
    offset: u64,
}

impl File {
    /// The file of a volume of so many bytes. `None`: it cannot be looked at.
    pub fn of(volume: &Path, size: u64) -> Option<Self> {
        let stat = fs::metadata(volume).ok()?;
        let device = (libc::major(stat.dev()), libc::minor(stat.dev()));
        Some(Self { device, inode: stat.ino(), size })
    }

    /// The piece that a line of /proc/PID/maps tells of, if it is this file's.
    fn piece(self, line: &str) -> Option<Piece> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (_, offset) = (words.next()?, words.next()?);
        let (major, minor) = words.next()?.split_once(':')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let device = (hex(major)? as u32, hex(minor)? as u32);
        let inode: u64 = words.next()?.parse().ok()?;
        let piece = Piece { start: hex(start)?, end: hex(end)?, offset: hex(offset)? };
        (device == self.device && inode == self.inode).then_some(piece)
    }

    /// Bytes of the file that the maps show besides the whole of it, by which a process is
    /// attached: what its program has mapped.
    fn mapped_in(self, maps: &str) -> u64 {
        let (mut mapped, mut run) = (0, None::<Piece>);
        // The kernel splits what lies together where its flags differ.
        let mut take = |run: Option<Piece>| {
            let part = |run: &Piece| run.offset != 0 || run.end - run.start < self.size;
            mapped += run.filter(part).map_or(0, |run| run.end - run.start);
        };
        for piece in maps.lines().filter_map(|line| self.piece(line)) {
            let goes_on = run.as_ref().is_some_and(|run: &Piece| {
                run.end == piece.start && run.offset + (run.end - run.start) == piece.offset
            });
            match &mut run {
                Some(run) if goes_on => run.end = piece.end,
                run => take(run.replace(piece)),
            }
        }
        take(run);
        mapped
    }

    /// Bytes of the file that the program of a process has mapped. `None`: it may not be asked, or
    /// has gone.
    pub fn mapped_by(self, pid: u32) -> Option<u64> {
        fs::read_to_string(format!("/proc/{pid}/maps")).ok().map(|maps| self.mapped_in(&maps))
    }
}

/// The program that a process runs. `None`: it has gone, or lives where it is not seen from here.
pub fn program(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    let shown = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c });
    Some(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000200000 rw-s 00000000 00:1a 77      /dev/shm/v.pm
7f0000200000-7f0004000000 rw-s 00200000 00:1a 77      /dev/shm/v.pm
7f0004000000-7f0008000000 ---p 00000000 00:00 0
7f0010000000-7f0010001000 r--s 00400000 00:1a 77      /dev/shm/v.pm
7f0010001000-7f0010003000 rw-s 00600000 00:1a 77      /dev/shm/v.pm
7f0020000000-7f0020009000 rw-s 00600000 00:1a 78      /dev/shm/other
7f0030000000-7f0030004000 rw-p 00000000 00:1a 77      /dev/shm/v.pm
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0       [stack]
";

    #[test]
    fn what_a_program_has_mapped_is_all_but_the_attachment() {
        let file = File { device: (0, 0x1a), inode: 77, size: 64 << 20 };
        assert_eq!(file.mapped_in(MAPS), 0x1000 + 0x2000 + 0x4000);
        assert_eq!(File { inode: 78, ..file }.mapped_in(MAPS), 0x9000);
        assert_eq!(File { inode: 79, ..file }.mapped_in(MAPS), 0);
        assert_eq!(file.mapped_in("no such line\n7f-\n"), 0);
    }

    #[test]
    fn this_program_has_a_name() {
        assert!(program(std::process::id()).is_some_and(|name| !name.is_empty()));
        assert_eq!(program(u32::MAX), None);
    }
}
