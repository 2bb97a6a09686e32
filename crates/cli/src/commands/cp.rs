//! `solera cp`: into, out of and between volumes.
//!
//! A copy keeps permissions, times and holes; symlinks inside a directory are copied as symlinks,
//! one that is named on the command line is followed unless `-r` is given, as cp does.
//!
//! A target is emptied only when it is known to be another file than the source, by whatever names
//! and faces the two are reached; no local volume or device is written over unless that was asked
//! for.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use console::class::ClassArg;
use console::failure::{Failure, Outcome};
use console::output::Progress;
use rustix::io::Errno;
use vfs::Kind;

use crate::location::{Location, base_name, join};
use crate::tree::{Home, KernelTree, Meta, Open, Tree, VolumeTree};

/// Copy files into, out of and between volumes.
///
/// Permissions, times and holes are kept; the copy belongs to the user that makes it.
#[derive(Args)]
#[command(after_help = "\
A place on a volume is VOLUME:/path. A local file whose name looks like one is taken as local if it
exists.

A local target that is a volume is refused (was `:/` forgotten?), and so is VOLUME:name without the
slash; a local file of such a name is written ./VOLUME:name. A fifo is written to as by cp: that
waits until a program reads it.

Examples:
  solera cp notes.txt /dev/shm/v.pm:/              in
  solera cp /dev/shm/v.pm:/notes.txt .             out
  solera cp -r src /dev/shm/v.pm:/backup           a directory with all that is in it")]
pub struct CpArgs {
    /// Copy directories with all that is in them.
    #[arg(short = 'r', long)]
    pub recursive: bool,
    /// Write also over a local file that is a volume, and is one no more then, and over a block
    /// device. Never over a volume in use.
    #[arg(long)]
    pub overwrite_volume: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// What to copy, then where to: an existing directory, or a new name.
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    pub places: Vec<OsString>,
}

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Each volume that the command line names, attached once.
struct Trees {
    volumes: BTreeMap<PathBuf, VolumeTree>,
    local: KernelTree,
}

/// A place with the tree it lies in.
struct TreePath<'t> {
    tree: &'t dyn Tree,
    path: Vec<u8>,
}

impl TreePath<'_> {
    /// As it is typed.
    fn name(&self) -> String {
        self.tree.name(&self.path)
    }
}

/// What is asked for, in messages.
fn asked(from: &dyn Tree, from_path: &[u8], to: &dyn Tree, to_path: &[u8]) -> String {
    format!("copy {} to {}", from.name(from_path), to.name(to_path))
}

/// A copy under way.
struct Copy<'t> {
    from: &'t dyn Tree,
    to: &'t dyn Tree,
    /// The directory that was made first: it is not copied into itself.
    top: Option<(Home, u64)>,
    told: &'t mut CopyProgress,
}

/// Copies all sources to the last place.
pub fn run(args: &CpArgs) -> Outcome {
    let places = args.places.iter().map(|text| Location::parse(text));
    let places = places.collect::<Result<Vec<Location>, Failure>>()?;
    let trees = Trees::attach(&places, args.overwrite_volume)?;
    let Some((to, from)) = places.split_last() else { return Ok(0) };
    let to = trees.locate(to);
    let into_dir = match to.tree.meta(&to.path, true) {
        Ok(meta) => meta.kind == Kind::Directory,
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(Failure::errno(format!("copy to {}", to.name()), errno)),
    };
    if from.len() > 1 && !into_dir {
        return Err(Failure::new(
            format!("copy {} things to {}", from.len(), to.name()),
            "this is no directory",
            "make it first, or copy one at a time",
        ));
    }
    let mut told = CopyProgress::new(&trees, from, args.recursive);
    for place in from {
        let from = trees.locate(place);
        let path = match base_name(&from.path) {
            name if into_dir && !name.is_empty() => join(&to.path, name),
            _ => to.path.clone(),
        };
        let to = TreePath { tree: to.tree, path };
        copy_one(&from, &to, args.recursive, &mut told)?;
    }
    Ok(0)
}

impl Trees {
    fn attach(places: &[Location], overwrite_volumes: bool) -> Result<Self, Failure> {
        let mut volumes = BTreeMap::new();
        let last = places.len() - 1;
        for (index, place) in places.iter().enumerate().rev() {
            let Location::OnVolume { volume, .. } = place else { continue };
            if !volumes.contains_key(volume) {
                let attach =
                    if index == last { VolumeTree::attach } else { VolumeTree::attach_to_read };
                volumes.insert(volume.clone(), attach(volume)?);
            }
        }
        Ok(Self { volumes, local: KernelTree::new(overwrite_volumes) })
    }

    fn locate(&self, place: &Location) -> TreePath<'_> {
        match place {
            Location::Local(path) => {
                let path = path.as_os_str().as_bytes().to_vec();
                TreePath { tree: &self.local, path }
            }
            Location::OnVolume { volume, path } => {
                TreePath { tree: &self.volumes[volume], path: path.clone() }
            }
        }
    }
}

/// What is told on a terminal.
struct CopyProgress {
    progress: Progress,
    done: u64,
    /// Bytes in all, where they are known without a walk: nothing but files is named.
    total: Option<u64>,
}

