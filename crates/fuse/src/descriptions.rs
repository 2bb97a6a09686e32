//! Descriptions of preloaded programs, used through the mount.
//!
//! A program that cannot be preloaded inherits descriptors from one that is. Before the exec the
//! preloaded one replaces each by a descriptor of the mount, which must stand for the *same* open
//! file description: shells let several programs write to one file in turn. So it opens, in the
//! root, the name [`vfs::mounts::description_name`] gives: no entry of the tree, it only says which
//! description is meant. The lookup leads to the description's node, and the open by the same
//! thread that follows takes hold of the description.
//!
//! The kernel keeps a file position of its own for each of its descriptors. A read or write where
//! it stopped last counts as sequential and is done at the description's own position; one
//! elsewhere counts as a seek, which moves the position.
//!
//! Only root, and the user that runs the mount, may name descriptions so.
//!
//! The handles of such files are numbers of their own, since several may stand for one description,
//! of which this process is one holder however many there are.
//!
//! Locks: `state`; under it descriptions are adopted and closed, nothing else.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfs::{Desc, Engine, Errno, Node, Result, Whence};

use crate::abi::InHeader;
use crate::nodes::lock;

/// Lookups without an open, at most.
const NAMED_MAX: usize = 64;
/// The bit that tells these handles from the others, which have 52 bits.
const OWN: u64 = 1 << 63;

#[derive(Clone, Copy)]
struct File {
    desc: Desc,
    /// Where the kernel stopped.
    end: u64,
}

#[derive(Default)]
struct State {
    /// Named by this thread of a program, and not opened yet.
    named: HashMap<u32, (Node, Desc)>,
    files: HashMap<u64, File>,
    /// Uses of each description in both.
    uses: HashMap<Desc, usize>,
    next: u64,
}

impl State {
    fn adopt(&mut self, fs: &dyn Engine, name: u64) -> Result<Desc> {
        let desc = fs.adopt(name)?;
        *self.uses.entry(desc).or_default() += 1;
        Ok(desc)
    }

    fn let_go(&mut self, fs: &dyn Engine, desc: Desc) -> Result<()> {
        let Some(uses) = self.uses.get_mut(&desc) else { return Ok(()) };
        *uses -= 1;
        if *uses > 0 {
            return Ok(());
        }
        self.uses.remove(&desc);
        fs.close(desc)
    }
}

/// All of a mount.
#[derive(Default)]
pub struct Descriptions {
    state: Mutex<State>,
    /// How many were named and not opened: mostly none.
    named: AtomicUsize,
}

impl Descriptions {
    /// A lookup in the root: the node of the description that the name stands for, if it is such a
    /// name and the caller may use it.
    pub fn name(&self, fs: &dyn Engine, from: &InHeader, name: &[u8]) -> Option<Result<Node>> {
        let name = vfs::mounts::description_of_name(name)?;
        if from.uid != 0 && from.uid != rustix::process::getuid().as_raw() {
            return None;
        }
        let mut state = lock(&self.state);
        let named = state.adopt(fs, name).and_then(|desc| {
            let (node, _) = fs.describe(desc)?;
            if state.named.len() == NAMED_MAX {
                for (_, (_, desc)) in std::mem::take(&mut state.named) {
                    state.let_go(fs, desc)?;
                }
            }
            if let Some((_, older)) = state.named.insert(from.pid, (node, desc)) {
                state.let_go(fs, older)?;
            }
            Ok(node)
        });
        self.named.store(state.named.len(), Ordering::Relaxed);
        Some(named.map_err(|_| Errno::NOENT))
    }

    /// An open: a handle of the description, if its thread has just named one.
    pub fn claim(&self, fs: &dyn Engine, from: &InHeader, node: Node) -> Result<Option<u64>> {
        if self.named.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut state = lock(&self.state);
        let Some((named, desc)) = state.named.remove(&from.pid) else { return Ok(None) };
        self.named.store(state.named.len(), Ordering::Relaxed);
        if named != node {
            state.let_go(fs, desc)?;
            return Ok(None);
        }
        let end = fs.seek(desc, 0, Whence::Current)?;
        let handle = OWN | state.next;
        state.next += 1;
        state.files.insert(handle, File { desc, end });
        Ok(Some(handle))
    }

    /// Whether a handle stands for another process's description.
    pub const fn is(handle: u64) -> bool {
        handle & OWN != 0
    }

    /// The description of such a handle.
    pub fn desc(&self, handle: u64) -> Result<Desc> {
        lock(&self.state).files.get(&handle).map(|file| file.desc).ok_or(Errno::BADF)
    }

    /// Before a read or write at `offset`: moves the description's position there if the program
    /// has sought.
    pub fn seek(&self, fs: &dyn Engine, handle: u64, offset: u64) -> Result<Desc> {
        let file = lock(&self.state).files.get(&handle).copied().ok_or(Errno::BADF)?;
        if file.end != offset {
            fs.seek(file.desc, offset as i64, Whence::Set)?;
        }
        Ok(file.desc)
    }

    /// The kernel has come as far as `end`.
    pub fn moved(&self, handle: u64, end: u64) {
        if let Some(file) = lock(&self.state).files.get_mut(&handle) {
            file.end = end;
        }
    }

    /// A handle is closed.
    pub fn close(&self, fs: &dyn Engine, handle: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let file = state.files.remove(&handle).ok_or(Errno::BADF)?;
        state.let_go(fs, file.desc)
    }
}
