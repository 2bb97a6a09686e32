//! The exported function of this room: threads.

use std::ffi::{c_int, c_void};

use crate::entry::{Stop, cached_fd, outside};
use crate::interposed::interpose;

/// A call on the volume needs more of the stack than a call of the kernel: so much is added to a
/// stack that the C library makes and that may be too small.
const ROOM: usize = 48 << 10;
/// From so many bytes on there is enough.
const ENOUGH: usize = 64 << 10;

/// The attributes of a new thread with a larger stack than the program has asked for. `None`: that
/// one will do, or the program has made it itself.
fn with_room(attributes: *const libc::pthread_attr_t) -> Option<libc::pthread_attr_t> {
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the program's own attributes; a copy of them that changes in one word, and lives no
    // longer.
    unsafe {
        let given = attributes.as_ref()?;
        libc::pthread_attr_getstack(given, &raw mut start, &raw mut bytes);
        // Of one that the C library is to make it knows the size alone.
        let is_made = (start as usize).wrapping_add(bytes) != 0;
        if is_made || !(1..ENOUGH).contains(&bytes) {
            return None;
        }
        let mut roomy = *given;
        (libc::pthread_attr_setstacksize(&raw mut roomy, bytes + ROOM) == 0).then_some(roomy)
    }
}

/// What a thread begins with.
type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

interpose! {
    fn [pthread_create](
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, start: Start,
        argument: *mut c_void,
    ) -> c_int = |_, kernel| {
        cached_fd::before_thread();
        let roomy = with_room(attributes).ok_or(Stop::Kernel)?;
        Ok(outside(|| kernel(thread, &raw const roomy, start, argument)))
    }
}
