//! `solera domain first`: another node gives out the numbers of a domain.

use console::failure::{Failure, Outcome};
use console::output;
use ddmap::{LocalReply, LocalRequest, Registry};
use serde_json::json;

use crate::domains;

/// Has a node be first, by force without a majority.
pub fn run(name: &str, to: u16, force: bool, json: bool) -> Outcome {
    let registry = Registry::find()?;
    let asked = format!("make node {to} the first of {name}");
    let before = domains::status(&registry, name)?;
    let find = || before.nodes.iter().find(|one| one.node == to);
    let node = find().ok_or_else(|| {
        let advice = format!("see solera domain status {name}");
        Failure::new(&asked, "the domain has no such node", &advice)
    })?;
    if node.passive {
        let advice = "choose one that was started without --passive";
        return Err(Failure::new(asked, "it is passive", advice));
    }
    let advice = if force {
        String::new()
    } else {
        format!("start those nodes; if they are gone: solera domain first {name} --to {to} --force")
    };
    match registry.order(name, &LocalRequest::First { to, force })? {
        LocalReply::Done => {}
        LocalReply::Refused { text } => return Err(Failure::new(asked, text, &advice)),
        _ => return Err(Failure::new(asked, "its node answers something else", "")),
    }
    // The node that was asked may have to hear of it; what the new first says is so.
    let told = domains::told(&registry, name)?;
    let term = told.iter().filter(|status| status.first == to).map(|status| status.term).max();
    let address = node.address;
    if json {
        output::emit_json(&json!({
            "domain": name,
            "first": to,
            "term": term,
            "address": address.to_string(),
            "before": before.first,
        }))?;
        return Ok(0);
    }
    let text = if before.first == to {
        format!("{name}: node {to} at {address} is first, as it was\n")
    } else {
        let old = before.first;
        format!(
            "{name}: node {to} at {address} is first, in place of node {old}\nNext, for new nodes: \
             solera node --domain {name} --join {address}\n"
        )
    };
    output::emit(text.as_bytes())?;
    Ok(0)
}
