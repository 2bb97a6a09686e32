//! Mounts that a benchmark makes for itself, in a mount namespace of its own: so that they go with
//! the process however it ends.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// How often and how long an unmount waits for the last process there to end.
const UNMOUNTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// From here on this process's mounts are its own. To be called before a thread is started; needs
/// root.
pub fn own_namespace() -> io::Result<()> {
    // SAFETY: only the view of mounts becomes this process's own, nothing that Rust relies on; the
    // caller is the only thread so far, so no other keeps the old one.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", all)?)
}

/// A tmpfs of so many bytes; `huge`: with pages of 2 MiB wherever they fit, else with none.
pub fn tmpfs(at: &Path, bytes: u64, huge: bool) -> io::Result<()> {
    let pages = if huge { "always" } else { "never" };
    let options = CString::new(format!("size={bytes},huge={pages}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", at, "tmpfs", flags, options.as_c_str())?)
}

/// A new ext4 or XFS in the file `image`, mounted by a loop device at the new directory `at`;
/// `false`: not with these tools.
pub fn image(kind: &str, image: &Path, at: &Path, bytes: u64) -> io::Result<bool> {
    fs::File::create_new(image)?.set_len(bytes)?;
    fs::create_dir(at)?;
    let made = match kind {
        "ext4" => does(Command::new("mkfs.ext4").arg("-qF").arg(image)),
        _ => {
            does(Command::new("mkfs.xfs").args(["-qf", "-i", "exchange=1"]).arg(image))
                || does(Command::new("mkfs.xfs").arg("-qf").arg(image))
        }
    };
    // For a mkfs.xfs that does not know it; where that fails, blocks are cloned.
    let _ = kind == "xfs" && made && allow(image, true);
    let mount = || does(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at));
    Ok(made && (mount() || kind == "xfs" && without_exchange(image) && mount()))
}

/// Waits a moment for the last process there: a loop device goes with its mount. What is in use
/// even then goes with the mount namespace.
pub fn unmount(at: &Path) {
    for _ in 0..UNMOUNTS {
        if rustix::mount::unmount(at, UnmountFlags::empty()).is_ok() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
}

/// For a kernel that does not mount what may exchange ranges.
fn without_exchange(image: &Path) -> bool {
    let off = allow(image, false);
    if off {
        eprintln!("solera: xfs without exchange-range: this kernel refuses it");
    }
    off
}

/// Sets or clears what `mkfs.xfs -i exchange=1` sets: bit 6 of the features.
fn allow(image: &Path, exchange: bool) -> bool {
    let ask = |words: &[&str]| {
        let all = words.iter().flat_map(|word| ["-c", word]);
        let output = Command::new("xfs_db").arg("-x").args(all).arg(image).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    };
    let found = ask(&["sb 0", "p features_incompat"]);
    let digits = found.as_deref().and_then(|text| text.rsplit("0x").next()).map(str::trim);
    let Some(bits) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
        return false;
    };
    let bits = if exchange { bits | 1 << 6 } else { bits & !(1 << 6) };
    ask(&["sb 0", &format!("write -d features_incompat {bits:#x}")]).is_some()
}

fn does(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
