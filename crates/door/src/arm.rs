//! Arming: the patched text is put in the place of the text that the loader has loaded.
//!
//! It is called from a resolver of IRELATIVE relocations, or a constructor, while the process has
//! one thread. Nothing here enters the C library, allocates, touches thread-local storage or
//! panics. Whatever fails leaves the library as it was.
//!
//! The order: all is checked; the slot gets the entry's address; then one call changes the text.

use std::fmt;

use os::interrupt::system_call;
use rustix::io::Errno;

use crate::elf::{Between, PAGE, Part, Parts, ProgramHeader, Unfit, build_id};
use crate::entry::entry;
use crate::image::{Damaged, FOOTER, Footer};
use crate::patch::{Done, Gaps, Places, Refused, STUBS, Text, patch};
use crate::sites;

/// A shared object that the loader has loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// What is added to the file's addresses.
    pub base: usize,
    /// Its program headers.
    pub headers: &'a [ProgramHeader],
}

/// In which way a library was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The file's text is mapped.
    Mapped,
    /// Its changed pages were read and copied, for it may not be mapped to be executed (a file
    /// system that is `noexec`).
    Copied,
    /// There is no file: the loaded text was patched where it is.
    InMemory,
}

/// A library that is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// How.
    pub way: Way,
    /// The address of its text, and bytes.
    pub text: (usize, usize),
    /// The address of the slot.
    pub slot: usize,
    /// The address of the jump to the entry.
    jump: usize,
    /// The stubs: addresses and bytes.
    stubs: [(usize, usize); STUBS],
}

impl Armed {
    /// Whether an instruction at this address is the one jump to the entry.
    pub fn is_jump(&self, address: usize) -> bool {
        address == self.jump
    }

    /// Whether an instruction at this address was put into padding: the library's tables of
    /// unwinding do not know it, and the call of its site has not been made. A signal's handler
    /// that would unwind from there, to cancel a thread, must not.
    pub fn is_added(&self, address: usize) -> bool {
        self.is_jump(address)
            || self.stubs.iter().any(|(start, size)| (*start..start + size).contains(&address))
    }
}

/// Why a library is not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a shared object that can be.
    Unfit(Unfit),
    /// The patched file is not believed.
    Damaged(Damaged),
    /// The patched file is of another build: the build-ids differ.
    OtherBuild,
    /// The patched file has its text or its data elsewhere.
    OtherLayout,
    /// Something is in the slot already.
    SlotTaken,
    /// It is armed already.
    Armed,
    /// Without a file: its text cannot be patched.
    Refused(Refused),
    /// The system does not allow a step.
    Forbidden(Step, Errno),
}

/// A step of arming that the system may forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading the patched file.
    Read,
    /// Memory for a copy.
    Allocate,
    /// Making the loaded text writable for a moment: not under `PR_SET_MDWE`, nor where it is
    /// sealed or a filter forbids it.
    Write,
    /// Putting the patched text in the place of the loaded one: not where it is sealed.
    Replace,
    /// Making the page of the slot writable, and read-only again.
    Unseal,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Unfit(unfit) => crate::image::Failed::Unfit(*unfit).fmt(f),
            Self::Damaged(damaged) => damaged.fmt(f),
            Self::OtherBuild => f.write_str("the patched file is of another build of the library"),
            Self::OtherLayout => {
                f.write_str("the patched file has another layout than what is loaded")
            }
            Self::SlotTaken => f.write_str("the slot for the entry's address is in use"),
            Self::Armed => f.write_str("it is armed already"),
            Self::Refused(Refused::Gaps) => f.write_str("there is not enough padding in its text"),
            Self::Refused(Refused::Nothing) => {
                f.write_str("its text makes no system call that is wanted")
            }
            Self::Refused(Refused::Unknown(at) | Refused::Bound(at)) => {
                write!(
                    f,
                    "its text has a system call of a shape that is not known, at {at:#x} of it"
                )
            }
            Self::Refused(Refused::Far) => f.write_str("its text is too large"),
            Self::Forbidden(step, errno) => {
                let step = match step {
                    Step::Read => "the patched file cannot be read",
                    Step::Allocate => "there is no memory for a copy of the text",
                    Step::Write => "the loaded text may not be made writable",
                    Step::Replace => "the loaded text may not be replaced",
                    Step::Unseal => "the slot's page may not be made writable",
                };
                write!(f, "{step} (errno {})", errno.raw_os_error())
            }
        }
    }
}

