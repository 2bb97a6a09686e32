//! The block allocator: which blocks a request gets.
//!
//! After `WineFS`: whole aligned chunks are precious, holes are what small requests are for.
//!
//! - *Aligned* requests take whole free chunks for each full 2 MiB. The rest, and all other
//!   requests, fill holes: right behind the block they shall follow; else in the fullest chunk with
//!   room for a good part of them (`fullness.rs`), in one run if it has one, else piece by piece;
//!   first of the local group, then of the group with the most free blocks. Only when no group has
//!   a hole a free chunk is broken. (A model on ageing traces: holes after such a life are half of
//!   those that contiguous pieces leave; `docs/design.md`, "Allocation", has the figures.)
//! - On a machine with several memory nodes all this is tried in the groups of the home node first
//!   (`numa.rs`).
//! - A file that grows block by block prefers chunks with a run that lets it go on.
//! - Metadata has chunks of its own, and takes the fullest that has room. Inode extents (see
//!   `inode_slots.rs`) grow in them from the end.
//! - A reserve of about 1 % is kept from ordinary data and from inodes, so that overwrites, unlink
//!   and truncate work on a full volume.
//!
//! No locks; see `chunk.rs` for what makes that safe. A request that fails gets nothing: what it
//! took so far is cleared again. What it got is the caller's to give back, if it is an operation
//! that is aborted (`txn/allocate.rs`).

use crate::Result;
use crate::medium::layout::{BLOCK, CHUNK, CHUNK_BLOCKS};
use crate::space::Space;
use crate::space::chunk::{Group, Kind, free_runs, longest_run};
use crate::space::fullness::FREE;
use rustix::io::Errno;
use smallvec::SmallVec;

/// Runs of blocks {first block, number of blocks}; none crosses the border of a chunk.
pub(crate) type Extents = SmallVec<[(u64, u64); 4]>;

/// Groups in the order in which they are tried.
pub(crate) type Groups = SmallVec<[u64; 8]>;

/// Chunks of a group that a request for much metadata looks at for pieces.
const SEARCH: usize = 256;
/// A request goes to the fullest chunk that can take this part of it: one in so many.
const PART: u64 = 4;
/// Free blocks in a row that a file which grows prefers.
const GROWTH: u64 = 16;
/// Attempts to claim what another process may be claiming too, before the search goes on elsewhere.
const ATTEMPTS: u32 = 8;
/// Blocks of the reserve on a volume too small for 1 % to be of use (but see [`Space::reserve`]).
const RESERVE_MIN: u64 = 2 * CHUNK_BLOCKS;

/// What a request for data blocks wishes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Want {
    /// Whole chunks for each full 2 MiB, as long as there are any.
    pub(crate) aligned: bool,
    /// The block that the first one should follow.
    pub(crate) near: Option<u64>,
    /// May dip into the reserve: overwrites, unlink, truncate.
    pub(crate) reserve: bool,
    /// Only holes, of chunks that are fuller than this one.
    pub(crate) fuller_than: Option<u64>,
    /// The node of the machine on which it shall lie, if not at home.
    pub(crate) node: Option<u32>,
    /// The start of a whole chunk, for up to a chunk's blocks.
    pub(crate) whole: bool,
}

/// Where the pool's blocks are.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Blocks in use in data chunks.
    pub(crate) data_blocks: u64,
    /// Blocks in use in metadata chunks.
    pub(crate) metadata_blocks: u64,
    /// Free blocks in chunks that are partly in use.
    pub(crate) hole_blocks: u64,
    /// Chunks without a block in use.
    pub(crate) free_chunks: u64,
    /// Inodes in use.
    pub(crate) inodes: u64,
}

impl Usage {
    /// All free blocks, the reserve included.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.hole_blocks + self.free_chunks * CHUNK_BLOCKS
    }
}

impl Space {
    // ---- what is there
    // ---------------------------------------------------------------------------

    /// Free blocks, the reserve included; exact when nobody allocates or frees.
    pub(crate) fn free_blocks(&self) -> Result<u64> {
        self.group_sum(Group::Blocks)
    }

    /// Blocks that only overwrites, metadata and unlinking may take: about 1 %, at least two
    /// chunks, at most a sixteenth.
    pub(crate) fn reserve(&self) -> u64 {
        let blocks = self.chunks() * CHUNK_BLOCKS;
        (blocks / 100).max(RESERVE_MIN).min(blocks / 16)
    }

