//! Keeps account of the files that programs execute through the mount. The kernel opens such a file
//! with a flag of its own and keeps it open as long as a program runs from it; while any does, no
//! other process opens it for writing (`ETXTBSY`), nor is it executed while another has it open so.
//! (The kernel itself handles a process that writes through the mount.)
//!
//! Locks: `files`, also while the engine is told, so that it hears of each file's first and last
//! handle in order.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfs::{Attached, Node, Result};

use crate::nodes::lock;

#[derive(Default)]
struct Files {
    by_handle: HashMap<u64, Node>,
    /// How many handles of each.
    uses: HashMap<Node, usize>,
}

/// All of a mount.
#[derive(Default)]
pub struct Executables {
    files: Mutex<Files>,
    /// How many handles there are.
    count: AtomicUsize,
}

impl Executables {
    /// A file is about to be executed by a handle. `ETXTBSY`.
    pub fn begin(&self, fs: &dyn Attached, node: Node, handle: u64) -> Result<()> {
        let mut files = lock(&self.files);
        if !files.uses.contains_key(&node) {
            fs.host_execution(node, true)?;
        }
        *files.uses.entry(node).or_default() += 1;
        files.by_handle.insert(handle, node);
        self.count.store(files.by_handle.len(), Ordering::Relaxed);
        Ok(())
    }

    /// A handle is about to go.
    pub fn release(&self, fs: &dyn Attached, handle: u64) -> Result<()> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let mut files = lock(&self.files);
        let Some(node) = files.by_handle.remove(&handle) else { return Ok(()) };
        self.count.store(files.by_handle.len(), Ordering::Relaxed);
        let uses = files.uses.entry(node).or_default();
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return Ok(());
        }
        files.uses.remove(&node);
        fs.host_execution(node, false)
    }
}
