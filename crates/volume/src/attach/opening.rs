//! How a volume's region is opened by those who write it.

use crate::medium::layout::{GROWTH_FACTOR, RESERVE_MAX};
use emulation::Model;
use pmem::{Class, OpenOptions};
use std::path::Path;

/// With room to grow; what seems slow is flushed, as what it stands in for.
pub(super) fn options(path: &Path, class: Option<Class>, model: Model) -> OpenOptions {
    let size = rustix::fs::stat(path).map_or(0, |stat| stat.st_size as u64);
    OpenOptions {
        write: true,
        force_class: class,
        flushed: model != Model::DRAM,
        reserve: size.saturating_mul(GROWTH_FACTOR - 1).min(RESERVE_MAX),
        ..OpenOptions::default()
    }
}
