//! Random damage to metadata, in the check, at attach, in use in all modes, under a volume in use,
//! in a repair and after it: never a panic or a hang, and no file suffers from damage to another
//! one.
//!
//! A *recipe* is bytes, six for each damage: the structure (two), the place in it (two), what is
//! done, and how. So any bytes are a recipe: a fuzzer may hand them in (`SOLERA_DAMAGE`, in
//! hexadecimal), and `tests/corpus/damage.txt` keeps some. The volume to damage is made anew, so a
//! recipe stays small and means the same kind of structure after the layout has changed.
//!
//! Each commit draws a quarter of 2,000 recipes; a quarter of those images are also damaged in use,
//! another quarter are repaired, and most are in private memory. With `SOLERA_TEST_LONG`: 10,000
//! recipes, each image in a file, half of them also damaged in use, the other half repaired.

use crate::Mode;
use crate::attach::format::{FormatOptions, format_region};
use crate::attach::inspection::info;
use crate::attach::offline_check::check_view;
use crate::attach::offline_check::repair;
use crate::attach::snapshot::{SnapshotOptions, snapshot};
use crate::attach::view::View;
use crate::attach::{AttachOptions, attach, attach_region};
use crate::check::repair::RepairOptions;
use crate::data::map::MapItem;
use crate::data::mapping::Fill;
use crate::inode::Inode;
use crate::medium::layout::{
    BLOCK, CHUNK, COMMIT, EXTENT_INODES, IDENTITY, LANE, LINE, STATE, SUPERBLOCK_A, SUPERBLOCK_B,
    WORDS,
};
use crate::medium::superblock;
use crate::namespace::bucket::Dir;
use crate::recovery::mark::Depth;
use crate::space::chunk::Mask;
use crate::space::free_map::bits_of;
use crate::testing::{Random, file, new_node, root, written};
use crate::txn::journal::lane_offset;
use crate::volume::Volume;
use pmem::{Region, UserIn, UserOut};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::{
    EntryName, FileSystem, IoOffset, Kind, Mapped, Node, OpenFlags, Removes, RenameFlags, Synced,
};

/// Bytes of a recipe for one damage.
const STEP: usize = 6;
/// How long one image may take: a thousand times of what it does.
const PATIENCE: Duration = Duration::from_mins(1);

const COPY: SnapshotOptions = SnapshotOptions { force: true, keep_uuid: false };

/// Something that can be damaged: where it lies, and which file owns it.
struct Structure {
    at: u64,
    length: u64,
    /// The file that may be lost with it.
    owner: Option<u64>,
    /// Volatile state of the attached processes: it has no copy and no check.
    live: bool,
}

/// A volume to damage, as it was left in order and as after a crash.
struct Base {
    length: u64,
    pages: [Pages; 2],
    structures: Vec<Structure>,
    files: Vec<(Node, Vec<u8>)>,
    names: Vec<(Node, Vec<u8>)>,
}

type Pages = Vec<(u64, [u8; BLOCK as usize])>;

fn write(volume: &Volume, node: Node, offset: u64, bytes: &[u8]) -> crate::Result<usize> {
    let at = crate::data::plan::Position::At(offset);
    volume.write_file(node, at, &[UserIn::new(bytes)]).map(|written| written.0)
}

