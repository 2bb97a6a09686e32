//! The file in memory. All that is in it are words that processes change at will, so what is read
//! is believed of no one: numbers are masked, lengths cut.

#![expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page, and so do its parts")]

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{AREAS, Area, Event, FILES, Header, MAGIC, Path};

const PAGE: usize = 4096;
const PATHS_AT: usize = size_of::<Header>().next_multiple_of(PAGE);
const AREAS_AT: usize = PATHS_AT + (FILES * size_of::<Path>()).next_multiple_of(PAGE);

/// Bytes of an area and of its ring.
const fn stride(ring: u32) -> usize {
    size_of::<Area>() + (ring as usize * size_of::<Event>()).next_multiple_of(PAGE)
}

/// Bytes of the file, most of which are a hole.
pub const fn bytes(ring: u32) -> usize {
    AREAS_AT + AREAS * stride(ring)
}

/// Why it is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmapped;

/// The mapped file.
pub struct Map {
    base: *mut u8,
    length: usize,
    /// Areas that are mapped: where address space is short, fewer than there are.
    areas: usize,
    ring: u32,
}

// SAFETY: all that lies there are atomic words.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl fmt::Debug for Map {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} areas at {:p}", self.areas, self.base)
    }
}

impl Map {
    /// Maps the file: as many areas as there is address space for.
    ///
    /// Makes system calls only: no allocation, no `errno`.
    pub fn new(file: impl AsFd) -> Result<Self, Unmapped> {
        let ring = {
            let head = Self::mapped(&file, 0, 0)?;
            if head.header().magic.load(Ordering::Acquire) != MAGIC {
                return Err(Unmapped);
            }
            head.header().ring.load(Ordering::Relaxed)
        };
        let mut areas = AREAS;
        while areas > 0 {
            if let Ok(map) = Self::mapped(&file, areas, ring) {
                return Ok(map);
            }
            areas /= 2;
        }
        Err(Unmapped)
    }

    /// A new file of this length, all zero, becomes one that processes take.
    pub fn begin(file: impl AsFd, ring: u32) -> Result<Self, Unmapped> {
        let map = Self::mapped(&file, AREAS, ring)?;
        map.header().ring.store(ring, Ordering::Relaxed);
        map.header().magic.store(MAGIC, Ordering::Release);
        Ok(map)
    }

    fn mapped(file: &impl AsFd, areas: usize, ring: u32) -> Result<Self, Unmapped> {
        let length = AREAS_AT + areas * stride(ring);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, flags, file, 0) };
        let base = base.map_err(|_| Unmapped)?.cast();
        Ok(Self { base, length, areas, ring })
    }

    /// How many areas are mapped.
    pub fn areas(&self) -> usize {
        self.areas
    }

    /// Events that a ring holds.
    pub fn ring(&self) -> u32 {
        self.ring
    }

    /// The beginning.
    pub fn header(&self) -> &Header {
        // SAFETY: it lies at the start of the mapping, which is longer, and is made of atomic
        // words.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The row of a path.
    pub fn path(&self, number: usize) -> &Path {
        let at = PATHS_AT + number % FILES * size_of::<Path>();
        // SAFETY: below `AREAS_AT`, and as above.
        unsafe { &*self.base.add(at).cast::<Path>() }
    }

    /// An area; `None`: it is not mapped.
    pub fn area(&self, number: usize) -> Option<&Area> {
        let at = AREAS_AT + number * stride(self.ring);
        // SAFETY: `areas` of them are mapped, at multiples of a page, and as above.
        (number < self.areas).then(|| unsafe { &*self.base.add(at).cast::<Area>() })
    }

    /// A place in the ring of an area of this mapping: the `number`th event that was put there.
    /// There is a ring.
    pub fn event<'m>(&'m self, area: &'m Area, number: u64) -> &'m Event {
        assert!(self.ring > 0, "events are kept");
        let place = (number % u64::from(self.ring)) as usize;
        // SAFETY: behind each area there are so many, and as above.
        unsafe { &*std::ptr::from_ref(area).add(1).cast::<Event>().add(place) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; what was borrowed of it is gone. Unmapping it cannot fail.
        let _ = unsafe { munmap(self.base.cast(), self.length) };
    }
}
