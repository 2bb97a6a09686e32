//! The way out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::rc::Rc;

use console::output::Progress;
use ring::digest::{Context, SHA256 as ALGORITHM};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};
use vfs::{
    Attr, Desc, FileSystem, FileSystemExt, IoOffset, Kind, Node, OpenFlags, UserOut, Whence,
};
use volume::Volume;

use super::{
    ATIME, BLOCK, KIND, LINK_PATH, MTIME, OBJECTS, PATH, PIECE, Pairs, Result, SHA256, SOCKET,
    SPARSE_MAJOR, SPARSE_MINOR, SPARSE_NAME, SPARSE_SIZE, StreamError, StreamTotals, VolumeErrno,
    XATTR, decimal, hexadecimal, of, xattrs_of,
};

/// Sums up what is written.
struct DigestWriter<W> {
    inner: W,
    sum: Rc<RefCell<Context>>,
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(data)?;
        self.sum.borrow_mut().update(&data[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// An export under way.
struct Export<'v, W: Write> {
    volume: &'v Volume,
    archive: Builder<DigestWriter<W>>,
    /// The first names of files that have several.
    named: HashMap<u64, Vec<u8>>,
    counted: StreamTotals,
    progress: Progress,
}

/// Writes the tree below a directory of a volume. What changes meanwhile is told as it was when it
/// was come to.
pub fn export(volume: &Volume, top: Node, out: impl Write) -> Result<StreamTotals> {
    let sum = Rc::new(RefCell::new(Context::new(&ALGORITHM)));
    let summing = DigestWriter { inner: out, sum: Rc::clone(&sum) };
    let (counted, progress) = (StreamTotals::default(), Progress::new("exporting"));
    let archive = Builder::new(summing);
    let mut export = Export { volume, archive, named: HashMap::new(), counted, progress };
    export.object(top, b"./")?;
    let digest = hexadecimal(&sum.borrow().clone().finish());
    let objects = export.counted.objects().to_string();
    let end = [(OBJECTS.into(), objects.into_bytes()), (SHA256.into(), digest.clone().into())];
    export.extended(EntryType::XGlobalHeader, &end)?;
    export.archive.into_inner()?.flush()?;
    Ok(StreamTotals { sha256: digest, ..export.counted })
}

impl<W: Write> Export<'_, W> {
    /// An object, and all below it. A directory's path ends with a slash.
    fn object(&mut self, node: Node, path: &[u8]) -> Result<()> {
        let volume = self.volume;
        let attr = match volume.attributes(node) {
            // Removed since its name was read, as if before.
            Err(Errno::NOENT | Errno::STALE) => return Ok(()),
            attr => attr.map_err(of(path))?,
        };
        if attr.kind != Kind::Directory && attr.nlink > 1 {
            if let Some(first) = self.named.get(&attr.node.ino).cloned() {
                self.counted.links += 1;
                return self.link(&attr, path, &first);
            }
            self.named.insert(attr.node.ino, path.to_vec());
        }
        let mut records = Pairs::new();
        for (name, value) in xattrs_of(volume, node).map_err(of(path))? {
            records.push(([XATTR.as_bytes(), &escaped(&name)].concat(), value));
        }
        self.counted.add(attr.kind);
        match attr.kind {
            Kind::File => self.file(&attr, path, records),
            Kind::Directory => {
                self.member(&attr, path, EntryType::Directory, records, 0, io::empty())?;
                self.below(node, path)
            }
            Kind::Symlink => {
                let mut target = vec![0; 4096];
                let length = volume.read_link(node, &mut target).map_err(of(path))?;
                records.push((LINK_PATH.into(), target[..length].to_vec()));
                self.member(&attr, path, EntryType::Symlink, records, 0, io::empty())
            }
            Kind::CharDevice => self.member(&attr, path, EntryType::Char, records, 0, io::empty()),
            Kind::BlockDevice => {
                self.member(&attr, path, EntryType::Block, records, 0, io::empty())
            }
            Kind::Fifo => self.member(&attr, path, EntryType::Fifo, records, 0, io::empty()),
            Kind::Socket => {
                records.push((KIND.into(), SOCKET.to_vec()));
                self.member(&attr, path, EntryType::Fifo, records, 0, io::empty())
            }
        }
    }

    /// What a directory has in it.
    fn below(&mut self, dir: Node, path: &[u8]) -> Result<()> {
        let mut names = Vec::new();
        self.volume
            .read_dir(dir, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.kind));
                }
                true
            })
            .map_err(of(path))?;
        names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in names {
            let mut below = [path, &name].concat();
            if kind == Kind::Directory {
                below.push(b'/');
            }
            match self.volume.lookup(dir, &name) {
                Err(Errno::NOENT) => {}
                node => self.object(node.map_err(of(&below))?, &below)?,
            }
        }
        Ok(())
    }

    /// A further name of a file.
    fn link(&mut self, attr: &Attr, path: &[u8], first: &[u8]) -> Result<()> {
        let records = vec![(LINK_PATH.into(), first.to_vec())];
        self.member(attr, path, EntryType::Link, records, 0, io::empty())
    }

    fn file(&mut self, attr: &Attr, path: &[u8], mut records: Pairs) -> Result<()> {
        let volume = self.volume;
        let desc = volume.open(attr.node.into(), OpenFlags(libc::O_RDONLY | libc::O_NOATIME), None);
        let file = File { volume, desc: desc.map_err(of(path))? };
        let parts = file.parts(attr.size).map_err(of(path))?;
        let data: u64 = parts.iter().map(|(_, length)| length).sum();
        self.counted.bytes += data;
        let mut map = Vec::new();
        if data < attr.size {
            map = map_of(&parts, attr.size);
            let size = attr.size.to_string().into_bytes();
            for (name, value) in [
                (SPARSE_MAJOR, b"1".to_vec()),
                (SPARSE_MINOR, b"0".to_vec()),
                (SPARSE_NAME, path.to_vec()),
                (SPARSE_SIZE, size),
            ] {
                records.push((name.into(), value));
            }
        }
        let (size, done) = (map.len() as u64 + data, self.counted.bytes);
        let reader = map.as_slice().chain(file.reader(parts));
        let written = self.member(attr, path, EntryType::Regular, records, size, reader);
        written.map_err(|broken| match broken {
            StreamError::Volume(_, errno) => of(path)(errno),
            broken => broken,
        })?;
        self.progress.count(done);
        Ok(())
    }

    /// A member of the archive: its headers, and what it holds.
    fn member(
        &mut self,
        attr: &Attr,
        path: &[u8],
        kind: EntryType,
        mut records: Pairs,
        size: u64,
        data: impl Read,
    ) -> Result<()> {
        records.push((MTIME.into(), decimal(attr.mtime).into_bytes()));
        records.push((ATIME.into(), decimal(attr.atime).into_bytes()));
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(attr.mode);
        header.set_uid(attr.uid.into());
        header.set_gid(attr.gid.into());
        header.set_mtime(attr.mtime.div_euclid(1_000_000_000).try_into().unwrap_or(0));
        header.set_size(size);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(libc::major(attr.rdev))?;
            header.set_device_minor(libc::minor(attr.rdev))?;
        }
        if let Some(ustar) = header.as_ustar_mut() {
            if !fits(&mut ustar.name, path) {
                records.push((PATH.into(), path.to_vec()));
            }
            let link = records.iter().position(|(name, _)| name == LINK_PATH.as_bytes());
            if let Some(link) = link
                && fits(&mut ustar.linkname, &records[link].1)
            {
                records.remove(link);
            }
        }
        header.set_cksum();
        self.extended(EntryType::XHeader, &records)?;
        Ok(self.archive.append(&header, data)?)
    }

    /// An extended header.
    fn extended(&mut self, kind: EntryType, records: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let data: Vec<u8> = records.iter().flat_map(|(name, value)| record(name, value)).collect();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_cksum();
        Ok(self.archive.append(&header, data.as_slice())?)
    }
}