    // ---- taking
    // ----------------------------------------------------------------------------------

    /// Blocks that may not be given out for a request: the reserve, for all but those that may dip
    /// into it.
    pub(crate) fn kept_from(&self, want: Want) -> u64 {
        if want.reserve { 0 } else { self.reserve() }
    }

    /// Takes exactly `blocks` blocks for file data; `ENOSPC`, and nothing is taken, if they cannot
    /// be had.
    pub(crate) fn take_data_blocks(&self, blocks: u64, want: Want) -> Result<Extents> {
        self.take(|taken| self.take_data(blocks, want, taken))
    }

    /// Takes exactly `blocks` blocks for metadata. `ENOSPC` as above.
    pub(crate) fn take_metadata_blocks(&self, blocks: u64) -> Result<Extents> {
        self.take(|taken| self.take_all(blocks, Kind::Metadata, taken))
    }

    /// As [`Space::take_metadata_blocks`], where such were had last, whether that is the fullest
    /// chunk or not.
    pub(crate) fn take_scratch_blocks(&self, blocks: u64) -> Result<Extents> {
        self.take(|taken| {
            for group in self.groups_by_preference()? {
                if let Some(run) = self.take_current(group, blocks)? {
                    taken.push(run);
                    return Ok(true);
                }
            }
            self.take_all(blocks, Kind::Metadata, taken)
        })
    }

    /// Runs `take`, which pushes what it takes, and clears that again unless it gives `true`.
    fn take(&self, take: impl FnOnce(&mut Extents) -> Result<bool>) -> Result<Extents> {
        let mut taken = Extents::new();
        let result = take(&mut taken);
        if matches!(result, Ok(true)) {
            return Ok(taken);
        }
        for (block, count) in taken {
            self.release_blocks(block, count)?;
        }
        result.and(Err(Errno::NOSPC))
    }

    pub(super) fn take_data(&self, blocks: u64, want: Want, taken: &mut Extents) -> Result<bool> {
        if self.has_nodes() {
            let done = self.take_near(blocks, want, taken)?;
            self.allocated_on(taken, want)?;
            return Ok(done);
        }
        let mut rest = blocks;
        if let Some(near) = want.near
            && !(want.whole || want.aligned)
            && self.in_pool(near, 1)
        {
            // Most requests: a file grows.
            rest -= self.take_behind(near, rest, taken)?;
            if rest == 0 {
                return Ok(true);
            }
        }
        let groups = self.groups_by_preference()?;
        rest -= self.take_data_of(&groups, rest, want, taken)?;
        self.take_rest(rest, want, taken)
    }

    /// The same on a machine with several memory nodes.
    #[cold]
    fn take_near(&self, blocks: u64, want: Want, taken: &mut Extents) -> Result<bool> {
        let groups = self.groups_by_preference()?;
        let (home, away): (Groups, Groups) = if self.numa_on() {
            let near = self.near(want)?;
            groups.into_iter().partition(|&group| self.group_node(group) == near)
        } else {
            (groups, Groups::new())
        };
        let mut rest = blocks;
        rest -= self.take_data_of(&home, rest, want, taken)?;
        rest -= self.take_data_of(&away, rest, want, taken)?;
        self.take_rest(rest, want, taken)
    }

    /// What no group has a data chunk for.
    fn take_rest(&self, rest: u64, want: Want, taken: &mut Extents) -> Result<bool> {
        match rest {
            0 => Ok(true),
            _ if want.whole || want.fuller_than.is_some() => Ok(false),
            _ => self.take_all(rest, Kind::Data, taken),
        }
    }

    /// As much of `blocks` blocks as these groups have; gives how many.
    fn take_data_of(
        &self,
        groups: &[u64],
        blocks: u64,
        want: Want,
        taken: &mut Extents,
    ) -> Result<u64> {
        let mut rest = blocks;
        if want.whole {
            let free = |chunk: u64| (self.chunk_start(chunk), blocks);
            let chunk = match blocks {
                0 => None,
                _ => self.take_free_chunk_of(groups, Kind::Data, 0, blocks.min(CHUNK_BLOCKS))?,
            };
            taken.extend(chunk.map(free));
            return Ok(if chunk.is_some() { blocks } else { 0 });
        }
        while want.aligned && rest >= CHUNK_BLOCKS {
            let found = self.take_free_chunk_of(groups, Kind::Data, 0, CHUNK_BLOCKS)?;
            let Some(chunk) = found else { break };
            taken.push((self.chunk_start(chunk), CHUNK_BLOCKS));
            rest -= CHUNK_BLOCKS;
        }
        if let Some(near) = want.near
            && rest > 0
            && self.in_pool(near, 1)
            && groups.contains(&self.group_of(self.chunk_of(near).0))
        {
            rest -= self.take_behind(near, rest, taken)?;
        }
        while rest > 0 {
            let got = self.take_holes(groups, rest.min(CHUNK_BLOCKS), want, taken)?;
            if got == 0 {
                break;
            }
            rest -= got;
        }
        while rest > 0 && want.fuller_than.is_none() {
            let count = rest.min(CHUNK_BLOCKS);
            let found = self.take_free_chunk_of(groups, Kind::Data, 0, count)?;
            let Some(chunk) = found else { break };
            taken.push((self.chunk_start(chunk), count));
            rest -= count;
        }
        Ok(blocks - rest)
    }

