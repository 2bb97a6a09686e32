//! Where patched sites arrive: the entry, which asks the handler, and makes the system call itself
//! if the handler does not serve it.
//!
//! A site calls it with the registers of a system call, on a stack of any alignment. The two bytes
//! at the return address tell which call it is ([`crate::patch`]). To the site all looks as after
//! `syscall`: rax has the result, rcx and r11 have anything, every other register is as it was. The
//! flags are those of the comparison where the site's was replaced, else anything. Vector registers
//! are the handler's to change: none is live at a site.
//!
//! The entry writes no memory but the stack, from 128 bytes below the site's on. It uses
//! [`STACK_BYTES`] of it, apart from the handler.
//!
//! ```text
//! start     Call is filled in
//!           call handler
//!  call     syscall                  not for a site in place, which makes it itself
//!  called   registers are put back
//! end
//! ```
//!
//! A signal's handler learns from [`entry`] whether it found a thread before the call that is
//! passed on or behind it.

use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What a site asks for.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    number: u64,
    arguments: [usize; 6],
    /// What the site gets if the call is served: as the kernel gives it, errors as `-errno`.
    pub result: isize,
    return_address: usize,
    form: u32,
    selector: u32,
    stack: usize,
    /// A word that is looked at once more before the call is made that is passed on, by the entry
    /// itself: the handler is called again unless it is 0. NULL: nothing is looked at. A signal's
    /// handler that sets it is never too late: see [`Entry::looked`]. If the call is served, the
    /// entry looks, too: see [`leave_by`].
    ///
    /// The byte behind the word is what the kernel looks at where Syscall User Dispatch is on for
    /// the thread. While the entry makes a call it is 0, so that it does not arrive once more; then
    /// it is what it was.
    pub again: *const AtomicU32,
    /// Where the site goes on with its stack, of [`Form::InPlace`] alone: see [`Call::go_on_at`].
    goes_on_at: usize,
}

const CALL: usize = size_of::<Call>().next_multiple_of(16);
const _: () = assert!(CALL == 112);
const _: () = assert!(offset_of!(Call, number) == 0 && offset_of!(Call, arguments) == 8);
const _: () = assert!(offset_of!(Call, result) == 56 && offset_of!(Call, return_address) == 64);
const _: () = assert!(offset_of!(Call, form) == 72 && offset_of!(Call, stack) == 80);
const _: () = assert!(offset_of!(Call, selector) == 76);
const _: () = assert!(offset_of!(Call, again) == 88 && offset_of!(Call, goes_on_at) == 96);

/// How much of the stack the entry uses, bytes, with the 128 that it skips, the rest of an
/// alignment and the return address of the handler.
pub const STACK_BYTES: usize = 128 + 8 + 15 + CALL + 8;

impl Call {
    /// A call that arrived otherwise: of code whose `syscall` ends at this address, with this rsp.
    pub fn trapped(number: u32, arguments: [usize; 6], address: usize, stack: usize) -> Self {
        Self {
            number: number.into(),
            arguments,
            result: 0,
            return_address: address,
            form: 1,
            selector: 0,
            stack,
            again: std::ptr::null(),
            goes_on_at: 0,
        }
    }

    /// The stack that a child goes on with, if [`Call::go_on_at`] has said one.
    pub fn other_stack(&self) -> Option<usize> {
        (self.form == 7).then_some(self.goes_on_at)
    }

    /// The number.
    pub fn number(&self) -> u32 {
        self.number as u32
    }

    /// The arguments, in the kernel's order. They cannot be changed: the site has them still in its
    /// registers afterwards.
    pub fn arguments(&self) -> &[usize; 6] {
        &self.arguments
    }

    /// In a child that the handler has made, of a site that makes children ([`Form::InPlace`]): the
    /// site goes on with this rsp, as behind the system call.
    pub fn go_on_at(&mut self, stack: usize) {
        self.form = 7;
        self.goes_on_at = stack;
    }

    /// The address behind the call in the site, or in its stub.
    pub fn return_address(&self) -> usize {
        self.return_address
    }

    /// The site's rsp at the `syscall`; for one with a stub that calls, eight less.
    pub fn stack(&self) -> usize {
        self.stack
    }

