//! Compares a volume, read through the contract, with a model.

use crate::content::{Content, PAGE};
use crate::engine::{Engine, reduce};
use crate::model::{Body, Model, Object, ObjectId, ROOT};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use vfs::{FileSystem, FileSystemExt, IoOffset, Kind, Node, OpenFlags, UserOut, Whence};

/// Files up to this size are read whole; of longer ones the parts that hold data are.
const WHOLE: u64 = 8 << 20;
/// Bytes read by one call, a multiple of the page.
const READ: u64 = 64 << 10;

/// Judges a file's contents: `None` if they are as they may be, else what is wrong.
pub type FileRule<'r> = dyn Fn(ObjectId, &Object, &Content) -> Option<String> + 'r;

/// The contents must be exactly the model's.
#[must_use]
pub fn exactly(_: ObjectId, object: &Object, found: &Content) -> Option<String> {
    let expected = object.content()?;
    if found.size() != expected.size() {
        return Some(format!("size {} instead of {}", found.size(), expected.size()));
    }
    unexplained(object, expected, found)
}

/// The first byte that is neither what is `expected` nor what a store through a mapping has
/// replaced since the last sync, nor what a call may have left that never ended.
#[must_use]
pub fn unexplained(object: &Object, expected: &Content, found: &Content) -> Option<String> {
    let first = expected.first_difference(found)?;
    let at = if object.is_certain() {
        first
    } else {
        let pages: BTreeSet<u64> = expected.page_numbers().chain(found.page_numbers()).collect();
        pages.into_iter().find_map(|page| {
            let [one, two] = [expected, found].map(|content| content.bytes(page * PAGE, PAGE));
            (page * PAGE..).zip(one.iter().zip(&two)).find_map(|(at, (want, have))| {
                (want != have && !object.may_be(at, *have)).then_some(at)
            })
        })?
    };
    let (want, have) = (expected.bytes(at, 8), found.bytes(at, 8));
    Some(format!("bytes at {at:#x} are {have:02x?} instead of {want:02x?}"))
}

/// Compares names, attributes (of times only that they are not too late), extended attributes and
/// contents; `rule` judges the contents of files. Gives what differs first.
pub fn compare(engine: &Engine, model: &Model, rule: &FileRule<'_>) -> Result<(), String> {
    let mut nodes: HashMap<ObjectId, Node> = HashMap::new();
    let mut objects: HashMap<Node, ObjectId> = HashMap::new();
    let fs = engine.file_system();
    let mut left = vec![(String::new(), ROOT, fs.root(), fs.root())];
    while let Some((path, id, node, parent)) = left.pop() {
        let fail = |what: &str, errno: Errno| format!("\"{path}\": {what} gives {errno:?}");
        if *nodes.entry(id).or_insert(node) != node || *objects.entry(node).or_insert(id) != id {
            return Err(format!("\"{path}\": its names lead to different nodes"));
        }
        check_node(engine, model, id, node, rule).map_err(|text| format!("\"{path}\": {text}"))?;
        let Body::Directory { entries, .. } = &model.object(id).body else { continue };
        let up = fs.lookup(node, b"..").map_err(|errno| fail("looking up ..", errno))?;
        if up != parent {
            return Err(format!("\"{path}\": .. is {up:?} instead of {parent:?}"));
        }
        let found = engine.entries(node).map_err(|errno| fail("reading it", errno))?;
        let kind = |id: &ObjectId| model.object(*id).kind.d_type();
        let expected: Vec<_> = entries.iter().map(|(name, id)| (name.clone(), kind(id))).collect();
        if found != expected {
            return Err(format!("\"{path}\": {}", entries_differ(&expected, &found)));
        }
        for (name, &child) in entries {
            let there =
                fs.lookup(node, name).map_err(|errno| fail("looking up an entry", errno))?;
            left.push((format!("{path}/{}", String::from_utf8_lossy(name)), child, there, node));
        }
    }
    Ok(())
}

/// Whether files still have the blocks that calls have asked for beyond their ends.
pub fn has_reserved(engine: &Engine, model: &Model) -> Result<(), String> {
    let mut left = vec![(String::new(), ROOT)];
    while let Some((path, id)) = left.pop() {
        let object = model.object(id);
        if let Body::Directory { entries, .. } = &object.body {
            let below = |(name, &id): (&Vec<u8>, &ObjectId)| {
                (format!("{path}/{}", String::from_utf8_lossy(name)), id)
            };
            left.extend(entries.iter().map(below));
        }
        if object.reserved == 0 {
            continue;
        }
        let attr = engine.resolve(&path).and_then(|node| engine.file_system().attributes(node));
        let blocks = attr.map_err(|errno| format!("\"{path}\": stat gives {errno:?}"))?.blocks;
        if blocks * 512 < object.reserved {
            let of = format!("of {} bytes that were asked for", object.reserved);
            return Err(format!("\"{path}\": {of} {blocks} blocks of 512 are left"));
        }
    }
    Ok(())
}

