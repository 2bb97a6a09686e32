//! What is done in a process that has a region attached: its touches of absent pages are served.

pub mod attachment;
mod discard;
mod fault_around;
mod first_touches;
pub mod hints;
pub mod line_cache;
mod mapper;
mod options;
pub mod pager;
pub mod pagers;
pub mod prefetch;
mod private_mappings;
mod releases;
pub mod remote_reads;
pub mod repair;
mod request_pages;
mod restarts;
mod sampling;
