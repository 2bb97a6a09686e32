//! Syscall User Dispatch: whether the kernel has it.

use crate::interrupt::system_call;

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const OFF: usize = 0;

/// Whether this process could serve programs that no dynamic linker starts: their system calls, and
/// a thread pointer of their own (`wrfsbase`, Linux 5.9).
pub fn can_host() -> bool {
    const HAS_FSGSBASE: libc::c_ulong = 2;
    // SAFETY: asks for a number.
    let found = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    found & HAS_FSGSBASE != 0 && has_call_dispatch()
}

/// Whether the kernel can send this process a signal where its code makes system calls (Linux
/// 5.11), and nothing forbids that it asks for it. Switches it off for the calling thread.
pub fn has_call_dispatch() -> bool {
    let arguments = [PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0, 0];
    // SAFETY: numbers.
    unsafe { system_call(libc::SYS_prctl, arguments) }.is_ok()
}