    /// How the site is patched. What makes a thread or a child that runs on the site's stack, or on
    /// another one, must be passed on where this is [`Form::InPlace`], and nowhere else.
    pub fn form(&self) -> Form {
        match self.form {
            0 => Form::Constant,
            6 | 7 => Form::InPlace,
            2..=5 => Form::Compared,
            _ => Form::Register,
        }
    }
}

/// How a site is patched, as far as its handler must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Its number stands behind its call.
    Constant,
    /// Its number is in a register.
    Register,
    /// The same, and a comparison was replaced.
    Compared,
    /// Its `syscall` stands behind its call: passed on, the site makes the call itself.
    InPlace,
}

/// What becomes of a call.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel is to serve it.
    Pass = 0,
    /// It is served, [`Call::result`] is the result.
    Served = 1,
}

/// Answers a call. It runs on the site's stack, under whatever locks of the C library the site
/// holds, in signal handlers too: it must not enter the C library, and not change `errno`.
pub type Handler = unsafe extern "C-unwind" fn(&mut Call) -> Verdict;

global_asm!(
    ".pushsection .data.solera_door,\"aw\",@progbits",
    ".balign 8",
    ".hidden solera_door_handler",
    ".globl solera_door_handler",
    ".type solera_door_handler, @object",
    "solera_door_handler:",
    ".quad solera_door_pass_all",
    ".size solera_door_handler, 8",
    ".hidden solera_door_left",
    ".globl solera_door_left",
    ".type solera_door_left, @object",
    "solera_door_left:",
    ".quad solera_door_pass_all",
    ".size solera_door_left, 8",
    ".popsection",
    ".pushsection .text.solera_door,\"ax\",@progbits",
    ".balign 64",
    ".hidden solera_door_entry",
    ".globl solera_door_entry",
    ".type solera_door_entry, @function",
    "solera_door_entry:",
    ".cfi_startproc",
    "lea rsp, [rsp - 128]",
    ".cfi_adjust_cfa_offset 128",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, {call}",
    "and rsp, -16",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov rcx, [rbp + 136]",
    "lea r11, [rbp + 144]",
    "mov [rsp + 64], rcx",
    "mov [rsp + 80], r11",
    "mov qword ptr [rsp + 88], 0",
    "movzx r11d, byte ptr [rcx]",
    "movzx ecx, byte ptr [rcx + 1]",
    "cmp r11b, 0xb1",
    "jne 4f",
    "2:",
    "mov [rsp], rcx",
    "mov dword ptr [rsp + 72], 0",
    "3:",
    "mov rdi, rsp",
    "call [rip + solera_door_handler]",
    ".hidden solera_door_answered",
    ".globl solera_door_answered",
    "solera_door_answered:",
    "test eax, eax",
    "jz 6f",
    ".hidden solera_door_served",
    ".globl solera_door_served",
    "solera_door_served:",
    "mov rcx, [rsp + 88]",
    "test rcx, rcx",
    "jz 20f",
    "cmp dword ptr [rcx], 0",
    "jne 21f",
    "20:",
    "mov rax, [rsp + 56]",
    "mov ecx, [rsp + 72]",
    "mov r11, [rsp + 96]",
    "mov rdi, [rsp + 8]",
    "mov rsi, [rsp + 16]",
    "mov rdx, [rsp + 24]",
    "mov r10, [rsp + 32]",
    "mov r8, [rsp + 40]",
    "mov r9, [rsp + 48]",
    "8:",
    "mov rsp, rbp",
    ".cfi_remember_state",
    ".cfi_def_cfa_register rsp",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbp",
    "lea rsp, [rsp + 128]",
    ".cfi_adjust_cfa_offset -128",
    "test ecx, ecx",
    "jne 9f",
    "ret",
    "9:",
    "cmp ecx, 4",
    "ja 12f",
    "je 11f",
    "cmp ecx, 2",
    "ja 10f",
    "jb 14f",
    "cmp eax, -4095",
    "ret",
    "10:",
    "cmp eax, -4096",
    "ret",
    "11:",
    "cmp rax, -4095",
    "ret",
    "12:",
    "cmp ecx, 5",
    "jne 13f",
    "cmp rax, -4096",
    "ret",
    // Behind the `syscall` that stands in the site, with its stack or another one.
    "13:",
    "cmp ecx, 6",
    "mov rcx, [rsp]",
    "lea rcx, [rcx + 2]",
    "jne 18f",
    "mov [rsp], rcx",
    "14:",
    "ret",
    "18:",
    "mov rsp, r11",
    "jmp rcx",
    ".cfi_restore_state",
    "21:",
    "call [rip + solera_door_left]",
    "jmp 20b",
    // Other forms: numbers from 256 on, numbers in eax.
    ".hidden solera_door_other",
    ".globl solera_door_other",
    "solera_door_other:",
    "4:",
    "cmp r11b, 0xb5",
    "jne 5f",
    "add ecx, 256",
    "jmp 2b",
    "5:",
    "mov eax, eax",
    "mov [rsp], rax",
    "mov eax, 6",
    "cmp r11b, 0x0f",
    "jne 7f",
    "cmp cl, 0x05",
    "je 15f",
    "mov rcx, [rsp + 64]",
    "movzx eax, byte ptr [rcx + 2]",
    "add eax, 4",
    "jmp 15f",
    "7:",
    "mov eax, 1",
    "cmp r11b, 0x66",
    "je 15f",
    "inc eax",
    "cmp r11b, 0x89",
    "je 15f",
    "inc eax",
    "15:",
    "mov [rsp + 72], eax",
    "jmp 3b",
    // Passed on.
    ".hidden solera_door_passed",
    ".globl solera_door_passed",
    "solera_door_passed:",
    "6:",
    "mov rcx, [rsp + 88]",
    "test rcx, rcx",
    "jz 17f",
    "cmp dword ptr [rcx], 0",
    "jne 3b",
    ".hidden solera_door_looked",
    ".globl solera_door_looked",
    "solera_door_looked:",
    "cmp dword ptr [rsp + 72], 6",
    "je 17f",
    "movzx eax, byte ptr [rcx + 4]",
    "mov [rsp + 76], eax",
    "mov byte ptr [rcx + 4], 0",
    "17:",
    "mov rax, [rsp]",
    "mov rdi, [rsp + 8]",
    "mov rsi, [rsp + 16]",
    "mov rdx, [rsp + 24]",
    "mov r10, [rsp + 32]",
    "mov r8, [rsp + 40]",
    "mov r9, [rsp + 48]",
    "cmp dword ptr [rsp + 72], 6",
    "je 16f",
    ".hidden solera_door_call",
    ".globl solera_door_call",
    "solera_door_call:",
    "syscall",
    ".hidden solera_door_called",
    ".globl solera_door_called",
    "solera_door_called:",
    "mov rcx, [rsp + 88]",
    "test rcx, rcx",
    "jz 19f",
    "mov r11d, [rsp + 76]",
    "mov [rcx + 4], r11b",
    "19:",
    "mov ecx, [rsp + 72]",
    "jmp 8b",
    ".hidden solera_door_in_place",
    ".globl solera_door_in_place",
    "solera_door_in_place:",
    "16:",
    "mov rsp, rbp",
    ".cfi_def_cfa_register rsp",
    ".hidden solera_door_pops",
    ".globl solera_door_pops",
    "solera_door_pops:",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbp",
    ".hidden solera_door_popped",
    ".globl solera_door_popped",
    "solera_door_popped:",
    "lea rsp, [rsp + 128]",
    ".cfi_adjust_cfa_offset -128",
    ".hidden solera_door_returns",
    ".globl solera_door_returns",
    "solera_door_returns:",
    "ret",
    ".cfi_endproc",
    ".hidden solera_door_end",
    ".globl solera_door_end",
    "solera_door_end:",
    ".size solera_door_entry, . - solera_door_entry",
    ".type solera_door_pass_all, @function",
    "solera_door_pass_all:",
    ".cfi_startproc",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size solera_door_pass_all, . - solera_door_pass_all",
    // (number, arguments, word)
    ".balign 16",
    ".hidden solera_door_kernel",
    ".globl solera_door_kernel",
    ".type solera_door_kernel, @function",
    "solera_door_kernel:",
    ".cfi_startproc",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "movzx eax, byte ptr [rdx + 4]",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "mov byte ptr [rdx + 4], 0",
    "mov rax, rdi",
    "mov r11, rdx",
    "mov rcx, rsi",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    "cmp dword ptr [r11], 0",
    ".hidden solera_door_kernel_looked",
    ".globl solera_door_kernel_looked",
    "solera_door_kernel_looked:",
    "jne 2f",
    ".hidden solera_door_kernel_call",
    ".globl solera_door_kernel_call",
    "solera_door_kernel_call:",
    "syscall",
    "1:",
    "pop r11",
    ".cfi_adjust_cfa_offset -8",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    "mov [rcx + 4], r11b",
    "ret",
    ".cfi_adjust_cfa_offset 16",
    ".hidden solera_door_kernel_left_out",
    ".globl solera_door_kernel_left_out",
    "solera_door_kernel_left_out:",
    "2:",
    "mov rax, {not_made}",
    "jmp 1b",
    ".cfi_endproc",
    ".size solera_door_kernel, . - solera_door_kernel",
    ".popsection",
    call = const CALL,
    not_made = const NOT_MADE,
);

