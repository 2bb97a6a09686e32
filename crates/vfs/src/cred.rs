//! The identity that a face acts for, and what its user may do.
//!
//! The rules are the kernel's: owner, else group, else others; capabilities override, but do not
//! execute a file that has no execute bit; a sticky directory lets only the owner of the entry or
//! of the directory remove a name. A user that writes to a file without [`Capability::FileSetId`]
//! takes its set-id bits from it. Access control lists are not consulted.

use crate::{Attr, Errno, Kind, Result};

/// Wanted accesses, as in `access(2)`.
pub const READ: u32 = 4;
/// See [`READ`].
pub const WRITE: u32 = 2;
/// See [`READ`]: execute a file, search a directory.
pub const EXECUTE: u32 = 1;

/// The kernel's capabilities that concern files, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Capability {
    ChangeOwner = 0,
    Override = 1,
    ReadSearch = 2,
    /// What an owner may.
    Owner = 3,
    /// Set-id bits stay, or are set for a group that the user is not in.
    FileSetId = 4,
    /// Attributes `trusted.*` and `security.*`.
    Administer = 21,
    MakeNode = 27,
    /// File capabilities.
    SetFileCapabilities = 31,
}

impl Capability {
    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// A user that has these is bound by no permission.
const UNBOUND: u64 = Capability::ChangeOwner.bit()
    | Capability::Override.bit()
    | Capability::Owner.bit()
    | Capability::FileSetId.bit();

/// The identity that permissions are checked against.
#[derive(Clone, Debug)]
pub struct Cred {
    /// It has all of [`UNBOUND`]: the first and most frequent question.
    unbound: bool,
    uid: u32,
    gid: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
    /// The effective ones, a bit a number.
    capabilities: u64,
    /// The threads of the process differ: gives the calling one's. The other fields are unused
    /// then.
    ask: Option<fn() -> &'static Self>,
}

impl Cred {
    /// The identity of files' owners and groups (`fsuid`, `fsgid`), with these effective
    /// capabilities, a bit a number.
    pub const fn new(uid: u32, gid: u32, groups: Vec<u32>, capabilities: u64) -> Self {
        let unbound = capabilities & UNBOUND == UNBOUND;
        Self { unbound, uid, gid, groups, capabilities, ask: None }
    }

    /// User 0 with all capabilities.
    pub const fn root() -> Self {
        Self::new(0, 0, Vec::new(), u64::MAX)
    }

    /// The calling thread's. Where a sandbox forbids the question, user 0 has all capabilities.
    pub fn of_this_thread() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let groups = rustix::process::getgroups().unwrap_or_default();
        let capabilities = rustix::thread::capabilities(None)
            .map_or(if uid.is_root() { u64::MAX } else { 0 }, |sets| sets.effective.bits());
        let groups = groups.iter().map(|group| group.as_raw()).collect();
        Self::new(uid.as_raw(), gid.as_raw(), groups, capabilities)
    }

    /// An identity that `ask` tells for each thread.
    pub const fn of_threads(ask: fn() -> &'static Self) -> Self {
        let (uid, gid) = (u32::MAX, u32::MAX);
        Self { unbound: false, uid, gid, groups: Vec::new(), capabilities: 0, ask: Some(ask) }
    }

    /// Whether it is one of those.
    pub const fn is_of_threads(&self) -> bool {
        self.ask.is_some()
    }

    /// The same groups with another user and group, and these capabilities.
    #[must_use]
    pub fn with(&self, uid: u32, gid: u32, capabilities: u64) -> Self {
        Self::new(uid, gid, self.here().groups.clone(), capabilities)
    }

    /// Whether it is, and may do, what `other` is and may.
    pub fn is_same(&self, other: &Self) -> bool {
        let what = |cred: &Self| (cred.uid, cred.gid, cred.capabilities, cred.ask.is_some());
        what(self) == what(other) && self.groups == other.groups
    }

    /// The calling thread's.
    #[inline]
    fn here(&self) -> &Self {
        self.ask.map_or(self, |ask| ask())
    }

    /// Owner of what it makes.
    pub fn uid(&self) -> u32 {
        self.here().uid
    }

    /// Group of what it makes.
    pub fn gid(&self) -> u32 {
        self.here().gid
    }

    /// Whether permissions do not bind this user.
    #[inline]
    pub const fn privileged(&self) -> bool {
        self.unbound
    }

    /// Whether it has a capability.
    pub fn can(&self, capability: Capability) -> bool {
        self.here().capabilities & capability.bit() != 0
    }

    /// Whether it is that user, with the capabilities that come with that.
    #[inline]
    pub fn is_simply(&self, uid: u32, gid: u32) -> bool {
        let here = self.here();
        let usual = if uid == 0 { here.unbound } else { here.capabilities == 0 };
        (here.uid, here.gid) == (uid, gid) && usual
    }

    /// Whether `gid` is the group or among the supplementary groups.
    pub fn in_group(&self, gid: u32) -> bool {
        let here = self.here();
        here.gid == gid || here.groups.contains(&gid)
    }

    /// Whether this user owns the node or need not.
    pub fn owns(&self, attr: &Attr) -> bool {
        self.unbound || self.uid() == attr.uid || self.can(Capability::Owner)
    }

