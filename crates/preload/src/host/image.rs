//! Maps a guest's file, and the dynamic linker that it names, if it names one; and builds the stack
//! that it begins with: as the kernel does at an exec.
//!
//! Stack, from where it is entered up: the number of arguments, the arguments, NULL, the variables,
//! NULL, the auxiliary vector. The texts stay where the kernel has put them for the host.

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use object::LittleEndian as LE;
use object::elf::{
    ET_DYN, ET_EXEC, FileHeader64, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP, PT_LOAD,
};
use rustix::io::FdFlags;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect};

use ::door::elf::ProgramHeader;

use crate::entry::{errno, syscall};
use crate::host::{ADDRESSES_END, wrappers};
use crate::processes::exec;
use crate::processes::host_program::{self, Guest};
use crate::runtime::guest::Registers;

const PAGE: usize = 4096;
/// Most program headers, as the kernel has it: a page of them.
const HEADERS_MAX: usize = PAGE / size_of::<ProgramHeader>();
/// Where position-independent guests go, far from what the kernel places by itself.
const PLACE: usize = 0x1000_0000_0000;
/// How far the stack that is built lies below the one in use: functions of ours run until it is
/// entered.
const STACK_GAP: usize = 64 << 10;

/// What the C library gave to the host's `main`.
pub struct Start {
    arguments: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    /// The auxiliary vector, without its end.
    auxiliary: Vec<[c_ulong; 2]>,
}

impl Start {
    /// # Safety
    ///
    /// What `main` was given.
    pub unsafe fn of(
        count: c_int,
        arguments: *const *const c_char,
        variables: *const *const c_char,
    ) -> Self {
        // SAFETY: the kernel's layout: pointers, NULL, pointers, NULL, pairs of which the last is
        // 0. The C library may have the variables elsewhere.
        unsafe {
            let all = |mut at: *const *const c_char| {
                std::iter::from_fn(move || {
                    let next = at.read();
                    at = at.add(1);
                    (!next.is_null()).then_some(next)
                })
            };
            let arguments = std::slice::from_raw_parts(arguments, count as usize).to_vec();
            let mut pair = crate::runtime::environment::auxiliary_vector();
            let auxiliary = std::iter::from_fn(move || {
                let next = pair.read();
                pair = pair.add(1);
                (next[0] != 0).then_some(next)
            });
            let variables = all(variables).filter_map(|text| for_guest(text)).collect();
            let auxiliary = auxiliary.collect();
            Self { arguments, variables, auxiliary }
        }
    }
}

/// A variable as the guest has it: not what the host was told, and without this library, which
/// another dynamic linker would try to load. What the guest executes gets all of it anew. `None`:
/// the guest has it not.
///
/// # Safety
///
/// A text that ends with a NUL, and lasts.
unsafe fn for_guest(text: *const c_char) -> Option<*const c_char> {
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    // SAFETY: as the caller says.
    let variable = unsafe { CStr::from_ptr(text) }.to_bytes();
    let told = [host_program::VARIABLE, host_program::CALLED, host_program::TRACED];
    if told.iter().any(|name| variable.starts_with(name.as_bytes())) {
        return None;
    }
    let Some(libraries) = variable.strip_prefix(PRELOAD) else { return Some(text) };
    let others = exec::without_ours(libraries);
    if others.is_empty() {
        return None;
    }
    let whole = CString::new([PRELOAD, &others].concat()).ok()?;
    Some(Box::leak(whole.into_boxed_c_str()).as_ptr())
}

/// Executes the guest's file without a host and this library: it is to be left alone. Comes back
/// with the error.
pub fn execute(guest: &Guest, start: &Start) -> vfs::Errno {
    let ended = |texts: &[*const c_char]| [texts, &[std::ptr::null()]].concat();
    let (arguments, variables) = (ended(&start.arguments), ended(&start.variables));
    let (arguments, variables) = (arguments.as_ptr() as usize, variables.as_ptr() as usize);
    if let Err(errno) = rustix::io::fcntl_setfd(&guest.program, FdFlags::CLOEXEC) {
        return errno;
    }
    let (file, path) = (guest.program.as_raw_fd() as usize, c"".as_ptr() as usize);
    let given = [file, path, arguments, variables, libc::AT_EMPTY_PATH as usize, 0];
    syscall::kernel(libc::SYS_execveat, given);
    vfs::Errno::from_raw_os_error(errno())
}