fn populate(volume: &Volume) -> Vec<(Node, Vec<u8>)> {
    let mut directories = vec![root(volume)];
    for index in 0..4 {
        let name = format!("directory {index}");
        let parent = directories[index / 2];
        let made = volume.create(parent, name.as_bytes(), &new_node(Kind::Directory, 0o755));
        directories.push(made.unwrap());
    }
    let mut names = Vec::new();
    for index in 0..160_usize {
        // Most in one, so that it has nodes.
        let parent = directories[if index % 2 == 0 { 4 } else { index % 5 }];
        let name = format!("file {index} {}", "n".repeat(index % 7 * 20)).into_bytes();
        let node = volume.create(parent, &name, &file()).unwrap();
        let bytes = format!("<{index}>").into_bytes().repeat(1 + index % 20 * 60);
        write(volume, node, 0, &bytes).unwrap();
        if index % 8 == 3 {
            write(volume, node, 60 << 12, &bytes).unwrap();
        }
        if index % 8 == 5 {
            volume.set_xattr(node, b"user.number", &name, 0).unwrap();
        }
        names.push((parent, name));
    }
    let mut long = new_node(Kind::Symlink, 0o777);
    let target = "long/".repeat(60);
    long.target = target.as_bytes();
    volume.create(directories[1], b"long", &long).unwrap();
    names.push((directories[1], b"long".to_vec()));
    names
}

fn structures(volume: &Volume) -> Vec<Structure> {
    volume.return_kept().unwrap();
    let mut found = Vec::new();
    let mut add = |at, length, owner| found.push(Structure { at, length, owner, live: false });
    add(SUPERBLOCK_A, 256, None);
    add(SUPERBLOCK_B, 256, None);
    add(STATE, LINE, None);
    for lane in 0..4 {
        add(lane_offset(lane), LANE, None);
    }
    for chunk in 0..volume.chunks() {
        for index in bits_of(volume.mask(chunk, Mask::Extents).unwrap()) {
            let first = (volume.chunk_start(chunk) + index * 8) / 8 * EXTENT_INODES;
            let slots = volume.extent_slots(chunk, index).unwrap();
            for inode in bits_of(slots & !1).map(|slot| Inode(first + slot)) {
                let identity = volume.identity(inode).unwrap();
                let owner = Some(inode.0);
                add(inode.at(IDENTITY), LINE, owner);
                add(inode.at(COMMIT), LINE, owner);
                add(inode.at(WORDS), 128, owner);
                let walked = volume.walk_map(inode, &identity, &mut |item| {
                    if let MapItem::Node { block } | MapItem::Xattr { block } = item {
                        add(block * BLOCK, BLOCK, owner);
                    }
                    Ok(())
                });
                walked.unwrap();
                if identity.kind() == Some(Kind::Directory) {
                    let dir = Dir { inode, generation: identity.generation };
                    let walked = volume.walk_words(dir, &mut |word| {
                        add(word.unwrap_or_else(|_| panic!()).block * BLOCK, BLOCK, None);
                        Ok(())
                    });
                    walked.unwrap();
                }
            }
        }
    }
    let mut live = |at, length| found.push(Structure { at, length, owner: None, live: true });
    live(volume.superblock.runtime + volume.rt.chunk(0), 4 * LINE);
    for chunk in 0..volume.chunks() {
        for index in bits_of(volume.mask(chunk, Mask::Extents).unwrap()) {
            live(volume.extent_slots_offset(chunk, index), 8);
        }
    }
    found
}

impl Base {
    fn new() -> Self {
        // One group, one seed: the same layout each time.
        let region = Region::zeros(9 * CHUNK, None);
        let options = FormatOptions { groups: Some(1), seed: Some(3), ..FormatOptions::default() };
        format_region(&region, &options).unwrap();
        let volume = attach_region(region, &AttachOptions::default()).unwrap();
        let names = populate(&volume);
        let mut files = Vec::new();
        for (parent, name) in &names {
            let node = volume.lookup(*parent, name).unwrap();
            if volume.attributes(node).unwrap().kind == Kind::File {
                files.push((node, contents(&volume, node).unwrap()));
            }
        }
        let structures = structures(&volume);
        let crashed = written(&volume.region).collect();
        volume.leave().unwrap();
        let clean = written(&volume.region).collect();
        let length = volume.region.len();
        Self { length, pages: [clean, crashed], structures, files, names }
    }

    /// An image in a file without a name, as an attach wants it.
    fn region(&self, crashed: bool) -> Region {
        self.put(Region::anonymous(self.length).unwrap(), crashed)
    }

