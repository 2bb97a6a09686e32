//! The arguments of `solera mount`.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;

use crate::commands::cache::CacheArg;

/// Mount a volume at a directory, for every program and every user.
///
/// What root mounts is open to every user; what another user mounts only to that user, unless it is
/// opened by an option, where that is permitted.
///
/// A process serves the mount in the background; it ends when the directory is unmounted, and
/// unmounts it on SIGTERM. Programs under `solera run` find the mount by its path and use the
/// volume directly below it; all others reach the same files through the kernel.
#[derive(Args)]
#[command(after_help = "\
Options for -o, with commas between them:
  ro             nothing can be changed
  allow_other    other users than the one who mounts may use it: what root mounts is so anyway;
                 others may say it where /etc/fuse.conf has the line user_allow_other
  noallow_other  only who mounts may use it, also if that is root
  mode=MODE      as --mode
  class=CLASS    as --class
  suid, dev      set-user-id programs and device nodes work (root only)
  noexec, noatime, and those of mount(8) that say nothing new

Permissions are checked by the kernel, as on any file system, by the owners and modes of the files.
Users who may not mount need fusermount3 (Debian: fuse3), and a directory of their own. With the
command linked to /sbin/mount.fuse.solera, as `make install` does,
mount(8) knows the type `fuse.solera`, and a line in /etc/fstab mounts at boot:
  /mnt/dax/v.pm  /srv/data  fuse.solera  nofail  0 0

Examples:
  solera mount /dev/shm/v.pm /mnt/pm
  solera mount -o mode=sync,noatime /dev/shm/v.pm /mnt/pm
  solera mount /dev/shm/v.pm /mnt/pm && solera run -- bash -c 'cd /mnt/pm && ls'
  solera umount /mnt/pm")]
pub struct MountArgs {
    /// Serve in the foreground: the command ends when the directory is unmounted.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Options, as in /etc/fstab. May be given again.
    #[arg(short = 'o', value_name = "LIST")]
    pub options: Vec<String>,
    /// Change nothing.
    #[arg(short = 'r', long)]
    pub read_only: bool,
    /// What a write through the mount promises: posix, sync or strict [default: strict].
    #[arg(long, value_parser = ["posix", "sync", "strict"])]
    pub mode: Option<String>,
    #[command(flatten)]
    pub class: ClassArg,
    #[command(flatten)]
    pub cache: CacheArg,
    /// Take options that are not known.
    #[arg(short = 's', long, hide = true)]
    pub sloppy: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
    /// The directory.
    pub directory: PathBuf,
}
