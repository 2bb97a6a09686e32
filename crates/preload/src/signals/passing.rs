//! A guest's thread that a signal meets in our code, where that makes or serves the guest's call
//! (see [`crate::dispatch`]).
//!
//! C libraries look where a thread was interrupted: musl's cancels one only if it stands at its own
//! instruction, and their unwinders want a frame that they know. So a thread that has not made its
//! call, or is to make it again, is put back before its own instruction, with the registers that it
//! had; one whose call is over, behind that.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::entry::pending_signals::{REALTIME, bit};
use crate::entry::pointers::Out;
use crate::entry::thread::{RED_ZONE, TRAP_STACK_BYTES, TRAPS, here};
use crate::runtime::guest::{self, Registers};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const JUMP_SHORT: u8 = 0xeb;

unsafe extern "C" {
    static solera_dispatch_serve: [u8; 0];
    /// The vector registers are put aside; they are put back.
    static solera_dispatch_kept: [u8; 0];
    static solera_dispatch_served: [u8; 0];
    /// The guest's registers are loaded; but for its stack pointer they are.
    static solera_dispatch_go_on: [u8; 0];
    static solera_dispatch_last: [u8; 0];
    static solera_dispatch_gone: [u8; 0];
    static solera_dispatch_pass_guest: [u8; 0];
    /// Behind its call, and where the address behind is in a register.
    static solera_dispatch_pass_guest_made: [u8; 0];
    static solera_dispatch_pass_guest_popped: [u8; 0];
    static solera_dispatch_pass_end: [u8; 0];
}

/// Puts the thread that a signal has met there back.
///
/// # Safety
///
/// The kernel's context of the handler that runs, in a process with a guest.
pub unsafe fn back_to_guest(context: *mut c_void) {
    // SAFETY: as the caller says.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let [last, gone] = [&raw const solera_dispatch_last, &raw const solera_dispatch_gone]
        .map(<*const [u8; 0]>::addr);
    if (last..gone).contains(&(registers[libc::REG_RIP as usize] as usize)) {
        // What these instructions do.
        registers[libc::REG_RSP as usize] = registers[libc::REG_R11 as usize];
        registers[libc::REG_RIP as usize] = registers[libc::REG_RCX as usize];
    }
    let at = registers[libc::REG_RIP as usize] as usize;
    let [start, made, popped, end] = [
        &raw const solera_dispatch_pass_guest,
        &raw const solera_dispatch_pass_guest_made,
        &raw const solera_dispatch_pass_guest_popped,
        &raw const solera_dispatch_pass_end,
    ]
    .map(<*const [u8; 0]>::addr);
    if !(start..end).contains(&at) {
        return;
    }
    let stack = registers[libc::REG_RSP as usize] as usize;
    let popped_to = registers[libc::REG_RCX as usize] as usize;
    let (behind, above) = if at < popped {
        // SAFETY: what was put there with the call.
        let behind = unsafe { (stack as *const usize).read_unaligned() };
        (behind, size_of::<usize>() + RED_ZONE)
    } else {
        (popped_to, if at == popped { RED_ZONE } else { 0 })
    };
    let is_over = at >= made;
    let own = behind - SYSCALL.len();
    if !is_over && !is_site(own) {
        return;
    }
    registers[libc::REG_RIP as usize] = if is_over { behind } else { own } as i64;
    registers[libc::REG_RSP as usize] = (stack + above) as i64;
    here().selector.store(TRAPS, Ordering::Relaxed);
}

