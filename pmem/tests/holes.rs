//! The file system beneath a region is full: pages that have no memory yet read as zeros, and a store into
//! one says so; it was taken for a lost page.

use pmem::{Fault, Region, UserIn, UserOut};
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

fn fault<T>(result: Result<T, Fault>) -> Result<(), Fault> {
    result.map(drop)
}

#[test]
fn a_hole_reads_as_zeros_and_takes_no_store() {
    let Some(small) = Small::new("full") else { return };
    let region = starved(&small);
    let none = Err(Fault::NoMemory);
    assert_eq!(Errno::from(Fault::NoMemory), Errno::NOSPC);
    assert_eq!(region.load64(SIZE / 2), Ok(0));
    assert_eq!(region.load64(8), Ok(u64::from_le_bytes([7; 8])));
    for len in [1, 8, 64, 200, 4096, 20_000] {
        // Across the end of the page that is there.
        let mut bytes = vec![1; len];
        let there = len.min(3);
        region.read(PAGE - there as u64, &mut bytes).unwrap();
        assert!(bytes[..there].iter().all(|&byte| byte == 7), "{len}");
        assert!(bytes[there..].iter().all(|&byte| byte == 0), "{len}");
        bytes.fill(1);
        region.read_to(PAGE - there as u64, &UserOut::new(&mut bytes), len).unwrap();
        assert!(bytes[there..].iter().all(|&byte| byte == 0), "{len}");
        bytes.fill(1);
        region.read_near(PAGE - there as u64, &UserOut::new(&mut bytes), len).unwrap();
        assert!(bytes[there..].iter().all(|&byte| byte == 0), "{len}");
        for off in [PAGE, SIZE / 2 + 5] {
            assert_eq!(fault(region.write(off, &bytes)), none, "{len}");
            assert_eq!(fault(region.stream(off, &bytes)), none, "{len}");
            assert_eq!(fault(region.stream_from(off, &UserIn::new(&bytes))), none, "{len}");
            assert_eq!(fault(region.stream_summed(off, &UserIn::new(&bytes))), none, "{len}");
            assert_eq!(fault(region.stream_zero(off, len as u64)), none, "{len}");
            assert_eq!(region.shared_write(off, &bytes), none, "{len}");
        }
    }
    assert_eq!(fault(region.store64(PAGE, 1)), none);
    assert_eq!(fault(region.write_line(PAGE, &[1; 64])), none);
    assert_eq!(fault(region.copy(0, SIZE / 2, 64)), none);
    let _ = region.copy(SIZE / 2, 64, 128).unwrap().fence();
    assert_eq!((region.load64(64), region.load64(184)), (Ok(0), Ok(0)), "zeros were copied");
    assert_eq!(region.shared_load(PAGE), Ok(0));
    assert_eq!(region.shared_store(PAGE, 1), none);
    assert_eq!(fault(region.shared_cas(PAGE, 0, 2)), none);
    assert_eq!(fault(region.shared_add(PAGE, 1)), none);
    assert_eq!(fault(region.shared_swap(PAGE, 1)), none);
    assert_eq!(fault(region.shared_or(PAGE, 1)), none);
    let span = region.span::<8>(PAGE).unwrap();
    assert_eq!((span.load(1), span.words(), span.four(4)), (Ok(0), Ok([0; 8]), Ok([0; 4])));
    assert_eq!(span.store(1, 1), none);
    assert_eq!(span.store_each([(1, 1)]), none);
    assert_eq!(span.store_four(0, [1; 4]), none);
    assert_eq!(span.store_eight(0, &[1; 8]), none);
    assert_eq!((fault(span.cas(0, 0, 1)), fault(span.swap(0, 1))), (none, none));
    // With memory again all goes on.
    fs::remove_file(small.other()).unwrap();
    let _ = region.store64(PAGE, 1).unwrap().flush().fence();
    assert_eq!(region.load64(PAGE), Ok(1));
}

#[test]
fn memory_is_given_whole_or_not_at_all() {
    let Some(small) = Small::new("give") else { return };
    let region = starved(&small);
    let beneath = region.beneath().unwrap();
    assert_eq!((beneath.allocated, beneath.free), (PAGE, 0));
    assert_eq!(beneath.missing(SIZE), SIZE - PAGE);
    assert_eq!((region.next_data(0), region.next_hole(0)), (0, PAGE));
    assert_eq!(region.next_data(PAGE), SIZE);
    assert_eq!(region.provide(0, 2 * PAGE), Err(Errno::NOSPC));
    assert_eq!(region.populate(0, 2 * PAGE), Err(Errno::NOSPC));
    assert_eq!(region.populate(0, PAGE), Ok(()), "it has it already");
    fs::remove_file(small.other()).unwrap();
    assert_eq!(region.populate(SIZE / 2, 16 * PAGE), Ok(()));
    assert_eq!(
        (region.next_data(PAGE), region.next_hole(SIZE / 2)),
        (SIZE / 2, SIZE / 2 + 16 * PAGE)
    );
    small.fill();
    let _ = region.write(SIZE / 2, &[1; 16 * PAGE as usize]).unwrap().flush().fence();
    region.punch(SIZE / 2, 16 * PAGE).unwrap();
    assert_eq!(region.beneath().unwrap().allocated, PAGE);
    assert_eq!(region.load64(SIZE / 2), Ok(0));
}

#[test]
fn what_was_cut_off_is_lost_whatever_is_left() {
    let Some(small) = Small::new("cut") else { return };
    let region = starved(&small);
    region.cut(SIZE / 2).unwrap();
    assert_eq!(region.load64(SIZE / 2 - 8), Ok(0));
    assert_eq!(region.load64(SIZE / 2), Err(Fault::Region));
    assert_eq!(fault(region.store64(SIZE / 2, 1)), Err(Fault::Region));
    assert_eq!(fault(region.store64(SIZE / 2 - 8, 1)), Err(Fault::NoMemory));
}
