//! How long written data will live, as the program says of a file (`F_SET_RW_HINT`). It changes
//! nothing here: what was said is only told again, by this process and its children, and forgotten
//! where many files have such a hint. (The kernel forgets it with its inode, too.)
//!
//! Locks: `HINTS`, for a moment; a child of a threaded parent that finds it held forgets what was
//! said.

use std::ffi::c_int;
use std::sync::Mutex;

use vfs::{Desc, Errno, FileSystemExt, Node};

use crate::entry::pointers::Out;
use crate::entry::process::Process;
use crate::entry::{DONE, Served, Stop};

pub const F_GET_RW_HINT: c_int = 1035;
pub const F_SET_RW_HINT: c_int = 1036;

/// `RWH_WRITE_LIFE_EXTREME`, the last of the values.
const LONGEST: u64 = 5;
/// Of how many files a hint is remembered.
const FILES_MAX: usize = 256;

/// Files and what was said of them, the latest last.
static HINTS: Mutex<Vec<(Node, u64)>> = Mutex::new(Vec::new());

/// Serves the two commands.
pub fn control(process: &Process, desc: Desc, command: c_int, hint: Out<u64>) -> Served<c_int> {
    let (node, _) = process.fs.describe(desc)?;
    if command == F_GET_RW_HINT {
        let found = HINTS
            .try_lock()
            .ok()
            .and_then(|hints| hints.iter().find(|known| known.0 == node).map(|known| known.1));
        hint.put(found.unwrap_or(0))?;
        return DONE;
    }
    if !process.cred().owns(&process.fs.attributes(node)?) {
        return Err(Stop::Errno(Errno::PERM));
    }
    let wanted = hint.value()?;
    if wanted > LONGEST {
        return Err(Stop::Errno(Errno::INVAL));
    }
    if let Ok(mut hints) = HINTS.try_lock() {
        hints.retain(|known| known.0 != node);
        if hints.len() == FILES_MAX {
            hints.remove(0);
        }
        if wanted != 0 {
            hints.push((node, wanted));
        }
    }
    DONE
}
