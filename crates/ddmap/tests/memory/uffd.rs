//! What this kernel does with holes, pages and protection under a userfaultfd: all that the node
//! table's rules rest on.

use crate::shared_memory::uffd::Uffd;
use crate::tests::support::dir::TestDir;
use pmem::{OpenOptions, Region};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::os::fd::BorrowedFd;

const PAGE: u64 = 4096;

/// A region of 16 pages, all of them holes, and a userfaultfd over its mapping.
struct World {
    region: Region,
    second: Region,
    uffd: Uffd,
}

impl World {
    fn new() -> Self {
        let folder = TestDir::new();
        let name = folder.at("region");
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let region = Region::create(&name, 16 * PAGE, 0o600, true).unwrap();
        let second = Region::open(&name, &options).unwrap();
        let uffd = Uffd::open().unwrap();
        for one in [&region, &second] {
            uffd.register(one.base() as usize, 16 * PAGE as usize).unwrap();
        }
        Self { region, second, uffd }
    }

    fn at(&self, page: u64) -> usize {
        self.region.base() as usize + (page * PAGE) as usize
    }

    fn punch(&self, page: u64) {
        // SAFETY: the region's own descriptor, which stays open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.region.fd()) };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(fd, flags, page * PAGE, PAGE).unwrap();
    }
}

#[test]
fn a_hole_is_never_filled_by_the_kernel() {
    let world = World::new();
    world.region.load64(0).expect_err("a load from a hole");
    world.region.shared_store(0, 1).expect_err("a store to a hole");
    world.uffd.install(world.at(0), &[7; PAGE as usize], false).unwrap();
    assert_eq!(world.region.load64(0), Ok(0x0707_0707_0707_0707));
    world.region.shared_store(0, 1).unwrap();
    assert_eq!(world.uffd.install(world.at(0), &[8; PAGE as usize], false), Err(Errno::EXIST));
    world.uffd.install_zeros(world.at(1), 2 * PAGE).1.unwrap();
    assert_eq!(world.region.load64(2 * PAGE), Ok(0));
}

#[test]
fn a_page_that_is_in_the_file_traps_where_it_is_not_mapped() {
    let world = World::new();
    world.uffd.install(world.at(3), &[7; PAGE as usize], false).unwrap();
    let second = world.second.base() as usize + 3 * PAGE as usize;
    world.second.load64(3 * PAGE).expect_err("not mapped there");
    world.uffd.show(second, PAGE, false).unwrap();
    world.second.shared_store(3 * PAGE, 5).unwrap();
    assert_eq!(world.region.load64(3 * PAGE), Ok(5));
    assert_eq!(world.uffd.show(second, PAGE, false), Err(Errno::EXIST));
    assert_eq!(world.uffd.show(second + PAGE as usize, PAGE, false), Err(Errno::FAULT), "a hole");
}

#[test]
fn what_is_protected_can_be_loaded_and_not_stored_to() {
    let world = World::new();
    world.uffd.install(world.at(3), &[7; PAGE as usize], false).unwrap();
    world.uffd.protect(world.at(3), PAGE, false).unwrap();
    assert_eq!(world.region.load64(3 * PAGE), Ok(0x0707_0707_0707_0707));
    world.region.shared_store(3 * PAGE, 1).expect_err("a store to a protected page");
    world.uffd.protect(world.at(3), PAGE, true).unwrap();
    world.region.shared_store(3 * PAGE, 1).unwrap();
}

#[test]
fn a_punched_page_traps_again_and_can_be_installed_again() {
    let world = World::new();
    for round in 1..4_u8 {
        world.uffd.install(world.at(3), &[round; PAGE as usize], false).unwrap();
        world.region.shared_store(3 * PAGE, 9).unwrap();
        world.uffd.protect(world.at(3), PAGE, false).unwrap();
        // A page that is protected before it was ever mapped there stays so when it is.
        let second = world.second.base() as usize + 3 * PAGE as usize;
        world.uffd.protect(second, PAGE, false).unwrap();
        world.punch(3);
        world.region.load64(3 * PAGE).expect_err("a hole again");
        world.region.shared_store(3 * PAGE, 1).expect_err("a hole again");
        world.second.load64(3 * PAGE).expect_err("a hole there, too");
    }
}

/// Takes a page's entry away in one mapping.
fn zap(at: usize) {
    // SAFETY: a shared mapping of a file, which keeps the bytes.
    unsafe { madvise(at as *mut _, PAGE as usize, Advice::LinuxDontNeed).unwrap() };
}

#[test]
fn an_entry_that_is_taken_away_loses_nothing_and_traps_in_that_mapping_alone() {
    let world = World::new();
    world.uffd.install(world.at(3), &[7; PAGE as usize], false).unwrap();
    let second = world.second.base() as usize + 3 * PAGE as usize;
    world.uffd.show(second, PAGE, false).unwrap();
    world.region.shared_store(3 * PAGE, 5).unwrap();
    world.uffd.protect(world.at(3), PAGE, false).unwrap();
    zap(world.at(3));
    world.region.load64(3 * PAGE).expect_err("not mapped any more");
    assert_eq!(world.second.load64(3 * PAGE), Ok(5));
    world.uffd.show(world.at(3), PAGE, false).unwrap();
    assert_eq!(world.region.load64(3 * PAGE), Ok(5));
    world.region.shared_store(3 * PAGE, 6).expect("what was shown anew is not protected");
    // What is not registered cannot be protected: that is how a look knows it.
    let other = Region::anonymous(PAGE).unwrap();
    assert_eq!(world.uffd.protect(other.base() as usize, PAGE, false), Err(Errno::NOENT));
}

/// Prints what the steps cost.
#[test]
fn costs() {
    let world = World::new();
    let start = std::time::Instant::now();
    let rounds = 2000_u32;
    for _ in 0..rounds {
        world.uffd.install(world.at(3), &[1; PAGE as usize], false).unwrap();
        world.uffd.protect(world.at(3), PAGE, false).unwrap();
        world.punch(3);
    }
    println!("install, protect, punch: {:?}", start.elapsed() / rounds);
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        world.region.load64(3 * PAGE).expect_err("a hole");
    }
    println!("a guarded load that traps: {:?}", start.elapsed() / rounds);
    world.uffd.install(world.at(3), &[1; PAGE as usize], false).unwrap();
    let mut looking = std::time::Duration::ZERO;
    for _ in 0..rounds {
        let start = std::time::Instant::now();
        world.uffd.protect(world.at(3), PAGE, false).unwrap();
        zap(world.at(3));
        looking += start.elapsed();
        world.uffd.show(world.at(3), PAGE, false).unwrap();
    }
    println!("a look: protect, take the entry away: {:?}", looking / rounds);
}
