//! The file system beneath a region is full: a page that has no memory yet was taken for a lost
//! one.

use pmem::{Fault, Locality, Region, UserIn, UserOut, or_no_memory};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: u64 = 4096;
const SIZE: u64 = 8 << 20;

/// A tmpfs of 1 MiB.
struct Small(PathBuf);

impl Small {
    /// `None`, and it says so, if this test may not mount.
    fn new(name: &str) -> Option<Self> {
        let at = PathBuf::from(format!("/dev/shm/solera-holes-{name}-{}", std::process::id()));
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1M", "none"]).arg(&at);
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(at));
        }
        eprintln!("mounting a tmpfs is not permitted: nothing tested");
        let _ = fs::remove_dir(&at);
        None
    }

    fn other(&self) -> PathBuf {
        self.0.join("other")
    }

    /// Its memory is there again; a child that another test is starting may have the file open a
    /// moment longer.
    fn empty(&self, region: &Region) {
        fs::remove_file(self.other()).unwrap();
        let free = || region.beneath().and_then(|beneath| beneath.free);
        while free() < Some(SIZE / 16) {
            std::thread::yield_now();
        }
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.other()).unwrap();
        while file.write_all(&[1; PAGE as usize]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// A region of which only the first page has memory, and nothing is left.
fn starved(small: &Small) -> Region {
    let region = Region::create(Path::new(&small.0.join("region")), SIZE, 0o600, true).unwrap();
    let _ = region.write(0, &[7; PAGE as usize]).unwrap().flush().fence();
    small.fill();
    region
}

/// What a call says that has met this.
fn said<T>(result: Result<T, Fault>) -> Option<Errno> {
    result.err().map(|fault| or_no_memory(Errno::from(fault)))
}

#[test]
fn a_fault_in_a_hole_is_a_lack_of_memory() {
    let Some(small) = Small::new("full") else { return };
    let region = starved(&small);
    let full = Some(Errno::NOSPC);
    assert_eq!(region.load64(8), Ok(u64::from_le_bytes([7; 8])));
    assert_eq!(said(region.load64(SIZE / 2)), full);
    assert_eq!(or_no_memory(Errno::IO), Errno::IO, "it was asked already");
    for len in [1, 8, 64, 200, 4096, 20_000] {
        let mut bytes = vec![1; len];
        for off in [PAGE, SIZE / 2 + 5] {
            assert_eq!(said(region.read(off, &mut bytes)), full, "{len}");
            assert_eq!(said(region.read_to(off, &UserOut::new(&mut bytes), len)), full, "{len}");
            assert_eq!(said(region.write(off, &bytes)), full, "{len}");
            assert_eq!(said(region.stream(off, &bytes)), full, "{len}");
            assert_eq!(
                said(region.stream_from(off, &UserIn::new(&bytes), Locality::Near)),
                full,
                "{len}"
            );
            assert_eq!(
                said(region.stream_checksummed(off, &UserIn::new(&bytes), Locality::Near)),
                full,
                "{len}"
            );
            assert_eq!(said(region.stream_zero(off, len as u64)), full, "{len}");
        }
    }
    assert_eq!(said(region.store64(PAGE, 1)), full);
    assert_eq!(said(region.write_line(PAGE, &[1; 64])), full);
    assert_eq!(said(region.copy(0, SIZE / 2, 64)), full);
    assert_eq!(said(region.copy(SIZE / 2, 0, 64)), full);
    assert_eq!(said(region.shared_cas(PAGE, 0, 2)), full);
    assert_eq!(said(region.shared_add(PAGE, 1)), full);
    let span = region.span::<8>(PAGE).unwrap();
    assert_eq!(said(span.store(1, 1)), full);
    assert_eq!(said(span.words()), full);
    // Other errors stay what they are, and so does a fault outside.
    assert!(region.store64(PAGE, 1).is_err());
    assert_eq!(or_no_memory(Errno::NOENT), Errno::NOENT);
    assert_eq!(said(region.load64(SIZE)), Some(Errno::IO));
    // With memory again all goes on.
    small.empty(&region);
    let _ = region.store64(PAGE, 1).unwrap().flush().fence();
    assert_eq!(region.load64(PAGE), Ok(1));
}

#[test]
fn memory_is_given_whole_or_not_at_all() {
    let Some(small) = Small::new("give") else { return };
    let region = starved(&small);
    let beneath = region.beneath().unwrap();
    assert_eq!((beneath.allocated, beneath.free), (PAGE, Some(0)));
    assert_eq!(beneath.missing(SIZE), SIZE - PAGE);
    assert_eq!((region.next_data(0), region.next_hole(0)), (0, PAGE));
    assert_eq!(region.next_data(PAGE), SIZE);
    assert_eq!(region.provide(0, 2 * PAGE), Err(Errno::NOSPC));
    assert_eq!(region.populate(0, 2 * PAGE), Err(Errno::NOSPC));
    assert_eq!(region.populate(0, PAGE), Ok(()), "it has it already");
    small.empty(&region);
    assert_eq!(region.populate(SIZE / 2, 16 * PAGE), Ok(()));
    assert_eq!(
        (region.next_data(PAGE), region.next_hole(SIZE / 2)),
        (SIZE / 2, SIZE / 2 + 16 * PAGE)
    );
    for off in [0, 8, PAGE, SIZE / 2, SIZE / 2 + 3 * PAGE + 8] {
        for end in [off + 8, off + PAGE, SIZE / 2 + 16 * PAGE, SIZE / 2 + 17 * PAGE, SIZE] {
            let end = end.max(off);
            let hole = region.next_hole(off).min(end);
            assert_eq!(region.next_hole_before(off, end), hole, "{off} {end}");
        }
    }
    small.fill();
    let _ = region.write(SIZE / 2, &vec![1; 16 * PAGE as usize]).unwrap().flush().fence();
    region.punch(SIZE / 2, 16 * PAGE).unwrap();
    assert_eq!(region.beneath().unwrap().allocated, PAGE);
    assert!(region.is_hole(SIZE / 2) && !region.is_hole(0));
}

#[test]
fn what_was_cut_off_is_lost_whatever_is_left() {
    let Some(small) = Small::new("cut") else { return };
    let region = starved(&small);
    region.cut(SIZE / 2).unwrap();
    assert_eq!(said(region.store64(SIZE / 2 - 8, 1)), Some(Errno::NOSPC));
    assert_eq!(said(region.load64(SIZE / 2)), Some(Errno::IO));
    assert_eq!(said(region.store64(SIZE / 2, 1)), Some(Errno::IO));
}
