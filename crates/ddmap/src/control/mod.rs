//! How processes and nodes reach each other: a process its node, both of them holders, a machine's
//! commands the nodes that run on it.

pub mod connections;
pub mod interruption;
pub mod local_socket;
pub mod node_messages;
pub mod preferences;
pub mod processes;
pub mod registry;
pub mod room;
pub mod status;
pub mod transport;
pub mod turns;