/// A guest in memory.
pub struct Loaded {
    /// The address behind its image.
    pub end: usize,
    /// What it begins with.
    pub registers: Registers,
    /// Its auxiliary vector, with the end.
    pub auxiliary: Vec<usize>,
}

/// An ELF file in memory.
struct Mapped {
    entry: usize,
    /// What was added to its addresses.
    base: usize,
    end: usize,
    headers: usize,
    count: usize,
    interpreter: Option<Vec<u8>>,
    /// It asks for a stack that can be executed: code of nested functions is put there.
    executes_stack: bool,
}

/// Maps the guest, and builds its stack. There is one thread.
pub fn load(guest: &Guest, start: &Start) -> Result<Loaded, String> {
    let mapped = map(guest.program.as_fd())?;
    let mut entry = mapped.entry;
    let mut linker_at = 0;
    if let Some(path) = &mapped.interpreter {
        let shown = String::from_utf8_lossy(path).into_owned();
        let linker = open_linker(path).map_err(|errno| format!("{shown}: {errno}"))?;
        let linker = map(linker.as_fd()).map_err(|why| format!("{shown}: {why}"))?;
        if linker.interpreter.is_some() {
            return Err(format!("{shown}: it asks for a dynamic linker itself"));
        }
        entry = linker.entry;
        linker_at = linker.base;
    }
    if mapped.executes_stack {
        let page = std::ptr::from_ref(&mapped).addr() / PAGE * PAGE;
        let all = MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC;
        // SAFETY: the first thread's stack, from its lowest address on.
        unsafe { mprotect(page as *mut c_void, PAGE, all | MprotectFlags::GROWSDOWN) }
            .map_err(|errno| format!("making its stack executable gave: {errno}"))?;
    }
    let called: &'static CStr = Box::leak(guest.called.clone().into_boxed_c_str());
    let changed = |[kind, value]: [c_ulong; 2]| {
        let value = match kind {
            libc::AT_PHDR => mapped.headers as c_ulong,
            libc::AT_PHENT => size_of::<ProgramHeader>() as c_ulong,
            libc::AT_PHNUM => mapped.count as c_ulong,
            libc::AT_BASE => linker_at as c_ulong,
            libc::AT_ENTRY => mapped.entry as c_ulong,
            libc::AT_EXECFN => called.as_ptr() as c_ulong,
            _ => value,
        };
        [kind, value]
    };
    let mut words: Vec<usize> = vec![start.arguments.len()];
    words.extend(start.arguments.iter().map(|text| *text as usize));
    words.push(0);
    words.extend(start.variables.iter().map(|text| *text as usize));
    words.push(0);
    let pairs = start.auxiliary.iter().flat_map(|pair| changed(*pair)).map(|word| word as usize);
    let auxiliary: Vec<usize> = pairs.chain([0, 0]).collect();
    words.extend_from_slice(&auxiliary);
    let mut registers: Registers = [0; 23];
    registers[libc::REG_RIP as usize] = entry as i64;
    registers[libc::REG_RSP as usize] = place_on_stack(&words) as i64;
    // Interrupts on, and the bit that is always set.
    registers[libc::REG_EFL as usize] = 0x202;
    Ok(Loaded { end: mapped.end, registers, auxiliary })
}

