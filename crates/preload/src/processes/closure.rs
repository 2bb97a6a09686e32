//! The libraries that a program needs at its start and that lie on a volume: found before the exec,
//! for the dynamic linker loads them before any code of ours runs.
//!
//! The search is the linker's: breadth first from the program and what is preloaded; for each name
//! the `DT_RPATH` of the object and of those that brought it in (none counts if the object has a
//! `DT_RUNPATH`), `LD_LIBRARY_PATH`, its `DT_RUNPATH`, the linker's cache and the usual
//! directories. What is found elsewhere is only read for what it needs in its turn. Where no
//! directory of the search lies on a volume, nothing is read but the program.
//!
//! A library that an object names by a path is not looked for by the linker. In the copy of such an
//! object (the program's own, too) the name is cut to its last part, or less if that is another
//! one's: then it is found as the others are.
//!
//! All files are untrusted: what cannot be read as it should be needs nothing.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use vfs::cred::READ;
use vfs::executable::{self, Dependencies};
use vfs::{Attr, Kind};

use crate::entry::process::Process;
use crate::files::rw::read_at;
use crate::paths::{self, Target, mount};
use crate::runtime::objects;

/// Most objects that are looked at.
const OBJECTS_MAX: usize = 4096;
/// Most directories of one list that are looked into.
const DIRECTORIES_MAX: usize = 1024;
/// Most of the linker's cache that is read.
const CACHE_BYTES_MAX: usize = 1 << 23;
/// Where the linker keeps it.
const CACHE: &str = "/etc/ld.so.cache";
/// Where the linker looks at last, as Debian and others have it.
const USUAL: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// What the new image is told of libraries.
pub struct Asked<'a> {
    /// What the program says.
    pub program: &'a Dependencies,
    /// The directory that it lies in.
    pub origin: &'a [u8],
    /// The value of `LD_LIBRARY_PATH`.
    pub library_path: Option<&'a [u8]>,
    /// The elements of `LD_PRELOAD` that are not ours.
    pub preload: &'a [&'a [u8]],
}

/// A directory of a search.
#[derive(Clone)]
struct Directory {
    /// As the linker would write it.
    path: Vec<u8>,
    /// It lies on a volume.
    ours: bool,
}

/// Where the linker would have found a library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In this element of `LD_LIBRARY_PATH`.
    LibraryPath(usize),
    /// By what an object says.
    Object,
    /// By this element of `LD_PRELOAD`, a path.
    Preload(usize),
}

/// What is to be loaded in its place.
#[derive(Clone)]
pub enum Place {
    /// A file of a volume.
    Volume(Attr),
    /// A file of the kernel's, to which a symlink of a volume leads.
    Elsewhere(CString),
}

/// A library that the linker does not find by itself.
#[derive(Clone)]
pub struct Library {
    /// What it is needed as.
    pub name: Vec<u8>,
    /// What the linker would have called it.
    pub path: Vec<u8>,
    /// How it was found.
    pub way: Way,
    /// Where it is.
    pub place: Place,
    /// What is to be changed in its copy.
    pub edits: Vec<Edit>,
}

/// Eight bytes that a copy is to have at a place.
#[derive(Clone, Copy)]
pub struct Edit {
    /// Where in the file.
    pub place: u64,
    /// A little-endian number.
    pub value: u64,
}

/// A name that an object needs.
#[derive(Clone)]
struct Need {
    /// With tokens replaced.
    name: Vec<u8>,
    /// As it stands in the file.
    written: Vec<u8>,
    /// See [`Dependencies::places`].
    place: (u64, u64),
}

/// An object that is loaded.
#[derive(Default)]
struct Object {
    needed: Vec<Need>,
    /// Its number among what was found.
    library: Option<usize>,
    /// Not there if it has the next one.
    rpath: Vec<Directory>,
    runpath: Option<Vec<Directory>>,
    /// Which object brought it in.
    loader: Option<usize>,
}

