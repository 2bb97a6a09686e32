//! What stores of a run's volumes need: every table says it, for figures of one class are none of
//! another.

use pmem::{Policy, Region};

/// Class and policy of volumes in this machine's memory, where those of a run lie, as this process
/// attaches them (`SOLERA_CLASS`).
pub fn in_memory() -> (String, Policy) {
    let found = Region::anonymous(4096).map(|region| (region.class(), region.policy()));
    found.map_or_else(
        |error| (error.to_string(), Policy::Flushed),
        |(class, policy)| (class.to_string(), policy),
    )
}

/// The same for people.
pub fn line() -> String {
    let (class, policy) = in_memory();
    format!("class {class}: {}", policy.reason())
}
