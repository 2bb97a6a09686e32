//! Volumes whose pages may lie elsewhere: each attachment needs a pager, whoever makes it.
//!
//! What brings the pages is no part of this crate. A program that can have it says once how it is
//! found; a build that cannot refuses such a volume, for it would see zeros.

use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::INCOMPAT_ABSENT;
use pmem::{Pager, Region};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Finds the pager of the region at a path. `None`: all its pages are there. An error says what
/// was found, and what to do.
pub type FindPager = fn(&Path) -> Result<Option<Arc<dyn Pager>>, String>;

static FIND: OnceLock<FindPager> = OnceLock::new();

/// From here on regions have the pagers that are found so. The first one to say it is heard.
pub fn find_pagers_by(find: FindPager) {
    // As said.
    let _ = FIND.set(find);
}

/// Gives a region its pager: the one that was given, or the one that is found.
pub(crate) fn give(
    region: &mut Region,
    given: Option<&Arc<dyn Pager>>,
    path: &Path,
    asked: &'static str,
) -> Result<(), VolumeError> {
    let found = match (given, FIND.get()) {
        (Some(given), _) => Some(Arc::clone(given)),
        (None, Some(find)) => find(path).map_err(|found| {
            VolumeError::new(ErrorKind::Invalid, asked, path, found, "then try again")
        })?,
        (None, None) => None,
    };
    if let Some(pager) = found {
        region.set_pager(pager);
    }
    Ok(())
}

/// Whether the region at a path has a pager that can be found. A private view of such a region
/// would fill its holes.
pub(crate) fn is_paged(path: &Path, asked: &'static str) -> Result<bool, VolumeError> {
    let Some(find) = FIND.get() else { return Ok(false) };
    let found = find(path).map_err(|found| {
        VolumeError::new(ErrorKind::Invalid, asked, path, found, "then try again")
    })?;
    Ok(found.is_some())
}

/// Refuses a volume that needs a pager and has none.
pub(crate) fn check(
    incompat: u32,
    region: &Region,
    path: &Path,
    asked: &'static str,
) -> Result<(), VolumeError> {
    if incompat & INCOMPAT_ABSENT == 0 || region.pager().is_some() {
        return Ok(());
    }
    let found = "its pages lie on the nodes of a domain, which this program does not reach";
    let advice = "use `solera run --ddmap`, or another command of `solera`, beside its node";
    Err(VolumeError::new(ErrorKind::Unsupported, asked, path, found, advice))
}
