//! The way in. All of it goes into a directory beside its place first, and from there to its place
//! when the stream has ended as it must: of a torn one nothing is left.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use console::output::Progress;
use ring::digest::{Context, SHA256 as ALGORITHM};
use rustix::io::Errno;
use tar::{Archive, EntryType, Header};
use vfs::{
    Desc, EntryName, FileSystem, FileSystemExt, IoOffset, Kind, Locks, NewNode, Node, OpenFlags,
    Removes, RenameFlags, SetAttr, Synced, UserIn,
};
use volume::Volume;

use super::{
    ATIME, BLOCK, KIND, LINK_PATH, MTIME, OBJECTS, PATH, PIECE, Pairs, Result, SHA256, SOCKET,
    SPARSE_MAJOR, SPARSE_MINOR, SPARSE_NAME, SPARSE_SIZE, StreamError, StreamTotals, XATTR,
    hexadecimal, of, of_decimal,
};

/// Where a stream is put until it has ended.
const STAGED: &[u8] = b".solera-import";

/// Sums up what is read, the last block apart: when the header of the end has been read, that is
/// all before it. Before its end a stream does not end.
struct DigestReader<R> {
    inner: R,
    sum: Rc<RefCell<Context>>,
    last: Vec<u8>,
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(out)?;
        if length == 0 && !out.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.last.extend_from_slice(&out[..length]);
        let over = self.last.len().saturating_sub(BLOCK);
        self.sum.borrow_mut().update(&self.last[..over]);
        self.last.drain(..over);
        Ok(length)
    }
}

/// What the records of an extended header say of the object behind it.
#[derive(Default)]
struct PaxRecords {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    mtime: Option<i64>,
    atime: Option<i64>,
    xattrs: Pairs,
    /// The size of a file with holes.
    size: Option<u64>,
    is_socket: bool,
}

/// What is to be done to a directory when all is in it.
struct PendingDirectory {
    node: Node,
    path: Vec<u8>,
    change: SetAttr,
}

/// An import under way.
struct Import<'v> {
    volume: &'v Volume,
    /// The directory that all is staged in.
    staged: Node,
    directories: Vec<PendingDirectory>,
    /// Of the directory itself, and its extended attributes.
    top: Option<(SetAttr, Pairs)>,
    counted: StreamTotals,
    progress: Progress,
}

/// Reads a stream into a directory of a volume. If that was empty it also gets the attributes of
/// the one that was exported.
pub fn import(volume: &Volume, into: Node, stream: impl Read) -> Result<StreamTotals> {
    let (staged, lock) = stage(volume, into)?;
    let imported = fill(volume, (into, staged), stream);
    if imported.is_err() {
        // The failure counts; what is left of it the next import removes.
        let _ = remove(volume, into, STAGED);
    }
    // Its lock goes with it.
    let _ = volume.close(lock);
    imported
}

/// Makes the directory, and locks it; what a killed import had left goes.
fn stage(volume: &Volume, into: Node) -> Result<(Node, Desc)> {
    loop {
        let made = volume.create(into, STAGED, &new_node(Kind::Directory, 0o700, (0, 0)));
        let node = match made {
            Err(Errno::EXIST) => volume.lookup(into, STAGED).map_err(of(STAGED))?,
            made => made.map_err(of(STAGED))?,
        };
        let flags = OpenFlags(libc::O_RDONLY | libc::O_DIRECTORY);
        let desc = volume.open(node.into(), flags, None).map_err(of(STAGED))?;
        if volume.flock(desc, vfs::LockKind::Write, false).is_err() {
            let _ = volume.close(desc);
            let text = "another import into this directory is under way";
            return Err(StreamError::Wrong(text.into()));
        }
        if made.is_ok() {
            return Ok((node, desc));
        }
        let removed = remove(volume, into, STAGED);
        let _ = volume.close(desc);
        removed.map_err(of(STAGED))?;
    }
}

