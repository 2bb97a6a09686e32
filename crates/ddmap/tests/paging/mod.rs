//! How touches of absent pages are served.

mod clean;
mod copies;
mod hints;
mod host_and_holder;
mod lines;
mod prefetch;
mod requests;
mod restarts;
