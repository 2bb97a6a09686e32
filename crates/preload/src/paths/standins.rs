//! Directories that stand for others in `LD_LIBRARY_PATH`, and copies that stand for libraries:
//! what the dynamic linker knows of a volume since the start of the program (`processes::supply`).
//! It goes on to use those names; here is what they mean.

use std::ffi::{CString, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use vfs::Node;

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
    if has_copies() { find_copy(node) } else { None }
}

#[cold]
fn find_copy(node: Node) -> Option<CString> {
    let (number, _) = STANDINS.get()?.copies.iter().find(|(_, copied)| *copied == node)?;
    let is_linker = LINKERS_THREAD.load(Ordering::Relaxed) == own_thread();
    is_linker.then(|| CString::new(format!("/proc/self/fd/{number}")).ok())?
}

/// The thread whose call of the linker's is being served; 0: none. The linker's lock keeps others
/// out.
static LINKERS_THREAD: AtomicU32 = AtomicU32::new(0);

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Whether it matters that a call is the linker's.
#[inline]
pub fn has_copies() -> bool {
    HAS_COPIES.load(Ordering::Relaxed)
}

/// Serves a call of the linker's.
#[cold]
pub fn serve_linker<T>(serve: impl FnOnce() -> T) -> T {
    LINKERS_THREAD.store(own_thread(), Ordering::Relaxed);
    let served = serve();
    LINKERS_THREAD.store(0, Ordering::Relaxed);
    served
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