/// A record of an extended header: its length, which counts itself, its name and its value.
fn record(name: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = name.len() + value.len() + 3;
    let mut length = rest;
    while length.to_string().len() + rest != length {
        length = length.to_string().len() + rest;
    }
    [format!("{length} ").as_bytes(), name, b"=", value, b"\n"].concat()
}

/// The name of an attribute within that of a record, which ends at an equals sign; as GNU tar has
/// it.
fn escaped(name: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'=' => b"%3D".to_vec(),
        b'%' => b"%25".to_vec(),
        byte => vec![*byte],
    };
    name.iter().flat_map(escape).collect()
}

/// Puts a text into a field, as far as there is room: whether that is all, and plain.
fn fits(field: &mut [u8], text: &[u8]) -> bool {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
    length == text.len() && text.is_ascii()
}

/// The map of a file with holes, filled up to whole blocks: how many parts, then where each begins
/// and how long it is; the last one is empty, at the file's end.
fn map_of(parts: &[(u64, u64)], size: u64) -> Vec<u8> {
    let line = |(start, length): &(u64, u64)| format!("{start}\n{length}\n");
    let lines: String = parts.iter().map(line).collect();
    let mut map = format!("{}\n{lines}{}", parts.len() + 1, line(&(size, 0))).into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// An open file of the volume.
struct File<'v> {
    volume: &'v Volume,
    desc: Desc,
}