    /// `EACCES` unless all of `want` ([`READ`], [`WRITE`], [`EXECUTE`]) is granted.
    pub fn check(&self, attr: &Attr, want: u32) -> Result<()> {
        if self.unbound {
            let runs = attr.kind == Kind::Directory || attr.mode & 0o111 != 0;
            return if want & EXECUTE == 0 || runs { Ok(()) } else { Err(Errno::ACCESS) };
        }
        if let Some(ask) = self.ask {
            return ask().check(attr, want);
        }
        let bits = if self.uid == attr.uid {
            attr.mode >> 6
        } else if self.in_group(attr.gid) {
            attr.mode >> 3
        } else {
            attr.mode
        };
        let granted = want & !bits & (READ | WRITE | EXECUTE) == 0 || self.overrides(attr, want);
        if granted { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Whether capabilities grant what the mode does not.
    fn overrides(&self, attr: &Attr, want: u32) -> bool {
        let (reads, all) = (self.can(Capability::ReadSearch), self.can(Capability::Override));
        if attr.kind == Kind::Directory {
            return all || reads && want & WRITE == 0;
        }
        let runs = want & EXECUTE == 0 || attr.mode & 0o111 != 0;
        all && runs || reads && want & (READ | WRITE | EXECUTE) == READ
    }

    /// Whether a name of `victim` may be taken from `dir`: `EACCES`, or `EPERM` in a sticky one.
    pub fn check_delete(&self, dir: &Attr, victim: &Attr) -> Result<()> {
        self.check(dir, WRITE | EXECUTE)?;
        let sticky = dir.mode & libc::S_ISVTX != 0;
        let uid = self.uid();
        if sticky && uid != victim.uid && uid != dir.uid && !self.can(Capability::Owner) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Whether this user may not set the set-group bit for the group `gid`.
    pub fn loses_group_bit(&self, gid: u32) -> bool {
        !self.can(Capability::FileSetId) && !self.in_group(gid)
    }

    /// The set-id bits that a file with these attributes loses with its owner: the set-group bit
    /// means something else on a file that the group may not execute.
    pub fn set_id_bits(&self, attr: &Attr) -> u32 {
        let group = attr.mode & libc::S_IXGRP != 0 || self.loses_group_bit(attr.gid);
        let lost = if group { libc::S_ISUID | libc::S_ISGID } else { libc::S_ISUID };
        attr.mode & lost
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
        let owner = Cred::new(10, 20, vec![], 0);
        let member = Cred::new(11, 1, vec![20], 0);
        let other = Cred::new(12, 2, vec![], 0);
        assert_eq!(owner.check(&file, READ), Err(Errno::ACCESS));
        assert_eq!(member.check(&file, READ), Ok(()));
        assert_eq!(member.check(&file, WRITE), Err(Errno::ACCESS));
        assert_eq!(other.check(&file, READ | WRITE | EXECUTE), Ok(()));
    }

    #[test]
    fn root_reads_all_but_executes_only_what_somebody_may() {
        let root = Cred::root();
        assert_eq!(root.check(&attr(Kind::File, 0, 1, 1), READ | WRITE), Ok(()));
        assert_eq!(root.check(&attr(Kind::File, 0o666, 1, 1), EXECUTE), Err(Errno::ACCESS));
        assert_eq!(root.check(&attr(Kind::Directory, 0, 1, 1), EXECUTE), Ok(()));
    }

    #[test]
    fn a_sticky_directory_protects_the_entries_of_others() {
        let shared = attr(Kind::Directory, 0o1777, 0, 0);
        let user = Cred::new(5, 5, vec![], 0);
        assert_eq!(user.check_delete(&shared, &attr(Kind::File, 0o644, 5, 5)), Ok(()));
        let foreign = attr(Kind::File, 0o666, 6, 6);
        assert_eq!(user.check_delete(&shared, &foreign), Err(Errno::PERM));
        let open = attr(Kind::Directory, 0o777, 0, 0);
        assert_eq!(user.check_delete(&open, &foreign), Ok(()));
    }

    #[test]
    fn capabilities_count_not_user_0() {
        let only = |capability: Capability| Cred::new(9, 9, vec![], capability.bit());
        let none = Cred::new(0, 0, vec![], 0);
        let (file, dir) = (attr(Kind::File, 0o600, 1, 1), attr(Kind::Directory, 0o700, 1, 1));
        assert_eq!(none.check(&file, READ), Err(Errno::ACCESS));
        assert!(!none.owns(&file) && only(Capability::Owner).owns(&file));
        let reads = only(Capability::ReadSearch);
        assert_eq!(reads.check(&file, READ), Ok(()));
        assert_eq!(reads.check(&file, READ | WRITE), Err(Errno::ACCESS));
        assert_eq!(reads.check(&dir, READ | EXECUTE), Ok(()));
        assert_eq!(reads.check(&dir, WRITE), Err(Errno::ACCESS));
        let all = only(Capability::Override);
        assert_eq!(all.check(&file, READ | WRITE), Ok(()));
        assert_eq!(all.check(&file, EXECUTE), Err(Errno::ACCESS));
        assert_eq!(all.check(&dir, READ | WRITE | EXECUTE), Ok(()));
    }

    #[test]
    fn a_process_whose_threads_differ_asks_each() {
        fn ask() -> &'static Cred {
            static USER: Cred = Cred::new(10, 20, Vec::new(), 0);
            &USER
        }
        let cred = Cred::of_threads(ask);
        assert_eq!((cred.uid(), cred.gid()), (10, 20));
        assert!(cred.owns(&attr(Kind::File, 0, 10, 1)) && !cred.privileged());
        assert_eq!(cred.check(&attr(Kind::File, 0o400, 10, 1), READ), Ok(()));
    }

    #[test]
    fn a_set_group_bit_without_execution_stays_for_members() {
        let (runs, locks) = (attr(Kind::File, 0o2070, 1, 7), attr(Kind::File, 0o6060, 1, 7));
        let member = Cred::new(9, 7, vec![], 0);
        assert_eq!(member.set_id_bits(&runs), 0o2000);
        assert_eq!(member.set_id_bits(&locks), 0o4000);
        assert_eq!(Cred::new(9, 9, vec![], 0).set_id_bits(&locks), 0o6000);
    }
}
