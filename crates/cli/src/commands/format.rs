//! `solera format`.

use std::path::{Path, PathBuf};

use clap::Args;
use console::failure::Outcome;
use console::output;
use console::size;
use ddmap::Registry;
use volume::Info;

use crate::commands::info;
use crate::domains;
use crate::owner::Owner;

/// Make a volume in a file or on a device.
///
/// The file is created if need be. On a tmpfs (/dev/shm) it survives the end of every process but
/// not a reboot; on a DAX file system or a /dev/dax device it is durable (`solera info` says which,
/// and why).
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera format --size 4G /dev/shm/v.pm             a volume in memory
  solera format --size 4G --reserve /dev/shm/v.pm   all of that memory at once, or none
  solera format --size 64G --label db /mnt/dax/v.pm a file on a DAX mount
  solera format /dev/dax0.0                         a whole device
  solera format --size 64G --owner postgres: /mnt/dax/v.pm
                                                    by root, for the user postgres and its group
  solera format --size 4G --force /dev/shm/v.pm     again, and forget what it held
  solera format --ddmap dm/big --size 1T            on the nodes of a domain (`solera node`)
  solera format --ddmap dm/big --size 1T --copies 2 each page with two of them")]
pub struct FormatArgs {
    /// Bytes, or with K, M, G, T. May be left out for a device, and for a file that has its size
    /// already.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<u64>,
    /// How many allocation groups (default: by size and CPUs).
    #[arg(long)]
    pub groups: Option<u32>,
    /// A name for people, shown by `info`.
    #[arg(long, default_value = "")]
    pub label: String,
    /// Permissions of a new file: 600 for one user, 660 for a group. A user that may write may
    /// change all in it.
    #[arg(long, default_value = "600", value_parser = permissions)]
    pub permissions: u32,
    /// Whose the volume is to be: the file, what lies beside it while it is used, and its root
    /// directory. Names or numbers, as chown(1) takes them: only root gives away. The node of a
    /// device stays as it is.
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    /// Take the memory for this class whatever it is: byte, cache-line, volatile or page (a plain
    /// file).
    #[arg(long)]
    pub class: Option<pmem::Class>,
    /// Overwrite what is there, even a volume.
    #[arg(long)]
    pub force: bool,
    /// Take all of the memory now, or fail: else it is taken as files need it, as long as there is
    /// any.
    #[arg(long)]
    pub reserve: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Instead of a file: a new volume of a domain, whose pages lie on its nodes. The domain must
    /// have --size free; its host is the node of this machine with the lowest number.
    #[arg(long, value_name = "DOMAIN/VOLUME", requires = "size",
          conflicts_with_all = ["path", "permissions", "owner", "class", "force", "reserve"])]
    pub ddmap: Option<String>,
    /// Of a volume of a domain: how many nodes besides its host keep each page that is not on the
    /// host, 1 or 2. With 2 any one of them may be lost with its store; it takes their room twice.
    #[arg(long, value_name = "N", conflicts_with = "path", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    pub copies: u8,
    /// The file or device.
    #[arg(required_unless_present = "ddmap")]
    pub path: Option<PathBuf>,
}

fn permissions(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("`{text}` is not a set of permissions: give an octal number such as 660")),
    }
}

/// Warns of a volume for which the file system beneath has too little.
pub fn warn_of_missing(path: &Path, made: &Info) {
    let (Some(free), true) = (made.beneath_free_bytes, made.missing_bytes > 0) else { return };
    eprintln!(
        "solera: {}: the file system beneath has {} left, and the volume takes up to {} more: it \
         says \"no space left\" as soon as that is used up. Take a smaller --size, or make room \
         there.",
        path.display(),
        size::show(free),
        size::show(made.size_bytes.saturating_sub(made.allocated_bytes)),
    );
}

/// Makes a volume and says what was made.
pub fn run(args: &FormatArgs) -> Outcome {
    let owner = args.owner.as_deref().map(Owner::parse).transpose()?.unwrap_or_default();
    let options = volume::FormatOptions {
        size: args.size,
        groups: args.groups,
        label: args.label.clone(),
        force: args.force,
        permissions: args.permissions,
        owner: owner.user,
        group: owner.group,
        class: args.class,
        reserve: args.reserve,
        ..volume::FormatOptions::default()
    };
    if let (Some(name), Some(size)) = (&args.ddmap, args.size) {
        return of_domain(args, name, size, &options);
    }
    // One of the two is required.
    let path = args.path.as_deref().unwrap_or(Path::new(""));
    output::busy("formatting", || volume::format(path, &options))?;
    let made = volume::info(path)?;
    warn_of_missing(path, &made);
    if owner != Owner::default() && !path.is_file() {
        output::tell(format!(
            "the node of {} stays as it is: give its user permission (chown, or a udev rule)",
            path.display()
        ));
    }
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let class = args.class.map_or_else(String::new, |class| format!("--class {class} "));
        let text = format!(
            "{}: {}, {} free, class {} ({})\nNext: solera run {class}--volume {} --at /pm -- \
             PROGRAM\n",
            path.display(),
            size::show(made.size_bytes),
            size::show(made.free_bytes),
            made.class,
            made.class_reason,
            path.display(),
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}

/// Makes a volume of a domain.
fn of_domain(args: &FormatArgs, name: &str, size: u64, options: &volume::FormatOptions) -> Outcome {
    let wanted = (size, args.copies);
    let region = domains::make(&Registry::find()?, name, wanted, options.clone())?;
    let stays = volume::own_bytes(size, options)?;
    let made = volume::info(&region)?;
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let text = format!(
            "{name}: {}, {} free, on its host in {}, where {} always stay\nNext: solera run \
             --ddmap {name} -- PROGRAM, which sees it at /dm\n",
            size::show(made.size_bytes),
            size::show(made.free_bytes),
            region.display(),
            size::show(stays),
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}
