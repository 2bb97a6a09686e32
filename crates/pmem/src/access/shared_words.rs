//! Volatile words that processes share inside a region: the runtime's locks, counters and queues.
//!
//! They are guarded like everything else but never recorded as persistent: nothing here flushes,
//! and a power cut forgets them. A hook hears of each change before it happens, as a point to die
//! at. Words are 8 bytes, aligned; a futex is the low or high half of one.
//!
//! A locked instruction waits until all stores before it have reached the memory. It is needless
//! where no other thread or process can change the words. A caller that knows that for a while says
//! so ([`Region::set_alone`]): then a word is read and stored by plain instructions, in the same
//! order and with the same values. What a death leaves is the same too: the word before, or after.

use crate::region::Region;
use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use memory::faults::user_memory::Fault;
use memory::instructions::copy;
use os::interrupt;
use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn timespec(time: Duration) -> futex::Timespec {
    futex::Timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

impl Region {
    /// The address of the aligned word at `off`, which is about to change.
    #[inline]
    fn changing_word(&self, off: u64) -> Result<*mut u8, Fault> {
        let at = self.word(off)?;
        if self.hook().is_some() {
            self.tell(off);
        }
        Ok(at)
    }

    /// Tells the hook of a shared word that is about to change. Apart, so that whether there is one
    /// takes a comparison.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self, off: u64) {
        if let Some(hook) = self.hook() {
            hook.shared(off);
        }
    }

    /// Loads a shared word (acquire).
    #[inline]
    pub fn shared_load(&self, off: u64) -> Result<u64, Fault> {
        self.load64(off)
    }

    /// Asks for the line at `off` to be brought near: a hint, which changes nothing and never
    /// faults.
    #[inline]
    pub fn prefetch(&self, off: u64) {
        if let Ok(at) = self.range(off, 1) {
            // SAFETY: any address may be asked for.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast_const().cast()) };
        }
    }

    /// Stores a shared word (release).
    #[inline]
    pub fn shared_store(&self, off: u64, value: u64) -> Result<(), Fault> {
        let at = self.changing_word(off)?;
        // SAFETY: `at` is a word of the mapping.
        if unsafe { copy::store64(at, value) } { Ok(()) } else { Err(Fault::Region) }
    }

    /// Replaces `old` by `new` (acquire and release): `Ok(old)`, or `Err` with what was found.
    #[inline]
    pub fn shared_cas(&self, off: u64, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        let at = self.changing_word(off)?;
        // SAFETY: `at` is a word of the mapping.
        let found = unsafe { self.cas_word(at, old, new) }.ok_or(Fault::Region)?;
        Ok(if found == old { Ok(found) } else { Err(found) })
    }

    /// As [`Region::shared_cas`], of a word that other processes change in spite of
    /// [`Region::set_alone`].
    #[inline]
    pub fn contended_cas(&self, off: u64, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        let at = self.changing_word(off)?;
        // SAFETY: `at` is a word of the mapping.
        let found = unsafe { copy::cas64(at, old, new) }.ok_or(Fault::Region)?;
        Ok(if found == old { Ok(found) } else { Err(found) })
    }

    /// From now on, or no longer, only the calling thread changes shared words: no other thread of
    /// this process, no other process.
    #[inline]
    pub fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// What [`Region::set_alone`] said last.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// # Safety
    ///
    /// `at` is a word of the mapping.
    #[expect(clippy::inline_always, reason = "its words stay in registers")]
    #[inline(always)]
    pub(crate) unsafe fn cas_word(&self, at: *mut u8, old: u64, new: u64) -> Option<u64> {
        if !self.is_alone() {
            // SAFETY: the caller's promise.
            return unsafe { copy::cas64(at, old, new) };
        }
        // SAFETY: the caller's promise.
        let found = unsafe { copy::load64(at) }?;
        // SAFETY: the caller's promise.
        (found != old || unsafe { copy::store64(at, new) }).then_some(found)
    }

    /// # Safety
    ///
    /// `at` is a word of the mapping.
    #[inline]
    pub(crate) unsafe fn swap_word(&self, at: *mut u8, value: u64) -> Option<u64> {
        if !self.is_alone() {
            // SAFETY: the caller's promise.
            return unsafe { copy::swap64(at, value) };
        }
        // SAFETY: the caller's promise.
        let found = unsafe { copy::load64(at) }?;
        // SAFETY: the caller's promise.
        unsafe { copy::store64(at, value) }.then_some(found)
    }

    /// Adds `delta`, wrapping; gives the value before.
    #[inline]
    pub fn shared_add(&self, off: u64, delta: u64) -> Result<u64, Fault> {
        let at = self.changing_word(off)?;
        if self.is_alone() {
            // SAFETY: `at` is a word of the mapping.
            let found = unsafe { copy::load64(at) }.ok_or(Fault::Region)?;
            // SAFETY: as above.
            let stored = unsafe { copy::store64(at, found.wrapping_add(delta)) };
            return if stored { Ok(found) } else { Err(Fault::Region) };
        }
        // SAFETY: `at` is a word of the mapping.
        unsafe { copy::add64(at, delta) }.ok_or(Fault::Region)
    }

    /// Exchanges the word for `value`; gives the value before.
    #[inline]
    pub fn shared_swap(&self, off: u64, value: u64) -> Result<u64, Fault> {
        let at = self.changing_word(off)?;
        // SAFETY: `at` is a word of the mapping.
        unsafe { self.swap_word(at, value) }.ok_or(Fault::Region)
    }

    /// Sets the bits of `bits`; gives the value before.
    #[inline]
    pub fn shared_or(&self, off: u64, bits: u64) -> Result<u64, Fault> {
        self.shared_update(off, |value| value | bits)
    }

    /// Keeps only the bits of `bits`; gives the value before.
    #[inline]
    pub fn shared_and(&self, off: u64, bits: u64) -> Result<u64, Fault> {
        self.shared_update(off, |value| value & bits)
    }

    #[inline]
    fn shared_update(&self, off: u64, change: impl Fn(u64) -> u64) -> Result<u64, Fault> {
        let mut value = self.load64(off)?;
        loop {
            match self.shared_cas(off, value, change(value))? {
                Ok(before) => return Ok(before),
                Err(found) => value = found,
            }
        }
    }

    /// Zeroes volatile bytes.
    pub fn shared_zero(&self, off: u64, len: u64) -> Result<(), Fault> {
        static ZEROES: [u8; 4096] = [0; 4096];
        self.range(off, len)?;
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(ZEROES.len() as u64);
            self.shared_write(off + done, &ZEROES[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }

    /// Copies volatile bytes out.
    #[inline]
    pub fn shared_read(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        let from = self.range(off, to.len() as u64)?;
        // SAFETY: `to` is valid for its length; the source is guarded.
        unsafe { copy::load_words(to.as_mut_ptr(), from, to.len()) }.map_err(|_| Fault::Region)
    }

    /// Copies bytes in; each aligned 8-byte word by one store.
    #[inline]
    pub fn shared_write(&self, off: u64, from: &[u8]) -> Result<(), Fault> {
        let at = self.range(off, from.len() as u64)?;
        if let Some(hook) = self.hook() {
            hook.shared(off);
        }
        // SAFETY: `at` is mapped for `from.len()` bytes.
        unsafe { copy::store_words(at, from.as_ptr(), from.len()) }.map_err(|_| Fault::Region)
    }

    /// The 32-bit word at `off` as the futex calls want it. The reference only carries the address:
    /// the kernel reads the word, and answers for a vanished page itself.
    fn futex_word(&self, off: u64) -> Option<&AtomicU32> {
        let at = self.range(off, 4).ok()?;
        #[expect(clippy::cast_ptr_alignment, reason = "the alignment is checked here")]
        let word = at.cast::<u32>();
        // SAFETY: aligned, inside the mapping, and only ever accessed atomically.
        word.is_aligned().then(|| unsafe { AtomicU32::from_ptr(word) })
    }

    /// Sleeps while the 32-bit word at `off` is `expected`, at most `timeout`. False: time is up
    /// (or there is no such word). True: woken, by whatever; look again.
    pub fn futex_wait(&self, off: u64, expected: u32, timeout: Option<Duration>) -> bool {
        let Some(word) = self.futex_word(off) else { return false };
        let timeout = timeout.map(timespec);
        let waited = futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref());
        !matches!(waited, Err(Errno::TIMEDOUT | Errno::FAULT | Errno::INVAL))
    }

    /// As [`Region::futex_wait`], but an error as soon as the face wants the wait to end: see
    /// [`interrupt::reason`].
    pub fn futex_wait_interruptible(
        &self,
        off: u64,
        expected: u32,
        timeout: Duration,
    ) -> Result<bool, Errno> {
        let Some(word) = self.futex_word(off) else { return Ok(false) };
        let timeout = timespec(timeout);
        let arguments = [
            std::ptr::from_ref(word) as usize,
            libc::FUTEX_WAIT as usize,
            expected as usize,
            (&raw const timeout) as usize,
            0,
            0,
        ];
        // SAFETY: a word of the mapping and a time that lives until the call's end.
        let waited = unsafe { interrupt::wait_call(libc::SYS_futex, arguments) };
        match waited {
            Err(Errno::INTR) => interrupt::reason().map_or(Ok(true), Err),
            Err(Errno::TIMEDOUT) => interrupt::reason().map_or(Ok(false), Err),
            Err(Errno::FAULT | Errno::INVAL) => Ok(false),
            _ => Ok(true),
        }
    }

    /// Wakes up to `count` sleepers on the 32-bit word at `off`, in all processes.
    pub fn futex_wake(&self, off: u64, count: u32) {
        if let Some(word) = self.futex_word(off) {
            // A word on a vanished page has no sleepers to wake.
            let _ = futex::wake(word, futex::Flags::empty(), count);
        }
    }
}