    /// An image in private memory, where looking at a page of zeros takes no memory.
    fn view(&self, crashed: bool) -> Region {
        self.put(Region::zeros(self.length, None), crashed)
    }

    fn put(&self, region: Region, crashed: bool) -> Region {
        for (at, page) in &self.pages[usize::from(crashed)] {
            let _ = region.write(*at, page).unwrap();
        }
        region
    }

    /// Damages the region; gives the files that may suffer. `attached`: a process has it attached.
    fn spoil(&self, region: &Region, recipe: &[u8], attached: bool) -> HashSet<u64> {
        let mut lost = HashSet::new();
        for step in recipe.chunks_exact(STEP) {
            let word = |at: usize| u64::from(u16::from_le_bytes([step[at], step[at + 1]]));
            let structure = &self.structures[word(0) as usize % self.structures.len()];
            if attached && structure.live {
                continue;
            }
            let at = structure.at + word(2) * 8 % structure.length;
            lost.extend(structure.owner);
            if step[4] % 4 == 0 {
                let mut noise = Random::new(u64::from(step[5]) << 32 | at);
                let line = at / LINE * LINE;
                for word in (line..line + LINE).step_by(8) {
                    let _ = region.store64(word, noise.next() << 32 ^ noise.next()).unwrap();
                }
            } else {
                let before = region.load64(at).unwrap();
                let _ = region.store64(at, before ^ 1 << (step[5] % 64)).unwrap();
            }
        }
        lost
    }

    /// Everything that is done with one image.
    fn run(&self, recipe: &[u8], turn: u64) {
        let crashed = turn.is_multiple_of(2);
        // In a file memory is taken for whole chunks: most of the time of an image.
        let in_file = long() || turn % 8 < 2;
        let region = if in_file { self.region(crashed) } else { self.view(crashed) };
        let lost = self.spoil(&region, recipe, false);
        if let Ok(found) = superblock::read(&region, Path::new("(test)"), "check") {
            // A private view: what the check undoes there is not to be seen by the attach.
            let view = self.view(crashed);
            self.spoil(&view, recipe, false);
            let view = View::of_region(Arc::new(view), found, false);
            let _ = check_view(&view, Depth::Data, &mut |_, _| {});
        }
        if let Ok(volume) = attach_region(region, &options(turn)) {
            self.judge(&volume, &lost, recipe, turn);
        }
    }

    /// The same damage, while the volume is in use.
    fn run_attached(&self, recipe: &[u8], turn: u64) {
        let volume = attach_region(self.region(turn.is_multiple_of(2)), &options(turn)).unwrap();
        // Names and attributes are remembered from before.
        self.look(&volume);
        let lost = self.spoil(&volume.region, recipe, true);
        self.judge(&volume, &lost, recipe, turn);
    }

    /// The same damage, repaired (or not) and then used.
    fn run_repaired(&self, recipe: &[u8], turn: u64, scratch: &Scratch) {
        let region = self.view(turn.is_multiple_of(2));
        let lost = self.spoil(&region, recipe, false);
        scratch.hold(&region);
        let _ = info(&scratch.0);
        if turn % 8 < 2 {
            let _ = snapshot(&scratch.0, &scratch.copy(), COPY, &mut |_, _| {});
            scratch.hold(&region);
        }
        let wanted = RepairOptions { salvage: turn % 4 < 2, ..RepairOptions::default() };
        let Ok(report) = repair(&scratch.0, &wanted, &mut |_, _| {}) else { return };
        let volume = match attach(&scratch.0, &options(turn)) {
            Ok(volume) => volume,
            Err(error) => {
                assert!(!report.after.faults.is_empty(), "{error} ({recipe:02x?})");
                return;
            }
        };
        if report.after.faults.is_empty() {
            let faults = volume.check(&crate::FsckOptions::default()).unwrap().faults;
            assert_eq!(faults, [], "after a repair ({recipe:02x?})");
        }
        self.judge(&volume, &lost, recipe, turn);
    }

