//! A commit of something that was flushed but never fenced.

fn commit(region: &pmem::Region) -> Result<(), pmem::Fault> {
    let data = region.write(0, b"data")?.flush();
    let _ = region.commit64(64, 1, &data)?.flush().fence();
    Ok(())
}

fn main() {
    let _ = commit;
}
