//! On whose behalf a face acts, and what that one may do.
//!
//! The rules are the kernel's: owner, else group, else others; user 0 overrides all but the execute
//! bit of a file that nobody may execute; a sticky directory lets only the owner of the entry or of
//! the directory remove a name. Access control lists are not consulted.

use crate::{Attr, Errno, Kind, Result};

/// Wanted accesses, as in `access(2)`.
pub const READ: u32 = 4;
/// See [`READ`].
pub const WRITE: u32 = 2;
/// See [`READ`]: execute a file, search a directory.
pub const EXECUTE: u32 = 1;

/// The identity that permissions are checked against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// Whether permission bits do not bind this one.
    #[inline]
    pub const fn privileged(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is the group or among the supplementary groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this one owns the node or need not.
    pub const fn owns(&self, attr: &Attr) -> bool {
        self.privileged() || self.uid == attr.uid
    }

    /// `EACCES` unless all of `want` ([`READ`], [`WRITE`], [`EXECUTE`]) is granted.
    pub fn check(&self, attr: &Attr, want: u32) -> Result<()> {
        if self.privileged() {
            let runs = attr.kind == Kind::Directory || attr.mode & 0o111 != 0;
            return if want & EXECUTE == 0 || runs { Ok(()) } else { Err(Errno::ACCESS) };
        }
        let bits = if self.uid == attr.uid {
            attr.mode >> 6
        } else if self.in_group(attr.gid) {
            attr.mode >> 3
        } else {
            attr.mode
        };
        if want & !bits & (READ | WRITE | EXECUTE) == 0 { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Whether a name of `victim` may be taken from `dir`: `EACCES`, or `EPERM` in a sticky one.
    pub fn check_delete(&self, dir: &Attr, victim: &Attr) -> Result<()> {
        self.check(dir, WRITE | EXECUTE)?;
        let sticky = dir.mode & libc::S_ISVTX != 0;
        if sticky && !self.owns(dir) && self.uid != victim.uid {
            return Err(Errno::PERM);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;

    fn attr(kind: Kind, mode: u32, uid: u32, gid: u32) -> Attr {
        Attr { node: Node { ino: 1, generation: 0 }, kind, mode, nlink: 1, uid, gid, ..Attr::NONE }
    }

    #[test]
    fn the_first_matching_class_decides() {
        let file = attr(Kind::File, 0o047, 10, 20);
        let owner = Cred { uid: 10, gid: 20, groups: vec![] };
        let member = Cred { uid: 11, gid: 1, groups: vec![20] };
        let other = Cred { uid: 12, gid: 2, groups: vec![] };
        assert_eq!(owner.check(&file, READ), Err(Errno::ACCESS));
        assert_eq!(member.check(&file, READ), Ok(()));
        assert_eq!(member.check(&file, WRITE), Err(Errno::ACCESS));
        assert_eq!(other.check(&file, READ | WRITE | EXECUTE), Ok(()));
    }

    #[test]
    fn root_reads_all_but_executes_only_what_somebody_may() {
        let root = Cred::default();
        assert_eq!(root.check(&attr(Kind::File, 0, 1, 1), READ | WRITE), Ok(()));
        assert_eq!(root.check(&attr(Kind::File, 0o666, 1, 1), EXECUTE), Err(Errno::ACCESS));
        assert_eq!(root.check(&attr(Kind::Directory, 0, 1, 1), EXECUTE), Ok(()));
    }

    #[test]
    fn a_sticky_directory_protects_the_entries_of_others() {
        let shared = attr(Kind::Directory, 0o1777, 0, 0);
        let user = Cred { uid: 5, gid: 5, groups: vec![] };
        assert_eq!(user.check_delete(&shared, &attr(Kind::File, 0o644, 5, 5)), Ok(()));
        let foreign = attr(Kind::File, 0o666, 6, 6);
        assert_eq!(user.check_delete(&shared, &foreign), Err(Errno::PERM));
        let open = attr(Kind::Directory, 0o777, 0, 0);
        assert_eq!(user.check_delete(&open, &foreign), Ok(()));
    }
}