/// The registers that a function keeps for its caller, and where it returns to.
const SHOWN: [libc::c_int; 8] = [
    libc::REG_RIP,
    libc::REG_RSP,
    libc::REG_RBX,
    libc::REG_RBP,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Bytes of the vector registers that are put aside below a slot.
pub const VECTORS: usize = 2816;

/// Where the thread stands in our code.
#[derive(Clone, Copy, PartialEq)]
enum Stands {
    /// Before the vectors are put aside, or behind that, but still in no function.
    First,
    /// In a function that serves the call.
    Serves,
    /// Where the guest's registers are loaded, which may begin anew.
    Loads,
}

/// Shows a handler of the guest's where the guest stands, if the signal has come while a call of it
/// is served: its runtime unwinds from there, and looks whether the call has been made. One for
/// which nothing was done yet stands at its instruction; if the handler leads elsewhere from there,
/// it is not made. Else the guest stands behind it, and what the handler has changed becomes the
/// guest's behind the call.
pub struct Shown {
    context: *mut libc::ucontext_t,
    /// The registers of the call, and what was told of them, and ours.
    slot: *mut Registers,
    told: Registers,
    own: Registers,
    stands: Stands,
    /// Nothing was done for it, and it may be left.
    may_leave: bool,
    serving: usize,
    stage: u8,
    mask: u64,
}

impl Shown {
    /// `None`: the thread does not stand where a call is served. `may_leave`: no lock is held.
    ///
    /// # Safety
    ///
    /// As [`back_to_guest`]; taken back before that handler returns, unless the handler leaves.
    pub unsafe fn new(context: *mut c_void, may_leave: bool) -> Option<Self> {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: as the caller says.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let (slot, stands) = slot_of(registers)?;
        let thread = &here().guest;
        let stage = thread.stage.load(Ordering::Relaxed);
        // No call is served while the handler runs.
        let serving = thread.serving.swap(0, Ordering::Relaxed);
        let own = *registers;
        // SAFETY: the slot of a call that is served: this thread's, which does not run.
        let mut of_guest = unsafe { *slot };
        let passes = passing(&mut of_guest);
        let is_to_make = passes || stage == guest::STANDS && stands != Stands::Loads;
        let is_to_make = is_to_make && may_leave && stage != guest::PATCHED;
        let site = of_guest[libc::REG_RIP as usize] as usize - SYSCALL.len();
        let is_to_make = is_to_make && is_site(site);
        if is_to_make {
            of_guest[libc::REG_RIP as usize] = site as i64;
        }
        for register in SHOWN {
            registers[register as usize] = of_guest[register as usize];
        }
        let told = *registers;
        // SAFETY: as the caller says.
        let mask = unsafe { mask_of(context).read() };
        let may_leave = is_to_make;
        Some(Self { context, slot, told, own, stands, may_leave, serving, stage, mask })
    }

    /// The handler of this signal has come back. Gives whether the call is left: the guest goes on
    /// elsewhere.
    pub fn take_back(self, signal: c_int) -> bool {
        // SAFETY: as in `new`.
        let (registers, of_guest) =
            unsafe { (&mut (*self.context).uc_mcontext.gregs, &mut *self.slot) };
        let thread = &here().guest;
        // SAFETY: as in `new`.
        let blocked = unsafe { mask_of(self.context).read() } & !self.mask & bit(signal);
        if signal >= REALTIME && self.stage == guest::BEGUN {
            thread.again.fetch_or(blocked, Ordering::Relaxed);
        }
        let rip = libc::REG_RIP as usize;
        let is_left = self.may_leave && registers[rip] != self.told[rip];
        let stage = if is_left { guest::BEGUN } else { self.stage };
        thread.stage.store(stage, Ordering::Relaxed);
        thread.serving.store(self.serving, Ordering::Relaxed);
        for at in SHOWN.map(|register| register as usize) {
            if is_left || registers[at] != self.told[at] {
                of_guest[at] = registers[at];
            }
            registers[at] = self.own[at];
        }
        let stack = self.slot as usize;
        let [go_on, served] = [&raw const solera_dispatch_go_on, &raw const solera_dispatch_served];
        let to = match self.stands {
            Stands::Loads => go_on,
            _ if !is_left => return false,
            Stands::First => {
                thread.serving.store(0, Ordering::Relaxed);
                registers[libc::REG_RSP as usize] = stack as i64;
                go_on
            }
            Stands::Serves => {
                registers[libc::REG_RSP as usize] = (stack - VECTORS) as i64;
                served
            }
        };
        registers[libc::REG_RBX as usize] = stack as i64;
        registers[rip] = to.addr() as i64;
        is_left && self.stands != Stands::Loads
    }
}

/// The mask that the thread gets when the handler returns: the kernel's 8 bytes of it.
fn mask_of(context: *mut libc::ucontext_t) -> *mut u64 {
    // SAFETY: the kernel's context of a handler.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// The registers of the call that is served where a thread stands.
fn slot_of(registers: &Registers) -> Option<(*mut Registers, Stands)> {
    let [at, stack, base] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBX]
        .map(|register| registers[register as usize] as usize);
    let [serve, kept, go_on, last] = [
        &raw const solera_dispatch_serve,
        &raw const solera_dispatch_kept,
        &raw const solera_dispatch_go_on,
        &raw const solera_dispatch_last,
    ]
    .map(<*const [u8; 0]>::addr);
    if (go_on..last).contains(&at) {
        return Some((base as *mut Registers, Stands::Loads));
    }
    let slot = here().guest.serving.load(Ordering::Relaxed);
    // On the stack below the slot, which is in use then.
    let is_below = slot.checked_sub(stack).is_some_and(|below| below < TRAP_STACK_BYTES);
    let stands = if (serve..kept).contains(&at) { Stands::First } else { Stands::Serves };
    is_below.then_some((slot as *mut Registers, stands))
}

/// Whether the registers of a call lead to where its thread makes it; they are then as they were at
/// the call.
fn passing(registers: &mut Registers) -> bool {
    if registers[libc::REG_RIP as usize] as usize != (&raw const solera_dispatch_pass_guest).addr()
    {
        return false;
    }
    let stack = registers[libc::REG_RSP as usize] as usize;
    // SAFETY: what was put there for the call.
    let behind = unsafe { (stack as *const i64).read_unaligned() };
    registers[libc::REG_RIP as usize] = behind;
    registers[libc::REG_RSP as usize] = (stack + size_of::<usize>() + RED_ZONE) as i64;
    true
}

/// Whether a guest's instruction makes a system call. One that is patched is a short jump, which
/// leads here again.
fn is_site(at: usize) -> bool {
    let is_one = |found: [u8; 2]| found == SYSCALL || found[0] == JUMP_SHORT;
    Out(at as *mut [u8; 2]).value().is_ok_and(is_one)
}
