//! A thread that a signal finds at any instruction of a patched function or of the entry can be
//! unwound from there to its caller, but in what was added to padding, which [`Armed::is_added`]
//! tells. The signal is the trap behind each instruction.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use door::arm::Armed;
use door::entry::entry;

// (function, its three arguments): calls it with a trap behind each instruction.
global_asm!(
    ".text",
    "solera_door_step:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "or qword ptr [rsp], 0x100",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "call rax",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "and qword ptr [rsp], -0x101",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    "solera_door_stepped:",
);

unsafe extern "C" {
    fn solera_door_step(function: usize, first: usize, second: usize, third: usize) -> isize;
    static solera_door_stepped: [u8; 0];
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> i32,
        found: *mut c_void,
    ) -> i32;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// What was armed.
pub static ARMED: Mutex<Vec<Armed>> = Mutex::new(Vec::new());
static TEXTS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static UNWOUND: AtomicUsize = AtomicUsize::new(0);
static IN_ENTRY: AtomicUsize = AtomicUsize::new(0);
static ADDED: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicUsize = AtomicUsize::new(0);

extern "C" fn frame(frame: *mut c_void, found: *mut c_void) -> i32 {
    // SAFETY: a frame of the unwinder's, and the flag that `trapped` passed.
    let (address, found) = unsafe { (_Unwind_GetIP(frame), &*found.cast::<AtomicBool>()) };
    let start = solera_door_step as *const () as usize;
    if (start..(&raw const solera_door_stepped).addr()).contains(&address) {
        found.store(true, Ordering::Relaxed);
    }
    0
}

unsafe extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel passes.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let address = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    let in_entry = (entry().start..entry().end).contains(&address);
    let [start, size, ..] = TEXTS.each_ref().map(|word| word.load(Ordering::Relaxed));
    if !in_entry && !(start..start + size).contains(&address) {
        return;
    }
    if ARMED.lock().unwrap().iter().any(|armed| armed.is_added(address)) {
        ADDED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let found = AtomicBool::new(false);
    // SAFETY: the callback takes the flag.
    unsafe { _Unwind_Backtrace(frame, (&raw const found).cast_mut().cast()) };
    if found.into_inner() {
        UNWOUND.fetch_add(1, Ordering::Relaxed);
        IN_ENTRY.fetch_add(usize::from(in_entry), Ordering::Relaxed);
    } else {
        LOST.store(address, Ordering::Relaxed);
    }
}

/// Steps through calls of the armed C library; of one thread.
pub fn every_instruction_is_unwound() {
    let armed = ARMED.lock().unwrap()[0];
    TEXTS[0].store(armed.text.0, Ordering::Relaxed);
    TEXTS[1].store(armed.text.1, Ordering::Relaxed);
    // SAFETY: a handler of this test's; the calls are of a descriptor that is none.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
        let calls: [(usize, [usize; 3]); 5] = [
            (libc::lseek as *const () as usize, [usize::MAX, 0, 0]),
            (libc::read as *const () as usize, [usize::MAX, 0, 0]),
            (libc::openat as *const () as usize, [usize::MAX, 0, 0]),
            (libc::syscall as *const () as usize, [libc::SYS_lseek as usize, usize::MAX, 0]),
            // Its number is in a register, its comparison in the entry.
            (libc::ioctl as *const () as usize, [usize::MAX, 0, 0]),
        ];
        for (function, [first, second, third]) in calls {
            assert_eq!(solera_door_step(function, first, second, third) as i32, -1);
        }
    }
    let [unwound, in_entry, added, lost] =
        [&UNWOUND, &IN_ENTRY, &ADDED, &LOST].map(|count| count.load(Ordering::Relaxed));
    println!("unwound from {unwound} instructions, {in_entry} of the entry; {added} added");
    assert_eq!(lost, 0, "not unwound from {lost:#x} (the entry: {:x?})", entry());
    assert!(in_entry > 100 && added >= 5, "{in_entry} {added}");
}
