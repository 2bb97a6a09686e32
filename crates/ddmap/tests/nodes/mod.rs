//! Nodes of a domain over loopback.

mod churn;
mod copies;
mod deaths;
mod metrics;
mod moves;
mod options;
mod overhead;
mod policies;
