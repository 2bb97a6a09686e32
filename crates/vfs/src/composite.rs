//! Several file systems as one engine: a face that shows more than one speaks to this one.
//!
//! Each node and each description says in the highest bits of its word which *member* it is of
//! ([`Node::member`], [`Desc::member`]); the members themselves know nothing of it. What two nodes
//! or descriptions are about is of one member, or `EXDEV`. The first member's words are its own as
//! they are.
//!
//! No locks, and nothing is kept.

use crate::{
    Attached, Attr, Changing, Desc, DirEntry, Engine, EntryName, Errno, FileRef, FileSystem, Fill,
    ForkTicket, FsStat, IoOffset, Kind, LastName, LockKind, LockOwner, Locks, Mapped, Maps,
    NewNode, Node, NodeOrDesc, Open, OpenFlags, Piece, RecordLock, Removes, RenameFlags, Result,
    SetAttr, Synced, UserIn, UserOut, Wait, WalkOutput, Whence,
};
use std::sync::{Arc, Weak};

/// As many members as a description's word can tell apart.
pub const MEMBERS_MAX: usize = 1 << (Desc::BITS - Desc::MEMBER);

/// Bits of the name by which a description leaves the process.
const NAME_BITS: u32 = 56;

/// That name as [`Attached::adopt`] wants it, where it is a member's.
#[must_use]
pub const fn name_of_member(name: u64, number: usize) -> u64 {
    name | (number as u64) << NAME_BITS
}

/// What separates the members' tokens of an exec.
pub const SEPARATOR: char = '\u{1e}';

/// Bytes that a copy between two members moves at once.
const COPIED: usize = 128 << 10;

/// The members, in the order in which they were given.
pub struct Composite {
    members: Vec<Arc<dyn Engine>>,
}

impl Composite {
    /// `None` unless there is at least one, and no more than [`MEMBERS_MAX`].
    #[must_use]
    pub fn new(members: Vec<Arc<dyn Engine>>) -> Option<Self> {
        if !(1..=MEMBERS_MAX).contains(&members.len()) {
            return None;
        }
        for (number, member) in members.iter().enumerate() {
            let others = members.iter().enumerate().filter(|(other, _)| *other != number);
            let others: Vec<_> = others.map(|(_, other)| Arc::downgrade(other)).collect();
            member.look_beyond(Arc::new(move |own| closes_circle(own, &others)));
        }
        Some(Self { members })
    }

    /// A member by its number. `EBADF`: there is none.
    fn member(&self, number: usize) -> Result<&dyn Engine> {
        self.members.get(number).map(|member| &**member).ok_or(Errno::BADF)
    }

    /// A node's file system, and its name there. `ESTALE`: there is none.
    fn of_node(&self, node: Node) -> Result<(&dyn Engine, Node)> {
        let member = self.member(node.member()).map_err(|_| Errno::STALE)?;
        Ok((member, node.of_member(0)))
    }

    /// A description's, and its name there.
    fn of_desc(&self, desc: Desc) -> Result<(&dyn Engine, Desc)> {
        Ok((self.member(desc.member())?, desc.of_member(0)))
    }

    fn of(&self, of: FileRef) -> Result<(&dyn Engine, FileRef)> {
        Ok(match of.which() {
            NodeOrDesc::Node(node) => {
                let (member, node) = self.of_node(node)?;
                (member, node.into())
            }
            NodeOrDesc::Desc(desc) => {
                let (member, desc) = self.of_desc(desc)?;
                (member, desc.into())
            }
        })
    }

