//! How a node that starts finds out which one it is, who else there is, and which one is first.
//!
//! One that was there before starts also while the first is away: else no other could take its
//! place. It asks all that it knows whether a later reign has begun, before it serves anybody.

use super::BEAT;
use super::leadership::ask_all;
use super::saying::{Unsaid, say_to};
use crate::control::node_messages::{Member, NodeReply, NodeRequest};
use crate::membership::members::Members;
use crate::protocol::{NodeId, Terms};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{Standing, Store};
use crate::wire::Wire;
use std::net::SocketAddr;

/// Nodes that say which other one is first, before one is.
const HOPS: u32 = 4;

/// What is said to a node that tells that it is there.
pub enum Joined {
    /// Its number, all nodes, what the first knows of firsts.
    Members { you: NodeId, all: Vec<Member>, terms: Terms },
    /// Another node is first.
    Led { terms: Terms, address: Option<SocketAddr> },
    /// It cannot be a node of the domain.
    Refused(DomainError),
    /// Nothing was answered.
    Unsaid(Unsaid),
}

/// Tells the node that has this store (0: whichever it is) that this one is there. A number takes
/// as long as others take to store it.
pub fn join(domain: &str, at: (SocketAddr, u64), member: &Member, wire: &Wire) -> Joined {
    let refused = |found: &str| {
        let asked = format!("join the domain {domain} at {}", at.0);
        Joined::Refused(DomainError::new(asked, found, "see `solera node --help`"))
    };
    let ask = NodeRequest::Join { domain: domain.to_owned(), member: member.clone() };
    let patience = if member.node == 0 { BEAT * 8 } else { BEAT * 2 };
    match say_to(patience, at, member, (&ask, wire)) {
        Ok(NodeReply::Members { you, all, terms }) => match NodeId::new(you) {
            Some(you) => Joined::Members { you, all, terms },
            None => refused("a bad number"),
        },
        Ok(NodeReply::Led { terms, address }) => Joined::Led { terms, address },
        Ok(NodeReply::Refused { text }) => refused(&text),
        Ok(_) => refused("an answer to something else"),
        Err(unsaid) => Joined::Unsaid(unsaid),
    }
}

/// How a node is to be, as far as others are to know.
pub struct Entry<'a> {
    /// The domain.
    pub domain: &'a str,
    /// A node of it; `None`: this one begins it, or its store knows.
    pub join: Option<SocketAddr>,
    /// How nodes talk.
    pub wire: &'a Wire,
}

/// A node's number, if it is one.
pub fn number_of(about: &Member) -> Result<NodeId, DomainError> {
    let asked = format!("be node {}", about.node);
    NodeId::new(about.node)
        .ok_or_else(|| DomainError::new(asked, "that is no number of a node", "1 to 4094 are"))
}

/// Finds out which node this is, who else there is, and which one is first.
pub fn enter(
    options: &Entry<'_>,
    store: &Store,
    members: &Members,
    about: &mut Member,
) -> Result<Terms, DomainError> {
    let asked = format!("run a node of {}", options.domain);
    let mut number = [0; 8];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| DomainError::io(&asked, "a number for the store", &errno.into()))?;
    about.store = u64::from_ne_bytes(number);
    let mut terms = Terms::default();
    if let Some(known) = store.about()? {
        if known.domain != options.domain {
            let found = format!("the store is of a node of {}", known.domain);
            return Err(DomainError::new(asked, found, "give the store of this domain"));
        }
        terms = known.terms();
        let begins = known.node == 1 && terms.reign.first == 1;
        if let Some(join) = options.join.filter(|join| begins && *join != about.address) {
            let found = format!(
                "the store is of node 1, with which a domain of that name began: it joins none, \
                 and not the one at {join}"
            );
            let advice = "give --store a new folder to join; or leave --join out, to go on with \
                          that domain";
            return Err(DomainError::new(asked, found, advice));
        }
        (about.node, about.store) = (known.node, known.store);
        store.members().into_iter().for_each(|listed| members.remember(listed));
        hear_reigns(options, members, about, &mut terms);
    } else if options.join.is_none() {
        about.node = 1;
    }
    if terms.reign.first == about.node {
        let joined = members.join(about.clone());
        joined.map_err(|found| DomainError::new(&asked, found, ""))?;
    } else {
        follow(options, members, about, &mut terms)?;
    }
    store.set_about(options.domain, number_of(about)?, about.store)?;
    store.set_members(&members.addresses())?;
    store.set_terms(&terms)?;
    Ok(terms)
}