impl From<Unfit> for Refusal {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl Loaded<'_> {
    /// Bytes of a part that is loaded. The parts come from the program headers: they are mapped.
    fn read(&self, address: u64, size: usize) -> Option<&'static [u8]> {
        use object::LittleEndian as LE;
        let inside = self.headers.iter().any(|header| {
            let start = header.p_vaddr.get(LE);
            header.p_type.get(LE) == object::elf::PT_LOAD
                && address >= start
                && address
                    .checked_add(size as u64)
                    .is_some_and(|end| end <= start + header.p_filesz.get(LE))
        });
        if !inside {
            return None;
        }
        let start = self.base.checked_add(address as usize)? as *const u8;
        // SAFETY: within a segment of a library that is loaded, and is not unloaded: the C library
        // or the loader itself.
        Some(unsafe { std::slice::from_raw_parts(start, size) })
    }

    /// Its build-id.
    pub fn build_id(&self) -> Result<&'static [u8], Unfit> {
        build_id(self.headers, |address, size| self.read(address, size))
    }

    /// The pages of a part: address and bytes.
    fn pages(&self, part: Part) -> (usize, usize) {
        let start = part.address & !(PAGE - 1);
        let end = part.end().next_multiple_of(PAGE);
        (self.base + start as usize, (end - start) as usize)
    }
}

/// Arms a loaded library with its patched file.
///
/// # Safety
///
/// `loaded` is the library that the file's build-id names, its headers are those that the loader
/// used. The process has one thread, which stands in no system call of the library.
pub unsafe fn by_file(loaded: &Loaded, file: i32) -> Result<Armed, Refusal> {
    let parts = Parts::of(loaded.headers)?;
    let footer = footer_of(file)?;
    if loaded.build_id()? != footer.build_id() {
        return Err(Refusal::OtherBuild);
    }
    let same = footer.text_address == parts.text.address
        && footer.text_size == parts.text.size
        && footer.text_offset == parts.text_offset
        && footer.data_address == parts.data.address
        && footer.data_end == parts.data.end();
    if !same {
        return Err(Refusal::OtherLayout);
    }
    let text = loaded.pages(parts.text);
    let offset = (footer.text_offset & !(PAGE - 1)) as usize;
    let slot = Slot {
        address: loaded.base + footer.slot as usize,
        sealed: footer.slot < footer.data_address,
        before: footer.slot_before as usize,
    };
    slot.check()?;
    slot.fill(entry().start)?;
    // What is behind the last changed page stays: functions on strings, whose pages are there.
    let changed = (0..text.1 / PAGE as usize).rfind(|page| footer.is_changed(*page));
    let replaced = (text.0, changed.map_or(text.1, |last| (last + 1) * PAGE as usize));
    // SAFETY: the caller vouches for the library; the mapping replaces its text, whole pages, by
    // the same text but for the sites.
    let mapped = unsafe { map_over(replaced, file, offset) };
    let way = match mapped {
        Ok(()) => Ok(Way::Mapped),
        // SAFETY: as above.
        Err(errno) => match unsafe { copy_over(text, file, offset, &footer) } {
            Ok(()) => Ok(Way::Copied),
            // Of `noexec` the second way says more; else why the first one failed.
            Err(refusal) if matches!(errno, Errno::PERM | Errno::ACCESS) => Err(refusal),
            Err(_) => Err(Refusal::Forbidden(Step::Replace, errno)),
        },
    };
    match way {
        Ok(way) => Ok(Armed {
            way,
            text,
            slot: slot.address,
            jump: loaded.base + footer.jump as usize,
            stubs: footer
                .stubs
                .map(|stub| (loaded.base + stub.address as usize, stub.size as usize)),
        }),
        Err(refusal) => {
            slot.empty();
            Err(refusal)
        }
    }
}