    /// Takes up to `blocks` blocks from the holes of one chunk; gives how many, 0 if there is no
    /// hole.
    fn take_holes(
        &self,
        groups: &[u64],
        blocks: u64,
        want: Want,
        taken: &mut Extents,
    ) -> Result<u64> {
        let limit = match want.fuller_than {
            Some(chunk) => self.chunk_free(chunk)?,
            None => CHUNK_BLOCKS,
        };
        let need = blocks.div_ceil(PART);
        if want.near.is_some() && blocks < GROWTH {
            for &group in groups {
                let chunks = self.group_chunks(group);
                let mut accept = |chunk, _| Ok(longest_run(&self.bitmap(chunk)?) >= GROWTH);
                let found = self.index_fullest(&chunks, Kind::Data, GROWTH, &mut accept)?;
                let got = self.take_pieces(found, blocks, taken)?;
                if got > 0 {
                    return Ok(got);
                }
            }
        }
        for whole in [true, false] {
            for &group in groups {
                let chunks = self.group_chunks(group);
                let mut accept = |_, free| Ok(free < limit);
                let found = if whole {
                    self.index_fullest(&chunks, Kind::Data, need, &mut accept)?
                } else {
                    self.index_emptiest(&chunks, &mut accept)?
                };
                let got = self.take_pieces(found, blocks, taken)?;
                if got > 0 {
                    return Ok(got);
                }
            }
        }
        Ok(0)
    }

    /// Takes up to `blocks` blocks of a data chunk: from the shortest run that holds them all, or
    /// else from the longest on. Gives how many.
    fn take_pieces(&self, chunk: Option<u64>, blocks: u64, taken: &mut Extents) -> Result<u64> {
        let Some(chunk) = chunk else { return Ok(0) };
        let bits = self.bitmap(chunk)?;
        let fitting = free_runs(&bits).filter(|run| run.1 >= blocks).min_by_key(|run| run.1);
        let start = self.chunk_start(chunk);
        if let Some((first, _)) = fitting
            && self.claim(chunk, Kind::Data, first, blocks)?
        {
            taken.push((start + first, blocks));
            return Ok(blocks);
        }
        let mut runs: SmallVec<[(u64, u64); 16]> = free_runs(&bits).collect();
        runs.sort_unstable_by_key(|run| (std::cmp::Reverse(run.1), run.0));
        let mut got = 0;
        for (first, length) in runs {
            let count = length.min(blocks - got);
            if count > 0 && self.claim(chunk, Kind::Data, first, count)? {
                taken.push((start + first, count));
                got += count;
            }
        }
        Ok(got)
    }

    /// Takes `blocks` blocks piece by piece; `false` if there are no more.
    fn take_all(&self, blocks: u64, kind: Kind, taken: &mut Extents) -> Result<bool> {
        let mut rest = blocks;
        while rest > 0 {
            let got = self.take_some(rest.min(CHUNK_BLOCKS), kind, taken)?;
            if got == 0 {
                return Ok(false);
            }
            rest -= got;
        }
        Ok(true)
    }

    /// Takes what is free right behind block `near`, at most `want` blocks; gives how many.
    fn take_behind(&self, near: u64, want: u64, taken: &mut Extents) -> Result<u64> {
        let (chunk, index) = self.chunk_of(near);
        if index + 1 == CHUNK_BLOCKS || self.chunk_kind(chunk)? != Kind::Data {
            return Ok(0);
        }
        let bits = self.bitmap(chunk)?;
        let run = free_runs(&bits).find(|(first, length)| first + length > index + 1);
        let Some((first, length)) = run.filter(|(first, _)| *first == index + 1) else {
            return Ok(0);
        };
        let count = length.min(want);
        if !self.claim(chunk, Kind::Data, first, count)? {
            return Ok(0);
        }
        taken.push((near + 1, count));
        Ok(count)
    }