/// Asks all nodes that are known whose reign it is.
fn hear_reigns(options: &Entry<'_>, members: &Members, about: &Member, terms: &mut Terms) {
    let others = members.addresses().into_iter();
    let others: Vec<_> = others
        .filter(|one| {
            one.0.number() != about.node && one.2 != Standing::Gone && one.1 != about.address
        })
        .collect();
    let ask = NodeRequest::Lead { domain: options.domain.to_owned() };
    ask_all(BEAT, others, about, (&ask, options.wire), |_, told| {
        if let NodeReply::Led { terms: theirs, address } = told {
            hear(members, terms, &theirs, address);
        }
        false
    });
}

fn hear(members: &Members, terms: &mut Terms, theirs: &Terms, address: Option<SocketAddr>) {
    let Some(first) = NodeId::new(theirs.reign.first) else { return };
    let is_known = members.addresses().iter().any(|one| one.0 == first);
    if let Some(address) = address.filter(|_| !is_known) {
        members.remember((first, address, Standing::There, 0));
    }
    if is_known || address.is_some() {
        terms.hear(theirs.reign);
    }
}

/// Tells the first that this node is there. One that was there before goes on if it is away.
fn follow(
    options: &Entry<'_>,
    members: &Members,
    about: &mut Member,
    terms: &mut Terms,
) -> Result<(), DomainError> {
    let first = |terms: &Terms| {
        let all = members.addresses().into_iter();
        all.filter(|one| one.0.number() == terms.reign.first).map(|one| (one.1, one.3)).next()
    };
    let mut places: Vec<(SocketAddr, u64)> =
        options.join.map(|join| (join, 0)).into_iter().collect();
    if about.node > 0 {
        places.extend(first(terms).filter(|one| Some(one.0) != options.join));
    }
    let mut away = None;
    let mut hops = 0;
    while let Some(at) = (!places.is_empty()).then(|| places.remove(0)) {
        match join(options.domain, at, about, options.wire) {
            Joined::Members { you, all, terms: theirs } => {
                about.node = you.number();
                members.heard(all);
                hear(members, terms, &theirs, None);
                terms.hear_numbers(theirs.numbers);
                return Ok(());
            }
            Joined::Led { terms: theirs, address } => {
                hear(members, terms, &theirs, address);
                hops += 1;
                if let Some(next) = address.filter(|next| *next != at.0 && hops <= HOPS) {
                    places.insert(0, (next, 0));
                } else {
                    let asked = format!("join the domain {} at {}", options.domain, at.0);
                    let found = format!("its first node, {}, is not reached", theirs.reign.first);
                    away = away.or(Some(DomainError::new(asked, found, "start it")));
                }
            }
            Joined::Refused(error) => return Err(error),
            Joined::Unsaid(unsaid) if about.node == 0 || !unsaid.is_away => {
                return Err(unsaid.error);
            }
            Joined::Unsaid(unsaid) => away = away.or(Some(unsaid.error)),
        }
    }
    let Some(away) = away else {
        let asked = format!("run a node of {}", options.domain);
        let advice = "give --join the address of a node of the domain";
        return Err(DomainError::new(asked, "the first node is not known", advice));
    };
    if about.node == 0 {
        return Err(away);
    }
    check_alone(options, members, about)?;
    eprintln!(
        "solera: node: {away}. This node goes on with what it knows. If the first does not come \
         back: solera domain first {} --to NODE",
        options.domain
    );
    Ok(())
}

/// Refuses a copy of the store of a node that answers where it was: the first, which would know, is
/// away.
fn check_alone(options: &Entry<'_>, members: &Members, about: &Member) -> Result<(), DomainError> {
    let all = members.addresses();
    let own = all.iter().find(|one| one.0.number() == about.node && one.1 != about.address);
    let Some((_, at, ..)) = own else { return Ok(()) };
    let who = (&NodeRequest::Who, options.wire);
    let told = say_to(BEAT, (*at, about.store), about, who);
    match told {
        Ok(NodeReply::Members { you, .. }) if you == about.node => Err(DomainError::new(
            format!("run a node of {}", options.domain),
            format!("node {you} is at {at}, and answers there"),
            "end that one, or give this one a --store of its own",
        )),
        _ => Ok(()),
    }
}