impl CopyProgress {
    fn new(trees: &Trees, from: &[Location], recursive: bool) -> Self {
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
    from: &TreePath<'_>,
    to: &TreePath<'_>,
    recursive: bool,
    told: &mut CopyProgress,
) -> Result<(), Failure> {
    let asked = || asked(from.tree, &from.path, to.tree, &to.path);
    let failed = |errno| failure(asked(), to.tree, errno);
    let source = from.tree.meta(&from.path, !recursive).map_err(failed)?;
    if source.kind == Kind::Directory && !recursive {
        return Err(Failure::new(
            format!("copy {}", from.name()),
            "this is a directory",
            "give -r to copy it with all that is in it",
        ));
    }
    if !recursive && !matches!(source.kind, Kind::File | Kind::Symlink) {
        return Err(Failure::new(
            format!("copy {}", from.name()),
            "this is a pipe, a socket or a device, and what comes out of it has no end that is \
             known",
            "give -r to copy the node itself; or write through the volume: solera run --volume \
             VOLUME --at /pm -- sh -c 'cat > /pm/FILE'",
        ));
    }
    let mut copy = Copy { from: from.tree, to: to.tree, top: None, told };
    copy.refuse_same(&from.path, &source, &to.path)?;
    if source.kind == Kind::Directory {
        copy.refuse_inside(&from.path, &source, &to.path)?;
    }
    copy.copy(&from.path, &source, &to.path)
}

impl Copy<'_> {
    /// A part of it, for messages.
    fn asked(&self, from_path: &[u8], to_path: &[u8]) -> String {
        asked(self.from, from_path, self.to, to_path)
    }

    /// Refuses to copy a thing to itself, or a directory to a place below itself.
    fn refuse_same(&self, from_path: &[u8], source: &Meta, to_path: &[u8]) -> Result<(), Failure> {
        let asked = || self.asked(from_path, to_path);
        let is_source = |meta: &Meta| (meta.home, meta.ino) == (source.home, source.ino);
        if self.to.meta(to_path, true).is_ok_and(|there| is_source(&there)) {
            return Err(Failure::new(asked(), "they are the same file", ""));
        }
        if self.top == Some((source.home, source.ino)) {
            return Err(inside(self.asked(from_path, to_path)));
        }
        Ok(())
    }

    /// The same of a directory, before anything is made.
    fn refuse_inside(
        &self,
        from_path: &[u8],
        source: &Meta,
        to_path: &[u8],
    ) -> Result<(), Failure> {
        let mut above = Path::new(OsStr::from_bytes(to_path));
        while let Some(parent) = above.parent() {
            let there: &[u8] = match parent.as_os_str().as_bytes() {
                b"" => b".",
                parent => parent,
            };
            let meta = self.to.meta(there, true);
            if meta.is_ok_and(|meta| (meta.home, meta.ino) == (source.home, source.ino)) {
                return Err(inside(self.asked(from_path, to_path)));
            }
            above = parent;
        }
        Ok(())
    }

    fn copy(&mut self, from_path: &[u8], source: &Meta, to_path: &[u8]) -> Result<(), Failure> {
        let (from, to) = (self.from, self.to);
        let failed = |errno| failure(asked(from, from_path, to, to_path), to, errno);
        if source.kind != Kind::File {
            self.to.admits(to_path)?;
        }
        match source.kind {
            Kind::File => self.copy_data(from_path, source, to_path)?,
            Kind::Symlink => {
                let target = self.from.link_target(from_path).map_err(failed)?;
                self.to.make_symlink(to_path, &target).map_err(failed)?;
            }
            Kind::Directory => self.copy_directory(from_path, to_path)?,
            _ => self.to.make_node(to_path, source).map_err(failed)?,
        }
        self.to.finish(to_path, source).map_err(failed)
    }

    fn copy_directory(&mut self, from_path: &[u8], to_path: &[u8]) -> Result<(), Failure> {
        let (from, to) = (self.from, self.to);
        let failed = |errno| failure(asked(from, from_path, to, to_path), to, errno);
        let made = self.to.make_dir(to_path);
        let there = self.to.meta(to_path, true).map_err(failed)?;
        match made {
            Err(Errno::EXIST) if there.kind == Kind::Directory => {}
            made => made.map_err(failed)?,
        }
        self.top.get_or_insert((there.home, there.ino));
        for name in self.from.list(from_path).map_err(failed)? {
            let (from_path, to_path) = (join(from_path, &name), join(to_path, &name));
            let child = self
                .from
                .meta(&from_path, false)
                .map_err(|errno| failure(self.asked(&from_path, &to_path), to, errno))?;
            self.refuse_same(&from_path, &child, &to_path)?;
            self.copy(&from_path, &child, &to_path)?;
        }
        Ok(())
    }

    fn copy_data(
        &mut self,
        from_path: &[u8],
        source: &Meta,
        to_path: &[u8],
    ) -> Result<(), Failure> {
        let (from, to) = (self.from, self.to);
        let failed = |errno| failure(asked(from, from_path, to, to_path), to, errno);
        let source_file = self.from.open(from_path).map_err(failed)?;
        let target = to.create(to_path)?;
        copy_bytes(&*source_file, source.size, &*target, self.told).map_err(failed)
    }
}

/// Copies what is not a hole.
fn copy_bytes(
    from: &dyn Open,
    size: u64,
    to: &dyn Open,
    told: &mut CopyProgress,
) -> Result<(), Errno> {
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
    told.add(size.saturating_sub(copied));
    to.close_at(offset.max(size))
}

fn inside(asked: String) -> Failure {
    Failure::new(asked, "the copy would lie inside what is copied", "")
}

/// A copy has failed; if for lack of room, then where it goes to.
fn failure(asked: String, tree: &dyn Tree, errno: Errno) -> Failure {
    match pmem::or_no_memory(errno) {
        Errno::NOSPC => tree.failure(asked, Errno::NOSPC),
        // That may be the source's.
        errno => Failure::errno(asked, errno),
    }
}