    /// Uses the volume; what is not lost is as it was.
    fn judge(&self, volume: &Volume, lost: &HashSet<u64>, recipe: &[u8], turn: u64) {
        self.look(volume);
        self.change(volume, lost, turn);
        self.fill(volume, turn);
        for (node, bytes) in self.files.iter().filter(|(node, _)| !lost.contains(&node.ino)) {
            let found = contents(volume, *node);
            assert_eq!(found.as_ref(), Ok(bytes), "inode {} ({recipe:02x?})", node.ino);
        }
        let _ = volume.check(&crate::FsckOptions::default());
        for (parent, name) in &self.names {
            let _ = volume.remove(&EntryName::new(*parent, name), Removes::Name);
            let _ = volume.remove(&EntryName::new(*parent, name), Removes::Directory);
        }
        let _ = volume.leave();
    }

    /// Calls that may all fail, but not more than that.
    fn look(&self, volume: &Volume) {
        for (parent, name) in &self.names {
            if let Ok(node) = volume.lookup(*parent, name) {
                let _ = volume.attributes(node);
                let mut out = [0; 300];
                let _ = volume.get_xattr(node, b"user.number", &mut out);
                let _ = volume.read_link(node, &mut out);
            }
        }
    }

    /// The directories of the files.
    fn parents(&self) -> Vec<Node> {
        let mut parents: Vec<Node> = self.names.iter().map(|(parent, _)| *parent).collect();
        parents.sort_by_key(|node| node.ino);
        parents.dedup();
        parents
    }

    /// Changes the damaged files in every way, and the names of some others.
    fn change(&self, volume: &Volume, lost: &HashSet<u64>, turn: u64) {
        let mut random = Random::new(turn);
        for (node, _) in self.files.iter().filter(|(node, _)| lost.contains(&node.ino)) {
            let bytes = vec![0xDD; 1 + random.below(9000) as usize];
            for _ in 0..3 {
                let _ = write(volume, *node, random.below(300_000), &bytes);
            }
            let _ = volume.map_pieces(*node, (0, 8 * BLOCK), Mapped::Write, Fill::All);
            let Ok(desc) = volume.open((*node).into(), OpenFlags(libc::O_RDWR), None) else {
                continue;
            };
            let _ =
                volume.read(desc, &mut [UserOut::new(&mut vec![0; 70_000])], IoOffset::POSITION);
            let (offset, length) = (random.below(100_000), 1 + random.below(50_000));
            for mode in [0, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE] {
                let _ = volume.allocate(desc, mode as u32, offset, length);
            }
            let _ = volume.set_xattr(*node, b"user.more", &bytes[..bytes.len().min(60)], 0);
            let _ = volume.write(desc, &[UserIn::new(&bytes)], IoOffset::POSITION);
            let _ = volume.truncate(*node, random.below(200_000));
            let _ = volume.sync(Synced::File(desc));
            let _ = volume.close(desc);
        }
        let parents = self.parents();
        for (parent, name) in self.names.iter().skip(turn as usize % 16).step_by(16) {
            let to = parents[random.below(parents.len() as u64) as usize];
            if volume
                .rename(
                    &EntryName::new(*parent, name),
                    &EntryName::new(to, b"moved"),
                    RenameFlags::new(0),
                )
                .is_ok()
            {
                let _ = volume.rename(
                    &EntryName::new(to, b"moved"),
                    &EntryName::new(*parent, name),
                    RenameFlags::new(0),
                );
            }
            if let Ok(node) = volume.lookup(*parent, name) {
                let _ = volume.link(node, to, b"linked");
                let _ = volume.remove(&EntryName::new(to, b"linked"), Removes::Name);
            }
        }
    }