fn fill(volume: &Volume, (into, staged): (Node, Node), stream: impl Read) -> Result<StreamTotals> {
    let was_empty = names(volume, into).map_err(of(b"."))?.len() == 1;
    let sum = Rc::new(RefCell::new(Context::new(&ALGORITHM)));
    let summing = DigestReader { inner: stream, sum: Rc::clone(&sum), last: Vec::new() };
    let (counted, progress) = (StreamTotals::default(), Progress::new("importing"));
    let directories = Vec::new();
    let mut import = Import { volume, staged, directories, top: None, counted, progress };
    let mut archive = Archive::new(summing);
    let mut told = PaxRecords::default();
    let mut last = None;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry.map_err(torn)?;
        let header = entry.header().clone();
        match header.entry_type() {
            EntryType::XHeader => told = told_by(&records(&mut entry)?)?,
            EntryType::XGlobalHeader => {
                let found = hexadecimal(&sum.borrow().clone().finish());
                import.ends(&records(&mut entry)?, found)?;
                last = Some(header.size()?);
                break;
            }
            kind => import.object(kind, &header, std::mem::take(&mut told), &mut entry)?,
        }
    }
    let Some(length) = last else { return Err(StreamError::Wrong(TORN.into())) };
    only_zeros(&mut archive.into_inner().inner, length)?;
    import.arrive(into, was_empty)?;
    Ok(import.counted)
}

/// What follows an end with so many bytes of records: zeros up to the next block, two blocks of
/// them, and as many more as a program in between has put there to fill its own blocks.
fn only_zeros(stream: &mut impl Read, length: u64) -> Result<()> {
    let mut wanted = length.wrapping_neg() as usize % BLOCK + 2 * BLOCK;
    let mut bytes = [0; 16 * BLOCK];
    loop {
        let came = match stream.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            came => came?,
        };
        if bytes[..came].iter().any(|byte| *byte != 0) {
            return Err(StreamError::Wrong("something follows the end of the stream".into()));
        }
        if came == 0 {
            return if wanted == 0 { Ok(()) } else { Err(StreamError::Wrong(TORN.into())) };
        }
        wanted = wanted.saturating_sub(came);
    }
}

