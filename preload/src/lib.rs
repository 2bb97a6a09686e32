//! Solera's preload.
