//! A mapped range of memory: where it comes from, how it is mapped and grows.
//!
//! Invariants: `base..base + len` is mapped as long as the region lives, and `len` only grows (the
//! reserved address space behind it is mapped before the new length is published). The *file* may
//! shrink under the mapping; then a guarded access faults and gives [`Fault::Region`]. No reference
//! into the mapping is ever made: bytes are copied in and out, races allowed.
//!
//! Locks: `growing` serialises [`Region::extend`]; nothing else locks.

mod file;
mod foreign_memory;
pub mod holes;
pub mod hook;
mod numa;
pub mod pager;
pub mod policy;
mod private_view;
mod slow;
pub mod source;

pub use foreign_memory::ForeignMemory;

use self::source::{Class, OpenError, OpenOptions, PAGE, Purpose, Source};
use crate::region::hook::Hook;
use crate::region::pager::Pager;
use crate::region::policy::Policy;
use emulation::SlowMemory;
use memory::faults::copy_on_write;
use memory::faults::handler::install_fault_handler;
use memory::faults::key::{self, Unguarded};
use memory::faults::region_table;
use memory::faults::stray;
use memory::faults::user_memory::Fault;
use memory::instructions::dispatch::{self, Dispatch, FlushKind};
use os::InternalFd;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::hint::cold_path;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A mapped range of memory with its class and its instructions.
pub struct Region {
    pub(crate) base: *mut u8,
    len: AtomicU64,
    /// Bytes of the words that are whole: the length, rounded down.
    whole: AtomicU64,
    /// Bytes that copies reach straight away: all, or none in memory that is slowed.
    pub(crate) quick: AtomicU64,
    pub(crate) slow: OnceLock<SlowMemory>,
    /// Address space from `base` on that is ours, mapped or reserved.
    space: usize,
    /// Bytes that are mapped from the start on, though the file may be shorter.
    ahead: usize,
    pub(crate) fd: Option<InternalFd>,
    pub(crate) file: (u64, u64),
    pub(crate) path: Option<PathBuf>,
    class: Class,
    reason: String,
    policy: Policy,
    writable: bool,
    map_flags: MapFlags,
    map_unit: u64,
    pub(crate) device: bool,
    pub(crate) dispatch: Dispatch,
    pub(crate) hook: Option<Arc<dyn Hook>>,
    pager: Option<Arc<dyn Pager>>,
    pub(crate) growing: Mutex<()>,
    /// The protection key that guards it; 0: none.
    key: AtomicU32,
    /// Whoever lent it unmaps it.
    lent: bool,
    /// Forked children do not get it.
    own: AtomicBool,
    /// A forked child has given its mapping up.
    given_up: AtomicBool,
    pub(crate) alone: AtomicBool, // As `access/shared_words.rs` has it.
}

// SAFETY: the pointer is to a mapping that lives as long as the region and is only accessed by
// guarded copies that allow races.
unsafe impl Send for Region {}
// SAFETY: as above; the other fields are Sync.
unsafe impl Sync for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Region")
            .field("path", &self.path)
            .field("len", &self.len())
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

/// Reserves `space` bytes of address space at a multiple of `align`.
fn reserve_space(space: usize, align: usize) -> Result<*mut u8, Errno> {
    let none = ProtFlags::empty();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let whole = space.checked_add(align).ok_or(Errno::NOMEM)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, none, flags)? };
    let lead = (start as usize).next_multiple_of(align) - start as usize;
    let tail = whole - lead - space;
    let base = start.cast::<u8>().wrapping_add(lead);
    // SAFETY: both pieces belong to the mapping made above; nothing points into them.
    unsafe {
        if lead > 0 {
            rustix::mm::munmap(start, lead)?;
        }
        if tail > 0 {
            rustix::mm::munmap(base.wrapping_add(space).cast(), tail)?;
        }
    }
    Ok(base)
}

/// What to do where nothing can be mapped.
fn advice_on_space() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    limit.map_or_else(
        || "see how much memory and how many mappings (`vm.max_map_count`) there may be".to_owned(),
        |bytes| {
            let kib = bytes / 1024;
            format!("raise the limit of address space, which is {kib} KiB (`ulimit -v`)")
        },
    )
}