    /// A name's directory. What was found there counts only if it is of the same member.
    fn of_name<'a>(&self, at: &EntryName<'a>) -> Result<(&dyn Engine, EntryName<'a>)> {
        let (member, dir) = self.of_node(at.dir)?;
        let found = at.found.filter(|(node, _)| node.member() == at.dir.member());
        let found = found.map(|(node, kind)| (node.of_member(0), kind));
        Ok((member, EntryName { dir, name: at.name, found }))
    }

    /// The descriptions of each member.
    fn by_member(held: &[Desc]) -> impl Fn(usize) -> Vec<Desc> {
        move |number| {
            let own = held.iter().filter(|desc| desc.member() == number);
            own.map(|desc| desc.of_member(0)).collect()
        }
    }

    /// Runs `call` for each member, also behind one that fails; the first error.
    fn each(&self, mut call: impl FnMut(usize, &dyn Engine) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        for (number, member) in self.members.iter().enumerate() {
            result = result.and(call(number, &**member));
        }
        result
    }
}

/// Whether this process waits, over others, for itself: by the waits of one member, and of others.
fn closes_circle(own: &[Wait], others: &[Weak<dyn Engine>]) -> bool {
    let mut waits = own.to_vec();
    for other in others.iter().filter_map(Weak::upgrade) {
        // One that cannot be read shows no circle; those that wait there look on their own.
        waits.extend(other.waits().unwrap_or_default());
    }
    let me = std::process::id();
    let (mut reached, mut from) = (vec![me], 0);
    while from < reached.len() {
        let at = reached[from];
        for (_, awaited) in waits.iter().filter(|(waiter, _)| *waiter == at) {
            if *awaited == me {
                return true;
            }
            if !reached.contains(awaited) {
                reached.push(*awaited);
            }
        }
        from += 1;
    }
    false
}

/// `EXDEV` unless both are of one member.
fn together(one: usize, other: usize) -> Result<()> {
    if one == other { Ok(()) } else { Err(Errno::XDEV) }
}

impl FileSystem for Composite {
    fn root(&self) -> Node {
        self.members[0].root()
    }

    fn stat_fs(&self, of: FileRef) -> Result<FsStat> {
        let (member, of) = self.of(of)?;
        member.stat_fs(of)
    }

    fn find(&self, from: FileRef, names: &[u8], attr: &mut Attr) -> bool {
        let number = from.member();
        let Ok((member, from)) = self.of(from) else { return false };
        let found = member.find(from, names, attr);
        attr.node = attr.node.of_member(number);
        found
    }

    fn walk(&self, dir: Node, names: &[u8], want: WalkOutput<'_>) -> Result<usize> {
        let number = dir.member();
        let (member, dir) = self.of_node(dir)?;
        match want {
            WalkOutput::Name(node) => {
                let walked = member.walk(dir, names, WalkOutput::Name(node))?;
                *node = node.of_member(number);
                Ok(walked)
            }
            WalkOutput::Directory(node) => {
                let walked = member.walk(dir, names, WalkOutput::Directory(node))?;
                *node = node.of_member(number);
                Ok(walked)
            }
            WalkOutput::Change(last) => {
                let walked = member.walk(dir, names, WalkOutput::Change(last))?;
                let LastName { dir, attr } = last;
                *dir = dir.of_member(number);
                if let Some(attr) = attr {
                    attr.node = attr.node.of_member(number);
                }
                Ok(walked)
            }
        }
    }

    fn attr(&self, of: FileRef, attr: &mut Attr) -> Result<()> {
        let number = of.member();
        let (member, of) = self.of(of)?;
        member.attr(of, attr)?;
        attr.node = attr.node.of_member(number);
        Ok(())
    }

    fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()> {
        let (member, node) = self.of_node(node)?;
        member.set_attr(node, change)
    }

    fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        let (member, node) = self.of_node(node)?;
        member.read_link(node, out)
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node> {
        let (member, own) = self.of_node(dir)?;
        Ok(member.create(own, name, new)?.of_member(dir.member()))
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        together(node.member(), dir.member())?;
        let (member, node) = self.of_node(node)?;
        member.link(node, dir.of_member(0), name)
    }

    fn remove(&self, at: &EntryName<'_>, what: Removes) -> Result<()> {
        let (member, at) = self.of_name(at)?;
        member.remove(&at, what)
    }

