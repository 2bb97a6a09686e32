//! Regions of memory that is no file of theirs.

use super::{Region, pages};
use crate::region::hook::Hook;
use crate::region::policy::Policy;
use crate::region::source::{Class, PAGE};
use memory::faults::handler::install_fault_handler;
use memory::instructions::copy;
use memory::instructions::dispatch::Dispatch;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

/// Address space that somebody else maps files to, and unmaps.
#[derive(Clone, Debug)]
pub struct ForeignMemory {
    /// Where it begins, a multiple of 4096.
    pub base: *mut u8,
    /// Its bytes.
    pub space: usize,
    /// Bytes from `base` on that are mapped; more later, by [`Region::grown`].
    pub len: u64,
    /// What a fence promises there, and why.
    pub class: (Class, String),
    /// What stores need there.
    pub policy: Policy,
    /// Whether it is mapped for writing.
    pub write: bool,
}

impl Region {
    /// A region in memory that is lent: [`Region::sync_file`] does nothing there, whatever its
    /// class. Errors: `EINVAL`, the environment asks for instructions that are not known.
    ///
    /// # Safety
    ///
    /// `base..base + space` belongs to the lender until the region is dropped, and nothing but
    /// files is mapped there.
    pub unsafe fn lent(lent: ForeignMemory) -> Result<Region, Errno> {
        install_fault_handler();
        let dispatch = Dispatch::of_process().map_err(|_| Errno::INVAL)?;
        let (class, reason) = lent.class;
        let mut region = Region {
            base: lent.base,
            len: AtomicU64::new(lent.len),
            whole: AtomicU64::new(lent.len & !7),
            quick: AtomicU64::new(lent.len),
            slow: OnceLock::new(),
            space: lent.space,
            ahead: lent.space,
            fd: None,
            file: (0, 0),
            path: None,
            class,
            reason,
            policy: lent.policy,
            writable: lent.write,
            map_flags: MapFlags::SHARED,
            map_unit: PAGE,
            device: false,
            dispatch,
            hook: None,
            pager: None,
            growing: Mutex::new(()),
            key: AtomicU32::new(0),
            lent: true,
            own: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            alone: AtomicBool::new(false),
        };
        region.follow(lent.policy);
        Ok(region)
    }

    /// A private region that starts as `image`, for tests and the crash explorer: it is flushed as
    /// persistent memory is.
    ///
    /// # Panics
    ///
    /// If the memory cannot be had, or the environment asks for unknown instructions.
    #[must_use]
    pub fn in_memory(image: impl AsRef<[u8]>, hook: Option<Arc<dyn Hook>>) -> Region {
        let image = image.as_ref();
        let region = Region::zeros(image.len() as u64, hook);
        // SAFETY: the mapping made there is as long as the image.
        let filled =
            unsafe { copy::copy(region.dispatch, region.base, image.as_ptr(), image.len()) };
        filled.expect("fresh memory is writable");
        region
    }

    /// The same, of `len` zero bytes: memory is taken only for pages that are stored to.
    ///
    /// # Panics
    ///
    /// As [`Region::in_memory`].
    #[must_use]
    pub fn zeros(len: u64, hook: Option<Arc<dyn Hook>>) -> Region {
        install_fault_handler();
        let space = pages(len.max(1));
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                space,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let base = base.expect("memory for a private region").cast::<u8>();
        Region {
            base,
            len: AtomicU64::new(len),
            whole: AtomicU64::new(len & !7),
            quick: AtomicU64::new(len),
            slow: OnceLock::new(),
            space,
            ahead: 0,
            fd: None,
            file: (0, 0),
            path: None,
            class: Class::Volatile,
            reason: "private memory".to_owned(),
            policy: Policy::Flushed,
            writable: true,
            map_flags: MapFlags::PRIVATE,
            map_unit: PAGE,
            device: false,
            dispatch: Dispatch::of_process().expect("a usable SOLERA_FLUSH and SOLERA_COPY"),
            hook,
            pager: None,
            growing: Mutex::new(()),
            key: AtomicU32::new(0),
            lent: false,
            own: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            alone: AtomicBool::new(false),
        }
    }
}
