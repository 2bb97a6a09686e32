//! A guest's thread that a signal meets in our code, where that makes or serves the guest's call
//! (see [`crate::dispatch`]).
//!
//! C libraries look where a thread was interrupted: musl's cancels one only if it stands at its own
//! instruction, and their unwinders want a frame that they know. So a thread that has not made its
//! call, or is to make it again, is put back before its own instruction, with the registers that it
//! had; one whose call is over, behind that.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use crate::entry::pointers::Out;
use crate::entry::thread::{RED_ZONE, TRAP_STACK_BYTES, TRAPS, here};
use crate::runtime::guest::Registers;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const JUMP_SHORT: u8 = 0xeb;

unsafe extern "C" {
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
    // One that is patched is a short jump, which leads here again.
    let is_own = |found: [u8; 2]| found == SYSCALL || found[0] == JUMP_SHORT;
    if !is_over && !Out(own as *mut [u8; 2]).value().is_ok_and(is_own) {
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

/// Shows a handler of the guest's where the guest stands, if the signal has come while a call of it
/// is served: its runtime unwinds from there. Put back when dropped; what the handler has changed
/// becomes the guest's behind the call.
pub struct Shown {
    context: *mut libc::ucontext_t,
    /// The registers of the call, and what they and ours were.
    slot: *mut Registers,
    told: Registers,
    own: Registers,
}

impl Shown {
    /// `None`: the thread does not stand where a call is served.
    ///
    /// # Safety
    ///
    /// As [`back_to_guest`]; dropped before that handler returns.
    pub unsafe fn new(context: *mut c_void) -> Option<Self> {
        let context = context.cast::<libc::ucontext_t>();
        let slot = here().guest.serving.load(Ordering::Relaxed);
        // SAFETY: as the caller says.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let stack = registers[libc::REG_RSP as usize] as usize;
        // On the stack below the slot, which is in use then.
        if slot.checked_sub(stack).is_none_or(|below| below >= TRAP_STACK_BYTES) {
            return None;
        }
        let slot = slot as *mut Registers;
        let own = *registers;
        // SAFETY: the slot of a call that is served: this thread's, which does not run.
        let of_guest = unsafe { &*slot };
        for register in SHOWN {
            registers[register as usize] = of_guest[register as usize];
        }
        Some(Self { context, slot, told: *registers, own })
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        let (registers, of_guest) =
            unsafe { (&mut (*self.context).uc_mcontext.gregs, &mut *self.slot) };
        for register in SHOWN {
            let at = register as usize;
            if registers[at] != self.told[at] {
                of_guest[at] = registers[at];
            }
            registers[at] = self.own[at];
        }
    }
}