    fn rename(&self, from: &EntryName<'_>, to: &EntryName<'_>, flags: RenameFlags) -> Result<()> {
        together(from.dir.member(), to.dir.member())?;
        let (member, from) = self.of_name(from)?;
        let (_, to) = self.of_name(to)?;
        member.rename(&from, &to, flags)
    }

    fn read_dir(
        &self,
        dir: Node,
        cookie: i64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let (member, dir) = self.of_node(dir)?;
        member.read_dir(dir, cookie, each)
    }

    fn get_xattr(&self, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let (member, node) = self.of_node(node)?;
        member.get_xattr(node, name, out)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let (member, node) = self.of_node(node)?;
        member.set_xattr(node, name, value, flags)
    }

    fn list_xattr(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        let (member, node) = self.of_node(node)?;
        member.list_xattr(node, out)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        let (member, node) = self.of_node(node)?;
        member.remove_xattr(node, name)
    }

    fn open(&self, what: Open<'_>, flags: OpenFlags, place: Option<Node>) -> Result<Desc> {
        let number = match what {
            Open::Node(node, _) | Open::Unnamed(node, _) => node.member(),
            Open::New(at, _) => at.dir.member(),
        };
        let place = place.filter(|dir| dir.member() == number).map(|dir| dir.of_member(0));
        let member = self.member(number).map_err(|_| Errno::STALE)?;
        let opened = match what {
            Open::Node(node, kind) => {
                member.open(Open::Node(node.of_member(0), kind), flags, place)
            }
            Open::New(at, new) => member.open(Open::New(&self.of_name(at)?.1, new), flags, place),
            Open::Unnamed(dir, new) => {
                member.open(Open::Unnamed(dir.of_member(0), new), flags, place)
            }
        };
        Ok(opened?.of_member(number))
    }

    fn close(&self, desc: Desc) -> Result<()> {
        let (member, desc) = self.of_desc(desc)?;
        member.close(desc)
    }

    fn place(&self, desc: Desc) -> Result<Node> {
        let (member, own) = self.of_desc(desc)?;
        Ok(member.place(own)?.of_member(desc.member()))
    }

    fn describe(&self, desc: Desc) -> Result<(Node, OpenFlags)> {
        let (member, own) = self.of_desc(desc)?;
        let (node, flags) = member.describe(own)?;
        Ok((node.of_member(desc.member()), flags))
    }

    fn set_flags(&self, desc: Desc, flags: OpenFlags) -> Result<()> {
        let (member, desc) = self.of_desc(desc)?;
        member.set_flags(desc, flags)
    }

