//! `solera grow`.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;
use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use serde_json::json;

use crate::commands::format;
use crate::domains;
use crate::tree::VolumeTree;

/// Make a volume larger, while programs go on using it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera grow --size 8G /dev/shm/v.pm     to 8 GiB
  solera grow --size +2G /dev/shm/v.pm    by 2 GiB")]
pub struct GrowArgs {
    /// The new size, or with a + before it how much more.
    #[arg(long, value_parser = new_size)]
    pub size: NewSize,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// The size that `grow` is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSize {
    /// Bytes in all.
    To(u64),
    /// Bytes more.
    By(u64),
}

fn new_size(text: &str) -> Result<NewSize, String> {
    match text.strip_prefix('+') {
        Some(more) => size::parse(more).map(NewSize::By),
        None => size::parse(text).map(NewSize::To),
    }
}

/// Makes the volume larger; others may have it attached meanwhile.
pub fn run(args: &GrowArgs) -> Outcome {
    let wanted_of = |before: u64| match args.size {
        NewSize::To(bytes) => bytes,
        NewSize::By(more) => before.saturating_add(more),
    };
    if domains::of_region(&args.volume).is_some() {
        let found = volume::info(&args.volume)?;
        let (before, wanted) = (found.size_bytes, wanted_of(found.size_bytes));
        // What it would refuse is refused ahead.
        if wanted > before && wanted <= found.size_max_bytes {
            domains::grow(&args.volume, (before, wanted))?;
        }
    }
    let tree = VolumeTree::attach(&args.volume)?;
    let asked = format!("grow {}", args.volume.display());
    let info = || tree.volume().info().map_err(|errno| Failure::errno(&asked, errno));
    let before = info()?.size_bytes;
    let wanted = wanted_of(before);
    output::busy("growing", || tree.volume().grow(wanted))?;
    let grown = info()?;
    let after = grown.size_bytes;
    format::warn_of_missing(&args.volume, &grown);
    if args.json {
        output::emit_json(&json!({ "size_bytes_before": before, "size_bytes": after }))?;
    } else {
        let path = args.volume.display();
        let text = format!("{path}: grown from {} to {}\n", size::show(before), size::show(after));
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}
