//! A fence does not wait for a store that still sits in a cache.

fn store(region: &pmem::Region) -> Result<pmem::Durable<'_>, pmem::Fault> {
    Ok(region.store64(0, 1)?.fence())
}

fn main() {
    let _ = store;
}