    /// New files, sometimes until nothing is left: all that seems free is overwritten.
    fn fill(&self, volume: &Volume, turn: u64) {
        let parents = self.parents();
        let (files, length) = if turn % 32 < 2 { (400, 200_000) } else { (10, 9_000) };
        for (index, parent) in parents.iter().cycle().take(files).enumerate() {
            let _ = volume.read_dir(*parent, 0, &mut |_| true);
            let name = format!("new {index}");
            if let Ok(node) = volume.create(*parent, name.as_bytes(), &file()) {
                let _ = write(volume, node, 0, &vec![0xEE; length]);
            }
        }
    }
}

fn long() -> bool {
    rotation::all()
}

/// Each mode in its turn.
fn options(turn: u64) -> AttachOptions {
    let mode = [Mode::Strict, Mode::Sync, Mode::Posix][(turn / 2 % 3) as usize];
    AttachOptions { mode, ..AttachOptions::default() }
}

/// A volume's file in memory, gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let base = std::env::var_os("SOLERA_TEST_DIR").map_or("/dev/shm".into(), PathBuf::from);
        Self(base.join(format!("solera-damage-{}", std::process::id())))
    }

    /// Where a copy of it is made.
    fn copy(&self) -> PathBuf {
        self.0.with_extension("copy")
    }

    /// Makes the file what the region is.
    fn hold(&self, region: &Region) {
        let file = File::create(&self.0).unwrap();
        file.set_len(region.len()).unwrap();
        for (at, page) in written(region) {
            file.write_all_at(&page, at).unwrap();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that is not there need not be removed.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.copy());
        let _ = std::fs::remove_dir_all(self.0.with_extension("solera"));
    }
}

fn contents(volume: &Volume, node: Node) -> crate::Result<Vec<u8>> {
    let mut bytes = vec![0; volume.attributes(node)?.size as usize];
    let count = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)])?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Ends the process if one image takes for ever, and says which.
fn watch(turn: &'static AtomicU64) {
    std::thread::spawn(move || {
        loop {
            let before = turn.load(Ordering::Relaxed);
            std::thread::sleep(PATIENCE);
            if turn.load(Ordering::Relaxed) == before && before != u64::MAX {
                eprintln!("image {before} takes for ever");
                std::process::abort();
            }
        }
    });
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn random_damage_hurts_nothing_else() {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let base = Base::new();
    let scratch = Scratch::new();
    let all = |recipe: &[u8], turn| {
        base.run(recipe, turn);
        base.run_attached(recipe, turn);
        base.run_repaired(recipe, turn, &scratch);
    };
    if let Ok(recipe) = std::env::var("SOLERA_DAMAGE") {
        (0..12).for_each(|turn| all(&from_hex(&recipe), turn));
        return;
    }
    watch(&TURN);
    let corpus = include_str!("../../tests/corpus/damage.txt");
    for (turn, line) in corpus.lines().filter(|line| !line.starts_with('#')).enumerate() {
        TURN.store(turn as u64, Ordering::Relaxed);
        all(&from_hex(line), turn as u64);
        all(&from_hex(line), turn as u64 + 1);
    }
    let mut random = Random::new(1);
    for turn in 0..if long() { 10_000 } else { 2_000 } {
        TURN.store(1000 + turn, Ordering::Relaxed);
        let steps = 1 + random.below(3) as usize * random.below(4) as usize;
        let recipe: Vec<u8> = (0..steps * STEP).map(|_| random.next() as u8).collect();
        if !rotation::chosen(&format!("damage/{turn}"), 4) {
            continue;
        }
        // Each image is checked and attached; some are damaged in use as well, some are repaired.
        base.run(&recipe, turn);
        match if long() { turn % 2 } else { turn / 2 % 4 } {
            0 => base.run_attached(&recipe, turn),
            1 => base.run_repaired(&recipe, turn, &scratch),
            _ => {}
        }
    }
    TURN.store(u64::MAX, Ordering::Relaxed);
}