    /// Takes 1 to `want` blocks (at most a chunk's) where there is no hole for data that the index
    /// knows, in the order of preference that the head of this file tells; 0 if no block is free.
    fn take_some(&self, want: u64, kind: Kind, taken: &mut Extents) -> Result<u64> {
        let groups = self.groups_by_preference()?;
        if kind == Kind::Metadata {
            for &group in groups.iter().filter(|_| want < CHUNK_BLOCKS) {
                if let Some(run) = self.take_run(group, want)? {
                    taken.push(run);
                    return Ok(want);
                }
            }
            // A new chunk of metadata serves long: not all are searched for one.
            let got = self.gather(&groups, kind, want, (want / 16).max(1), SEARCH, taken)?;
            if got > 0 {
                return Ok(got);
            }
        }
        if let Some(chunk) = self.take_free_chunk(kind, 0, want)? {
            taken.push((self.chunk_start(chunk), want));
            return Ok(want);
        }
        let got = self.gather(&groups, kind, want, 1, usize::MAX, taken)?;
        if got > 0 {
            return Ok(got);
        }
        let other = if kind == Kind::Data { Kind::Metadata } else { Kind::Data };
        self.gather(&groups, other, want, 1, usize::MAX, taken)
    }

    /// The local group first, then the others, those with the most free blocks first.
    pub(crate) fn groups_by_preference(&self) -> Result<SmallVec<[u64; 8]>> {
        let local = self.local_group();
        let mut others: SmallVec<[(u64, u64); 8]> = SmallVec::new();
        for group in (0..self.groups()).filter(|group| *group != local) {
            others.push((self.group_load(group, Group::Blocks)?, group));
        }
        others.sort_unstable_by(|a, b| b.cmp(a));
        let mut groups = SmallVec::new();
        groups.push(local);
        groups.extend(others.into_iter().map(|(_, group)| group));
        Ok(groups)
    }

    /// The chunks of a group, from its cursor on and around.
    pub(crate) fn chunks_around(
        &self,
        group: u64,
        cursor: Group,
    ) -> Result<impl Iterator<Item = u64> + use<>> {
        let chunks = self.group_chunks(group);
        let at = self.group_load(group, cursor)?;
        let at = if chunks.contains(&at) { at } else { chunks.start };
        Ok((at..chunks.end).chain(chunks.start..at))
    }

    /// Takes a run of exactly `want` blocks from the metadata chunk that served such requests last.
    fn take_current(&self, group: u64, want: u64) -> Result<Option<(u64, u64)>> {
        let current = self.group_load(group, Group::MetadataCursor)?;
        if !self.group_chunks(group).contains(&current) {
            return Ok(None);
        }
        let found = self.claim_run(current, want)?;
        Ok(found.map(|first| (self.chunk_start(current) + first, want)))
    }

    /// Takes a run of exactly `want` blocks from the group's fullest metadata chunk that has one.
    fn take_run(&self, group: u64, want: u64) -> Result<Option<(u64, u64)>> {
        let chunks = self.group_chunks(group);
        for _ in 0..ATTEMPTS {
            let mut fits = |chunk, _| Ok(want == 1 || longest_run(&self.bitmap(chunk)?) >= want);
            let found = self.index_fullest(&chunks, Kind::Metadata, want, &mut fits)?;
            let Some(chunk) = found else { return Ok(None) };
            if let Some(first) = self.claim_run(chunk, want)? {
                self.group_store(group, Group::MetadataCursor, chunk)?;
                return Ok(Some((self.chunk_start(chunk) + first, want)));
            }
        }
        Ok(None)
    }

