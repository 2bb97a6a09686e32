//! `solera run --ddmap`: the volume of a domain in the place of `--volume`, and what the library is
//! told of its pages.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::output;
use console::size;
use ddmap::reach::registry::{self, Registry};
use volume::FormatOptions;

use super::nested;
use crate::args::{DdmapArg, Local, RunArgs};
use crate::commands::node::DEMO;
use crate::domain;

/// Where a program sees the volume.
const AT: &str = "/dm";
/// Seconds that a touch waits for a holder.
const PATIENCE: u64 = 30;
/// How pages are brought ahead.
const AHEAD: &str = "auto";

/// The arguments with the region of a volume of a domain as the volume. Of the domain of
/// `node --demo` the volume is made if need be.
pub fn named(args: &RunArgs) -> Result<Cow<'_, RunArgs>, Failure> {
    let Some(name) = &args.ddmap.ddmap else { return Ok(Cow::Borrowed(args)) };
    let (domain, volume) = registry::parse(name)?;
    if nested::serving().is_some() {
        let found = "the program that starts it is served already, and its library would not hear \
                     of it";
        let advice = "start it outside, or name all there";
        return Err(Failure::new(format!("add {name}"), found, advice));
    }
    let registry = Registry::find()?;
    let has = || registry.living(domain).iter().any(|(_, store)| store.volume(volume).exists());
    if domain == DEMO && !registry.living(domain).is_empty() && !has() {
        let (all, _) = domain::capacity(&domain::status(&registry, domain)?);
        let bytes = all / 4 * 3;
        domain::make(&registry, name, bytes, FormatOptions::default())?;
        output::tell(format!("{name} is new: {}", size::show(bytes)));
    }
    let mut args = args.clone();
    let region = registry.resolve(name)?;
    args.ddmap.local = args.ddmap.local.map(|local| kept(local, name, &region)).transpose()?;
    args.volume = vec![region];
    if args.at.is_empty() {
        args.at = vec![PathBuf::from(AT)];
    }
    Ok(Cow::Owned(args))
}

/// How much of a volume its host may keep, in bytes.
fn kept(local: Local, name: &str, region: &Path) -> Result<Local, Failure> {
    let asked = || format!("keep a part of {name} on its host");
    let about = std::fs::metadata(region).map_err(|error| Failure::io(asked(), &error))?;
    let bytes = local.of(about.len());
    bytes.map(Local::Bytes).map_err(|found| Failure::new(asked(), found, "see --local"))
}

/// What the library reads of the volume's pages.
pub fn variable(args: &DdmapArg) -> Option<(&'static str, String)> {
    args.ddmap.as_ref()?;
    let ahead = args.prefetch.as_deref().unwrap_or(AHEAD);
    let patience = args.patience.unwrap_or(PATIENCE);
    let mut told = vec![format!("patience={patience}"), format!("ahead={ahead}")];
    told.extend(args.policy.iter().map(|policy| format!("policy={policy}")));
    told.extend(args.evict.iter().map(|when| format!("evict={when}")));
    if let Some(Local::Bytes(bytes)) = args.local {
        told.push(format!("local={bytes}"));
    }
    told.extend(args.line_cache.iter().map(|lines| format!("lines={lines}")));
    Some(("SOLERA_DDMAP", told.join(",")))
}

#[cfg(test)]
mod tests {
    use super::variable;
    use crate::args::{DdmapArg, Local};

    #[test]
    fn the_library_is_told_of_domains_only() {
        assert_eq!(variable(&DdmapArg::default()), None);
        let mut args = DdmapArg { ddmap: Some("dm/v".to_owned()), ..DdmapArg::default() };
        let told = |args: &DdmapArg| variable(args).map(|one| one.1).unwrap_or_default();
        assert_eq!(told(&args), "patience=30,ahead=auto");
        (args.patience, args.prefetch) = (Some(120), Some("off".to_owned()));
        assert_eq!(told(&args), "patience=120,ahead=off");
        (args.policy, args.evict) = (Some("lfu".to_owned()), Some("demand".to_owned()));
        assert_eq!(told(&args), "patience=120,ahead=off,policy=lfu,evict=demand");
        args.local = Some(Local::Bytes(4 << 20));
        assert!(told(&args).ends_with(",local=4194304"));
        args.line_cache = Some("1048576".to_owned());
        assert!(told(&args).ends_with(",lines=1048576"));
    }
}
