//! What stores need, by where a region comes from; and that plain stores are seen in their order.

use crate::directory::TestDir;
use pmem::costs::CostCounter;
use pmem::{Class, ForeignMemory, Locality, OpenOptions, Policy, Purpose, Region, UserIn};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const WRITE: OpenOptions = OpenOptions {
    write: true,
    force_class: None,
    flushed: false,
    allow_page: true,
    reserve: 0,
    purpose: Purpose::Volume,
};

/// Fences, flushed lines and streamed bytes of one of everything.
fn costs(region: &mut Region) -> (u64, u64, u64) {
    let counter = CostCounter::new();
    region.set_hook(Arc::clone(&counter) as Arc<dyn pmem::Hook>);
    let bytes = [7; 4096];
    let word = region.store64(0, 1).unwrap().flush();
    let line = region.write_line(64, &[2; 64]).unwrap();
    let few = region.write(200, &bytes[..100]).unwrap().flush();
    let many = region.stream(4096, &bytes).unwrap().and(word).and(line).and(few);
    let user = region.stream_from(8192, &UserIn::new(&bytes[..300]), Locality::Near).unwrap();
    let (summed, _) =
        region.stream_checksummed(9000, &UserIn::new(&bytes), Locality::Near).unwrap();
    let copied = region.copy(4096, 16384, 4096).unwrap().and(many).and(user).and(summed);
    let durable = region.stream_zero(20480, 4096).unwrap().and(copied).fence();
    let _ = region.commit_line(128, &[3; 64], &durable).unwrap().fence();
    let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    (get(&counter.fences), get(&counter.flushed_lines), get(&counter.streamed_bytes))
}

#[test]
fn memory_that_a_reboot_empties_needs_nothing() {
    let directory = TestDir::in_memory("plain");
    let path = directory.file("region");
    let mut named = Region::create(&path, 1 << 16, 0o600, true).unwrap();
    let mut anonymous = Region::anonymous(1 << 16).unwrap();
    for (region, what) in [(&mut named, "tmpfs"), (&mut anonymous, "memfd")] {
        assert_eq!(region.policy(), Policy::Plain, "{what}");
        assert_eq!(costs(region), (0, 0, 0), "{what}");
    }
    // What is moved, or grows, on the same file system stays so.
    let moved = directory.file("moved");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(Region::open(&moved, &WRITE).unwrap().policy(), Policy::Plain);
}

/// A file of huge pages, if this machine has one free.
#[test]
fn huge_pages_need_nothing() {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::HUGETLB;
    let Ok(fd) = rustix::fs::memfd_create("policy", flags) else {
        return println!("no memory of huge pages: nothing tested");
    };
    rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
    match Region::adopt(fd, Path::new("(huge pages)"), &WRITE) {
        Ok(region) => assert_eq!(region.policy(), Policy::Plain),
        Err(error) => println!("no huge page is free ({error}): nothing tested"),
    }
}

/// Whatever is forced, or asked for, only memory that *is* volatile is spared flushes.
#[test]
fn everything_else_is_flushed() {
    let directory = TestDir::in_memory("flushed");
    let path = directory.file("region");
    drop(Region::create(&path, 1 << 16, 0o600, true).unwrap());
    let open = |options: &OpenOptions| Region::open(&path, options).unwrap();
    for class in [Class::CacheLine, Class::Page] {
        let mut region = open(&OpenOptions { force_class: Some(class), ..WRITE });
        assert_eq!(region.policy(), Policy::Flushed, "tmpfs as {class}");
        let (fences, flushed, streamed) = costs(&mut region);
        assert!(fences == 2 && flushed > 5 && streamed > 16_000, "{fences} {flushed} {streamed}");
    }
    let mut byte = open(&OpenOptions { force_class: Some(Class::Byte), ..WRITE });
    assert_eq!(byte.policy(), Policy::Fenced);
    assert_eq!(costs(&mut byte).0, 2);
    let emulated = open(&OpenOptions { flushed: true, ..WRITE });
    assert_eq!((emulated.class(), emulated.policy()), (Class::Volatile, Policy::Flushed));

    // A file on a disk, also where somebody says that it is volatile.
    let disk = TestDir::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "policy");
    let path = disk.file("region");
    let region = Region::create_with(&path, 1 << 16, 0o600, true, &WRITE).unwrap();
    if region.class() == Class::Volatile {
        return println!("the build directory lies in memory: files of disks are not tested");
    }
    assert_eq!(region.policy(), Policy::Flushed);
    drop(region);
    let forced = OpenOptions { force_class: Some(Class::Volatile), ..WRITE };
    let region = Region::open(&path, &forced).unwrap();
    assert_eq!((region.class(), region.policy()), (Class::Volatile, Policy::Flushed));
}