    /// Claims the first run of `want` free blocks in a metadata chunk; gives its first block's
    /// index.
    fn claim_run(&self, chunk: u64, want: u64) -> Result<Option<u64>> {
        for _ in 0..ATTEMPTS {
            if self.chunk_kind(chunk)? != Kind::Metadata {
                return Ok(None);
            }
            let bits = self.bitmap(chunk)?;
            let run = free_runs(&bits).find(|(_, length)| *length >= want);
            let Some((first, _)) = run else { return Ok(None) };
            if self.claim(chunk, Kind::Metadata, first, want)? {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Takes runs of at least `shortest` blocks, `want` blocks in sum if there are as many; gives
    /// how many. Looks at up to `most` chunks of a group.
    fn gather(
        &self,
        groups: &[u64],
        kind: Kind,
        want: u64,
        shortest: u64,
        most: usize,
        taken: &mut Extents,
    ) -> Result<u64> {
        let mut got = 0;
        for &group in groups {
            for chunk in self.chunks_around(group, Group::MetadataCursor)?.take(most) {
                if self.chunk_kind(chunk)? != kind || self.chunk_free(chunk)? < shortest {
                    continue;
                }
                let bits = self.bitmap(chunk)?;
                for (first, length) in free_runs(&bits).filter(|(_, length)| *length >= shortest) {
                    let count = length.min(want - got);
                    if self.claim(chunk, kind, first, count)? {
                        taken.push((self.chunk_start(chunk) + first, count));
                        got += count;
                    }
                    if got == want {
                        return Ok(got);
                    }
                }
            }
        }
        Ok(got)
    }

    /// Breaks a free chunk for `kind` and takes its blocks `[first, first + count)`.
    pub(crate) fn take_free_chunk(
        &self,
        kind: Kind,
        first: u64,
        count: u64,
    ) -> Result<Option<u64>> {
        let groups = self.groups_by_preference()?;
        self.take_free_chunk_of(&groups, kind, first, count)
    }

    /// The same of these groups.
    fn take_free_chunk_of(
        &self,
        groups: &[u64],
        kind: Kind,
        first: u64,
        count: u64,
    ) -> Result<Option<u64>> {
        let mut sum = 0_u64;
        for &group in groups {
            sum = sum.wrapping_add(self.group_load(group, Group::Chunks)?);
        }
        if sum as i64 <= 0 {
            return Ok(None);
        }
        // The counters of single groups are hints: those that say "none" come last.
        let has = |group: &u64| Ok::<_, Errno>(self.group_load(*group, Group::Chunks)? as i64 > 0);
        let mut ordered: SmallVec<[u64; 8]> = SmallVec::new();
        for wanted in [true, false] {
            for group in groups {
                if has(group)? == wanted {
                    ordered.push(*group);
                }
            }
        }
        for &group in &ordered {
            let chunks = self.group_chunks(group);
            for _ in 0..ATTEMPTS {
                let Some(chunk) = self.index_free(&chunks)? else { break };
                match self.claim_free(chunk, kind, first, count) {
                    Err(Errno::NOSPC) => {
                        return self.take_chunk_with_memory(&ordered, kind, first, count);
                    }
                    claimed if claimed? => return Ok(Some(chunk)),
                    _ => {}
                }
            }
        }
        // The counters say that there is one: the index has lost it, or others are faster.
        for chunk in groups.iter().flat_map(|&group| self.group_chunks(group)) {
            if self.chunk_kind(chunk)? == Kind::Free
                && self.claim_free(chunk, kind, first, count)?
            {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    // ---- giving back
    // -----------------------------------------------------------------------------

    /// Frees blocks. A chunk whose last block this was becomes a free one. `EIO` if they do not lie
    /// in the pool.
    pub(crate) fn release_blocks(&self, block: u64, blocks: u64) -> Result<()> {
        if !self.in_pool(block, blocks) {
            return Err(Errno::IO);
        }
        // While they are nobody else's.
        self.say_nobodys(block, blocks);
        let (mut block, mut rest) = (block, blocks);
        while rest > 0 {
            let (chunk, index) = self.chunk_of(block);
            let count = rest.min(CHUNK_BLOCKS - index);
            self.clear(chunk, index, count)?;
            block += count;
            rest -= count;
        }
        Ok(())
    }

    /// Adds chunks to the pool that the volume has just grown by; the superblock has them already,
    /// the caller keeps all others from growing meanwhile.
    pub(crate) fn add_chunks(&self, chunks: std::ops::Range<u64>) -> Result<()> {
        self.index_extend(chunks.start)?;
        let backed = self.backed();
        for chunk in chunks {
            if backed.has(chunk) {
                self.write_record(chunk, &[0; 8], Kind::Free, 0)?;
            }
            self.index_enter(FREE, chunk)?;
            let group = self.group_of(chunk);
            self.group_add(group, Group::Blocks, CHUNK / BLOCK)?;
            self.group_add(group, Group::Chunks, 1)?;
        }
        Ok(())
    }
}