    fn read(&self, desc: Desc, out: &mut [UserOut<'_>], at: IoOffset) -> Result<usize> {
        let (member, desc) = self.of_desc(desc)?;
        member.read(desc, out, at)
    }

    fn write(&self, desc: Desc, data: &[UserIn<'_>], at: IoOffset) -> Result<usize> {
        let (member, desc) = self.of_desc(desc)?;
        member.write(desc, data, at)
    }

    fn seek(&self, desc: Desc, offset: i64, whence: Whence) -> Result<u64> {
        let (member, desc) = self.of_desc(desc)?;
        member.seek(desc, offset, whence)
    }

    fn on_privileged_change(&self, act: fn(&dyn FileSystem, Node) -> Result<()>) {
        for member in &self.members {
            member.on_privileged_change(act);
        }
    }

    fn sync(&self, what: Synced) -> Result<()> {
        let (member, what) = match what {
            Synced::All => return self.each(|_, member| member.sync(Synced::All)),
            Synced::File(desc) => {
                let (member, desc) = self.of_desc(desc)?;
                (member, Synced::File(desc))
            }
            Synced::Data(desc) => {
                let (member, desc) = self.of_desc(desc)?;
                (member, Synced::Data(desc))
            }
            Synced::Range { desc, offset, length } => {
                let (member, desc) = self.of_desc(desc)?;
                (member, Synced::Range { desc, offset, length })
            }
        };
        member.sync(what)
    }

    fn truncate(&self, node: Node, size: u64) -> Result<()> {
        let (member, node) = self.of_node(node)?;
        member.truncate(node, size)
    }

    fn allocate(&self, desc: Desc, mode: u32, offset: u64, length: u64) -> Result<()> {
        let (member, desc) = self.of_desc(desc)?;
        member.allocate(desc, mode, offset, length)
    }

    fn copy_range(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (source, own) = self.of_desc(from)?;
        let (target, other) = self.of_desc(to)?;
        if from.member() == to.member() {
            return source.copy_range(own, from_offset, other, to_offset, length);
        }
        copy_between((source, own, from_offset), (target, other, to_offset), length)
    }

    fn relink(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        together(from.member(), to.member())?;
        let (member, from) = self.of_desc(from)?;
        member.relink(from, from_offset, to.of_member(0), to_offset, length)
    }

    fn watch(&self, node: Node, mask: u32) -> Result<Vec<u8>> {
        let (member, node) = self.of_node(node)?;
        member.watch(node, mask)
    }

    fn is_written(&self, node: Node) -> Result<bool> {
        let (member, node) = self.of_node(node)?;
        member.is_written(node)
    }

    fn is_executed(&self, node: Node) -> Result<bool> {
        let (member, node) = self.of_node(node)?;
        member.is_executed(node)
    }
}

/// Copies bytes from one member's file to another's, through memory. What was copied before an
/// error counts.
fn copy_between(
    (source, from, from_offset): (&dyn Engine, Desc, u64),
    (target, to, to_offset): (&dyn Engine, Desc, u64),
    length: u64,
) -> Result<u64> {
    if target.describe(to)?.1.appends() {
        return Err(Errno::BADF);
    }
    let mut buffer = vec![0; COPIED.min(usize::try_from(length).unwrap_or(COPIED))];
    let mut done = 0;
    while done < length {
        let most = buffer.len().min(usize::try_from(length - done).unwrap_or(COPIED));
        let mut copy = || {
            let room = &mut [UserOut::new(&mut buffer[..most])];
            let read = source.read(from, room, IoOffset::offset(from_offset + done))?;
            if read == 0 {
                return Ok(0);
            }
            target.write(to, &[UserIn::new(&buffer[..read])], IoOffset::offset(to_offset + done))
        };
        match copy() {
            Ok(0) => break,
            Ok(written) => done += written as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl Maps for Composite {
    fn map(&self, desc: Desc, range: (u64, u64), mapped: Mapped, fill: Fill) -> Result<Vec<Piece>> {
        let (member, desc) = self.of_desc(desc)?;
        member.map(desc, range, mapped, fill)
    }

    fn region_descriptor(&self, of: FileRef) -> (i32, Changing) {
        self.of(of).map_or((-1, Changing::Nowhere), |(member, of)| member.region_descriptor(of))
    }

    fn region_address(&self, of: FileRef) -> usize {
        self.of(of).map_or(0, |(member, of)| member.region_address(of))
    }

    fn can_map(&self, of: FileRef) -> (usize, bool) {
        self.of(of).map_or((0, false), |(member, of)| member.can_map(of))
    }

    fn vacate(&self, number: i32, replace: &mut dyn FnMut() -> Result<()>) -> Result<i32> {
        for member in &self.members {
            match member.vacate(number, replace) {
                Err(Errno::BADF) => {}
                vacated => return vacated,
            }
        }
        Err(Errno::BADF)
    }
}

impl Locks for Composite {
    fn record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
        wait: bool,
    ) -> Result<()> {
        let (member, desc) = self.of_desc(desc)?;
        member.record_lock(desc, owner, lock, wait)
    }

    fn test_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
    ) -> Result<Option<RecordLock>> {
        let (member, desc) = self.of_desc(desc)?;
        member.test_lock(desc, owner, lock)
    }

    fn release_locks(&self, of: FileRef) -> Result<()> {
        let (member, of) = self.of(of)?;
        member.release_locks(of)
    }

    fn flock(&self, desc: Desc, kind: LockKind, wait: bool) -> Result<()> {
        let (member, desc) = self.of_desc(desc)?;
        member.flock(desc, kind, wait)
    }
}

impl Attached for Composite {
    fn hand_over(&self, desc: Desc) -> Result<(u64, Kind)> {
        let (member, desc) = self.of_desc(desc)?;
        member.hand_over(desc)
    }

    fn adopt(&self, name: u64) -> Result<Desc> {
        let number = (name >> NAME_BITS) as usize;
        let own = name & ((1 << NAME_BITS) - 1);
        Ok(self.member(number)?.adopt(own)?.of_member(number))
    }

    fn execute(&self, before: Option<Node>, now: Option<Node>) -> Result<()> {
        let own = |node: Option<Node>, number: usize| {
            node.filter(|node| node.member() == number).map(|node| node.of_member(0))
        };
        self.each(|number, member| match (own(before, number), own(now, number)) {
            (None, None) => Ok(()),
            (before, now) => member.execute(before, now),
        })
    }

    fn host_execution(&self, node: Node, begins: bool) -> Result<()> {
        let (member, node) = self.of_node(node)?;
        member.host_execution(node, begins)
    }

    fn fork_prepare(&self, held: &[Desc]) -> Result<ForkTicket> {
        let own = Self::by_member(held);
        let mut ticket = ForkTicket::new(0);
        for (number, member) in self.members.iter().enumerate() {
            match member.fork_prepare(&own(number)) {
                Ok(prepared) => ticket.put(number, prepared),
                Err(errno) => {
                    self.fork_failed(ticket, number);
                    return Err(errno);
                }
            }
        }
        Ok(ticket)
    }

    fn fork_parent(&self, ticket: ForkTicket, child: Option<u32>) {
        for (number, member) in self.members.iter().enumerate() {
            member.fork_parent(ticket.of_member(number), child);
        }
    }

    fn fork_child(&self, ticket: ForkTicket) -> Result<()> {
        self.each(|number, member| member.fork_child(ticket.of_member(number)))
    }

    fn may_fork_apart(&self) -> bool {
        self.members.iter().all(|member| member.may_fork_apart())
    }

    fn fork_apart(&self) {
        self.members.iter().for_each(|member| member.fork_apart());
    }

    fn home(&self) -> Option<u32> {
        self.members.iter().find_map(|member| member.home())
    }

    fn fork_unprepared(&self, held: &mut Vec<Desc>) -> Result<()> {
        let own = Self::by_member(held);
        let mut kept = Vec::new();
        let result = self.each(|number, member| {
            let mut held = own(number);
            member.fork_unprepared(&mut held)?;
            kept.extend(held.into_iter().map(|desc| desc.of_member(number)));
            Ok(())
        });
        drop(own);
        *held = kept;
        result
    }

    fn exec_prepare(&self) -> Result<String> {
        let mut tokens = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            match member.exec_prepare() {
                Ok(token) if !token.contains(SEPARATOR) => tokens.push(token),
                other => {
                    self.members[..=number].iter().for_each(|member| member.exec_failed());
                    return Err(other.err().unwrap_or(Errno::INVAL));
                }
            }
        }
        Ok(tokens.join(&SEPARATOR.to_string()))
    }

    fn exec_failed(&self) {
        self.members.iter().for_each(|member| member.exec_failed());
    }

    fn detach(&self) -> Result<()> {
        self.each(|_, member| member.detach())
    }
}

impl Composite {
    /// Of the first `prepared` members a place was taken for a child that there will not be.
    fn fork_failed(&self, ticket: ForkTicket, prepared: usize) {
        for (number, member) in self.members.iter().enumerate().take(prepared) {
            member.fork_parent(ticket.of_member(number), None);
        }
    }
}