/// What no system call answers: errors end at -4095, and addresses of the kernel's are not given.
const NOT_MADE: isize = -4096;

unsafe extern "C" {
    static solera_door_handler: AtomicPtr<()>;
    static solera_door_left: AtomicPtr<()>;
    static solera_door_entry: [u8; 0];
    static solera_door_answered: [u8; 0];
    static solera_door_served: [u8; 0];
    static solera_door_other: [u8; 0];
    static solera_door_passed: [u8; 0];
    static solera_door_in_place: [u8; 0];
    static solera_door_pops: [u8; 0];
    static solera_door_popped: [u8; 0];
    static solera_door_returns: [u8; 0];
    static solera_door_looked: [u8; 0];
    static solera_door_call: [u8; 0];
    static solera_door_called: [u8; 0];
    static solera_door_end: [u8; 0];
    static solera_door_kernel_looked: [u8; 0];
    static solera_door_kernel_call: [u8; 0];
    static solera_door_kernel_left_out: [u8; 0];
}

unsafe extern "C-unwind" {
    fn solera_door_kernel(
        number: i64,
        arguments: *const [usize; 6],
        again: *const AtomicU32,
    ) -> isize;
}

/// Says who answers. Until then all calls are passed on.
pub fn answer_by(handler: Handler) {
    // SAFETY: eight bytes in writable memory, aligned, which the entry reads alone.
    let slot = unsafe { &solera_door_handler };
    slot.store(handler as *mut (), Ordering::Release);
}

