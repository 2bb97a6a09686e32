//! Solera's volume.
