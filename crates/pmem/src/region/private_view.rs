//! Private views of regions: stores stay in this process. Files are mapped privately; device-dax,
//! which the kernel maps shared only, is copied on write here.

use crate::region::Region;
use crate::region::source::{self, Class, OpenError, OpenOptions, PAGE, Source};
use memory::faults::copy_on_write;
use rustix::fs::FileType;
use rustix::mm::MapFlags;
use std::os::fd::OwnedFd;
use std::path::Path;

impl Region {
    /// A private, copy-on-write view of a file: what is stored here never reaches the file. For the
    /// crash explorer, which continues one image in many ways.
    pub fn private_view(file: OwnedFd) -> Result<Region, OpenError> {
        Self::view(file, None)
    }

    /// The same of a file that may only be read, by a process that attaches it so.
    pub fn reading(file: OwnedFd, path: &Path) -> Result<Region, OpenError> {
        Self::view(file, Some(path))
    }

    fn view(file: OwnedFd, path: Option<&Path>) -> Result<Region, OpenError> {
        let name = path.unwrap_or(Path::new("(private view)"));
        let (kind, stat) = source::region_kind(name, &file)?;
        let large =
            rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type == source::HUGETLBFS_MAGIC);
        if kind == FileType::CharacterDevice || large {
            let source = source::probe(name, file, &OpenOptions::default())?;
            return Region::copying_view(path, name, source);
        }
        let source = Source {
            fd: file,
            file: (stat.st_dev, stat.st_ino),
            len: stat.st_size as u64,
            device: false,
            found: Class::Volatile,
            class: Class::Volatile,
            reason: "a private view".to_owned(),
            // What is never stored to needs no memory of its own, however large the file is.
            flags: MapFlags::PRIVATE | MapFlags::NORESERVE,
            align: PAGE as usize,
            unit: PAGE,
        };
        Region::map(path, name, source, &OpenOptions { write: true, ..OpenOptions::default() })
    }

    /// A private view of what cannot be mapped privately: pieces are copied when they are stored
    /// to.
    pub(crate) fn copying_view(
        path: Option<&Path>,
        name: &Path,
        source: Source,
    ) -> Result<Region, OpenError> {
        let piece = source.align;
        let mut region = Region::map(path, name, source, &OpenOptions::default())?;
        copy_on_write::add(region.base(), (region.len() as usize).next_multiple_of(piece), piece)
            .map_err(|errno| {
            let found = format!("a view of it gave: {}", os::describe(errno));
            OpenError::new(name, errno, found, "end other views of devices")
        })?;
        region.become_private();
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use crate::region::Region;
    use crate::region::source::{OpenOptions, probe};
    use std::path::Path;

    const PIECE: u64 = 2 << 20;

    #[test]
    fn stores_into_a_view_of_shared_memory_stay_in_it() {
        let shared = Region::anonymous(4 * PIECE).unwrap();
        let _ = shared.write(PIECE + 8, b"before").unwrap().flush().fence();
        let name = format!("/proc/self/fd/{}", shared.fd());
        let name = Path::new(&name);
        let view = || {
            let fd = crate::region::source::open_path(name, false).unwrap();
            let source = probe(name, fd, &OpenOptions::default()).unwrap();
            Region::copying_view(None, name, source).unwrap()
        };
        let read = |region: &Region, at| {
            let mut bytes = [0; 6];
            region.read(at, &mut bytes).unwrap();
            bytes
        };
        let (one, other) = (view(), view());
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let one = &one;
                threads.spawn(move || {
                    for piece in 0..3 {
                        let at = piece * PIECE + 64 * thread;
                        let _ = one.write(at, b"thread").unwrap().flush().fence();
                    }
                });
            }
        });
        for piece in 0..3 {
            for thread in 0..4 {
                assert_eq!(&read(&one, piece * PIECE + 64 * thread), b"thread");
            }
        }
        let _ = one.write(PIECE + 8, b"inside").unwrap().flush().fence();
        assert_eq!(&read(&one, PIECE + 8), b"inside");
        assert_eq!(&read(&other, PIECE + 8), b"before", "another view sees none of it");
        assert_eq!(&read(&shared, PIECE + 8), b"before", "nor does the memory itself");
        // A piece without stores of the view shows changes of the device.
        let _ = shared.write(3 * PIECE, b"beside").unwrap().flush().fence();
        assert_eq!(&read(&one, 3 * PIECE), b"beside");
    }
}