/// Arms a loaded library without a file: its text is patched where it is. For that time it may be
/// written and executed, so that no step can leave it without the right to be executed.
///
/// # Safety
///
/// As for [`by_file`].
pub unsafe fn in_memory(loaded: &Loaded, wanted: &dyn Fn(u32) -> bool) -> Result<Armed, Refusal> {
    let parts = Parts::of(loaded.headers)?;
    let read = |address, size| loaded.read(address, size);
    let (address, size) = (parts.text.address, parts.text.size as usize);
    let mut gaps;
    let slot;
    let mut places = Places::default();
    {
        let text = read(address, size).ok_or(Unfit::Text)?;
        gaps = Gaps::find(text, address, Between::new(&parts, &read));
        // The slot lies in the text, whose page is the process's own then.
        slot = gaps.take(8, address, 8).ok_or(Refusal::Refused(Refused::Gaps))?;
        let mut tried = gaps;
        let slot_address = address + slot as u64;
        let mut look = Text::Look(text);
        let mut note = |done: Done| places.note(done.at);
        patch(&mut look, address, &mut tried, slot_address, wanted, &mut sites::next, &mut note)
            .map_err(Refusal::Refused)?;
    }
    let pages = loaded.pages(parts.text);
    let executed = libc::PROT_READ | libc::PROT_EXEC;
    protect(pages, executed | libc::PROT_WRITE)
        .map_err(|errno| Refusal::Forbidden(Step::Write, errno))?;
    let start = loaded.base + address as usize;
    // SAFETY: the loaded text, which may be written; nothing else refers to it now, and this
    // thread, the only one, executes none of it but what copies bytes.
    let text = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, size) };
    let slot_address = address + slot as u64;
    text[slot..slot + 8].copy_from_slice(&entry().start.to_ne_bytes());
    let mut change = Text::Change(text);
    let mut known = |text: &[u8], from| places.next(text, from);
    let done =
        patch(&mut change, address, &mut gaps, slot_address, wanted, &mut known, &mut |_| ());
    // It cannot be refused: a right is given up.
    let _ = protect(pages, executed);
    let added = done.map_err(Refusal::Refused)?;
    Ok(Armed {
        way: Way::InMemory,
        text: pages,
        slot: start + slot,
        jump: start + added.jump,
        stubs: added.stubs.map(|(at, size)| (start + at as usize, size as usize)),
    })
}

/// Changes the rights of whole pages.
fn protect(pages: (usize, usize), protection: i32) -> Result<(), Errno> {
    // SAFETY: pages of a library that is loaded; the callers say why the rights may change.
    unsafe { system_call(libc::SYS_mprotect, [pages.0, pages.1, protection as usize, 0, 0, 0]) }
        .map(|_| ())
}

/// The footer at the end of a patched file.
pub fn footer_of(file: i32) -> Result<Footer, Refusal> {
    let failed = |errno| Refusal::Forbidden(Step::Read, errno);
    // SAFETY: it moves the position of a descriptor that the caller has opened for this.
    let size = unsafe {
        system_call(libc::SYS_lseek, [file as usize, 0, libc::SEEK_END as usize, 0, 0, 0])
    }
    .map_err(failed)?;
    let offset = size.checked_sub(FOOTER).ok_or(Refusal::Damaged(Damaged::Short))?;
    let mut bytes = [0; FOOTER];
    if read_at(file, bytes.as_mut_ptr() as usize, FOOTER, offset).map_err(failed)? != FOOTER {
        return Err(Refusal::Damaged(Damaged::Short));
    }
    let footer = Footer::read(&bytes).map_err(Refusal::Damaged)?;
    if footer.elf_size > offset as u64 {
        return Err(Refusal::Damaged(Damaged::Short));
    }
    Ok(footer)
}

/// The slot of a library: eight bytes of its writable memory.
struct Slot {
    address: usize,
    /// It lies in a page that relocation seals.
    sealed: bool,
    before: usize,
}

impl Slot {
    /// Whether it is as it was loaded.
    fn check(&self) -> Result<(), Refusal> {
        // SAFETY: within the pages of the library's writable segment, by the footer's own check and
        // that of the layout; aligned.
        match unsafe { (self.address as *const usize).read() } {
            now if now == self.before => Ok(()),
            now if now == entry().start => Err(Refusal::Armed),
            _ => Err(Refusal::SlotTaken),
        }
    }