impl<'v> File<'v> {
    /// What is not a hole: where each part begins, and how long it is.
    fn parts(&self, size: u64) -> rustix::io::Result<Vec<(u64, u64)>> {
        let (mut parts, mut offset) = (Vec::new(), 0);
        while offset < size {
            let start = match self.volume.seek(self.desc, offset as i64, Whence::Data) {
                Err(Errno::NXIO) => break,
                start => start?.min(size),
            };
            offset = self.volume.seek(self.desc, start as i64, Whence::Hole)?.min(size);
            if start == offset {
                break;
            }
            parts.push((start, offset - start));
        }
        Ok(parts)
    }

    fn reader(self, parts: Vec<(u64, u64)>) -> Parts<'v> {
        Parts { file: self, next: parts.into_iter(), at: 0, left: 0, piece: Vec::new(), given: 0 }
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        // It was only read: closing it loses nothing.
        let _ = self.volume.close(self.desc);
    }
}

/// Reads the parts of a file one after the other.
struct Parts<'v> {
    file: File<'v>,
    next: std::vec::IntoIter<(u64, u64)>,
    /// Of the part that is read: where, and how much of it is left.
    at: u64,
    left: u64,
    /// What was read and is not given yet.
    piece: Vec<u8>,
    given: usize,
}

impl Parts<'_> {
    /// The next piece: empty behind the last part.
    fn fill(&mut self) -> io::Result<()> {
        while self.left == 0 {
            let Some((at, left)) = self.next.next() else { return Ok(()) };
            (self.at, self.left) = (at, left);
        }
        let wanted = self.left.min(PIECE as u64) as usize;
        self.piece.resize(wanted, 0);
        let out = &mut self.piece[..];
        let volume = self.file.volume;
        let got = volume
            .read(self.file.desc, &mut [UserOut::new(out)], IoOffset::offset(self.at))
            .map_err(|errno| io::Error::other(VolumeErrno(errno)))?;
        // What was cut off meanwhile reads as zeros, so that the member is as long as was said.
        let got = if got == 0 { wanted } else { got };
        self.piece.truncate(got);
        (self.at, self.left, self.given) = (self.at + got as u64, self.left - got as u64, 0);
        Ok(())
    }
}

impl Read for Parts<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.given == self.piece.len() {
            self.piece.clear();
            self.given = 0;
            self.fill()?;
        }
        let length = out.len().min(self.piece.len() - self.given);
        out[..length].copy_from_slice(&self.piece[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::{map_of, record};

    #[test]
    fn a_record_counts_its_own_length() {
        assert_eq!(record(b"a", b"b"), b"6 a=b\n");
        for length in 0..300 {
            let made = record(b"name", &vec![b'x'; length]);
            let told = std::str::from_utf8(&made).unwrap().split(' ').next().unwrap();
            assert_eq!(told.parse(), Ok(made.len()));
        }
    }

    #[test]
    fn a_map_is_whole_blocks() {
        let map = map_of(&[(4096, 8192)], 1 << 20);
        assert_eq!(map.len(), 512);
        assert!(map.starts_with(b"2\n4096\n8192\n1048576\n0\n\0"));
    }
}
