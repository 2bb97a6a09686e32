//! `solera domain drain`, `leave` and `forget`: a node gives its pages up, and is removed.

use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::size;
use ddmap::{
    LocalReply, LocalRequest, Member, NODE_TIMEOUT, PAGE, Registry, Standing, Status, not_twice,
};

use crate::domains;

/// It keeps pages still, and none has gone for as long as was to be waited.
const CODE_STILL: u8 = 3;
/// What is waited for is said when nothing has gone for so long.
const SAID: Duration = Duration::from_secs(5);
/// Within that time the first node has heard that one has given its pages up.
const HEARD: Duration = Duration::from_secs(5);
/// So much later than expected a node is silent for a second more, if it is gone.
const LATE: Duration = Duration::from_secs(2);
/// One that was heard of anew so many times is there: one that is says something each second.
const HEARD_TIMES: u32 = 4;
/// Within that time hosts have heard that a node gets no more pages, and have sent what they were
/// at.
const SETTLED: Duration = Duration::from_secs(3);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(300);

/// Has the first node say how a node stands.
pub fn mark(name: &str, node: u16, standing: Standing) -> Outcome {
    let asked = format!("change node {node} of {name}");
    match Registry::find()?.order(name, &LocalRequest::Mark { node, standing })? {
        LocalReply::Done => Ok(0),
        LocalReply::Refused { text } => Err(Failure::new(asked, text, "")),
        _ => Err(Failure::new(asked, "its node answers something else", "")),
    }
}

/// A node as the domain knows it.
fn member(status: &Status, name: &str, node: u16) -> Result<Member, Failure> {
    status.nodes.iter().find(|one| one.node == node).cloned().ok_or_else(|| {
        let advice = format!("see solera domain status {name}");
        Failure::new(format!("find node {node} of {name}"), "the domain has no such node", &advice)
    })
}

/// Refuses what cannot be drained: it does not answer, or others have no room.
fn check(status: &Status, name: &str, before: &Member) -> Result<(), Failure> {
    let node = before.node;
    let asked = format!("drain node {node} of {name}");
    if !before.is_there() {
        let found = format!("it was not heard of for {} s", before.silent);
        let advice =
            format!("start it; if it will not come back: solera domain forget {name} {node}");
        return Err(Failure::new(asked, found, &advice));
    }
    if let Some(found) = has_no_pairs(status, node, Standing::Drains) {
        return Err(Failure::new(asked, found, "start another node, or remove a volume"));
    }
    if before.kept == 0 {
        return Ok(());
    }
    let others = status.nodes.iter().filter(|one| one.node != node);
    let room: u64 = others.map(Member::for_volumes).sum();
    let promised: u64 = status.nodes.iter().map(|one| one.promised + one.second()).sum();
    let needed = promised + before.used.saturating_sub(before.kept);
    if needed > room {
        let found = format!(
            "the other nodes have {} for volumes, and {} are promised{}",
            size::show(room * PAGE),
            size::show(needed * PAGE),
            domains::told_of_draining(status)
        );
        return Err(Failure::new(asked, found, "start another node, or remove a volume"));
    }
    Ok(())
}

/// What of volumes of two copies would lie once, if a node stood so: more than does so now.
fn has_no_pairs(status: &Status, node: u16, standing: Standing) -> Option<String> {
    let mut then = status.nodes.clone();
    then.iter_mut().filter(|one| one.node == node).for_each(|one| one.standing = standing);
    let (before, behind) = (not_twice(&status.nodes), not_twice(&then));
    (behind > before).then(|| {
        let once = size::show((behind - before) * PAGE);
        format!("{once} of volumes of two copies would have no room for the second one")
    })
}

/// What a node that gives its pages up waits for, and what to do.
fn awaited(status: &Status, name: &str, now: &Member) -> (String, String) {
    let (node, kept) = (now.node, size::show(now.kept * PAGE));
    let hosts = || status.nodes.iter().filter(|one| one.node != node && one.promised > 0);
    let of = |one: &Member| format!("node {} was not heard of for {} s", one.node, one.silent);
    // One may be the host of volumes that were made since it was heard of last.
    let silent =
        |one: &&Member| one.node != node && one.standing != Standing::Gone && !one.is_there();
    let away: Vec<&Member> = status.nodes.iter().filter(silent).collect();
    let (why, advice) = match away.as_slice() {
        _ if !now.is_there() => (of(now), "start it".to_owned()),
        [] => {
            let numbers: Vec<String> = hosts().map(|one| one.node.to_string()).collect();
            let why = format!("the hosts of volumes (nodes {}) fetch none", numbers.join(", "));
            (why, "see what these nodes say; they may have no room".to_owned())
        }
        [first, ..] => {
            let why: Vec<String> = away.iter().copied().map(of).collect();
            let advice = format!(
                "start it; if it will not come back, its volumes are lost: solera domain forget \
                 {name} {}",
                first.node
            );
            (why.join(", "), advice)
        }
    };
    (format!("node {node} keeps {kept} still; {why}"), advice)
}

