//! Private views of regions: stores stay in this process. Files are mapped privately; device-dax,
//! which the kernel maps shared only, is copied on write here.
//!
//! The device is mapped read-only. A guarded store into it faults, and the handler puts a private
//! copy of the piece (2 MiB, or what the device is aligned to) in its place; then the store is made
//! again. Reads cost nothing, and memory is used for pieces that are stored to.
//!
//! Invariants: a piece changes from the device's memory to a copy once, whole, by one `mremap`; its
//! byte in `copied` says so. A piece that cannot be read cannot be copied: such a store ends as a
//! fault of the region.
//!
//! Locks: `FILLING`, a spin lock, held by the handler for one piece. Only the handler of a fault in
//! a guarded store of this crate takes it, and no such store is made while it is held (reading the
//! device may fault, but is no store into a view).

use crate::faults::handler::expect_faults;
use crate::instructions::copy;
use crate::instructions::dispatch::dispatch;
use crate::region::Region;
use crate::region::source::{self, Class, OpenError, OpenOptions, PAGE, Source};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Views of one process at a time.
const VIEWS_MAX: usize = 16;

/// One view; all zero: none.
struct View {
    base: AtomicUsize,
    len: AtomicUsize,
    /// Bytes of a piece.
    piece: AtomicUsize,
    /// Address of a byte for each piece: 1 if it is a copy.
    copied: AtomicUsize,
}

static VIEWS: [View; VIEWS_MAX] = [const {
    View {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        piece: AtomicUsize::new(0),
        copied: AtomicUsize::new(0),
    }
}; VIEWS_MAX];

static FILLING: AtomicBool = AtomicBool::new(false);

/// Fresh private memory.
fn memory(len: usize) -> Result<*mut c_void, Errno> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }
}

/// Lets stores into `base..base + len`, a read-only mapping that starts and ends at a multiple of
/// `piece`, go to private copies from here on. `EMFILE` if there are too many views.
pub(crate) fn add(base: *mut u8, len: usize, piece: usize) -> Result<(), Errno> {
    let pieces = len.div_ceil(piece);
    let copied = memory(pieces)?;
    expect_faults();
    for view in &VIEWS {
        let free = view.piece.compare_exchange(0, piece, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            view.len.store(len, Ordering::Relaxed);
            view.copied.store(copied as usize, Ordering::Relaxed);
            view.base.store(base as usize, Ordering::Release);
            return Ok(());
        }
    }
    // SAFETY: the memory from above; nothing points into it.
    unsafe { rustix::mm::munmap(copied, pieces)? };
    Err(Errno::MFILE)
}

/// Forgets the view at `base`, if there is one; it is not in use any more.
pub(crate) fn remove(base: *mut u8) {
    let Some(view) = VIEWS.iter().find(|view| view.base.load(Ordering::Acquire) == base as usize)
    else {
        return;
    };
    view.base.store(0, Ordering::Release);
    let pieces = view.len.load(Ordering::Relaxed).div_ceil(view.piece.load(Ordering::Relaxed));
    let copied = view.copied.swap(0, Ordering::Relaxed) as *mut c_void;
    // SAFETY: the memory that `add` made; no thread finds the view from here on.
    let unmapped = unsafe { rustix::mm::munmap(copied, pieces) };
    debug_assert!(unmapped.is_ok(), "memory of our own unmaps");
    view.piece.store(0, Ordering::Release);
}

/// Serves a fault at `address`: true if the store that met it can be made again.
pub(crate) fn copy_on_write(address: usize) -> bool {
    let view = VIEWS.iter().find(|view| {
        let base = view.base.load(Ordering::Acquire);
        base != 0 && address.wrapping_sub(base) < view.len.load(Ordering::Relaxed)
    });
    let Some(view) = view else { return false };
    while FILLING.swap(true, Ordering::Acquire) {
        rustix::thread::sched_yield();
    }
    let done = copy_piece(view, address).is_ok();
    FILLING.store(false, Ordering::Release);
    done
}

