//! Checks, repairs and describes a volume.

#[cfg(test)]
mod damage_tests;
pub(crate) mod extents;
pub(crate) mod fault;
pub(crate) mod fsck;
#[cfg(test)]
mod fsck_tests;
pub(crate) mod info;
#[cfg(test)]
mod media_tests;
mod mend;
pub(crate) mod repair;
#[cfg(test)]
mod repair_tests;