impl Import<'_> {
    /// The end of a stream says what it must be.
    fn ends(&mut self, records: &[(Vec<u8>, Vec<u8>)], found: String) -> Result<()> {
        let value = |wanted: &str| {
            let mut found = records.iter().filter(|(name, _)| name == wanted.as_bytes());
            found.next().map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let (objects, sum) = (value(OBJECTS), value(SHA256));
        let lacks = |what| StreamError::Wrong(format!("the end in it does not say {what}"));
        let (left, came) = (number_of(&objects), self.counted.objects());
        let left = left.ok_or_else(|| lacks("how many objects it has (SOLERA.objects)"))?;
        if left != came {
            return Err(StreamError::Wrong(format!("{came} objects came, {left} had left")));
        }
        if sum.is_empty() {
            return Err(lacks("the sum of its bytes (SOLERA.sha256)"));
        }
        if sum != found.as_bytes() {
            let told = String::from_utf8_lossy(&sum);
            let text = format!("its bytes have the SHA-256 {found}, at its end stands {told}");
            return Err(StreamError::Wrong(text));
        }
        self.counted.sha256 = found;
        Ok(())
    }

    /// Makes an object.
    fn object(
        &mut self,
        kind: EntryType,
        header: &Header,
        told: PaxRecords,
        data: &mut impl Read,
    ) -> Result<()> {
        let path = told.path.clone().unwrap_or_else(|| header.path_bytes().into_owned());
        let link = told.link.clone();
        let link = link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let kind = match kind {
            EntryType::Regular => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink,
            EntryType::Char => Kind::CharDevice,
            EntryType::Block => Kind::BlockDevice,
            EntryType::Fifo if told.is_socket => Kind::Socket,
            EntryType::Fifo => Kind::Fifo,
            EntryType::Link => {
                let first = self.find(&link.unwrap_or_default())?;
                let (dir, name) = self.parent(&path)?;
                self.volume.link(first, dir, &name).map_err(of(&path))?;
                self.counted.links += 1;
                return Ok(());
            }
            _ => return Err(unknown("an object", &path)),
        };
        let owner = (header.uid()? as u32, header.gid()? as u32);
        let change = SetAttr {
            // Anew: a change of the owner takes the set-id bits.
            mode: (kind != Kind::Symlink).then_some(header.mode()? & 0o7777),
            atime: told.atime,
            mtime: told.mtime,
            ..SetAttr::default()
        };
        self.counted.add(kind);
        if path == b"./" {
            let change = SetAttr { uid: Some(owner.0), gid: Some(owner.1), ..change };
            self.top = Some((change, told.xattrs));
            return Ok(());
        }
        let (dir, name) = self.parent(&path)?;
        let rdev = match kind {
            Kind::CharDevice | Kind::BlockDevice => libc::makedev(
                header.device_major()?.unwrap_or(0),
                header.device_minor()?.unwrap_or(0),
            ),
            _ => 0,
        };
        let target = link.unwrap_or_default();
        let new = NewNode {
            rdev,
            target: if kind == Kind::Symlink { &target } else { b"" },
            ..new_node(kind, header.mode()? & 0o7777, owner)
        };
        let node = self.volume.create(dir, &name, &new).map_err(of(&path))?;
        if kind == Kind::File {
            let sizes = (header.size()?, told.size);
            let filled = self.data(node, sizes, data);
            filled.map_err(|broken| match broken {
                StreamError::Volume(_, errno) => of(&path)(errno),
                broken => broken,
            })?;
        }
        for (name, value) in &told.xattrs {
            self.volume.set_xattr(node, name, value, 0).map_err(of(&path))?;
        }
        if kind == Kind::Directory {
            self.directories.push(PendingDirectory { node, path, change });
            return Ok(());
        }
        self.volume.set_attr(node, &change).map_err(of(&path))
    }

    /// Fills a file: so many bytes of the stream, for a file of a size if it has holes.
    fn data(&mut self, node: Node, sizes: (u64, Option<u64>), data: &mut impl Read) -> Result<()> {
        let volume = self.volume;
        let failed = |errno| StreamError::Volume(Vec::new(), errno);
        let desc = volume.open(node.into(), OpenFlags(libc::O_WRONLY), None).map_err(failed)?;
        let filled = self.fill(desc, sizes, data).and_then(|size| {
            if volume.attributes(node).map_err(failed)?.size != size {
                volume.truncate(node, size).map_err(failed)?;
            }
            volume.sync(Synced::File(desc)).map_err(failed)
        });
        // What was written was synced.
        let _ = volume.close(desc);
        filled
    }

    fn fill(
        &mut self,
        desc: Desc,
        (length, size): (u64, Option<u64>),
        data: &mut impl Read,
    ) -> Result<u64> {
        let (parts, size) = match size {
            None => (vec![(0, length)], length),
            Some(size) => (map_from(data, length, size)?, size),
        };
        let mut piece = vec![0; PIECE];
        for (start, length) in parts {
            let (mut at, mut left) = (start, length);
            while left > 0 {
                let wanted = left.min(PIECE as u64) as usize;
                data.read_exact(&mut piece[..wanted]).map_err(torn)?;
                let mut rest = &piece[..wanted];
                while !rest.is_empty() {
                    let written =
                        self.volume.write(desc, &[UserIn::new(rest)], IoOffset::offset(at));
                    let written =
                        written.map_err(|errno| StreamError::Volume(Vec::new(), errno))?;
                    rest = &rest[written..];
                    at += written as u64;
                }
                left -= wanted as u64;
                self.counted.bytes += wanted as u64;
                self.progress.count(self.counted.bytes);
            }
        }
        Ok(size)
    }

    /// The directory that a path leads to but for its last name, below the staged one. No symlink
    /// is followed.
    fn parent(&self, path: &[u8]) -> Result<(Node, Vec<u8>)> {
        let mut names = names_of(path)?;
        let Some(name) = names.pop() else { return Err(unknown("a path", path)) };
        let mut node = self.staged;
        for name in names {
            node = self.volume.lookup(node, name).map_err(of(path))?;
        }
        Ok((node, name.to_vec()))
    }

    fn find(&self, path: &[u8]) -> Result<Node> {
        let (dir, name) = self.parent(path)?;
        self.volume.lookup(dir, &name).map_err(of(path))
    }

    /// All has come: it goes to its place.
    fn arrive(&mut self, into: Node, was_empty: bool) -> Result<()> {
        let volume = self.volume;
        for dir in self.directories.drain(..).rev() {
            volume.set_attr(dir.node, &dir.change).map_err(of(&dir.path))?;
        }
        let staged = names(volume, self.staged).map_err(of(STAGED))?;
        for name in &staged {
            match volume.lookup(into, name) {
                Err(Errno::NOENT) => {}
                found => {
                    found.map_err(of(name))?;
                    return Err(StreamError::Volume(name.clone(), Errno::EXIST));
                }
            }
        }
        for name in &staged {
            let flags = RenameFlags::new(libc::RENAME_NOREPLACE);
            let (from, to) = (EntryName::new(self.staged, name), EntryName::new(into, name));
            volume.rename(&from, &to, flags).map_err(of(name))?;
        }
        volume.remove(&EntryName::new(into, STAGED), Removes::Directory).map_err(of(STAGED))?;
        if let Some((change, xattrs)) = self.top.take().filter(|_| was_empty) {
            for (name, value) in &xattrs {
                volume.set_xattr(into, name, value, 0).map_err(of(b"./"))?;
            }
            volume.set_attr(into, &change).map_err(of(b"./"))?;
        }
        volume.sync(Synced::All).map_err(of(b"./"))
    }
}