/// What was found.
#[derive(Default)]
pub struct Closure {
    /// The libraries, in the order in which the linker would load them.
    pub libraries: Vec<Library>,
    /// What is to be changed in a copy of the program.
    pub program: Vec<Edit>,
    /// The elements of `LD_LIBRARY_PATH`, and which of them lie on a volume.
    pub library_path: Vec<(Vec<u8>, bool)>,
    /// The sanitizers' runtimes among what is needed, by name.
    pub runtimes: Vec<Vec<u8>>,
}

impl Closure {
    /// Whether any library was found by what an object says.
    pub fn has_of_objects(&self) -> bool {
        self.libraries.iter().any(|library| library.way == Way::Object)
    }
}

/// A file that the search has found.
enum Found {
    Ours(Place, Option<Dependencies>),
    Kernels(Option<Dependencies>),
}

struct Search<'a> {
    process: &'a Process,
    library_path: Vec<Directory>,
    objects: Vec<Object>,
    /// The names by which the linker knows what is loaded.
    names: BTreeSet<Vec<u8>>,
    found: Vec<Library>,
    /// Paths that are cut, and to what.
    cut: BTreeMap<Vec<u8>, Vec<u8>>,
    program: Vec<Edit>,
    cache: OnceCell<Vec<u8>>,
    levels: OnceCell<Vec<&'static str>>,
    library_directory: OnceCell<Vec<u8>>,
}

/// Finds what concerns a volume, and the runtimes that must be first.
pub fn find(process: &Process, asked: &Asked<'_>) -> Closure {
    let library_path = asked.library_path.map(|value| split(value, b":;")).unwrap_or_default();
    let mut search = Search {
        process,
        library_path: Vec::new(),
        objects: Vec::new(),
        names: BTreeSet::new(),
        found: Vec::new(),
        cut: BTreeMap::new(),
        program: Vec::new(),
        cache: OnceCell::new(),
        levels: OnceCell::new(),
        library_directory: OnceCell::new(),
    };
    search.library_path = search.directories(&library_path, asked.origin);
    search.object(asked.program, asked.origin, None, None);
    if search.is_concerned(asked) {
        search.run(asked.preload);
    }
    let needed = search.objects.iter().flat_map(|object| &object.needed);
    let runtimes = runtimes(needed.map(|need| &need.name));
    let library_path = search.library_path.iter().map(|one| (one.path.clone(), one.ours)).collect();
    Closure { libraries: search.found, program: search.program, library_path, runtimes }
}

