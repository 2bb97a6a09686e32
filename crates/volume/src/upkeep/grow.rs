//! Grows a volume while it is in use.
//!
//! Order: the file is extended; the superblock, B then A, says so; the new chunks' records say
//! free; then the runtime's header tells other processes, which map the new end when they see a
//! larger size there or meet a block beyond the one they know.
//!
//! CRASH: before the superblock is durable the volume has its old size in a longer region; after
//! it, the next attach finds the state dirty and rebuilds the free map, new chunks included.
//!
//! Locks: the attach lock keeps other growers and readers of the superblock away.

use crate::Result;
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{CHUNK, HEADER_SIZE, SIZE_WATCHED, Superblock};
use crate::medium::superblock;
use crate::upkeep::Upkeep;
use rustix::io::Errno;
use std::path::Path;

impl Upkeep {
    /// Makes the volume `new_size` bytes long (rounded down to whole chunks), lengthening its file
    /// if need be. Other attached processes notice by themselves. It never shrinks.
    pub fn grow(&self, new_size: u64) -> std::result::Result<(), VolumeError> {
        let path = self.region.path().unwrap_or(Path::new("(memory)"));
        let system = |what: &str, errno| VolumeError::system("grow", path, what, errno);
        self.check_writable().map_err(|errno| system("it is attached read-only", errno))?;
        let _guard =
            self.liveness.lock_attach().map_err(|errno| system("its anchor directory", errno))?;
        self.refresh_size().map_err(|errno| system("mapping its present end", errno))?;
        let found = superblock::read(&self.region, path, "grow")?;
        let chunks = new_size.saturating_sub(self.pool()) / CHUNK;
        let size = self.pool() + chunks * CHUNK;
        let invalid = |found: String, advice: &str| {
            Err(VolumeError::new(ErrorKind::Invalid, "grow", path, found, advice))
        };
        if size <= self.size() {
            let found = format!(
                "it has {} bytes already, and grows by whole 2 MiB: {new_size} would not make it \
                 larger",
                self.size()
            );
            return invalid(found, "give a larger size");
        }
        let most = self.pool() + found.superblock.chunks_max * CHUNK;
        if size > most {
            let found = format!("it was made to grow to {most} bytes at most");
            return invalid(found, "make a larger volume and copy the files");
        }
        self.lengthen(size).map_err(|errno| system("lengthening its file", errno))?;
        let grown = Superblock { size, chunks, ..found.superblock };
        superblock::replace(&self.region, grown)
            .map_err(|errno| system("writing its superblock", errno))?;
        self.publish_size_of_volume(size).map_err(|errno| system("adding the new space", errno))
    }

    /// Adds the new chunks to the free map and tells other processes. An operation, so that no
    /// rebuild after a death runs meanwhile, and that one follows if this process dies in the
    /// middle.
    fn publish_size_of_volume(&self, size: u64) -> Result<()> {
        let mut op = self.begin()?;
        op.work()?;
        let before = self.chunks();
        self.set_size(size);
        self.add_chunks(before..self.chunks())?;
        loop {
            let before = self.rt.load(HEADER_SIZE)?;
            let after = size | before & SIZE_WATCHED;
            if self.rt.cas(HEADER_SIZE, before, after)?.is_ok() {
                break;
            }
        }
        op.end()
    }

    /// Makes the region's file at least `size` bytes long, and maps it.
    fn lengthen(&self, size: u64) -> Result<()> {
        if self.region.len() < size && self.region.fd() >= 0 {
            // SAFETY: the region's descriptor is open as long as the region.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.region.fd()) };
            let length = rustix::fs::fstat(fd)?.st_size as u64;
            if length < size {
                rustix::fs::ftruncate(fd, size)?;
            }
            self.region.extend().map_err(|error| error.errno())?;
        }
        if self.region.len() < size { Err(Errno::NOSPC) } else { Ok(()) }
    }
}