/// A node gives its pages up: waits until it keeps none, or none has gone for as long as `patience`
/// says.
pub fn drain(name: &str, node: u16, patience: Duration) -> Outcome {
    let registry = Registry::find()?;
    let status = domains::status(&registry, name)?;
    let before = member(&status, name, node)?;
    check(&status, name, &before)?;
    mark(name, node, Standing::Drains)?;
    let mut progress = Progress::new(&format!("node {node} gives its pages up"));
    let (marked, mut least, mut since, mut said) =
        (Instant::now(), u64::MAX, Instant::now(), false);
    loop {
        let status = domains::status(&registry, name)?;
        let now = member(&status, name, node)?;
        // What it says of itself is as old as that: it may have got its first pages since, or kept
        // those of a volume that has just moved away.
        let said_at = Duration::from_secs(now.silent + 1);
        let is_late = marked.elapsed() >= said_at + SETTLED;
        if now.kept == 0 && is_late && now.standing == Standing::Drains {
            return Ok(0);
        }
        if now.kept < least {
            (least, since, said) = (now.kept, Instant::now(), false);
        }
        let total = before.kept.max(now.kept).max(1);
        progress.update(total - now.kept, total);
        let (found, advice) = awaited(&status, name, &now);
        if since.elapsed() > patience {
            let asked = format!("drain node {node} of {name}");
            let advice = format!(
                "{advice}. It goes on giving up; to take that back: solera domain drain --cancel \
                 {name} {node}"
            );
            return Err(Failure::new(asked, found, &advice).code(CODE_STILL));
        }
        if since.elapsed() > SAID && !said {
            output::tell(format!("{found}; waiting for {} s more", patience.as_secs()));
            said = true;
        }
        std::thread::sleep(LOOK);
    }
}

/// Refuses to remove what must stay, with nothing done.
fn check_leaves(registry: &Registry, name: &str, node: u16) -> Result<(), Failure> {
    let asked = format!("remove node {node} from {name}");
    let begun = Instant::now();
    let (told, found) = loop {
        let told = domains::told(registry, name)?;
        let first =
            told.first().ok_or_else(|| Failure::new(&asked, "no node says anything", ""))?;
        let found = member(first, name, node)?;
        // A node of another machine is heard of a second later: its volume may just have moved.
        let is_sure = told.iter().any(|status| status.node == node) || node == first.first;
        if found.promised == 0 || is_sure || begun.elapsed() > HEARD {
            break (told, found);
        }
        std::thread::sleep(LOOK);
    };
    if told.iter().any(|status| status.first == node) {
        let advice = format!("have another one be first: solera domain first {name} --to NODE");
        return Err(Failure::new(asked, format!("node {node} gives out the numbers"), &advice));
    }
    if found.promised > 0 {
        let of = told.iter().filter(|status| status.node == node);
        let names: Vec<&str> =
            of.flat_map(|status| &status.volumes).map(|volume| volume.name.as_str()).collect();
        let names =
            if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        let found =
            format!("it is the host of volumes of {}{names}", size::show(found.promised * PAGE));
        let advice = format!(
            "move them (on its machine: solera domain move {name}/VOLUME --to NODE), or remove \
             them (solera rm {name}/VOLUME)"
        );
        return Err(Failure::new(asked, found, &advice));
    }
    Ok(())
}

/// The same, and it is removed.
pub fn leave(name: &str, node: u16, patience: Duration) -> Outcome {
    check_leaves(&Registry::find()?, name, node)?;
    drain(name, node, patience)?;
    // The first node hears of it with the next beat.
    let begun = Instant::now();
    loop {
        let marked = mark(name, node, Standing::Gone);
        if marked.is_ok() || begun.elapsed() > HEARD {
            return marked;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until a node has been silent for as long as one that is gone. Refuses one that says
/// something meanwhile.
fn wait_for_silence(name: &str, node: u16, asked: &str) -> Result<(), Failure> {
    let registry = Registry::find()?;
    let found = || member(&domains::status(&registry, name)?, name, node);
    let (mut since, mut first) = (Instant::now(), found()?);
    let mut now = first.clone();
    if now.is_there() {
        let text = format!(
            "node {node} was heard of {} s ago; waiting whether it says something within {} s",
            now.silent,
            NODE_TIMEOUT.as_secs()
        );
        output::tell(text);
    }
    let mut heard = 0;
    while now.is_there() {
        std::thread::sleep(LOOK);
        let before = now.silent;
        now = found()?;
        // One that is gone is silent for a second more each second. But what it said last may be
        // heard late; another node may answer, which hears of it later; and where that had no
        // processor for a while, it is no silence of others.
        let expected = Duration::from_secs(first.silent) + since.elapsed();
        if now.silent < before || Duration::from_secs(now.silent) + LATE < expected {
            heard += 1;
            (since, first) = (Instant::now(), now.clone());
        }
        if heard == HEARD_TIMES {
            let advice = format!("have it give its pages up: solera domain leave {name} {node}");
            return Err(Failure::new(asked, "it is there", &advice));
        }
    }
    Ok(())
}

/// A node that will not come back is removed.
pub fn forget(name: &str, node: u16) -> Outcome {
    let asked = format!("forget node {node} of {name}");
    let status = domains::status(&Registry::find()?, name)?;
    if status.first == node {
        let found = format!("node {node} gives out the numbers and tells the nodes of each other");
        let advice = format!("have another one be first: solera domain first {name} --to NODE");
        return Err(Failure::new(asked, found, &advice));
    }
    wait_for_silence(name, node, &asked)?;
    let status = domains::status(&Registry::find()?, name)?;
    let marked = mark(name, node, Standing::Gone)?;
    if let Some(found) = has_no_pairs(&status, node, Standing::Gone) {
        output::tell(format!("{found}, until another node is started"));
    }
    Ok(marked)
}