/// Says what is called behind a call that is served, if the word at [`Call::again`] is not 0 then:
/// the handler's last look may have been too early.
pub fn leave_by(function: extern "C-unwind" fn()) {
    // SAFETY: as above.
    let slot = unsafe { &solera_door_left };
    slot.store(function as *mut (), Ordering::Release);
}

/// The addresses of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first instruction: what the slot of an armed library holds.
    pub start: usize,
    /// Behind the look at [`Call::again`]: from here to `call`, both included, a thread makes the
    /// call whatever that word says.
    pub looked: usize,
    /// The `syscall` of what is passed on. A thread that a signal finds at or before it has not
    /// made the call (or the kernel is about to restart it).
    pub call: usize,
    /// The instruction behind it: the call has been made.
    pub called: usize,
    /// The address behind the entry.
    pub end: usize,
}

/// Where the entry stands.
pub fn entry() -> Entry {
    let [start, looked, call, called, end] = [
        &raw const solera_door_entry,
        &raw const solera_door_looked,
        &raw const solera_door_call,
        &raw const solera_door_called,
        &raw const solera_door_end,
    ]
    .map(<*const [u8; 0]>::addr);
    Entry { start, looked, call, called, end }
}

/// Makes a system call of the program's own in the handler, unless `again` is not 0: `None` then,
/// and the call is not made. As in the entry, a signal's handler that sets the word is never too
/// late, and the stack can be unwound from where the call waits. Errors are `-errno`.
///
/// # Safety
///
/// The arguments are what this system call demands. `again` is a word with a byte behind it, as
/// [`Call::again`].
pub unsafe fn kernel(
    number: i64,
    arguments: &[usize; 6],
    again: *const AtomicU32,
) -> Option<isize> {
    // SAFETY: the caller vouches for the arguments.
    let answer = unsafe { solera_door_kernel(number, arguments, again) };
    (answer != NOT_MADE).then_some(answer)
}

/// How far a thread is that a signal finds in the entry: from each of its instructions the stack
/// can be unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its call has not been made, or the kernel has given it up for a signal.
    Before,
    /// It is served, or the kernel has made it.
    Behind,
}