fn copy_piece(view: &View, address: usize) -> Result<(), Errno> {
    let base = view.base.load(Ordering::Relaxed);
    let piece = view.piece.load(Ordering::Relaxed);
    let index = (address - base) / piece;
    let copied = (view.copied.load(Ordering::Relaxed) as *mut u8).wrapping_add(index);
    // SAFETY: a byte of the view's table; it changes under `FILLING` only.
    if unsafe { copied.read() } != 0 {
        // Another thread met the same piece first.
        return Ok(());
    }
    let from = (base as *mut u8).wrapping_add(index * piece);
    let own = memory(piece)?;
    // SAFETY: `own` is `piece` bytes of fresh memory; the source is guarded.
    let filled = unsafe { copy::copy(dispatch(), own.cast(), from, piece) };
    if filled.is_err() {
        // SAFETY: the memory from above.
        unsafe { rustix::mm::munmap(own, piece)? };
        return Err(Errno::IO);
    }
    // SAFETY: replaces a piece of the view by memory with the same content.
    unsafe {
        let flags = MremapFlags::MAYMOVE;
        rustix::mm::mremap_fixed(own, piece, piece, flags, from.cast())?;
        copied.write(1);
    }
    Ok(())
}

impl Region {
    /// A private, copy-on-write view of a file: what is stored here never reaches the file. For the
    /// crash explorer, which continues one image in many ways.
    pub fn private_view(file: OwnedFd) -> Result<Region, OpenError> {
        Self::view(file, None)
    }

    /// The same of a file that may only be read, by a process that attaches it so.
    pub fn reading(file: OwnedFd, path: &Path) -> Result<Region, OpenError> {
        Self::view(file, Some(path))
    }

    fn view(file: OwnedFd, path: Option<&Path>) -> Result<Region, OpenError> {
        let name = path.unwrap_or(Path::new("(private view)"));
        let (kind, stat) = source::region_kind(name, &file)?;
        let large =
            rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type == source::HUGETLBFS_MAGIC);
        if kind == FileType::CharacterDevice || large {
            let source = source::probe(name, file, &OpenOptions::default())?;
            return Region::copying_view(path, name, source);
        }
        let source = Source {
            fd: file,
            file: (stat.st_dev, stat.st_ino),
            len: stat.st_size as u64,
            device: false,
            class: Class::Volatile,
            reason: "a private view".to_owned(),
            // What is never stored to needs no memory of its own, however large the file is.
            flags: MapFlags::PRIVATE | MapFlags::NORESERVE,
            align: PAGE as usize,
            unit: PAGE,
        };
        Region::map(path, name, source, &OpenOptions { write: true, ..OpenOptions::default() })
    }

    /// A private view of what cannot be mapped privately: pieces are copied when they are stored
    /// to.
    pub(crate) fn copying_view(
        path: Option<&Path>,
        name: &Path,
        source: Source,
    ) -> Result<Region, OpenError> {
        let piece = source.align;
        let mut region = Region::map(path, name, source, &OpenOptions::default())?;
        add(region.base(), (region.len() as usize).next_multiple_of(piece), piece).map_err(
            |errno| {
                let found = format!("a view of it gave: {}", source::plain(errno));
                OpenError::new(name, errno, found, "end other views of devices")
            },
        )?;
        region.become_private();
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use crate::region::Region;
    use crate::region::source::{OpenOptions, probe};
    use std::path::Path;

    const PIECE: u64 = 2 << 20;

    #[test]
    fn stores_into_a_view_of_shared_memory_stay_in_it() {
        let shared = Region::anonymous(4 * PIECE).unwrap();
        let _ = shared.write(PIECE + 8, b"before").unwrap().flush().fence();
        let name = format!("/proc/self/fd/{}", shared.fd());
        let name = Path::new(&name);
        let view = || {
            let fd = crate::region::source::open_path(name, false).unwrap();
            let source = probe(name, fd, &OpenOptions::default()).unwrap();
            Region::copying_view(None, name, source).unwrap()
        };
        let read = |region: &Region, at| {
            let mut bytes = [0; 6];
            region.read(at, &mut bytes).unwrap();
            bytes
        };
        let (one, other) = (view(), view());
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let one = &one;
                threads.spawn(move || {
                    for piece in 0..3 {
                        let at = piece * PIECE + 64 * thread;
                        let _ = one.write(at, b"thread").unwrap().flush().fence();
                    }
                });
            }
        });
        for piece in 0..3 {
            for thread in 0..4 {
                assert_eq!(&read(&one, piece * PIECE + 64 * thread), b"thread");
            }
        }
        let _ = one.write(PIECE + 8, b"inside").unwrap().flush().fence();
        assert_eq!(&read(&one, PIECE + 8), b"inside");
        assert_eq!(&read(&other, PIECE + 8), b"before", "another view sees none of it");
        assert_eq!(&read(&shared, PIECE + 8), b"before", "nor does the memory itself");
        // A piece without stores of the view shows changes of the device.
        let _ = shared.write(3 * PIECE, b"beside").unwrap().flush().fence();
        assert_eq!(&read(&one, 3 * PIECE), b"beside");
    }
}
