//! `solera upgrade`.

use console::failure::Outcome;
use console::output;
use console::size;
use serde_json::json;
use volume::Upgrade;

use crate::args::UpgradeArgs;

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
