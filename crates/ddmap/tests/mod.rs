//! Tests of the crate that look behind its door: built with its unit tests, as one program.
//!
//! | folder | what is tested |
//! |---|---|
//! | `protocol/` | the machines that decide how pages move, in drawn worlds and in all states |
//! | `wire/` | frames, connections, and who breaks their rules |
//! | `memory/` | what the kernel does with pages; the slots of forked children |
//! | `paging/` | how touches are served, between a host and a holder or two nodes |
//! | `nodes/` | nodes of a domain over loopback |
//! | `support/` | what those start: a host with its holder, nodes, folders in memory |

mod clock;
mod memory;
mod nodes;
mod paging;
mod protocol;
mod support;
mod wire;