/// What records say; of one that is not known nothing is lost.
fn told_by(records: &[(Vec<u8>, Vec<u8>)]) -> Result<PaxRecords> {
    let mut told = PaxRecords::default();
    for (name, value) in records {
        let number = || number_of(value).ok_or_else(|| unknown("a number", value));
        let time = || of_decimal(value).ok_or_else(|| unknown("a time", value));
        match std::str::from_utf8(name).unwrap_or_default() {
            PATH | SPARSE_NAME => told.path = Some(value.clone()),
            LINK_PATH => told.link = Some(value.clone()),
            MTIME => told.mtime = Some(time()?),
            ATIME => told.atime = Some(time()?),
            SPARSE_SIZE => told.size = Some(number()?),
            SPARSE_MAJOR if value == b"1" => {}
            SPARSE_MINOR if value == b"0" => {}
            KIND if value == SOCKET => told.is_socket = true,
            _ => match name.strip_prefix(XATTR.as_bytes()) {
                Some(name) => told.xattrs.push((plain(name), value.clone())),
                None => return Err(unknown("a record", name)),
            },
        }
    }
    Ok(told)
}

fn new_node(kind: Kind, mode: u32, (uid, gid): (u32, u32)) -> NewNode<'static> {
    NewNode { kind, mode, uid, gid, rdev: 0, target: b"" }
}

/// The names in a directory.
fn names(volume: &Volume, dir: Node) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    volume.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    Ok(names)
}

/// Removes a name with all below it.
fn remove(volume: &Volume, dir: Node, name: &[u8]) -> rustix::io::Result<()> {
    let node = volume.lookup(dir, name)?;
    let what = if volume.attributes(node)?.kind == Kind::Directory {
        for name in names(volume, node)? {
            remove(volume, node, &name)?;
        }
        Removes::Directory
    } else {
        Removes::Name
    };
    volume.remove(&EntryName::new(dir, name), what)
}

/// The names of a path, which leads nowhere else than below its beginning.
fn names_of(path: &[u8]) -> Result<Vec<&[u8]>> {
    let below = path.strip_prefix(b"./").ok_or_else(|| unknown("a path", path))?;
    let below = below.strip_suffix(b"/").unwrap_or(below);
    let names: Vec<&[u8]> = below.split(|byte| *byte == b'/').collect();
    if names.iter().any(|name| matches!(*name, b"" | b"." | b"..")) {
        return Err(unknown("a path", path));
    }
    Ok(names)
}

fn number_of(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The name of an attribute as it is.
fn plain(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = name;
    while let Some((byte, behind)) = rest.split_first() {
        let (byte, behind) = match rest.get(..3) {
            Some(b"%3D") => (b'=', &rest[3..]),
            Some(b"%25") => (b'%', &rest[3..]),
            _ => (*byte, behind),
        };
        plain.push(byte);
        rest = behind;
    }
    plain
}

/// The largest extended header: one attribute of 64 KiB, and names.
const RECORDS: u64 = 1 << 20;

/// The records of an extended header.
fn records(data: &mut impl Read) -> Result<Pairs> {
    let mut bytes = Vec::new();
    data.take(RECORDS).read_to_end(&mut bytes).map_err(torn)?;
    let mut found = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let wrong = || unknown("a record", &rest[..rest.len().min(64)]);
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let length = number_of(&rest[..space]).ok_or_else(wrong)?;
        let record = usize::try_from(length).ok().filter(|length| *length > space + 1);
        let record = record.and_then(|length| rest.get(..length)).ok_or_else(wrong)?;
        let text = record[space + 1..].strip_suffix(b"\n").ok_or_else(wrong)?;
        let equals = text.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        found.push((text[..equals].to_vec(), text[equals + 1..].to_vec()));
        rest = &rest[record.len()..];
    }
    Ok(found)
}

