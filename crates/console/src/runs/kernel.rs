//! Asks kernel file systems: FIEMAP tells where a file's bytes lie, GETFSMAP what is free (ext4 and
//! XFS have both; tmpfs has neither). Places are bytes from the beginning of the block device.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::{Run, join};

/// Entries that one call gives.
const BATCH: usize = 128;

/// `struct fiemap` with room for its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FiemapExtent; BATCH],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fsmap_head` with room for its records.
#[repr(C)]
struct FsMap {
    input_flags: u32,
    output_flags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [FsMapRecord; 2],
    records: [FsMapRecord; BATCH],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FsMapRecord {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `FS_IOC_FIEMAP`.
const FIEMAP: libc::c_ulong = 0xC020_660B;
/// `FIEMAP_FLAG_SYNC`.
const FIEMAP_SYNC: u32 = 1;
/// `FIEMAP_EXTENT_LAST`.
const FIEMAP_LAST: u32 = 1;
/// `FS_IOC_GETFSMAP`.
const GETFSMAP: libc::c_ulong = 0xC0C0_583B;
/// `FMR_OF_SPECIAL_OWNER`, `FMR_OF_LAST`, and the owner `FMR_OWN_FREE`.
const SPECIAL_OWNER: u32 = 0x10;
const LAST_RECORD: u32 = 0x20;
const OWNER_FREE: u64 = 1;

/// `ioctl` with a structure that the kernel fills; `None` where the file system does not know it.
fn ask<T>(file: &File, request: libc::c_ulong, structure: &mut T) -> Result<Option<c_int>, Errno> {
    // SAFETY: the callers give the structure that belongs to the request, with its own count of
    // room.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(structure)) };
    if result >= 0 {
        return Ok(Some(result));
    }
    match Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO) {
        Errno::OPNOTSUPP | Errno::NOTTY => Ok(None),
        errno => Err(errno),
    }
}

/// Where the bytes of a file lie; `None` where the file system does not tell.
pub fn extents(file: &File) -> Result<Option<Vec<Run>>, Errno> {
    let mut runs: Vec<Run> = Vec::new();
    let mut start = 0;
    loop {
        let mut map = Box::new(Fiemap {
            start,
            length: u64::MAX - start,
            flags: FIEMAP_SYNC,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); BATCH],
        });
        if ask(file, FIEMAP, &mut *map)?.is_none() {
            return Ok(None);
        }
        let found = &map.extents[..map.mapped as usize];
        for extent in found {
            let run = Run { offset: extent.logical, place: extent.physical, length: extent.length };
            join(&mut runs, run);
        }
        match found.last() {
            Some(last) if last.flags & FIEMAP_LAST == 0 => start = last.logical + last.length,
            _ => return Ok(Some(runs)),
        }
    }
}

/// The free space of the file system that `directory` is on; `None` where it does not tell.
pub fn free_space(directory: &File) -> Result<Option<Vec<Run>>, Errno> {
    let all = FsMapRecord {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        ..FsMapRecord::default()
    };
    let mut map = Box::new(FsMap {
        input_flags: 0,
        output_flags: 0,
        count: BATCH as u32,
        entries: 0,
        reserved: [0; 6],
        keys: [FsMapRecord::default(), all],
        records: [FsMapRecord::default(); BATCH],
    });
    let mut runs = Vec::new();
    loop {
        if ask(directory, GETFSMAP, &mut *map)?.is_none() {
            return Ok(None);
        }
        let found = &map.records[..map.entries as usize];
        for record in found {
            if record.flags & SPECIAL_OWNER != 0 && record.owner == OWNER_FREE {
                let (place, length) = (record.physical, record.length);
                join(&mut runs, Run { offset: place, place, length });
            }
        }
        match found.last() {
            Some(last) if last.flags & LAST_RECORD == 0 => map.keys[0] = *last,
            _ => return Ok(Some(runs)),
        }
    }
}
