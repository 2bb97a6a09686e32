//! `solera domain move`: a volume gets another host. Its present host does it; this asks how far
//! that is.

use console::failure::Outcome;
use console::output;
use console::size;
use ddmap::{DomainError, LocalRequest, PAGE, Registry, Store};
use serde_json::json;

use crate::domains;

/// Moves the volume, or says that it is there already.
pub fn run(name: &str, to: u16, json: bool) -> Outcome {
    let (_, volume) = Registry::parse(name)?;
    let registry = Registry::find()?;
    // A move that others have asked for may end between two looks: the next ones see it.
    let from = present(&registry, name, to).or_else(|_| present(&registry, name, to))?;
    let Some((old, store)) = from else { return told(name, (to, None), json, &registry) };
    let said = LocalRequest::Move { volume: volume.to_owned(), to };
    let done =
        domains::order(&store, volume, &format!("move {name} to node {to}"), "moving", &said);
    if let Err(error) = done {
        let is_there = present(&registry, name, to).is_ok_and(|from| from.is_none());
        return if is_there { told(name, (to, None), json, &registry) } else { Err(error) };
    }
    told(name, (to, Some(old)), json, &registry)
}

/// The node of this machine that is to move the volume. `None`: it has moved.
fn present(registry: &Registry, name: &str, to: u16) -> Result<Option<(u16, Store)>, DomainError> {
    let (domain_of, volume) = Registry::parse(name)?;
    let nodes = registry.living(domain_of);
    let gone = |store: &Store| store.gone().into_iter().find(|moved| moved.name == volume);
    // One that was decided upon goes on at its old host, or comes back there.
    let pending = nodes
        .iter()
        .find(|(number, store)| gone(store).is_some_and(|moved| moved.node == to || *number == to));
    if let Some((number, store)) = pending {
        return Ok(Some((*number, store.clone())));
    }
    if registry.host(name)?.is_some_and(|(host, _)| host == to) {
        return Ok(None);
    }
    let region = registry.resolve(name)?;
    let is = |one: &(u16, Store)| region.starts_with(one.1.path());
    Ok(nodes.into_iter().find(is))
}

/// Says where the volume is now, and what is left with the old host.
fn told(name: &str, (to, old): (u16, Option<u16>), json: bool, registry: &Registry) -> Outcome {
    let (domain_of, _) = Registry::parse(name)?;
    let all = domains::status(registry, domain_of)?.nodes;
    let address = all.iter().find(|one| one.node == to).map(|one| one.address.to_string());
    let kept = |node: u16| all.iter().find(|one| one.node == node).map_or(0, |one| one.kept * PAGE);
    if json {
        output::emit_json(&json!({
            "volume": name,
            "host": to,
            "address": address,
            "from": old,
            "moved": old.is_some(),
            "kept_by_old_host_bytes": old.map(kept),
        }))?;
        return Ok(0);
    }
    let at = address.map_or_else(String::new, |address| format!(" at {address}"));
    let text = match old {
        Some(old) if old == to => format!(
            "{name}: node {to}{at} is its host again, as it was before the move\nNext: solera run \
             --ddmap {name} -- PROGRAM\n"
        ),
        None => format!("{name}: node {to}{at} is its host already\n"),
        Some(old) => format!(
            "{name}: node {to}{at} is its host, in place of node {old}, which keeps {} for other \
             nodes until they are wanted\nNext, on that machine: solera run --ddmap {name} -- \
             PROGRAM\n",
            size::show(kept(old))
        ),
    };
    output::emit(text.as_bytes())?;
    Ok(0)
}
