//! The machines that decide how pages move.

mod cases;
mod concurrency;
mod exhaustive;
mod handover;
mod leadership;
mod memory;
mod mistakes;
mod simulation;
mod tampering;
mod world;
