//! Upkeep: keeps a volume's chunks whole and gives memory back, at the end of a call or when asked.

pub(crate) mod align;
mod compact;
mod grow;
mod pin;
mod rewrite;
mod trim;
