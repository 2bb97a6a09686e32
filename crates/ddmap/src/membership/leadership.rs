//! Which node is the domain's first, as this one knows: it asks for that, agrees to others, and
//! gives out numbers (`protocol/leadership.rs` has the rules).
//!
//! PERSIST: the store has what this node knows of firsts, and the list of nodes, before it answers
//! that it agrees, that it has stored a number, or which number a node has.
//! CRASH: a poll that was cut short changes no reign. Those that have agreed store no numbers of
//! the first that there is: it asks for a later reign of its own when a number is wanted next.
//!
//! Locks: `polling`, while members are asked; then `terms`, or the list's, each alone.

use super::BEAT;
use super::entering::{Joined, join};
use super::saying::{Unsaid, say_to};
use crate::control::node_messages::{Member, NodeReply, NodeRequest};
use crate::membership::members::Members;
use crate::protocol::{NodeId, Poll, Reign, Terms};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{Listed, Standing, Store};
use crate::wire::Wire;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A member that has not answered in that time is not counted: where a command waits, and where a
/// new node does, for twice as long at most.
const STANDS: Duration = Duration::from_millis(1500);
/// The same.
const GIVES: Duration = Duration::from_secs(3);
/// Polls for one reign: each is for a later one than others have agreed to.
const POLLS: u32 = 3;
/// A member that was silent for so many seconds is told that this node is first.
const SILENT: u64 = 3;

/// Which node is first.
pub struct Leadership {
    domain: String,
    store: Store,
    about: Member,
    wire: Wire,
    members: Arc<Members>,
    terms: Mutex<Terms>,
    /// A number that this node has stored in its reign, and given to nobody.
    polling: Mutex<Option<(Reign, u16)>>,
    /// Which member is asked or told next.
    turn: AtomicUsize,
    /// It was said that a number is another store's.
    has_said: AtomicBool,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks nodes at once; `hears` what each answers, until it says that this suffices. One that does
/// not answer in time is not heard.
pub fn ask_all(
    patience: Duration,
    nodes: Vec<Listed>,
    about: &Member,
    (ask, wire): (&NodeRequest, &Wire),
    mut hears: impl FnMut(u16, NodeReply) -> bool,
) {
    let (sender, answers) = mpsc::channel();
    let shared = Arc::new((about.clone(), ask.clone(), wire.clone()));
    for (node, address, _, store) in nodes {
        let (sender, shared) = (sender.clone(), Arc::clone(&shared));
        // What cannot be asked does not answer.
        let _ = std::thread::Builder::new().name("ask".to_owned()).spawn(move || {
            let (about, ask, wire) = &*shared;
            if let Ok(told) = say_to(patience, (address, store), about, (ask, wire)) {
                // Nobody may be waiting for it any more.
                let _ = sender.send((node.number(), told));
            }
        });
    }
    drop(sender);
    let end = Instant::now() + patience;
    while let Ok((node, told)) = answers.recv_timeout(end - Instant::now().min(end)) {
        if hears(node, told) {
            break;
        }
    }
}

impl Leadership {
    /// Of a node with this store, which has said what it is.
    pub fn new(
        (domain, wire): (String, Wire),
        (store, about): (Store, Member),
        members: Arc<Members>,
        terms: Terms,
    ) -> Self {
        let (polling, turn, has_said) = (Mutex::default(), AtomicUsize::new(0), false.into());
        let terms = Mutex::new(terms);
        Self { domain, store, about, wire, members, terms, polling, turn, has_said }
    }

    /// What this node knows of firsts.
    pub fn terms(&self) -> Terms {
        *lock(&self.terms)
    }

    /// The first's number.
    pub fn first(&self) -> u16 {
        self.terms().reign.first
    }

    /// Whether this node is first.
    pub fn is_here(&self) -> bool {
        self.first() == self.about.node
    }

    /// Where the first is reached, and which store it has.
    pub fn address(&self) -> Option<(SocketAddr, u64)> {
        self.listed(&[self.first()]).first().map(|one| (one.1, one.3))
    }

    fn listed(&self, nodes: &[u16]) -> Vec<Listed> {
        let all = self.members.addresses().into_iter();
        all.filter(|one| nodes.contains(&one.0.number())).collect()
    }