/// Copies the words to the first thread's stack, below all that is in use there.
fn place_on_stack(words: &[usize]) -> usize {
    let here = std::ptr::from_ref(&words).addr();
    let place = (here - STACK_GAP - size_of_val(words)) & !15;
    // The kernel lets the stack grow where it is touched; from above, so that no page is left out.
    for (index, word) in words.iter().enumerate().rev() {
        // SAFETY: the thread's own stack, where nothing is.
        unsafe { (place as *mut usize).add(index).write_volatile(*word) };
    }
    place
}

fn open_linker(path: &[u8]) -> Result<OwnedFd, vfs::Errno> {
    let path = crate::paths::c_text(path)?;
    host_program::open(rustix::fs::CWD, &path)
}

/// Reads as many bytes at an offset as fit.
fn read(file: BorrowedFd<'_>, at: u64, to: &mut [u8]) -> Result<(), String> {
    match rustix::io::pread(file, &mut *to, at) {
        Ok(count) if count == to.len() => Ok(()),
        Ok(_) => Err("it is damaged: it ends too early".to_owned()),
        Err(errno) => Err(errno.to_string()),
    }
}

fn map(file: BorrowedFd<'_>) -> Result<Mapped, String> {
    let mut bytes = [0; size_of::<FileHeader64<LE>>()];
    read(file, 0, &mut bytes)?;
    let damaged = || "it is damaged".to_owned();
    let (header, _) =
        object::pod::from_bytes::<FileHeader64<LE>>(&bytes).map_err(|()| damaged())?;
    let (kind, count) = (header.e_type.get(LE), usize::from(header.e_phnum.get(LE)));
    let is_fixed = kind == ET_EXEC;
    let size = usize::from(header.e_phentsize.get(LE));
    if !is_fixed && kind != ET_DYN || size != size_of::<ProgramHeader>() || count > HEADERS_MAX {
        return Err(damaged());
    }
    let mut table = vec![0; count * size];
    read(file, header.e_phoff.get(LE), &mut table)?;
    let (headers, _) =
        object::pod::slice_from_bytes::<ProgramHeader>(&table, count).map_err(|()| damaged())?;
    let segments: Vec<Segment> = headers
        .iter()
        .filter(|header| header.p_type.get(LE) == PT_LOAD && header.p_memsz.get(LE) != 0)
        .map(Segment::of)
        .collect::<Option<_>>()
        .ok_or_else(damaged)?;
    let (first, last) = (segments.first().ok_or_else(damaged)?, segments.last());
    let (start, end) = (first.page(), last.map_or(0, Segment::end));
    if segments.windows(2).any(|pair| pair[0].end() > pair[1].start) || end > ADDRESSES_END {
        return Err(damaged());
    }
    let align = segments.iter().map(|segment| segment.align).max().unwrap_or(PAGE).max(PAGE);
    let base = reserve(start, end.next_multiple_of(PAGE) - start, is_fixed, align)?;
    for segment in &segments {
        segment.map(file, base).map_err(|errno| format!("mapping it gave: {errno}"))?;
        if segment.access.contains(ProtFlags::EXEC) && !segment.access.contains(ProtFlags::WRITE) {
            let start = base.wrapping_add(segment.start);
            wrappers::has_code(&(start..start + segment.in_file));
        }
    }
    let offset = header.e_phoff.get(LE) as usize;
    // The headers lie in the segment that has them in the file.
    let in_memory = segments
        .iter()
        .find(|one| one.offset <= offset && offset + table.len() <= one.offset + one.in_file)
        .map_or(0, |one| base.wrapping_add(one.start - one.offset + offset));
    let interpreter = headers
        .iter()
        .find(|header| header.p_type.get(LE) == PT_INTERP)
        .map(|header| {
            let mut path = vec![0; (header.p_filesz.get(LE) as usize).min(PAGE)];
            read(file, header.p_offset.get(LE), &mut path)?;
            path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
            Ok::<_, String>(path)
        })
        .transpose()?;
    Ok(Mapped {
        entry: base.wrapping_add(header.e_entry.get(LE) as usize),
        base,
        end: base.wrapping_add(end),
        headers: in_memory,
        count,
        interpreter,
        executes_stack: headers.iter().any(|header| {
            header.p_type.get(LE) == PT_GNU_STACK && header.p_flags.get(LE) & PF_X != 0
        }),
    })
}