/// What a signal's handler learns from the registers that it found. `None`: not in the entry.
pub fn progress(rip: usize, rax: usize) -> Option<Progress> {
    let Entry { start, called, end, .. } = entry();
    let [answered, served, other, in_place] = [
        &raw const solera_door_answered,
        &raw const solera_door_served,
        &raw const solera_door_other,
        &raw const solera_door_in_place,
    ]
    .map(<*const [u8; 0]>::addr);
    // The kernel gave up what waited (`poll`, which it does not restart) for this very signal.
    let is_given_up = rip == called && rax as isize == -(libc::EINTR as isize);
    let is_behind = (served..other).contains(&rip)
        || (called..in_place).contains(&rip) && !is_given_up
        || (answered..served).contains(&rip) && rax as u32 == Verdict::Served as u32;
    let progress = if is_behind { Progress::Behind } else { Progress::Before };
    (start..end).contains(&rip).then_some(progress)
}

/// Whether a thread that a signal finds at this address makes a system call of the program's,
/// whatever its word says: it has not made it, waits in it, or the kernel is about to restart it.
pub fn makes_call_at(address: usize) -> bool {
    let Entry { looked, call, .. } = entry();
    (looked..=call).contains(&address) || is_at_call_of_kernel(address)
}

/// Whether a thread at this address in [`kernel`] makes the call whatever its word says.
fn is_at_call_of_kernel(address: usize) -> bool {
    let [looked, call] = [&raw const solera_door_kernel_looked, &raw const solera_door_kernel_call]
        .map(<*const [u8; 0]>::addr);
    (looked..=call).contains(&address)
}

/// In a signal's handler that has set the word: a thread that it found at the call of [`kernel`]
/// does not make it, or not once more.
///
/// # Safety
///
/// `context` is what the kernel gave to the handler.
pub unsafe fn leave_out(context: *mut std::ffi::c_void) {
    // SAFETY: the caller passes what the kernel passed.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    if is_at_call_of_kernel(*rip as usize) {
        *rip = (&raw const solera_door_kernel_left_out).addr() as i64;
    }
}

/// In a signal's handler: a thread that it found on the way back from the entry to a site that
/// makes its call itself ([`Form::InPlace`]) goes on at the `syscall` there, with all registers as
/// the entry would have left them. So what the handler does next finds it at the site. Gives
/// whether it was there.
///
/// # Safety
///
/// `context` is what the kernel gave to the handler.
pub unsafe fn go_to_site(context: *mut std::ffi::c_void) -> bool {
    const IN_PLACE: u32 = 6;
    let [passed, in_place, pops, popped, returns] = [
        &raw const solera_door_passed,
        &raw const solera_door_in_place,
        &raw const solera_door_pops,
        &raw const solera_door_popped,
        &raw const solera_door_returns,
    ]
    .map(<*const [u8; 0]>::addr);
    // SAFETY: the caller passes what the kernel passed.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let [rip, rsp, rbp] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP]
        .map(|register| registers[register as usize] as usize);
    // Where the site's rbp is kept: 136 bytes below the site's return address.
    let frame = match rip {
        _ if rip == pops => rsp,
        _ if rip == popped => rsp.wrapping_sub(8),
        _ if rip == returns => rsp.wrapping_sub(136),
        _ if (passed..=in_place).contains(&rip) => {
            // SAFETY: here rsp is the address of the call that the entry has filled in.
            let call = unsafe { &*(rsp as *const Call) };
            if call.form != IN_PLACE {
                return false;
            }
            let [a, b, c, d, e, f] = call.arguments;
            for (register, value) in [
                (libc::REG_RAX, call.number as usize),
                (libc::REG_RDI, a),
                (libc::REG_RSI, b),
                (libc::REG_RDX, c),
                (libc::REG_R10, d),
                (libc::REG_R8, e),
                (libc::REG_R9, f),
            ] {
                registers[register as usize] = value as i64;
            }
            rbp
        }
        _ => return false,
    };
    // SAFETY: the entry's own frame, which lies above rsp, or in the 128 bytes below it.
    let [site_rbp, site] =
        [frame, frame.wrapping_add(136)].map(|at| unsafe { *(at as *const i64) });
    if rip <= pops {
        registers[libc::REG_RBP as usize] = site_rbp;
    }
    registers[libc::REG_RSP as usize] = frame.wrapping_add(144) as i64;
    registers[libc::REG_RIP as usize] = site;
    true
}
