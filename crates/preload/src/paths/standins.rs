//! Directories that stand for others in `LD_LIBRARY_PATH`, and copies that stand for libraries:
//! what the dynamic linker knows of a volume since the start of the program (`processes::supply`).
//! It goes on to use those names; here is what they mean.

use std::ffi::{CString, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use door::entry::Call;
use vfs::Node;

use crate::entry::thread::here;
use crate::runtime::objects;

/// What was taken over.
pub struct StandIns {
    /// The number of the directory that the stand-ins were in.
    pub directory: Option<c_int>,
    /// Their names, and the directories of volumes that they stand for.
    pub standing: Vec<(usize, Node)>,
    /// The numbers of copies, and the files that they are copies of.
    pub copies: Vec<(c_int, Node)>,
}

static STANDINS: OnceLock<StandIns> = OnceLock::new();
static HAS_COPIES: AtomicBool = AtomicBool::new(false);

/// For the linker that opens a file of a volume: the copy of it that is loaded since the start,
/// which it then knows again.
#[inline]
pub fn loaded_copy(node: Node) -> Option<CString> {
    if HAS_COPIES.load(Ordering::Relaxed) { find_copy(node) } else { None }
}

#[cold]
fn find_copy(node: Node) -> Option<CString> {
    let (number, _) = STANDINS.get()?.copies.iter().find(|(_, copied)| *copied == node)?;
    let arrived = here().arrived_at.load(Ordering::Relaxed) as *const Call;
    // SAFETY: a call that this thread is in the midst of.
    let address = unsafe { arrived.as_ref() }?.return_address();
    let below = objects::loaded().filter(|object| object.base() <= address);
    let caller = below.max_by_key(|object| object.base())?;
    let is_linker = objects::linker().is_some_and(|linker| linker.base() == caller.base());
    is_linker.then(|| CString::new(format!("/proc/self/fd/{number}")).ok())?
}

/// From now on they are these.
pub fn set(standins: StandIns) {
    HAS_COPIES.store(!standins.copies.is_empty(), Ordering::Relaxed);
    // Once: at the start.
    let _ = STANDINS.set(standins);
}

/// The directory of a volume that a stand-in in a path means, and what follows it there.
pub fn stands_for(path: &[u8]) -> Option<(Node, &[u8])> {
    let standins = STANDINS.get()?;
    let rest = path.strip_prefix(b"/proc/self/fd/")?;
    let (number, rest) = cut(rest)?;
    let (standin, rest) = cut(rest)?;
    let (_, node) = standins.standing.iter().find(|(number, _)| *number == standin)?;
    let is_it =
        standins.directory.and_then(|directory| usize::try_from(directory).ok()) == Some(number);
    is_it.then_some((*node, if rest.is_empty() { b"." } else { rest }))
}

/// A number, and what follows the slashes behind it.
fn cut(path: &[u8]) -> Option<(usize, &[u8])> {
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    let slashes = path[end..].iter().take_while(|&&byte| byte == b'/').count();
    Some((std::str::from_utf8(&path[..end]).ok()?.parse().ok()?, &path[end + slashes..]))
}
