//! Only a fence makes proof of durability.

fn main() {
    let _ = pmem::Durable { _of: std::marker::PhantomData };
}