/// Finds room for an image whose addresses begin at `start`: what is to be added to them. It is
/// mapped without access.
fn reserve(start: usize, bytes: usize, is_fixed: bool, align: usize) -> Result<usize, String> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let place = |at: usize| {
        // SAFETY: nothing else is there, or it fails.
        let made = unsafe { mmap_anonymous(at as *mut c_void, bytes, ProtFlags::empty(), flags) };
        made.is_ok_and(|made| made as usize == at)
    };
    if is_fixed {
        let taken =
            || format!("something is mapped already between {start:#x} and {:#x}", start + bytes);
        return place(start).then_some(0).ok_or_else(taken);
    }
    // Somewhere in 16 TiB, by the kernel's random bytes, as the kernel has it.
    let mut random = [0; size_of::<usize>()];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK);
    let random = usize::from_le_bytes(random);
    for turn in 0..64_usize {
        let pages = random.rotate_left(turn as u32) % (1 << 32);
        let at = (PLACE + pages * PAGE).next_multiple_of(align) + start % align;
        if place(at) {
            return Ok(at.wrapping_sub(start));
        }
    }
    Err("there is no room for it in memory".to_owned())
}

/// A piece of the file that is loaded; all in bytes.
struct Segment {
    start: usize,
    in_memory: usize,
    offset: usize,
    in_file: usize,
    align: usize,
    access: ProtFlags,
}

impl Segment {
    /// `None`: the header makes no sense.
    fn of(header: &ProgramHeader) -> Option<Self> {
        let word = |value: u64| usize::try_from(value).ok().filter(|&value| value < ADDRESSES_END);
        let flags = header.p_flags.get(LE);
        let mut access = ProtFlags::empty();
        access.set(ProtFlags::READ, flags & PF_R != 0);
        access.set(ProtFlags::WRITE, flags & PF_W != 0);
        access.set(ProtFlags::EXEC, flags & PF_X != 0);
        let found = Self {
            start: word(header.p_vaddr.get(LE))?,
            in_memory: word(header.p_memsz.get(LE))?,
            offset: word(header.p_offset.get(LE))?,
            in_file: word(header.p_filesz.get(LE))?,
            align: word(header.p_align.get(LE))
                .filter(|align| align.is_power_of_two())
                .unwrap_or(PAGE),
            access,
        };
        let is_right =
            found.in_file <= found.in_memory && found.start % PAGE == found.offset % PAGE;
        is_right.then_some(found)
    }

    fn page(&self) -> usize {
        self.start / PAGE * PAGE
    }

    fn end(&self) -> usize {
        self.start + self.in_memory
    }

    /// Maps it in its place, which is reserved.
    fn map(&self, file: BorrowedFd<'_>, base: usize) -> Result<(), vfs::Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let at = |address: usize| base.wrapping_add(address) as *mut c_void;
        let file_end = self.start + self.in_file;
        let behind = if self.in_file == 0 { self.page() } else { file_end.next_multiple_of(PAGE) };
        if self.in_file != 0 {
            let bytes = file_end - self.page();
            let offset = (self.offset / PAGE * PAGE) as u64;
            // SAFETY: the room that was reserved for it.
            unsafe { mmap(at(self.page()), bytes, self.access, flags, file, offset)? };
            let rest = behind.min(self.end()).saturating_sub(file_end);
            if rest != 0 && self.access.contains(ProtFlags::WRITE) {
                // SAFETY: the rest of a page that was just mapped for writing.
                unsafe { at(file_end).cast::<u8>().write_bytes(0, rest) };
            }
        }
        let end = self.end().next_multiple_of(PAGE);
        if end > behind {
            // SAFETY: the room that was reserved for it.
            unsafe { mmap_anonymous(at(behind), end - behind, self.access, flags)? };
        }
        Ok(())
    }
}
