//! Which patched files are believed, and how they are written.

use std::ffi::CString;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use door::cache::{self, Cache, Distrust, name_of};
use door::image::Image;

use crate::libraries::{self, Scratch};

fn image() -> Image {
    Image::make(&std::fs::read(&libraries::host()[1]).unwrap(), &door::wanted).unwrap()
}

/// A file in a folder, and why it is not believed.
fn distrust(folder: &Path, build_id: &[u8]) -> Option<Distrust> {
    Cache::named(folder, &[]).find(build_id).err().map(|why| why[0].1)
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_file_is_written_once_and_found() {
    let scratch = Scratch::new("cache");
    let image = image();
    let id = image.footer.build_id();
    let folder = scratch.0.join("a/b");
    let cache = Cache::named(&folder, &[]);
    assert_eq!(cache.find(id).unwrap_err(), [(folder.join(name_of(id)), Distrust::Missing)]);
    let (path, there) = cache.install(&image).unwrap();
    assert!(!there && path == folder.join(name_of(id)));
    let first = std::fs::metadata(&path).unwrap();
    assert_eq!(first.mode() & 0o7777, 0o444);
    assert_eq!(std::fs::read(&path).unwrap(), image.bytes);
    let (again, there) = cache.install(&image).unwrap();
    assert!(there && again == path);
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), first.ino());
    assert_eq!(cache.find(id).unwrap().footer, image.footer);
    assert_eq!(cache.builds(), [id.to_vec()]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    // One that is damaged is replaced by another file: a program that has mapped it keeps it.
    mode(&path, 0o644);
    std::fs::write(&path, &image.bytes[..4096]).unwrap();
    assert!(matches!(distrust(&folder, id), Some(Distrust::Contents(_))));
    assert!(!cache.install(&image).unwrap().1);
    assert_ne!(std::fs::metadata(&path).unwrap().ino(), first.ino());
}

#[test]
fn what_others_may_change_is_not_believed() {
    let scratch = Scratch::new("distrust");
    let folder = scratch.0.join("folder");
    let image = image();
    let id = image.footer.build_id();
    let (path, _) = Cache::named(&folder, &[]).install(&image).unwrap();
    assert_eq!(distrust(&folder, id), None);
    for (bits, why) in [(0o464, Distrust::Writable), (0o446, Distrust::Writable)] {
        mode(&path, bits);
        assert_eq!(distrust(&folder, id), Some(why));
    }
    mode(&path, 0o444);
    for bits in [0o775, 0o757, 0o1777] {
        mode(&folder, bits);
        assert_eq!(distrust(&folder, id), Some(Distrust::FolderWritable));
    }
    mode(&folder, 0o755);
    // A link, in the place of the file and of the folder.
    let real = scratch.0.join("real");
    std::fs::rename(&path, &real).unwrap();
    symlink(&real, &path).unwrap();
    assert_eq!(distrust(&folder, id), Some(Distrust::Link));
    std::fs::remove_file(&path).unwrap();
    let other = scratch.0.join("other");
    symlink(&folder, &other).unwrap();
    assert!(matches!(distrust(&other, id), Some(Distrust::Link | Distrust::Missing)));
    // No regular file: nothing waits for a fifo's writer.
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o444) }, 0);
    assert_eq!(distrust(&folder, id), Some(Distrust::Kind));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(distrust(&folder, id), Some(Distrust::Kind));
    std::fs::remove_dir(&path).unwrap();
    // Another build by this name.
    let mut wrong = id.to_vec();
    wrong[0] ^= 1;
    std::fs::copy(&real, folder.join(name_of(&wrong))).unwrap();
    assert_eq!(distrust(&folder, &wrong), Some(Distrust::OtherBuild));
    std::fs::rename(&real, &path).unwrap();
    assert_eq!(distrust(&folder, id), None);
    owners(&folder, &path, id);
}

/// Who it belongs to: as root, who alone can give files away.
fn owners(folder: &Path, path: &Path, id: &[u8]) {
    // SAFETY: one's own number.
    if unsafe { libc::geteuid() } != 0 {
        println!("left out: only root gives files away");
        return;
    }
    let name = CString::new(folder.to_str().unwrap()).unwrap();
    chown(path, Some(1234), None).unwrap();
    // Root believes root's only; the user believes its own; a third one does not.
    assert_eq!(distrust(folder, id), Some(Distrust::Owner(1234)));
    assert!(cache::open(&name, id, 1234).is_ok());
    assert_eq!(cache::open(&name, id, 1235), Err(Distrust::Owner(1234)));
    chown(path, Some(0), None).unwrap();
    chown(folder, Some(1234), None).unwrap();
    assert_eq!(distrust(folder, id), Some(Distrust::Owner(1234)));
    assert!(cache::open(&name, id, 1234).is_ok());
}

#[test]
fn nothing_lies_on_a_volume() {
    let scratch = Scratch::new("onvolume");
    let image = image();
    let id = image.footer.build_id();
    let volume = scratch.0.join("volume");
    std::fs::create_dir(&volume).unwrap();
    let link = scratch.0.join("link");
    symlink(&volume, &link).unwrap();
    for folder in [volume.join("cache"), link.join("deep/cache")] {
        let cache = Cache::named(&folder, &[&volume]);
        assert_eq!(cache.find(id).unwrap_err()[0].1, Distrust::OnVolume);
        assert!(cache.install(&image).unwrap_err().1.to_string().contains("volume"));
        assert!(!folder.exists());
    }
    let usual = Cache::usual(Some(&volume), &[&volume]);
    let user: Vec<PathBuf> =
        usual.find(id).err().into_iter().flatten().map(|(path, _)| path).collect();
    assert!(user.is_empty() || user[2].starts_with(volume.join(cache::USER)));
}