    fn fill(&self, value: usize) -> Result<(), Refusal> {
        let page = self.address & !(PAGE as usize - 1);
        let protect = |protection| {
            protect((page, PAGE as usize), protection)
                .map_err(|errno| Refusal::Forbidden(Step::Unseal, errno))
        };
        let closed = self.sealed && !self.is_writable();
        if closed {
            protect(libc::PROT_READ | libc::PROT_WRITE)?;
        }
        // SAFETY: see `check`; writable now.
        unsafe { (self.address as *mut usize).write_volatile(value) };
        if closed {
            protect(libc::PROT_READ)?;
        }
        Ok(())
    }

    fn empty(&self) {
        // What cannot be undone is a pointer that no code uses.
        let _ = self.fill(self.before);
    }

    /// Whether the kernel may write there: it writes the old mask of signals.
    fn is_writable(&self) -> bool {
        // SAFETY: the mask is read, not set; it is written to the slot, which is filled next.
        unsafe {
            system_call(
                libc::SYS_rt_sigprocmask,
                [libc::SIG_BLOCK as usize, 0, self.address, 8, 0, 0],
            )
        }
        .is_ok()
    }
}

/// Maps a file's pages over a text.
///
/// # Safety
///
/// They are the same text's.
unsafe fn map_over(text: (usize, usize), file: i32, offset: usize) -> Result<(), Errno> {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    let arguments = [text.0, text.1, protection as usize, flags as usize, file as usize, offset];
    // SAFETY: the caller vouches for it.
    unsafe { system_call(libc::SYS_mmap, arguments) }.map(|_| ())
}

/// Reads the pages of a file that are changed, and copies them into a text.
///
/// # Safety
///
/// They are the same text's.
unsafe fn copy_over(
    text: (usize, usize),
    file: i32,
    offset: usize,
    footer: &Footer,
) -> Result<(), Refusal> {
    let page = PAGE as usize;
    let pages = text.1 / page;
    let count = (0..pages).filter(|at| footer.is_changed(*at)).count();
    let copy = allocate(count.max(1) * page)?;
    let read = runs(footer, pages).try_fold(copy, |to, (first, run)| {
        read_whole(file, to, run * page, offset + first * page).map(|()| to + run * page)
    });
    // Nothing can fail between these two, so no part of the text is left behind.
    let done = read.and_then(|_| {
        protect(text, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
            .map_err(|errno| Refusal::Forbidden(Step::Write, errno))
    });
    if done.is_ok() {
        runs(footer, pages).fold(copy, |from, (first, run)| {
            // SAFETY: the copy has these pages, the text may be written; this thread, the only
            // one, executes none of it but what copies bytes.
            unsafe {
                let to = (text.0 + first * page) as *mut u8;
                std::ptr::copy_nonoverlapping(from as *const u8, to, run * page);
            }
            from + run * page
        });
        let _ = protect(text, libc::PROT_READ | libc::PROT_EXEC);
    }
    release(copy, count.max(1) * page);
    done
}

/// The runs of changed pages: the first one of each, and how many.
fn runs(footer: &Footer, pages: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = (at..pages).find(|page| footer.is_changed(*page))?;
        let run = (first..pages).take_while(|page| footer.is_changed(*page)).count();
        at = first + run;
        Some((first, run))
    })
}

fn read_whole(file: i32, to: usize, size: usize, offset: usize) -> Result<(), Refusal> {
    let mut done = 0;
    while done < size {
        match read_at(file, to + done, size - done, offset + done) {
            Ok(0) => return Err(Refusal::Damaged(Damaged::Short)),
            Ok(length) => done += length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Refusal::Forbidden(Step::Read, errno)),
        }
    }
    Ok(())
}

fn read_at(file: i32, to: usize, size: usize, offset: usize) -> Result<usize, Errno> {
    // SAFETY: the callers' own memory.
    unsafe { system_call(libc::SYS_pread64, [file as usize, to, size, offset, 0, 0]) }
}

fn allocate(size: usize) -> Result<usize, Refusal> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE) as usize;
    // SAFETY: new memory.
    unsafe { system_call(libc::SYS_mmap, [0, size, protection, flags, usize::MAX, 0]) }
        .map_err(|errno| Refusal::Forbidden(Step::Allocate, errno))
}

fn release(copy: usize, size: usize) {
    // SAFETY: memory of this module's own that nothing refers to.
    let _ = unsafe { system_call(libc::SYS_munmap, [copy, size, 0, 0, 0, 0]) };
}
