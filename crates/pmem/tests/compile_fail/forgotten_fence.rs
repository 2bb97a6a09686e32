//! What is in flight needs a fence.
#![deny(unused_must_use)]

fn store(region: &pmem::Region) -> Result<(), pmem::Fault> {
    region.stream(0, b"data")?;
    region.store64(64, 1)?.flush();
    Ok(())
}

fn main() {
    let _ = store;
}
