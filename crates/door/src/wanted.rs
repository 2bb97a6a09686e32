//! Which system calls the library has to see.

/// Whether a site that makes this system call is patched: where the table (crate `calls`) has a
/// body for it, or the call changes what the library keeps of numbers and processes. So is every
/// number that the table does not know, for a later kernel's call may have a path.
pub const fn wanted(number: u32) -> bool {
    calls::wanted(number as usize)
}
