//! The contents of a model file: a size and the pages that differ from zero, shared by copies.
//!
//! Invariants: no page is kept that lies wholly at or beyond the size; the bytes of the last page
//! beyond the size are zero.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes in a page of the model.
pub const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

const ZERO: Page = [0; PAGE as usize];

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// Bytes `8 * index ..` of the data named `tag`: bytes of different writes, and of different places
/// of one write, differ nearly everywhere, and none is zero.
fn fill_word(tag: u32, index: u64) -> [u8; 8] {
    let mut x = u64::from(tag) << 40 ^ index ^ 0x9E37_79B9_7F4A_7C15;
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ x >> 31) | 0x0101_0101_0101_0101).to_le_bytes()
}

/// The first `length` bytes of the data named `tag`.
#[must_use]
pub fn fill(tag: u32, length: u64) -> Vec<u8> {
    let mut data: Vec<u8> = (0..length.div_ceil(8)).flat_map(|at| fill_word(tag, at)).collect();
    data.truncate(length as usize);
    data
}

impl Content {
    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of `[offset, offset + length)`, zeros where there is nothing.
    #[must_use]
    pub fn bytes(&self, offset: u64, length: u64) -> Vec<u8> {
        let mut out = vec![0; length as usize];
        for (&index, page) in self.pages.range(offset / PAGE..) {
            let start = index * PAGE;
            if start >= offset.saturating_add(length) {
                break;
            }
            let from = offset.max(start);
            let to = (offset + length).min(start + PAGE);
            let source = &page[(from - start) as usize..(to - start) as usize];
            out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
        out
    }

    /// What a read of `length` bytes at `offset` gives.
    #[must_use]
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        self.bytes(offset, length.min(self.size.saturating_sub(offset)))
    }

    /// Whether there are only zeros in `[from, to)`.
    #[must_use]
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        self.pages.range(from / PAGE..to.div_ceil(PAGE)).all(|(&index, page)| {
            let start = index * PAGE;
            let (from, to) = (from.max(start) - start, to.min(start + PAGE) - start);
            page[from as usize..to as usize] == ZERO[..(to - from) as usize]
        })
    }

    /// Numbers of the pages that may differ from zero.
    pub fn page_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// Stores bytes; the size grows if need be.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let inside = (at % PAGE) as usize;
            let take = (PAGE as usize - inside).min(data.len() - done);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[inside..inside + take].copy_from_slice(&data[done..done + take]);
            done += take;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// As [`Content::write`] of a whole aligned page, shared with `like` where that holds the same.
    pub fn write_page(&mut self, index: u64, page: &[u8], like: &Content) {
        match like.pages.get(&index) {
            Some(same) if same[..] == *page => {
                self.pages.insert(index, Arc::clone(same));
                self.size = self.size.max((index + 1) * PAGE);
            }
            _ if *page == ZERO[..page.len()] => self.grow(index * PAGE + page.len() as u64),
            _ => self.write(index * PAGE, page),
        }
    }

    /// Sets the size; what lies beyond is lost.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                Arc::make_mut(page)[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// Grows to `size` if smaller.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Zeroes `[offset, offset + length)` as far as it lies below the size.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(&index, _)| index).collect();
        for index in touched {
            let start = index * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            if to - from == PAGE {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                Arc::make_mut(page)[(from - start) as usize..(to - start) as usize].fill(0);
            }
        }
    }

    /// Takes whole pages out; what follows moves down.
    pub fn collapse(&mut self, offset: u64, length: u64) {
        let mut behind = self.pages.split_off(&(offset / PAGE));
        let kept = behind.split_off(&((offset + length) / PAGE));
        self.pages.extend(kept.into_iter().map(|(index, page)| (index - length / PAGE, page)));
        self.size -= length;
    }

    /// Puts whole zero pages in; what follows moves up.
    pub fn insert(&mut self, offset: u64, length: u64) {
        let behind = self.pages.split_off(&(offset / PAGE));
        self.pages.extend(behind.into_iter().map(|(index, page)| (index + length / PAGE, page)));
        self.size += length;
    }

    /// The first byte in `range` that differs between two contents, sizes aside.
    #[must_use]
    pub fn first_difference(&self, other: &Content) -> Option<u64> {
        // Most that are compared have the same pages, which they share.
        let mut beside = self.pages.iter().zip(&other.pages);
        if self.pages.len() == other.pages.len()
            && beside.all(|((one, this), (two, that))| one == two && Arc::ptr_eq(this, that))
        {
            return None;
        }
        let mut pages: Vec<u64> = self.pages.keys().chain(other.pages.keys()).copied().collect();
        pages.sort_unstable();
        pages.dedup();
        pages.into_iter().find_map(|index| {
            let (one, two) = (self.pages.get(&index), other.pages.get(&index));
            if let (Some(one), Some(two)) = (one, two)
                && Arc::ptr_eq(one, two)
            {
                return None;
            }
            let (one, two) = (one.map_or(&ZERO, |page| page), two.map_or(&ZERO, |page| page));
            if one == two {
                return None;
            }
            let at = one.iter().zip(two).position(|(a, b)| a != b)?;
            Some(index * PAGE + at as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_vector() {
        let mut content = Content::default();
        let mut vector: Vec<u8> = Vec::new();
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for tag in 0..2000 {
            let (offset, length) = (random(40_000), random(9_000));
            match random(5) {
                0 => {
                    content.truncate(offset);
                    vector.resize(offset as usize, 0);
                }
                1 => {
                    content.zero(offset, length);
                    let end = vector.len().min((offset + length) as usize);
                    vector[(offset as usize).min(end)..end].fill(0);
                }
                2 if offset / PAGE * PAGE + PAGE < content.size() => {
                    let at = offset / PAGE * PAGE;
                    content.collapse(at, PAGE);
                    vector.drain(at as usize..(at + PAGE) as usize);
                }
                3 if offset / PAGE * PAGE < content.size() => {
                    let at = (offset / PAGE * PAGE) as usize;
                    content.insert(at as u64, PAGE);
                    vector.splice(at..at, vec![0; PAGE as usize]);
                }
                _ => {
                    let data = fill(tag, length);
                    content.write(offset, &data);
                    let end = (offset + length) as usize;
                    if length > 0 {
                        vector.resize(vector.len().max(end), 0);
                        vector[offset as usize..end].copy_from_slice(&data);
                    }
                }
            }
            assert_eq!(content.size(), vector.len() as u64);
        }
        assert_eq!(content.read(0, u64::MAX / 2), vector);
        for at in (0..vector.len()).step_by(517) {
            let to = vector.len().min(at + at % 9000);
            let zero = vector[at..to].iter().all(|&byte| byte == 0);
            assert_eq!(content.is_zero(at as u64, to as u64), zero);
        }
    }
}