/// Rounds up to whole pages.
pub(crate) fn pages(len: u64) -> usize {
    len.next_multiple_of(PAGE) as usize
}

impl Region {
    /// Opens and maps an existing file or dax device.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Region, OpenError> {
        let fd = source::open_path(path, options.write)?;
        let source = source::probe(path, fd, options)?;
        Region::map(Some(path), path, source, options)
    }

    /// Maps an open descriptor, which becomes the region's own; `path` is where it was opened.
    pub fn adopt(fd: OwnedFd, path: &Path, options: &OpenOptions) -> Result<Region, OpenError> {
        let source = source::probe(path, fd, options)?;
        Region::map(Some(path), path, source, options)
    }

    /// Makes a (sparse) file of `size` bytes with the permissions `mode`, and opens it for writing.
    /// `exclusive`: it must not exist yet. Otherwise an existing file is resized, and a dax device
    /// must be large enough.
    pub fn create(path: &Path, size: u64, mode: u32, exclusive: bool) -> Result<Region, OpenError> {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        Region::create_with(path, size, mode, exclusive, &options)
    }

    /// As [`Region::create`], with options (`write` is implied).
    pub fn create_with(
        path: &Path,
        size: u64,
        mode: u32,
        exclusive: bool,
        options: &OpenOptions,
    ) -> Result<Region, OpenError> {
        let options = OpenOptions { write: true, ..options.clone() };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => {
                // The permissions that were asked for, whatever the umask takes from new files.
                let made = rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))
                    .map_err(|errno| source::explain_open(path, errno, true))
                    .and_then(|()| Region::create_on(path, fd, size, &options));
                made.inspect_err(|_| {
                    // The file is ours and useless; it stays if it cannot be removed.
                    let _ = rustix::fs::unlink(path);
                })
            }
            Err(Errno::EXIST) if !exclusive => {
                let fd = source::open_path(path, true)?;
                Region::create_on(path, fd, size, &options)
            }
            Err(Errno::EXIST) => Err(OpenError::new(
                path,
                Errno::EXIST,
                "it exists already",
                "choose another name, or allow it to be overwritten",
            )),
            Err(errno) => Err(source::explain_create(path, errno)),
        }
    }

    fn create_on(
        path: &Path,
        fd: OwnedFd,
        size: u64,
        options: &OpenOptions,
    ) -> Result<Region, OpenError> {
        let mut source = source::probe(path, fd, options)?;
        match rustix::fs::ftruncate(&source.fd, size) {
            Ok(()) => source.len = size,
            // A device has the size it has.
            Err(Errno::INVAL) if source.device && size <= source.len => {}
            Err(errno) if source.device => {
                let found = format!("the device has {} bytes, not {size}", source.len);
                return Err(OpenError::new(path, errno, found, "ask for no more than it has"));
            }
            Err(errno) => {
                let found = format!("it cannot be made {size} bytes long: {}", os::describe(errno));
                return Err(OpenError::new(path, errno, found, "choose another size or place"));
            }
        }
        Region::map(Some(path), path, source, options)
    }

    /// A region of `len` zero bytes in memory that no other process can open by name.
    pub fn anonymous(len: u64) -> Result<Region, OpenError> {
        let path = Path::new("(anonymous memory)");
        let fail = |errno: Errno| {
            let found = format!("{len} bytes: {}", os::describe(errno));
            OpenError::new(path, errno, found, "try a smaller size")
        };
        let fd = rustix::fs::memfd_create("solera", MemfdFlags::CLOEXEC).map_err(fail)?;
        rustix::fs::ftruncate(&fd, len).map_err(fail)?;
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let source = source::probe(path, fd, &options)?;
        Region::map(None, path, source, &options)
    }

    /// Maps what was found.
    pub(crate) fn map(
        path: Option<&Path>,
        name: &Path,
        source: Source,
        options: &OpenOptions,
    ) -> Result<Region, OpenError> {
        let dispatch = Dispatch::of_process().map_err(|wrong| {
            OpenError::new(name, Errno::INVAL, wrong, "set the variable to a name of this CPU")
        })?;
        let grows = options.purpose == Purpose::Growing;
        if source.len == 0 && !grows {
            let advice = "give it a size with `solera format --size`";
            return Err(OpenError::new(name, Errno::INVAL, "it is empty", advice));
        }
        let fail = |errno: Errno| {
            let found = format!("mapping {} bytes gave: {}", source.len, os::describe(errno));
            OpenError::new(name, errno, found, advice_on_space())
        };
        install_fault_handler();
        let reserve = |room: u64| {
            let space = source.len.max(1).checked_add(room);
            let space = space.and_then(|space| space.checked_next_multiple_of(source.align as u64));
            let space = space.ok_or(Errno::NOMEM)? as usize;
            reserve_space(space, source.align).map(|base| (base, space))
        };
        // Where there is no room to grow in, it does not grow.
        let reserved = match reserve(options.reserve) {
            Err(Errno::NOMEM) if options.reserve > 0 => reserve(0),
            reserved => reserved,
        };
        let (base, space) = reserved.map_err(fail)?;
        let mut region = Region {
            base,
            len: AtomicU64::new(0),
            whole: AtomicU64::new(0),
            quick: AtomicU64::new(0),
            slow: OnceLock::new(),
            space,
            ahead: 0,
            fd: Some(InternalFd::new(source.fd)),
            file: source.file,
            path: path.map(Path::to_owned),
            class: source.class,
            reason: source.reason,
            policy: Policy::Flushed,
            writable: options.write,
            map_flags: source.flags,
            map_unit: source.unit,
            device: source.device,
            dispatch,
            hook: None,
            pager: None,
            growing: Mutex::new(()),
            key: AtomicU32::new(0),
            lent: false,
            own: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            alone: AtomicBool::new(false),
        };
        let found = if options.flushed { Class::Page } else { source.found };
        region.follow(Policy::of(found, source.class));
        if grows {
            region.map_pages(0, space).map_err(fail)?;
            region.ahead = space;
        }
        region.map_tail(source.len).map_err(fail)?;
        if !region.device {
            let (len, fd) = (region.len() as usize, region.fd());
            let name = path.filter(|_| options.purpose == Purpose::Volume);
            region_table::enter(region.base, space, len, fd, name);
        }
        Ok(region)
    }

    /// Maps the file from the current length to `new_len`, then publishes that.
    fn map_tail(&self, new_len: u64) -> Result<(), Errno> {
        let (start, end) = (pages(self.len()).max(self.ahead), pages(new_len));
        if end > self.space {
            return Err(Errno::NOMEM);
        }
        if start < end {
            self.map_pages(start, end)?;
        }
        self.len.store(new_len, Ordering::Release);
        self.whole.store(new_len & !7, Ordering::Release);
        if self.slow.get().is_none() {
            self.quick.store(new_len, Ordering::Release);
        }
        self.list_anew();
        Ok(())
    }

    /// Maps a range of the file, in bytes, whole pages.
    fn map_pages(&self, start: usize, end: usize) -> Result<(), Errno> {
        let fd = self.fd.as_ref().ok_or(Errno::BADF)?;
        let at = self.base.wrapping_add(start).cast::<c_void>();
        let flags = self.map_flags | MapFlags::FIXED;
        let key = self.key.load(Ordering::Relaxed);
        let prot = if key == 0 { self.prot() } else { ProtFlags::empty() };
        // SAFETY: replaces reserved address space of this region that was never used.
        unsafe { rustix::mm::mmap(at, end - start, prot, flags, fd, start as u64)? };
        if key != 0 {
            // SAFETY: the mapping made above.
            unsafe { key::protect(at as usize, end - start, self.prot().bits(), key)? };
        }
        if self.own.load(Ordering::Relaxed) {
            // SAFETY: the mapping made above.
            unsafe { rustix::mm::madvise(at, end - start, Advice::LinuxDontFork)? };
        }
        if self.class == Class::Volatile && flags.contains(MapFlags::SHARED) {
            // SAFETY: a hint about the mapping made above; refused where it makes no sense.
            let _ = unsafe { rustix::mm::madvise(at, end - start, Advice::LinuxHugepage) };
        }
        Ok(())
    }

    /// A fault that finds the region by its address finds its length and its descriptor.
    pub(crate) fn list_anew(&self) {
        region_table::update(self.base, self.len() as usize, self.fd());
    }

    fn prot(&self) -> ProtFlags {
        let write = if self.writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        ProtFlags::READ | write
    }

    /// Lays the mapping, and what it grows by, under the process's protection key: from here on a
    /// thread reaches it only between [`key::open`] and [`key::close`]. So it stays for as long as
    /// the process lives; up to 16 regions can be. No other thread uses the region meanwhile.
    pub fn guard(&self) -> Result<(), Unguarded> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, len) = (self.base as usize, pages(self.len()).max(self.ahead));
        let key = key::guard((start, self.space), |key| {
            // SAFETY: this region's own mapping.
            unsafe { key::protect(start, len, self.prot().bits(), key) }
        })?;
        stray::name(start, self.path.as_deref().unwrap_or(Path::new("(anonymous memory)")));
        self.key.store(key, Ordering::Relaxed);
        Ok(())
    }

    /// Forked children do not get the mapping, nor what it grows by: it would keep the file's
    /// description, with its locks, open in them. A child that touches it gets a fault.
    pub fn keep_from_children(&self) -> Result<(), Errno> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        self.own.store(true, Ordering::Relaxed);
        let len = pages(self.len()).max(self.ahead);
        // SAFETY: this region's own mapping.
        unsafe { rustix::mm::madvise(self.base.cast(), len, Advice::LinuxDontFork) }
    }

    /// In a forked child that does not use the region now: gives the mapping up, which would keep
    /// its parent's open description of the file, with its locks. The address space stays reserved.
    pub fn give_up(&self) -> Result<(), Errno> {
        let bytes = pages(self.len()).max(self.ahead);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: this region's own mapping, which is used again behind `take_back` only.
        unsafe {
            rustix::mm::mmap_anonymous(self.base.cast(), bytes, ProtFlags::empty(), flags)?;
        }
        self.given_up.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Maps what was given up.
    pub fn take_back(&self) -> Result<(), Errno> {
        if !self.given_up.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.map_pages(0, pages(self.len()).max(self.ahead))
    }

    /// In a forked child, before anything else: a region with a pager was not inherited, for the
    /// kernel would show zeros where a page is elsewhere. It is mapped anew, at its place.
    pub fn born(&self) -> Result<(), Errno> {
        let Some(pager) = self.pager() else { return Ok(()) };
        self.map_pages(0, pages(self.len()))?;
        pager.forked()?;
        pager.mapped(self.base as usize, self.len());
        Ok(())
    }

    /// Maps what the file has grown by since, inside the reserved address space; gives the length,
    /// the old one if it has not grown.
    pub fn extend(&self) -> Result<u64, OpenError> {
        let Some(fd) = &self.fd else { return Ok(self.len()) };
        let name = self.path.as_deref().unwrap_or(Path::new("(anonymous memory)"));
        let fail = |errno: Errno| {
            let (found, advice) = if errno == Errno::NOMEM {
                ("it has outgrown the address space kept for it".to_owned(), "attach it anew")
            } else {
                (format!("mapping its new end gave: {}", os::describe(errno)), "attach it anew")
            };
            OpenError::new(name, errno, found, advice)
        };
        let size = rustix::fs::fstat(fd).map_err(fail)?.st_size as u64;
        self.grown(size).map_err(fail)?;
        Ok(self.len())
    }

    /// As [`Region::extend`], where the file is known to have grown to `len` bytes, or more.
    pub fn grown(&self, len: u64) -> Result<(), Errno> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if len <= self.len() {
            return Ok(());
        }
        self.map_tail(len)?;
        if let Some(pager) = self.pager() {
            pager.mapped(self.base as usize, self.len());
        }
        Ok(())
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// True only for a private region made from an empty image.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a fence promises here.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The pages by which this file or device can be mapped shared, bytes: more than 4096 on
    /// hugetlbfs, and on device-dax by default.
    pub fn map_unit(&self) -> u64 {
        self.map_unit
    }

    /// Whether single pages can be mapped privately: of no device.
    pub fn maps_pages_privately(&self) -> bool {
        self.map_unit == PAGE && !self.device
    }

    /// How the class was found.
    pub fn class_reason(&self) -> &str {
        &self.reason
    }

    /// From here on stores stay in this process (`private_view.rs`).
    pub(crate) fn become_private(&mut self) {
        self.writable = true;
        self.map_flags = MapFlags::PRIVATE;
        self.class = Class::Volatile;
        "a private view".clone_into(&mut self.reason);
        self.follow(Policy::Plain);
    }

    /// Treats the region as `class` from here on: for the crash explorer and for tests.
    pub fn set_class(&mut self, class: Class) {
        self.class = class;
        "set by a test".clone_into(&mut self.reason);
        self.follow(Policy::of(class, class));
    }

    /// From here on stores are made as `policy` says.
    pub(crate) fn follow(&mut self, policy: Policy) {
        self.policy = policy;
        self.dispatch.flush = match policy {
            Policy::Flushed => dispatch::dispatch().flush,
            Policy::Fenced | Policy::Plain => FlushKind::None,
        };
    }

    /// What stores need here.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether neither flushes nor fences are needed.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.policy == Policy::Plain
    }

    /// The instructions in use on this region.
    #[inline]
    pub fn dispatch(&self) -> Dispatch {
        self.dispatch
    }

    /// Whether stores stay in this process.
    pub fn is_private(&self) -> bool {
        self.map_flags.contains(MapFlags::PRIVATE)
    }

    /// Opened for writing.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The address of offset 0: for arithmetic on addresses only, never to be dereferenced.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Reports to `hook` from here on.
    pub fn set_hook(&mut self, hook: Arc<dyn Hook>) {
        self.hook = Some(hook);
    }

    /// Its pages may be absent from here on, and this brings them.
    pub fn set_pager(&mut self, pager: Arc<dyn Pager>) {
        pager.mapped(self.base as usize, self.len());
        self.pager = Some(pager);
    }

    /// Who brings its pages, if they may be absent.
    #[inline]
    pub fn pager(&self) -> Option<&dyn Pager> {
        self.pager.as_deref()
    }

    #[inline]
    pub(crate) fn hook(&self) -> Option<&dyn Hook> {
        self.hook.as_deref()
    }

    /// The address of `off..off + len`, if that lies inside the region.
    #[inline]
    pub(crate) fn range(&self, off: u64, len: u64) -> Result<*mut u8, Fault> {
        let size = self.len();
        if off <= size && len <= size - off {
            Ok(self.base.wrapping_add(off as usize))
        } else {
            cold_path();
            Err(Fault::Region)
        }
    }

    /// As [`Region::range`], for a copy that reaches the medium; `None` also in memory that is
    /// slowed: then the copy is made by [`Region::slowly`], which looks again.
    #[inline]
    pub(crate) fn quick(&self, off: u64, len: u64) -> Option<*mut u8> {
        let size = self.quick.load(Ordering::Acquire);
        if off <= size && len <= size - off {
            Some(self.base.wrapping_add(off as usize))
        } else {
            cold_path();
            None
        }
    }

    /// The address of the aligned 8-byte word at `off`.
    #[inline]
    pub(crate) fn word(&self, off: u64) -> Result<*mut u8, Fault> {
        self.words::<1>(off)
    }

    /// The address of so many aligned words at `off`.
    #[inline]
    pub(crate) fn words<const WORDS: usize>(&self, off: u64) -> Result<*mut u8, Fault> {
        let whole = self.whole.load(Ordering::Acquire);
        let inside = off < whole && (WORDS == 1 || whole - off >= WORDS as u64 * 8);
        if off.is_multiple_of(8) && inside {
            Ok(self.base.wrapping_add(off as usize))
        } else {
            cold_path();
            Err(Fault::Region)
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        copy_on_write::remove(self.base);
        region_table::leave(self.base);
        if self.lent {
            return;
        }
        if let Some(pager) = self.pager() {
            pager.unmapped(self.base as usize);
        }
        // SAFETY: this address space is the region's own, and nothing points into it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.space) };
        debug_assert!(unmapped.is_ok(), "the region's own address space unmaps");
    }
}
