//! Where bytes lie on their medium, and which of them can be huge pages.

pub mod kernel;

/// What becomes a huge page: 2 MiB, aligned.
pub const CHUNK: u64 = 2 << 20;

/// Consecutive bytes of a file, or of free space, that lie together on the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Bytes from the beginning of the file; of free space: the same as `place`.
    pub offset: u64,
    /// Bytes from the beginning of the medium.
    pub place: u64,
    /// Bytes.
    pub length: u64,
}

impl Run {
    /// Its bytes in contiguous aligned 2 MiB that have the same alignment in the file.
    pub fn huge_bytes(&self) -> u64 {
        if self.offset % CHUNK != self.place % CHUNK {
            return 0;
        }
        let (first, end) = (self.offset.div_ceil(CHUNK), (self.offset + self.length) / CHUNK);
        end.saturating_sub(first) * CHUNK
    }
}

impl From<&volume::Extent> for Run {
    fn from(extent: &volume::Extent) -> Self {
        let (offset, place) = (extent.file_offset, extent.region_offset);
        Self { offset, place, length: extent.length }
    }
}

/// The same of many.
pub fn huge_bytes(runs: &[Run]) -> u64 {
    runs.iter().map(Run::huge_bytes).sum()
}

/// Adds a run, or makes the last one longer.
pub fn join(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last)
            if last.offset + last.length == run.offset && last.place + last.length == run.place =>
        {
            last.length += run.length;
        }
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_chunks_are_huge() {
        let huge = |offset, place, length| Run { offset, place, length }.huge_bytes();
        assert_eq!(huge(0, CHUNK, CHUNK), CHUNK);
        assert_eq!(huge(0, CHUNK + 4096, 8 * CHUNK), 0);
        assert_eq!(huge(4096, CHUNK + 4096, 2 * CHUNK), CHUNK);
        assert_eq!(huge(0, CHUNK, CHUNK / 2), 0);
        assert_eq!(huge(CHUNK, 3 * CHUNK, CHUNK + 5), CHUNK);
    }

    #[test]
    fn neighbours_become_one() {
        let mut runs = Vec::new();
        for (offset, place) in [(0, 10), (5, 15), (10, 90), (20, 100)] {
            join(&mut runs, Run { offset, place, length: 5 });
        }
        let lengths: Vec<u64> = runs.iter().map(|run| run.length).collect();
        assert_eq!(lengths, [10, 5, 5]);
    }
}
