//! Only a fence makes proof of durability.

fn main() {
    let _ = pmem::Durable { _only_from_fence: () };
}
