//! Where databases lie: a directory of the run, with a directory or a volume for each peer.

use std::fs;
use std::path::PathBuf;

use console::failure::Failure;
use console::size::show;
use rustix::process::{getegid, geteuid};
use solera_bench::SqliteBenchArgs;
use vfs::{FileSystem, Kind, NewNode};
use volume::{AttachOptions, FormatOptions};

use super::Variant;
use super::library::find_extension;
use crate::harness::scratch::touch;

/// Bytes of a volume beyond its databases.
const FIXED_BYTES: u64 = 256 << 20;
/// Bytes of a volume for each row of a table, and room to spare.
const ROW_BYTES: u64 = 256;

/// All of it is removed when this is dropped.
pub struct Testbed {
    pub directory: PathBuf,
    /// The directory of the databases on a volume. No other file system has one of this name.
    pub prefix: String,
    pub extension: PathBuf,
}

impl Testbed {
    /// Makes it; the memory of the volumes is touched.
    pub fn make(args: &SqliteBenchArgs) -> Result<Self, Failure> {
        let extension = find_extension()?;
        let name = format!("solera-bench-sqlite-{}", std::process::id());
        let failed = |error| {
            Failure::new(format!("make a directory in {}", args.place.display()), error, "")
        };
        // Workers and SQLite get whole paths.
        let directory = args.place.canonicalize().map_err(failed)?.join(&name);
        fs::create_dir(&directory).map_err(failed)?;
        let testbed = Self { directory: directory.clone(), prefix: format!("/{name}"), extension };
        for variant in [Variant::Unix, Variant::Solera] {
            fs::create_dir(testbed.kernel(variant)).map_err(failed)?;
        }
        let inserts = args.inserts.saturating_mul(u64::from(args.repeat) + 1).saturating_mul(2);
        let rows = args.rows.saturating_add(inserts);
        for variant in [Variant::UnixOnVolume, Variant::SoleraOnVolume] {
            let volume = testbed.volume(variant);
            let bytes = FIXED_BYTES.saturating_add(rows.saturating_mul(ROW_BYTES));
            let bytes = bytes.next_multiple_of(volume::CHUNK);
            touch(&volume, bytes).map_err(|error| {
                let asked = format!("make a volume of {} in {}", show(bytes), args.place.display());
                Failure::new(asked, error, "give a directory with more room, or fewer --rows")
            })?;
            volume::format(&volume, &FormatOptions { force: true, ..FormatOptions::default() })?;
        }
        // Under `solera run` the prefix is the volume's root.
        let volume =
            volume::attach(&testbed.volume(Variant::SoleraOnVolume), &AttachOptions::default())?;
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let kind = Kind::Directory;
        let new = NewNode { kind, mode: 0o755, uid, gid, rdev: 0, target: b"" };
        volume
            .create(volume.root(), name.as_bytes(), &new)
            .map_err(|errno| Failure::errno("make a directory on the volume", errno))?;
        drop(volume);
        Ok(testbed)
    }

    /// A peer's directory of the kernel's file system.
    pub fn kernel(&self, variant: Variant) -> PathBuf {
        self.directory.join(variant.name())
    }

    /// A peer's volume.
    pub fn volume(&self, variant: Variant) -> PathBuf {
        self.directory.join(format!("{}.pm", variant.name().replace(' ', "-")))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // What cannot be removed stays.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