#[test]
fn memory_that_is_lent_or_recorded_is_as_its_lender_says() {
    let region = Region::in_memory([0; 4096], None);
    assert_eq!(region.policy(), Policy::Flushed, "tests and the explorer record all");
    for policy in [Policy::Plain, Policy::Flushed] {
        let memory = Region::anonymous(1 << 16).unwrap();
        let class = (Class::Volatile, "a test's".to_owned());
        let (base, len) = (memory.base(), memory.len());
        let lent = ForeignMemory { base, space: len as usize, len, class, policy, write: true };
        // SAFETY: the other region's mapping, which lives longer, and is a file's.
        let mut lent = unsafe { Region::lent(lent) }.unwrap();
        assert_eq!(lent.policy(), policy);
        assert_eq!(costs(&mut lent).0 == 0, policy == Policy::Plain);
    }
}

/// A view that is private changes nothing of its file.
#[test]
fn a_private_view_is_plain() {
    let disk = TestDir::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "view");
    let path = disk.file("region");
    std::fs::write(&path, [1; 8192]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let view = Region::private_view(file.into()).unwrap();
    assert_eq!(view.policy(), Policy::Plain);
    let _ = view.stream(0, &[2; 4096]).unwrap().fence();
    assert_eq!(std::fs::read(&path).unwrap(), [1; 8192]);
}

/// Bytes of a short copy, and of one that goes around the cache on every CPU. It ends inside a
/// line, which without a fence stays in the processor until something else drives it out.
const SHORT: usize = 2048;
const LONG: usize = (64 << 10) + 24;

/// Stores bytes at an offset.
type Store = fn(&Region, u64, &[u8]);

/// Ways to store, and so many bytes.
const WAYS: [(&str, usize, Store); 5] = [
    ("word", 8, |region, at, bytes| {
        let word = u64::from_le_bytes(bytes.try_into().unwrap());
        let _ = region.store64(at, word).unwrap().flush().fence();
    }),
    ("line", 64, |region, at, bytes| {
        let _ = region.write_line(at, bytes.try_into().unwrap()).unwrap().fence();
    }),
    ("copy", SHORT, |region, at, bytes| {
        let _ = region.stream_from(at, &UserIn::new(bytes), Locality::Near).unwrap().fence();
    }),
    ("stream", LONG, |region, at, bytes| {
        let _ = region.stream_from(at, &UserIn::new(bytes), Locality::Cold).unwrap().fence();
    }),
    ("summed", LONG, |region, at, bytes| {
        let bytes = UserIn::new(bytes);
        let _ = region.stream_checksummed(at, &bytes, Locality::Cold).unwrap().0.fence();
    }),
];

/// One processor stores, another looks: what is stored behind something is never seen before it,
/// whichever way each of the two was stored.
#[test]
fn another_processor_sees_stores_in_their_order() {
    const ROUNDS: u64 = 4_000;
    const FIRST: u64 = 4096;
    const SECOND: u64 = 1 << 20;
    for (before, length, first) in WAYS {
        for (behind, other_length, second) in WAYS {
            let region = Region::anonymous(4 << 20).unwrap();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    for value in 1..=ROUNDS {
                        // Both before the first store: memory that is had or given back between
                        // the two would wait for what is under way.
                        let [one, other] = [length, other_length]
                            .map(|bytes| value.to_le_bytes().repeat(bytes / 8));
                        first(&region, FIRST, &one);
                        second(&region, SECOND, &other);
                    }
                });
                let (mut seen, last) = (0, FIRST + length as u64 - 8);
                while seen < ROUNDS {
                    seen = region.load64(SECOND).unwrap();
                    let found = region.load64(last).unwrap();
                    assert!(found >= seen, "{before}, then {behind}: {found} behind {seen}");
                }
            });
        }
    }
}

/// Copies through the cache beside streams that are fenced, and reads behind both: `cargo test
/// --release -p solera-pmem --test regions policy::copies_beside -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn copies_beside_streams() {
    let mut region = Region::anonymous(512 << 20).unwrap();
    let _ = region.stream_zero(0, region.len()).unwrap().fence();
    for length in [4096, 64 << 10, 1 << 20] {
        for set in [2_u64 << 20, 16 << 20, 512 << 20] {
            let (bytes, mut back) = (vec![1; length], vec![0; length]);
            let mut figures = [0; 4];
            for (at, class) in [Class::Volatile, Class::CacheLine].into_iter().enumerate() {
                region.set_class(class);
                let each = |act: &mut dyn FnMut(u64)| {
                    let begun = Instant::now();
                    (0..set / length as u64).for_each(|number| act(number * length as u64));
                    begun.elapsed().as_nanos() / u128::from(set / length as u64)
                };
                let (mut stored, mut loaded) = (Vec::new(), Vec::new());
                for _ in 0..7 {
                    stored.push(each(&mut |off| {
                        let from = UserIn::new(&bytes);
                        let _ = region.stream_from(off, &from, Locality::Near).unwrap().fence();
                    }));
                    loaded.push(each(&mut |off| region.read(off, &mut back).unwrap()));
                }
                stored.sort_unstable();
                loaded.sort_unstable();
                (figures[at], figures[at + 2]) = (stored[3], loaded[3]);
            }
            let [copied, streamed, behind_copy, behind_stream] = figures;
            println!(
                "{length} B in {} MiB: copied {copied} ns, streamed {streamed} ns; read behind \
                 {behind_copy}, {behind_stream} ns",
                set >> 20
            );
        }
    }
}
