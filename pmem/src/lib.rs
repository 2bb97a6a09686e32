//! Solera's pmem.
