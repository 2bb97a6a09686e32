//! `solera cp`: into, out of and between volumes.
//!
//! A copy keeps permissions, times and holes; symlinks inside a directory are copied as symlinks,
//! one that is named on the command line is followed unless `-r` is given, as cp does.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;
use vfs::Kind;

use crate::args::CpArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Progress;
use crate::place::{Place, base_name, display, join};
use crate::tree::{KernelTree, Meta, Tree, VolumeTree};

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Each volume that the command line names, attached once.
struct Trees(BTreeMap<PathBuf, VolumeTree>);

/// A place with the tree it lies in.
struct Located<'t> {
    tree: &'t dyn Tree,
    path: Vec<u8>,
    /// The volume, to tell whether two places lie in one tree.
    volume: Option<PathBuf>,
}

/// Copies all sources to the last place.
pub fn run(args: &CpArgs) -> Outcome {
    let places: Vec<Place> = args.places.iter().map(|text| Place::parse(text)).collect();
    let trees = Trees::attach(&places)?;
    let Some((to, from)) = places.split_last() else { return Ok(0) };
    let to = trees.locate(to);
    let into_dir = match to.tree.meta(&to.path, true) {
        Ok(meta) => meta.kind == Kind::Directory,
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(Failure::errno(format!("copy to {}", display(&to.path)), errno)),
    };
    if from.len() > 1 && !into_dir {
        return Err(Failure::new(
            format!("copy {} things to {}", from.len(), display(&to.path)),
            "this is no directory",
            "make it first, or copy one at a time",
        ));
    }
    let mut told = Told::new(&trees, from, args.recursive);
    for place in from {
        let from = trees.locate(place);
        let path = match base_name(&from.path) {
            name if into_dir && !name.is_empty() => join(&to.path, name),
            _ => to.path.clone(),
        };
        let to = Located { tree: to.tree, path, volume: to.volume.clone() };
        copy_one(&from, &to, args.recursive, &mut told)?;
    }
    Ok(0)
}

impl Trees {
    fn attach(places: &[Place]) -> Result<Self, Failure> {
        let mut trees = BTreeMap::new();
        let last = places.len() - 1;
        for (index, place) in places.iter().enumerate().rev() {
            let Place::OnVolume { volume, .. } = place else { continue };
            if !trees.contains_key(volume) {
                let attach =
                    if index == last { VolumeTree::attach } else { VolumeTree::attach_to_read };
                trees.insert(volume.clone(), attach(volume)?);
            }
        }
        Ok(Self(trees))
    }

    fn locate(&self, place: &Place) -> Located<'_> {
        match place {
            Place::Local(path) => {
                let path = path.as_os_str().as_bytes().to_vec();
                Located { tree: &KernelTree, path, volume: None }
            }
            Place::OnVolume { volume, path } => {
                Located { tree: &self.0[volume], path: path.clone(), volume: Some(volume.clone()) }
            }
        }
    }
}

/// What is told on a terminal.
struct Told {
    progress: Progress,
    done: u64,
    /// Bytes in all, where they are known without a walk: nothing but files is named.
    total: Option<u64>,
}

impl Told {
    fn new(trees: &Trees, from: &[Place], recursive: bool) -> Self {
        let size = |place| {
            let from = trees.locate(place);
            let meta = from.tree.meta(&from.path, !recursive).ok()?;
            (meta.kind == Kind::File).then_some(meta.size)
        };
        let total = from.iter().map(size).sum();
        Self { progress: Progress::new("copying"), done: 0, total }
    }

    fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        match self.total {
            Some(total) => self.progress.update(self.done.min(total), total),
            None => self.progress.count(self.done),
        }
    }
}

/// Copies what the command line named, after the checks that only the top needs.
fn copy_one(
    from: &Located<'_>,
    to: &Located<'_>,
    recursive: bool,
    told: &mut Told,
) -> Result<(), Failure> {
    let failed = |errno| failure(&from.path, &to.path, to.tree, errno);
    let source = from.tree.meta(&from.path, !recursive).map_err(failed)?;
    if source.kind == Kind::Directory && !recursive {
        return Err(Failure::new(
            format!("copy {}", display(&from.path)),
            "this is a directory",
            "give -r to copy it with all that is in it",
        ));
    }
    if from.volume == to.volume {
        if let Ok(there) = to.tree.meta(&to.path, true)
            && (there.device, there.ino) == (source.device, source.ino)
        {
            return Err(Failure::new(
                format!("copy {} to {}", display(&from.path), display(&to.path)),
                "they are the same file",
                "",
            ));
        }
        if source.kind == Kind::Directory && to.path.starts_with(&join(&from.path, b"")) {
            return Err(Failure::new(
                format!("copy {} to {}", display(&from.path), display(&to.path)),
                "the copy would lie inside what is copied",
                "",
            ));
        }
    }
    copy(from.tree, &from.path, &source, to.tree, &to.path, told)
}

fn copy(
    from: &dyn Tree,
    from_path: &[u8],
    source: &Meta,
    to: &dyn Tree,
    to_path: &[u8],
    told: &mut Told,
) -> Result<(), Failure> {
    let failed = |errno| failure(from_path, to_path, to, errno);
    match source.kind {
        Kind::File => copy_data(from, from_path, source, to, to_path, told).map_err(failed)?,
        Kind::Symlink => {
            let target = from.link_target(from_path).map_err(failed)?;
            to.make_symlink(to_path, &target).map_err(failed)?;
        }
        Kind::Directory => {
            match to.make_dir(to_path) {
                Err(Errno::EXIST)
                    if to.meta(to_path, true).map_err(failed)?.kind == Kind::Directory => {}
                made => made.map_err(failed)?,
            }
            for name in from.list(from_path).map_err(failed)? {
                let (from_path, to_path) = (join(from_path, &name), join(to_path, &name));
                let child = from
                    .meta(&from_path, false)
                    .map_err(|errno| failure(&from_path, &to_path, to, errno))?;
                copy(from, &from_path, &child, to, &to_path, told)?;
            }
        }
        _ => to.make_node(to_path, source).map_err(failed)?,
    }
    to.finish(to_path, source).map_err(failed)
}

fn copy_data(
    from: &dyn Tree,
    from_path: &[u8],
    source: &Meta,
    to: &dyn Tree,
    to_path: &[u8],
    told: &mut Told,
) -> Result<(), Errno> {
    let (from, to) = (from.open(from_path)?, to.create(to_path)?);
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut offset, mut copied) = (0, 0);
    while let Some((start, end)) = from.next_data(offset)? {
        offset = start;
        while offset < end {
            let piece = buffer.len().min((end - offset) as usize);
            let length = from.read_at(offset, &mut buffer[..piece])?;
            if length == 0 {
                break;
            }
            to.write_all_at(offset, &buffer[..length])?;
            offset += length as u64;
            copied += length as u64;
            told.add(length as u64);
        }
        if offset < end {
            // The source was cut short meanwhile: what is left of it is copied.
            return to.close_at(offset);
        }
    }
    // The holes.
    told.add(source.size.saturating_sub(copied));
    to.close_at(offset.max(source.size))
}

/// A copy has failed; more room is to be made where it goes to.
fn failure(from: &[u8], to: &[u8], tree: &dyn Tree, errno: Errno) -> Failure {
    let asked = format!("copy {} to {}", display(from), display(to));
    match errno {
        Errno::NOSPC if !tree.is_volume() => Failure::outside(asked, errno),
        _ => Failure::errno(asked, errno),
    }
}
