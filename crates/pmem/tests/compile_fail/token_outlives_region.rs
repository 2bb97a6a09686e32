//! A token cannot be flushed when its region is gone.

fn main() {
    let dirty = {
        let region = pmem::Region::anonymous(4096).unwrap();
        region.store64(0, 1).unwrap()
    };
    let _ = dirty.flush().fence();
}
