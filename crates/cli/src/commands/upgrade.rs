//! `solera upgrade`.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;
use console::failure::Outcome;
use console::output;
use console::size;
use serde_json::json;
use volume::Upgrade;

/// Convert a volume that an earlier release made.
///
/// From 0.2 on every release reads and writes the volumes of all releases before it. Some of what a
/// newer one can do needs room that an older volume does not have; this makes it, in place. What
/// the volume holds is not touched, and a crash leaves the old volume or the new one. Releases from
/// 0.2 on go on reading it.
#[derive(Args)]
#[command(after_help = "\
No process may have the volume attached. One that an earlier program left in disorder is recovered
first. A volume of a version that this release does not know is refused: the release that made it
copies its files out (`solera cp`, or `solera export` from 0.2 on), and this one takes them in.

Exit code: 0 it is as this release makes volumes, or with --dry-run: it can be told what is to be
done; 1 it is as it was.

Examples:
  solera upgrade --dry-run /dev/shm/v.pm
  solera upgrade /mnt/dax/v.pm
  solera export old.pm | solera import new.pm")]
pub struct UpgradeArgs {
    #[command(flatten)]
    pub class: ClassArg,
    /// Say what is to be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// Converts a volume, or says what there is to convert.
pub fn run(args: &UpgradeArgs) -> Outcome {
    let path = &args.volume;
    let upgrade = if args.dry_run {
        volume::upgradable(path)?
    } else {
        output::busy("upgrading", || volume::upgrade(path))?
    };
    if args.json {
        let lengths = |(has, gets): (u64, u64)| json!({ "before": has, "after": gets });
        output::emit_json(&json!({
            "changed": !upgrade.is_nothing() && !args.dry_run,
            "up_to_date": upgrade.is_nothing() || !args.dry_run,
            "runtime_range_bytes": upgrade.runtime_range.map(lengths),
        }))?;
    } else {
        output::emit(format!("{}: {}\n", path.display(), text(&upgrade, args.dry_run)).as_bytes())?;
    }
    Ok(0)
}

fn text(upgrade: &Upgrade, dry_run: bool) -> String {
    match upgrade.runtime_range {
        None => "it is as this release makes volumes".to_owned(),
        Some((has, gets)) => {
            let does = if dry_run { "would grow" } else { "has grown" };
            let (has, gets) = (size::show(has), size::show(gets));
            format!("its room for what processes share {does} from {has} to {gets}")
        }
    }
}
