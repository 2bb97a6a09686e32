//! The receivers of a description's signals: `F_SETOWN`, `F_SETSIG` and their kin. A regular file
//! sends no signal: what was set is only told again, to this process and its children.
//!
//! Locks: `OWNERS`, for a moment; a child of a threaded parent that finds it held forgets what was
//! set.

use std::ffi::c_int;
use std::sync::Mutex;

use vfs::{Desc, Errno};

use crate::entry::pointers::Out;

/// `struct f_owner_ex`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Owner {
    kind: c_int,
    id: c_int,
}

#[derive(Clone, Copy)]
struct SignalOwner {
    desc: Desc,
    owner: Owner,
    signal: c_int,
}

static OWNERS: Mutex<Vec<SignalOwner>> = Mutex::new(Vec::new());

const F_SETOWN: c_int = 8;
const F_GETOWN: c_int = 9;
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const OWNER_PROCESS: c_int = 1;
const OWNER_GROUP: c_int = 2;
/// The number of the last signal.
const SIGNALS: usize = 64;

fn find(desc: Desc) -> SignalOwner {
    let unknown = SignalOwner { desc, owner: Owner::default(), signal: 0 };
    let Ok(owners) = OWNERS.try_lock() else { return unknown };
    owners.iter().find(|known| known.desc == desc).copied().unwrap_or(unknown)
}

fn keep(known: SignalOwner) -> c_int {
    if let Ok(mut owners) = OWNERS.try_lock() {
        owners.retain(|other| other.desc.index() != known.desc.index());
        if known.owner != Owner::default() || known.signal != 0 {
            owners.push(known);
        }
    }
    0
}

/// Serves an `fcntl` command on owners and signals; `None`: it is another command.
pub fn control(desc: Desc, command: c_int, argument: usize) -> Result<Option<c_int>, Errno> {
    let known = find(desc);
    let number = argument as c_int;
    Ok(Some(match command {
        F_GETOWN if known.owner.kind == OWNER_GROUP => -known.owner.id,
        F_GETOWN => known.owner.id,
        F_SETOWN => {
            let kind = if number < 0 { OWNER_GROUP } else { OWNER_PROCESS };
            let id = number.checked_abs().ok_or(Errno::INVAL)?;
            let kind = if id == 0 { 0 } else { kind };
            keep(SignalOwner { owner: Owner { kind, id }, ..known })
        }
        F_GETSIG => known.signal,
        F_SETSIG if argument > SIGNALS => return Err(Errno::INVAL),
        F_SETSIG => keep(SignalOwner { signal: number, ..known }),
        F_GETOWN_EX => {
            Out(argument as *mut Owner).put(known.owner)?;
            0
        }
        F_SETOWN_EX => {
            let owner = Out(argument as *mut Owner).value()?;
            if !(0..=OWNER_GROUP).contains(&owner.kind) {
                return Err(Errno::INVAL);
            }
            keep(SignalOwner { owner, ..known })
        }
        _ => return Ok(None),
    }))
}
