//! Frames, connections, and who breaks their rules.

mod frames;
mod links;
mod rules;