fn entries_differ(expected: &[(Vec<u8>, u8)], found: &[(Vec<u8>, u8)]) -> String {
    let missing = expected.iter().find(|entry| !found.contains(entry));
    let surplus = found.iter().find(|entry| !expected.contains(entry));
    let told = |entry: Option<&(Vec<u8>, u8)>| {
        entry.map_or("nothing".into(), |(name, kind)| {
            format!("\"{}\" (kind {kind})", String::from_utf8_lossy(name))
        })
    };
    format!("{} is missing, {} is too many", told(missing), told(surplus))
}

fn check_node(
    engine: &Engine,
    model: &Model,
    id: ObjectId,
    node: Node,
    rule: &FileRule<'_>,
) -> Result<(), String> {
    let object = model.object(id);
    let fs = engine.file_system();
    let attr = fs.attributes(node).map_err(|errno| format!("stat gives {errno:?}"))?;
    let mut expected = model.stat(id);
    let found = reduce(&attr);
    if object.kind == Kind::File {
        // The rule judges the size together with the contents.
        expected.size = found.size;
    }
    if found != expected {
        return Err(format!("stat gives {found:?} instead of {expected:?}"));
    }
    if attr.mtime.max(attr.ctime) > engine.latest {
        return Err("its times are later than the crash".into());
    }
    check_xattrs(engine, object, node)?;
    match &object.body {
        Body::File(_) => {
            let like = object.content().cloned().unwrap_or_default();
            let found = read_file(fs, node, &like);
            let found = found.map_err(|errno| format!("reading gives {errno:?}"))?;
            rule(id, object, &found?).map_or(Ok(()), Err)
        }
        Body::Symlink(target) => {
            let mut found = vec![0; 4096];
            let length = fs.read_link(node, &mut found);
            let length = length.map_err(|errno| format!("reading the link gives {errno:?}"))?;
            if found[..length.min(4096)] == **target {
                Ok(())
            } else {
                Err("another target".into())
            }
        }
        _ => Ok(()),
    }
}

fn check_xattrs(engine: &Engine, object: &Object, node: Node) -> Result<(), String> {
    let fs = engine.file_system();
    let fail = |errno: Errno| format!("its extended attributes give {errno:?}");
    let mut list = vec![0; 8192];
    let length = fs.list_xattr(node, &mut list).map_err(fail)?;
    let names = crate::engine::split_names(&list[..length]);
    if !names.iter().eq(object.xattrs.keys()) {
        return Err(format!("{} extended attributes, not {}", names.len(), object.xattrs.len()));
    }
    for (name, expected) in &object.xattrs {
        let mut value = vec![0; 8192];
        let length = fs.get_xattr(node, name, &mut value).map_err(fail)?;
        if value[..length] != **expected {
            return Err(format!("extended attribute {} differs", String::from_utf8_lossy(name)));
        }
    }
    Ok(())
}

/// Reads a file's contents, which share the pages of `like` that are equal. The inner error says
/// how `SEEK_DATA` and `SEEK_HOLE` contradict what is read.
pub fn read_file(
    fs: &dyn FileSystem,
    node: Node,
    like: &Content,
) -> Result<Result<Content, String>, Errno> {
    let mut content = Content::default();
    let mut buffer = vec![0; READ as usize];
    let size = fs.attributes(node)?.size;
    let desc = fs.open(node.into(), OpenFlags(libc::O_RDONLY | libc::O_NOATIME), None)?;
    let mut read = |offset: u64, length: u64| -> Result<(), Errno> {
        let bytes = &mut buffer[..length as usize];
        let done = fs.read(desc, &mut [UserOut::new(bytes)], IoOffset::offset(offset))?;
        if done as u64 != length {
            return Err(Errno::NODATA);
        }
        for (page, index) in bytes.chunks(PAGE as usize).zip(offset / PAGE..) {
            content.write_page(index, page, like);
        }
        Ok(())
    };
    let mut at = 0;
    let mut holes = Vec::new();
    while at < size {
        let data = match fs.seek(desc, at as i64, Whence::Data) {
            Ok(data) => data,
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno),
        };
        if data > at {
            holes.push((at, data));
        }
        if data >= size {
            break;
        }
        let hole = fs.seek(desc, data as i64, Whence::Hole)?;
        if hole <= data {
            return Ok(Err(format!("SEEK_HOLE from {data:#x} gives {hole:#x}")));
        }
        at = hole.min(size);
        if size > WHOLE {
            for offset in (data..at).step_by(READ as usize) {
                read(offset, READ.min(at - offset))?;
            }
        }
    }
    if size <= WHOLE {
        for offset in (0..size).step_by(READ as usize) {
            read(offset, READ.min(size - offset))?;
        }
    }
    content.truncate(size);
    fs.close(desc)?;
    let wrong = holes.into_iter().find(|&(from, to)| size <= WHOLE && !content.is_zero(from, to));
    Ok(match wrong {
        Some((from, to)) => Err(format!("SEEK_DATA calls {from:#x}..{to:#x} a hole")),
        None => Ok(content),
    })
}