    /// Asks these nodes but this one.
    fn ask(
        &self,
        patience: Duration,
        nodes: &[u16],
        ask: &NodeRequest,
        hears: impl FnMut(u16, NodeReply) -> bool,
    ) {
        let mut others = self.listed(nodes);
        others.retain(|one| one.0.number() != self.about.node);
        ask_all(patience, others, &self.about, (ask, &self.wire), hears);
    }

    /// Asks nodes which one is first.
    fn ask_for_first(&self, nodes: &[u16]) {
        let ask = NodeRequest::Lead { domain: self.domain.clone() };
        self.ask(BEAT, nodes, &ask, |_, told| {
            if let NodeReply::Led { terms, address } = told {
                self.hear(&terms, address);
            }
            false
        });
    }

    /// Changes what this node knows: the store has it first.
    fn change<T>(&self, change: impl FnOnce(&mut Terms) -> T) -> Result<T, DomainError> {
        let mut terms = lock(&self.terms);
        let mut new = *terms;
        let told = change(&mut new);
        if new != *terms {
            self.store.set_terms(&new)?;
            *terms = new;
        }
        Ok(told)
    }

    /// What the first has told of the nodes.
    pub fn heard(&self, all: Vec<Member>) {
        self.say_of(self.members.heard(all));
    }

    fn say_of(&self, agrees: bool) {
        if !agrees && !self.has_said.swap(true, Ordering::Relaxed) {
            eprintln!(
                "solera: node: two nodes have one number, given by two firsts: the one that was \
                 known here is asked, and the other one is left alone"
            );
        }
    }

    /// A node says whose reign it is, and where that first is reached.
    fn hear(&self, terms: &Terms, address: Option<SocketAddr>) {
        let reign = terms.reign;
        if reign <= self.terms().reign {
            return;
        }
        let Some(first) = NodeId::new(reign.first) else { return };
        if self.listed(&[reign.first]).is_empty() {
            let Some(address) = address else { return };
            self.members.remember((first, address, Standing::There, 0));
        }
        // A store that is full keeps the reign that it has.
        let _ = self.change(|terms| terms.hear(reign));
    }

    /// What is told to one that takes this node for the first.
    pub fn led(&self) -> NodeReply {
        NodeReply::Led { terms: self.terms(), address: self.address().map(|one| one.0) }
    }

    fn refused(&self, error: &DomainError) -> NodeReply {
        NodeReply::Refused { text: format!("node {}: {error}", self.about.node) }
    }

    /// A node asks whether it may be first.
    pub fn agree(&self, reign: Reign) -> NodeReply {
        let of = self.listed(&[reign.first]);
        if of.iter().any(|one| one.2 == Standing::Gone) {
            let text = format!("node {} was removed from the domain", reign.first);
            return NodeReply::Refused { text };
        }
        // What it tells of the nodes is in its store, too.
        let told = self.store.set_members(&self.members.addresses());
        match told.and_then(|()| self.change(|terms| terms.agree(reign))) {
            Err(error) => self.refused(&error),
            Ok(false) => self.led(),
            Ok(true) => NodeReply::Agreed {
                node: self.about.node,
                terms: self.terms(),
                all: self.members.list(),
            },
        }
    }

    /// A first tells what there is.
    pub fn note(&self, reign: Reign, numbers: u16, all: Vec<Member>) -> NodeReply {
        let noted = if reign < self.terms().promised {
            Ok(false)
        } else {
            self.heard(all);
            let told = self.store.set_members(&self.members.addresses());
            told.and_then(|()| self.change(|terms| terms.note(reign, numbers)))
        };
        match noted {
            Err(error) => self.refused(&error),
            Ok(false) => self.led(),
            Ok(true) => NodeReply::Noted { node: self.about.node },
        }
    }

    /// Has members store what there is, with numbers up to this one: the latest reign to which one
    /// of them has agreed.
    fn tell(&self, patience: Duration, poll: &mut Poll, reign: Reign, numbers: u16) -> Reign {
        let mut later = reign;
        let (domain, all) = (self.domain.clone(), self.members.list());
        let ask = NodeRequest::Note { domain, reign, numbers, all };
        self.ask(patience, &poll.ask(), &ask, |node, told| {
            match told {
                NodeReply::Noted { node: number } if number == node => poll.agrees(node),
                NodeReply::Led { terms, address } => {
                    self.hear(&terms, address);
                    later = later.max(terms.promised);
                }
                _ => {}
            }
            poll.is_carried()
        });
        later
    }

    fn poll(&self) -> Poll {
        Poll::new(self.about.node, self.members.voters())
    }