/// The sanitizers' runtimes among these names.
fn runtimes<'n>(names: impl Iterator<Item = &'n Vec<u8>>) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    for name in names {
        if executable::is_sanitizer(name) && !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

/// The elements of a list of directories.
fn split(list: &[u8], separators: &[u8]) -> Vec<Vec<u8>> {
    let all = list.split(|byte| separators.contains(byte)).take(DIRECTORIES_MAX);
    all.map(<[u8]>::to_vec).collect()
}

impl Search<'_> {
    /// Whether anything of a volume can be found at all.
    fn is_concerned(&self, asked: &Asked<'_>) -> bool {
        let Some(program) = self.objects.first() else { return false };
        let runpath = program.runpath.as_deref().unwrap_or_default();
        let mut directories = self.library_path.iter().chain(&program.rpath).chain(runpath);
        let mut paths =
            program.needed.iter().map(|need| &*need.name).chain(asked.preload.iter().copied());
        directories.any(|directory| directory.ours)
            || paths.any(|path| path.contains(&b'/') && self.file(path).is_some())
    }

    fn run(&mut self, preload: &[&[u8]]) {
        for (number, name) in preload.iter().enumerate() {
            let way = if name.contains(&b'/') { Way::Preload(number) } else { Way::Object };
            self.need(name, 0, way);
        }
        let mut at = 0;
        while at < self.objects.len().min(OBJECTS_MAX) {
            for need in self.objects[at].needed.clone() {
                self.need(&need.name, at, Way::Object);
                self.edit(&need, at);
            }
            at += 1;
        }
    }

    /// A name of an object is cut, if that was found out.
    fn edit(&mut self, need: &Need, of: usize) {
        let Some(cut) = self.cut.get(&need.name).filter(|cut| need.written.ends_with(cut)) else {
            return;
        };
        let (place, value) = need.place;
        let value = value + (need.written.len() - cut.len()) as u64;
        let edit = Edit { place, value };
        match self.objects.get(of).map(|object| object.library) {
            Some(None) if of == 0 => self.program.push(edit),
            Some(Some(library)) => self.found[library].edits.push(edit),
            _ => {}
        }
    }

    /// What a path can be cut to: no name that is known.
    fn cut(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let last = path.rsplit(|&byte| byte == b'/').next()?;
        let mut cuts = (0..last.len()).map(|from| last[from..].to_vec());
        let cut = cuts.find(|cut| !self.names.contains(cut))?;
        self.names.insert(cut.clone());
        self.cut.insert(path.to_vec(), cut.clone());
        Some(cut)
    }

    /// One object needs a library of this name.
    fn need(&mut self, name: &[u8], loader: usize, way: Way) {
        if name.is_empty() || self.objects.len() >= OBJECTS_MAX || !self.names.insert(name.to_vec())
        {
            return;
        }
        let found = if name.contains(&b'/') {
            self.look(name).map(|found| (name.to_vec(), way, found))
        } else {
            self.search(name, loader)
        };
        let Some((path, way, found)) = found else { return };
        let mut library = None;
        let said = match found {
            Found::Kernels(said) => said,
            Found::Ours(place, said) => {
                let is_same = |known: &Library| match (&known.place, &place) {
                    (Place::Volume(one), Place::Volume(other)) => one.node == other.node,
                    _ => false,
                };
                let is_known = self.found.iter().any(is_same);
                let is_path = way == Way::Object && name.contains(&b'/');
                let name = if is_path { self.cut(name) } else { Some(name.to_vec()) };
                let Some(name) = name else { return };
                if matches!(place, Place::Volume(_)) {
                    library = Some(self.found.len());
                }
                let path = path.clone();
                self.found.push(Library { name, path, way, place, edits: Vec::new() });
                // The same object by another name.
                if is_known { None } else { said }
            }
        };
        let Some(said) = said else { return };
        if let Some(name) = &said.name {
            self.names.insert(name.clone());
        }
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.object(&said, &path[..end], Some(loader), library);
    }

    /// An object is loaded.
    fn object(
        &mut self,
        said: &Dependencies,
        origin: &[u8],
        loader: Option<usize>,
        library: Option<usize>,
    ) {
        let lists = |list: &Option<Vec<u8>>| {
            list.as_deref().map(|list| self.directories(&split(list, b":"), origin))
        };
        let runpath = lists(&said.runpath);
        let rpath = if runpath.is_some() { None } else { lists(&said.rpath) };
        let need = |(written, place): (&Vec<u8>, &(u64, u64))| Need {
            name: self.expanded(written, origin).unwrap_or_default(),
            written: written.clone(),
            place: *place,
        };
        let needed = said.needed.iter().zip(&said.places).map(need).collect();
        let rpath = rpath.unwrap_or_default();
        self.objects.push(Object { needed, library, rpath, runpath, loader });
    }

    /// The directories of a list.
    fn directories(&self, list: &[Vec<u8>], origin: &[u8]) -> Vec<Directory> {
        let one = |text: &Vec<u8>| {
            let mut path = self.expanded(text, origin).unwrap_or_default();
            while path.len() > 1 && path.last() == Some(&b'/') {
                path.pop();
            }
            if text.is_empty() {
                path.push(b'.');
            }
            let ours = !path.is_empty() && self.is_ours(&path);
            Directory { path, ours }
        };
        list.iter().map(one).collect()
    }

    /// A text of an object with the linker's tokens replaced; `None`: the origin is not known.
    fn expanded(&self, text: &[u8], origin: &[u8]) -> Option<Vec<u8>> {
        if !text.contains(&b'$') {
            return Some(text.to_vec());
        }
        executable::expanded(text, origin, self.library_directory.get_or_init(library_directory))
    }

    /// Whether a directory lies on a volume where the kernel does not find it.
    fn is_ours(&self, path: &[u8]) -> bool {
        let target = paths::resolve(self.process, libc::AT_FDCWD, path, true);
        let Ok(target @ (Target::Volume(_) | Target::Descriptor(_))) = target else { return false };
        let Ok(attr) = paths::existing(self.process, &target) else { return false };
        attr.kind == Kind::Directory && !mount::leads_to(self.process, path, attr.node)
    }

    /// By the linker's rules for a name without a slash.
    fn search(&self, name: &[u8], loader: usize) -> Option<(Vec<u8>, Way, Found)> {
        let object = self.objects.get(loader)?;
        let by_object = |(path, _, found)| (path, Way::Object, found);
        if object.runpath.is_none() {
            let mut at = Some(loader);
            while let Some(object) = at.and_then(|at| self.objects.get(at)) {
                if let Some(found) = self.within(&object.rpath, name) {
                    return Some(by_object(found));
                }
                at = object.loader;
            }
        }
        if let Some((path, number, found)) = self.within(&self.library_path, name) {
            return Some((path, Way::LibraryPath(number), found));
        }
        if let Some(found) = self.within(object.runpath.as_deref().unwrap_or_default(), name) {
            return Some(by_object(found));
        }
        let path = self.cached(name).or_else(|| usual(name))?;
        let found = self.look(&path)?;
        Some((path, Way::Object, found))
    }

    /// In these directories; gives the number of the one where it was.
    fn within(&self, directories: &[Directory], name: &[u8]) -> Option<(Vec<u8>, usize, Found)> {
        for (number, directory) in directories.iter().enumerate() {
            if directory.path.is_empty() {
                continue;
            }
            for level in self.levels() {
                let path = [&*directory.path, b"/", level.as_bytes(), name].concat();
                if let Some(found) = self.look(&path) {
                    return Some((path, number, found));
                }
            }
        }
        None
    }

    /// The subdirectories that stand before a directory's own files.
    fn levels(&self) -> &[&'static str] {
        self.levels.get_or_init(|| {
            use std::arch::is_x86_feature_detected as has;
            let second = has!("sse4.2") && has!("popcnt") && has!("ssse3");
            let third = second
                && has!("avx2")
                && has!("bmi1")
                && has!("bmi2")
                && has!("fma")
                && has!("f16c")
                && has!("lzcnt")
                && has!("movbe");
            let fourth = third
                && has!("avx512f")
                && has!("avx512bw")
                && has!("avx512cd")
                && has!("avx512dq")
                && has!("avx512vl");
            let all = [
                (fourth, "glibc-hwcaps/x86-64-v4/"),
                (third, "glibc-hwcaps/x86-64-v3/"),
                (second, "glibc-hwcaps/x86-64-v2/"),
                (true, ""),
            ];
            all.into_iter().filter(|&(is_there, _)| is_there).map(|(_, level)| level).collect()
        })
    }

    /// What the linker would load from a path; `None`: nothing, so it looks further.
    fn look(&self, path: &[u8]) -> Option<Found> {
        if let Some((place, attr)) = self.file(path) {
            let read = |at, to: &mut [u8]| read_at(self.process, &attr, at, to).unwrap_or(0);
            return is_for_us(&read).then(|| Found::Ours(place, executable::dependencies(&read)));
        }
        let target = paths::resolve(self.process, libc::AT_FDCWD, path, true).ok()?;
        let (name, is_ours) = match target {
            Target::Kernel => (paths::c_text(path).ok()?, false),
            Target::Elsewhere(name) => (name, true),
            Target::Volume(_) | Target::Descriptor(_) => {
                // In a mount, where the linker finds it.
                let name = paths::c_text(path).ok()?;
                (name, false)
            }
        };
        let file = open(&name)?;
        let read = |at, to: &mut [u8]| rustix::io::pread(&file, to, at).unwrap_or(0);
        if !is_for_us(&read) {
            return None;
        }
        let said = executable::dependencies(&read);
        Some(if is_ours { Found::Ours(Place::Elsewhere(name), said) } else { Found::Kernels(said) })
    }

    /// The file of a volume at a path, if the process may read it, and the kernel does not find it.
    fn file(&self, path: &[u8]) -> Option<(Place, Attr)> {
        let target = paths::resolve(self.process, libc::AT_FDCWD, path, true).ok()?;
        if matches!(target, Target::Kernel | Target::Elsewhere(_)) {
            return None;
        }
        let attr = paths::existing(self.process, &target).ok()?;
        let is_readable = attr.kind == Kind::File
            && self.process.cred().check(&attr, READ).is_ok()
            && !mount::leads_to(self.process, path, attr.node);
        is_readable.then_some((Place::Volume(attr), attr))
    }

    /// The path that the linker's cache has for a name: the one that asks nothing of the processor.
    fn cached(&self, name: &[u8]) -> Option<Vec<u8>> {
        const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
        const HEADER_BYTES: usize = 48;
        const ENTRY_BYTES: usize = 24;
        // An ELF library of the C library 2 for this machine.
        const FLAGS: u32 = 0x0303;
        let cache = self.cache.get_or_init(|| read_cache().unwrap_or_default());
        let rest = cache.get(HEADER_BYTES..).filter(|_| cache.starts_with(MAGIC))?;
        let word = |bytes: &[u8], at: usize| {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let text = |at: u32| {
            let rest = cache.get(at as usize..)?;
            rest.split(|&byte| byte == 0).next()
        };
        let count = word(cache, MAGIC.len())? as usize;
        let entries = rest.chunks_exact(ENTRY_BYTES).take(count);
        entries
            .filter(|entry| word(entry, 0) == Some(FLAGS) && entry[16..] == [0; 8])
            .find(|entry| word(entry, 4).and_then(text) == Some(name))
            .and_then(|entry| word(entry, 8).and_then(text))
            .map(<[u8]>::to_vec)
    }
}

/// Whether the linker stays with a file, be it to load it or to fail: one of another class or
/// machine it passes over.
fn is_for_us(read: &dyn Fn(u64, &mut [u8]) -> usize) -> bool {
    let mut header = [0; 64];
    let length = read(0, &mut header).min(header.len());
    let header = &header[..length];
    !header.starts_with(b"\x7fELF") || executable::is_native(header)
}

fn open(path: &CString) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

fn usual(name: &[u8]) -> Option<Vec<u8>> {
    let mut paths = USUAL.iter().map(|directory| [directory.as_bytes(), b"/", name].concat());
    paths.find(|path| paths::c_text(path).is_ok_and(|path| open(&path).is_some()))
}

fn read_cache() -> Option<Vec<u8>> {
    let file = rustix::fs::open(CACHE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let size = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
    let mut bytes = vec![0; size.min(CACHE_BYTES_MAX)];
    let got = rustix::io::pread(&file, &mut bytes[..], 0).ok()?;
    bytes.truncate(got);
    Some(bytes)
}

/// What the linker puts for `$LIB`: the directory of the C library, from the root or `/usr` on.
fn library_directory() -> Vec<u8> {
    let is_library = |file: &&[u8]| file.ends_with(b"/libc.so.6");
    let file = objects::loaded().map(objects::Object::file).find(is_library).unwrap_or_default();
    let directory = file.strip_suffix(b"/libc.so.6").unwrap_or_default();
    let directory = directory.strip_prefix(b"/usr").unwrap_or(directory);
    directory.strip_prefix(b"/").unwrap_or(b"lib64").to_vec()
}
