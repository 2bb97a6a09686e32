//! A store whose token is dropped is durable by luck only.
#![deny(unused_must_use)]

fn store(region: &pmem::Region) -> Result<(), pmem::Fault> {
    region.store64(0, 1)?;
    Ok(())
}

fn main() {
    let _ = store;
}