/// The map of a file with holes, before its data: where each part begins, and how long it is.
fn map_from(data: &mut impl Read, length: u64, size: u64) -> Result<Vec<(u64, u64)>> {
    let wrong = || StreamError::Wrong("the map of a file with holes is wrong".into());
    let mut block = [0; BLOCK];
    let (mut numbers, mut digits, mut blocks) = (Vec::new(), Vec::new(), 0);
    while numbers.first().is_none_or(|parts: &u64| numbers.len() as u64 <= parts.saturating_mul(2))
    {
        blocks += 1;
        if blocks * BLOCK as u64 > length {
            return Err(wrong());
        }
        data.read_exact(&mut block).map_err(torn)?;
        for byte in block {
            match byte {
                b'\n' => numbers.push(number_of(&std::mem::take(&mut digits)).ok_or_else(wrong)?),
                b'0'..=b'9' if digits.len() < 20 => digits.push(byte),
                0 => {}
                _ => return Err(wrong()),
            }
        }
    }
    let parts: Vec<(u64, u64)> = numbers[1..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let mut end = 0;
    for (start, length) in &parts {
        let next = start.checked_add(*length).filter(|next| *start >= end && *next <= size);
        end = next.ok_or_else(wrong)?;
    }
    let bytes: u64 = parts.iter().map(|(_, length)| length).sum();
    if bytes.saturating_add(blocks * BLOCK as u64) != length {
        return Err(wrong());
    }
    Ok(parts)
}

/// What is wrong with a stream that ends too early.
const TORN: &str = "it ends before its end: a part is missing";

/// A stream that ends before its end.
fn torn(error: io::Error) -> StreamError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => StreamError::Wrong(TORN.into()),
        _ => error.into(),
    }
}

fn unknown(what: &str, bytes: &[u8]) -> StreamError {
    let found = String::from_utf8_lossy(bytes);
    StreamError::Wrong(format!("{what} in it is none of `solera export`: {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::{map_from, names_of, plain, records};

    #[test]
    fn paths_lead_below() {
        assert_eq!(names_of(b"./a/b/").ok(), Some(vec![&b"a"[..], b"b"]));
        for wrong in [&b"a"[..], b"/a", b"./", b"./a//b", b"./../a", b"./a/..", b"./a/./b", b""] {
            assert!(names_of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn records_are_as_long_as_they_say() {
        let found = records(&mut &b"8 a=b\n\n\n6 c=d\n"[..]);
        assert_eq!(
            found.ok(),
            Some(vec![(b"a".to_vec(), b"b\n\n".to_vec()), (b"c".into(), b"d".into())])
        );
        for wrong in
            [&b"7 a=b\n"[..], b"6 a=bb", b"5 ab\n", b"a=b\n", b"2 \n", b"99999999999999999999999 a"]
        {
            assert!(records(&mut &wrong[..]).is_err(), "{wrong:?}");
        }
        assert_eq!(plain(b"user.a%3Db%25%2"), b"user.a=b%%2");
    }

    #[test]
    fn maps_are_checked() {
        let map = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(512, 0);
            bytes
        };
        let found = map_from(&mut &map("2\n4096\n8\n8192\n0\n")[..], 520, 8192);
        assert_eq!(found.ok(), Some(vec![(4096, 8), (8192, 0)]));
        for wrong in [
            "",
            "2\n0\n8\n",
            "1\n8190\n8\n",
            "2\n8\n8\n0\n0\n",
            "1\n0\n9\n",
            "x",
            "99999999999999999999\n",
        ] {
            assert!(map_from(&mut &map(wrong)[..], 520, 8192).is_err(), "{wrong:?}");
        }
    }
}