    /// Why a poll was not carried.
    fn too_few(&self, poll: &Poll) -> String {
        let (agreed, all) = poll.counted();
        let list = self.members.list().into_iter();
        let silent = list.filter(|one| one.standing != Standing::Gone && !one.is_there());
        let silent: Vec<String> = silent.map(|one| one.node.to_string()).collect();
        let of = match silent.as_slice() {
            [] => String::new(),
            [one] => format!("; node {one} does not answer"),
            all => format!("; nodes {} do not answer", all.join(", ")),
        };
        format!("{agreed} of {all} nodes agree, and more than half must{of}")
    }

    /// A node is to be one of the domain: one that has no number gets the next one. This node is
    /// first. Each refusal says what was found, and what to do.
    pub fn admit(&self, mut member: Member) -> Result<u16, String> {
        if member.node == 0 {
            let mut unused = lock(&self.polling);
            // It was given one, and has not heard so.
            member.node = match self.members.of_store(member.store) {
                Some(known) => known,
                None => self.give(&mut unused)?,
            };
            let you = member.node;
            self.members.join(member)?;
            // PERSIST: before the next number is stored, and before the node hears of its own.
            let told = self.store.set_members(&self.members.addresses());
            return told.map(|()| you).map_err(|error| error.to_string());
        }
        let you = member.node;
        self.members.join(member).map(|()| you)
    }

    fn give(&self, unused: &mut Option<(Reign, u16)>) -> Result<u16, String> {
        let refused = |found: String| {
            let domain = &self.domain;
            format!(
                "no number is given: {found}. Start them; those that will not come back: solera \
                 domain forget {domain} NODE"
            )
        };
        let (poll, later) = self.store_number(unused).map_err(refused)?;
        if let (true, Some((_, next))) = (poll.is_carried(), *unused) {
            *unused = None;
            return Ok(next);
        }
        // A poll of another one was cut short, to which members have agreed.
        let agree = |terms: &mut Terms| {
            let is_later = later > terms.promised;
            terms.agree(later);
            is_later
        };
        if !self.change(agree).map_err(|error| error.to_string())? {
            return Err(refused(self.too_few(&poll)));
        }
        let (poll, _) = self.store_number(unused).map_err(refused)?;
        match *unused {
            Some((_, next)) if poll.is_carried() => {
                *unused = None;
                Ok(next)
            }
            _ => Err(refused(self.too_few(&poll))),
        }
    }

    /// Has members store the number that comes next; gives the poll, and the latest reign to which
    /// one of them has agreed.
    fn store_number(&self, unused: &mut Option<(Reign, u16)>) -> Result<(Poll, Reign), String> {
        let here = self.about.node;
        if self.is_here() && !self.terms().gives(here) {
            // By force; or a poll of another one was cut short, or was carried.
            self.ask_for_first(&self.members.voters());
        }
        if self.is_here() && !self.terms().gives(here) {
            self.stand_for_it(GIVES, false)?;
        }
        let greatest = self.members.greatest();
        let next = |terms: &mut Terms| {
            let mut then = *terms;
            // Of an earlier reign: a first between may have given it.
            let left = unused.filter(|left| left.0 == terms.reign).map(|left| left.1);
            let next = left.unwrap_or_else(|| then.next_number(greatest));
            let is_one = NodeId::new(next).is_some() && terms.gives(here);
            is_one.then(|| {
                *terms = then;
                (next, then.reign)
            })
        };
        let next = self.change(next).map_err(|error| error.to_string())?;
        let (next, reign) = next.ok_or_else(|| "a domain has 4094 nodes at most".to_owned())?;
        *unused = Some((reign, next));
        let mut poll = self.poll();
        let later = self.tell(GIVES, &mut poll, reign, next);
        Ok((poll, later))
    }

    /// This node is to be first, by force without a majority. Each refusal says what was found.
    pub fn stand(&self, force: bool) -> Result<(), String> {
        let here = self.about.node;
        if self.about.passive {
            return Err(format!("node {here} is passive"));
        }
        let _polling = lock(&self.polling);
        let terms = self.terms();
        if terms.gives(here) {
            // It may be an old idea.
            self.tell(STANDS, &mut self.poll(), terms.reign, terms.numbers);
            if self.terms() == terms {
                return Ok(());
            }
        }
        self.stand_for_it(STANDS, force)
    }

