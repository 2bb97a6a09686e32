//! How a node says something to another one.

use super::BEAT;
use crate::control::node_messages::{self, Member, NodeReply, NodeRequest};
use crate::protocol::messages::{Answer, Request};
use crate::protocol::{NodeId, TERM};
use crate::shared_memory::error::DomainError;
use crate::wire::link::Link;
use crate::wire::{Hello, NO_VOLUME, Wire};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// The number of a node that has none yet.
const STRANGER: u16 = 0xFFF;

/// Why nothing was answered.
pub struct Unsaid {
    /// What is said of it.
    pub error: DomainError,
    /// No node answers there, as far as can be told. Else one has refused to talk.
    pub is_away: bool,
}

/// How a node begins that has something to say, of a volume in a term or of none.
pub fn say_hello(member: &Member, volume: Option<([u8; 16], u32)>) -> Result<Hello, DomainError> {
    let number = if member.node == 0 { STRANGER } else { member.node };
    let node = NodeId::new(number)
        .ok_or_else(|| DomainError::new("reach a node", "a bad number of this one", ""))?;
    let (volume, term) = volume.unwrap_or((NO_VOLUME, TERM));
    let process = u64::from(std::process::id()) << 16 | u64::from(member.address.port());
    Ok(Hello { node, process, session: 1, volume, term, store: 0 })
}

/// Says something to a node, of a volume in a term or of none: its answer.
pub fn say(
    address: SocketAddr,
    member: &Member,
    volume: Option<([u8; 16], u32)>,
    ask: &NodeRequest,
    wire: &Wire,
) -> Result<NodeReply, DomainError> {
    let hello = say_hello(member, volume)?;
    say_so(BEAT * 2, address, &hello, (ask, wire)).map_err(|unsaid| unsaid.error)
}

/// Says something to the node that has this store (0: whichever it is), of no volume, with as much
/// time for the connection and again for the answer.
pub fn say_to(
    patience: Duration,
    (address, store): (SocketAddr, u64),
    member: &Member,
    (ask, wire): (&NodeRequest, &Wire),
) -> Result<NodeReply, Unsaid> {
    let hello = say_hello(member, None).map_err(|error| Unsaid { error, is_away: false })?;
    say_so(patience, address, &Hello { store, ..hello }, (ask, wire))
}

fn say_so(
    patience: Duration,
    address: SocketAddr,
    hello: &Hello,
    (ask, wire): (&NodeRequest, &Wire),
) -> Result<NodeReply, Unsaid> {
    let asked = format!("reach the node at {address}");
    let refused =
        |found: String| Unsaid { error: DomainError::new(&asked, found, ""), is_away: false };
    let unreached = |error: io::Error| Unsaid {
        error: DomainError::new(&asked, &error, ""),
        is_away: matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::TimedOut
        ),
    };
    let mut link = Link::connect(address, patience, hello, wire).map_err(unreached)?;
    let text = node_messages::text(ask);
    let answer = link.ask(&Request::Control { text }, patience).map_err(|error| Unsaid {
        error: DomainError::new(&asked, error, "try again"),
        is_away: true,
    })?;
    match answer {
        Answer::Control { text } => node_messages::parse(&text).map_err(refused),
        Answer::Refused { text, .. } => Err(refused(text)),
        _ => Err(refused("an answer to something else".to_owned())),
    }
}
