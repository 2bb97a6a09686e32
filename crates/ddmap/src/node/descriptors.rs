//! What a process has not handed over is fetched: it may be busy with its own memory, or asleep,
//! when its node is started anew, and nothing may leave as long as one process cannot be reached.
//!
//! The process has said in the node table by which numbers it has its userfaultfd and its list of
//! mappings (`Table::publish`). `pidfd_getfd(2)` copies them: between processes of one user where
//! the machine allows that (`kernel.yama.ptrace_scope` 0), for root always. Elsewhere a process
//! hands them over with its next call.

use crate::node::eviction::Peer;
use crate::protocol::Claimant;
use crate::shared_memory::maps::Maps;
use crate::shared_memory::table::Table;
use crate::shared_memory::uffd::Uffd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Reaches a process that is attached. An error: it cannot be reached in this way, now.
///
/// A number of a process may be another one's: in another namespace, or since it has died. Another
/// one's list of mappings has another token.
pub fn fetched(table: &Table, claimant: Claimant) -> Result<Peer, Errno> {
    let handles = table.published(claimant).ok_or(Errno::AGAIN)?;
    let pid = Pid::from_raw(handles.pid).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let copy = |number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
    let maps = Maps::of_other(copy(handles.maps)?).map_err(|_| Errno::INVAL)?;
    if maps.token() != handles.token {
        return Err(Errno::SRCH);
    }
    let uffd = Uffd::of_other_if(copy(handles.uffd)?)?;
    // Its numbers were others' if it has said something else meanwhile.
    if table.published(claimant) != Some(handles) {
        return Err(Errno::AGAIN);
    }
    Ok(Peer::found(claimant, uffd, maps))
}
