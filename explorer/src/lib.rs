//! Solera's explorer.