    /// The same; `polling` is held.
    fn stand_for_it(&self, patience: Duration, force: bool) -> Result<(), String> {
        let (here, text) = (self.about.node, |error: DomainError| error.to_string());
        let mut found = String::new();
        for _ in 0..POLLS {
            let next = |terms: &mut Terms| {
                let reign = terms.next(here);
                terms.agree(reign);
                reign
            };
            let reign = self.change(next).map_err(text)?;
            let (mut poll, mut later) = (self.poll(), reign);
            let ask = NodeRequest::Agree { domain: self.domain.clone(), reign };
            let (mut asked, mut failed) = (poll.ask(), None);
            while !asked.is_empty() && !poll.is_carried() {
                self.ask(patience, &asked, &ask, |node, told| {
                    match told {
                        NodeReply::Agreed { node: number, terms, all } if number == node => {
                            let heard = |own: &mut Terms| own.hear_numbers(terms.numbers);
                            failed = self.change(heard).err().or(failed.take());
                            self.say_of(self.members.merge(all));
                            poll.set_voters(self.members.voters());
                            poll.agrees(node);
                        }
                        NodeReply::Led { terms, address } => {
                            self.hear(&terms, address);
                            later = later.max(terms.promised);
                        }
                        NodeReply::Refused { text } => found = format!("; {text}"),
                        _ => {}
                    }
                    poll.is_carried()
                });
                asked = poll.ask();
            }
            if let Some(error) = failed {
                return Err(text(error));
            }
            if later > reign {
                // Others have agreed to a later one: one behind that is asked for.
                self.change(|terms| terms.agree(later)).map_err(text)?;
                continue;
            }
            let is_carried = poll.is_carried();
            if !is_carried && !force {
                return Err(self.too_few(&poll) + &found);
            }
            // PERSIST: what those that agree have told, before this node is first.
            self.store.set_members(&self.members.addresses()).map_err(text)?;
            let numbers = |terms: &mut Terms| {
                terms.take(reign, is_carried);
                terms.numbers
            };
            let numbers = self.change(numbers).map_err(text)?;
            // Those that do not hear of it now are told by and by.
            self.tell(BEAT / 2, &mut self.poll(), reign, numbers);
            return Ok(());
        }
        Err("other nodes ask for the same, or have another first, each time: try again".to_owned())
    }

    /// Asks the others that are there whether a later reign has begun.
    pub fn look_around(&self) {
        let list = self.members.list().into_iter();
        let there = list.filter(|one| one.is_there() && one.node != self.about.node);
        let there: Vec<u16> = there.map(|one| one.node).collect();
        self.ask_for_first(&there);
    }

    /// One of the members that `is` such, each time another one.
    fn next_of(&self, is: impl Fn(&Member) -> bool) -> Option<u16> {
        let list = self.members.list().into_iter();
        let other = |one: &Member| one.node != self.about.node && one.standing != Standing::Gone;
        let others: Vec<u16> =
            list.filter(|one| other(one) && is(one)).map(|one| one.node).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        others.get(turn % others.len().max(1)).copied()
    }

    /// This node is first: a member that it does not hear of may not know it, or may know of a
    /// later first.
    pub fn tell_silent(&self) {
        let Some(node) = self.next_of(|one| one.silent >= SILENT) else { return };
        let terms = self.terms();
        let mut poll = Poll::new(self.about.node, [node]);
        self.tell(BEAT, &mut poll, terms.reign, terms.numbers);
    }

    /// Tells the first that this node is there.
    pub fn beat(&self, member: &Member) -> Result<(), DomainError> {
        let joined = match self.address() {
            Some(at) => join(&self.domain, at, member, &self.wire),
            None => Joined::Unsaid(Unsaid {
                error: DomainError::new("reach the first node", "its address is not known", ""),
                is_away: true,
            }),
        };
        match joined {
            Joined::Members { all, terms, .. } => {
                self.heard(all);
                self.change(|own| {
                    own.hear(terms.reign);
                    own.hear_numbers(terms.numbers);
                })
            }
            Joined::Led { terms, address } => {
                self.hear(&terms, address);
                Ok(())
            }
            Joined::Refused(error) => Err(error),
            Joined::Unsaid(unsaid) => {
                // Others may have another first by now.
                let node = self.next_of(|one| one.node != self.first());
                self.ask_for_first(&Vec::from_iter(node));
                Err(unsaid.error)
            }
        }
    }
}
