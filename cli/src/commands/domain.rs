//! `solera domain`: a domain's key, and how the domain is, as its nodes on this machine say.

mod leaving;
mod moving;

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use ddmap::ground::store::{Standing, Store};
use ddmap::program::repair::{self, Repaired};
use ddmap::protocol::PAGE;
use ddmap::reach::registry::{self, Registry};
use ddmap::reach::status::Status;
use ddmap::wire::key::Key;
use serde_json::{Value, json};

use crate::args::{DomainArgs, DomainCommand};
use crate::domain;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::size;

/// How often `--watch` looks.
const STEP: Duration = Duration::from_secs(2);
/// Does what the command line names.
pub fn run(args: &DomainArgs) -> Outcome {
    match &args.command {
        DomainCommand::Create { key, name } => create(name, key),
        DomainCommand::Status { json, watch, name } => status(name, *json, *watch),
        DomainCommand::Drain { cancel: true, name, node, .. } => {
            leaving::mark(name, *node, Standing::There)
        }
        DomainCommand::Drain { cancel: false, patience, name, node } => {
            leaving::drain(name, *node, Duration::from_secs(*patience))
        }
        DomainCommand::Leave { patience, name, node } => {
            leaving::leave(name, *node, Duration::from_secs(*patience))
        }
        DomainCommand::Forget { name, node } => leaving::forget(name, *node),
        DomainCommand::Move { to, json, volume } => moving::run(volume, *to, *json),
        DomainCommand::Repair { dry_run, json, volume } => repair(volume, *dry_run, *json),
    }
}

fn create(name: &str, key: &Path) -> Outcome {
    registry::check_name("domain", name)?;
    Key::create(key, name).map_err(|error| Failure::new(format!("create {name}"), error, ""))?;
    let key = key.display();
    let text = format!(
        "{key}: the key of {name}; what has it may be a node: copy it to each machine, with mode \
         600\nNext: solera node --domain {name} --key {key} --listen ADDR:PORT --store DIR \
         --capacity SIZE\n"
    );
    output::emit(text.as_bytes())?;
    Ok(0)
}

/// Pages were lost.
const CODE_LOST: u8 = 4;

fn repair(name: &str, dry_run: bool, json: bool) -> Outcome {
    let (_, volume) = registry::parse(name)?;
    let region = Registry::find()?.resolve(name)?;
    let store = region.parent().and_then(Store::of_volume).ok_or_else(|| {
        Failure::new(format!("repair {name}"), "its node's store cannot be found", "")
    })?;
    let found = output::busy("comparing", || repair::repair(&store, volume, !dry_run))?;
    let Repaired { looked_at, found, lost, silent } = found;
    let code = if lost.is_empty() && silent.is_empty() { 0 } else { CODE_LOST };
    if json {
        output::emit_json(&json!({
            "dry_run": dry_run,
            "pages": looked_at,
            "found_pages": found,
            "lost_pages": lost,
            "silent_nodes": silent,
        }))?;
        return Ok(code);
    }
    let would = if dry_run { "would be " } else { "" };
    let mut lines = vec![format!(
        "{name}: {looked_at} pages looked at, {found} {would}placed anew, {} lost",
        lost.len()
    )];
    let of_silent = |node: u16| format!("node {node} does not answer: no page is called lost");
    lines.extend(silent.into_iter().map(of_silent));
    let of_lost = |page: u64| format!("lost: page {page}, byte {} of the region", page * PAGE);
    lines.extend(lost.into_iter().map(of_lost));
    output::emit((lines.join("\n") + "\n").as_bytes())?;
    Ok(code)
}

fn status(name: &str, json: bool, watch: bool) -> Outcome {
    let registry = Registry::find()?;
    loop {
        let told = domain::told(&registry, name)?;
        if watch && !json && std::io::stdout().is_terminal() {
            // The cursor to the top, and what is below it away.
            output::emit(b"\x1b[H\x1b[J")?;
        }
        if json {
            output::emit_json(&to_json(name, &told))?;
        } else {
            output::emit(to_text(name, &told).as_bytes())?;
        }
        if !watch {
            return Ok(0);
        }
        std::thread::sleep(STEP);
    }
}

/// All of it, for programs. Names are stable: fields are added, never renamed.
fn to_json(name: &str, told: &[Status]) -> Value {
    let nodes = told.first().into_iter().flat_map(|status| &status.nodes).map(|node| {
        json!({
            "node": node.node,
            "address": node.address.to_string(),
            "passive": node.passive,
            "standing": node.standing,
            "kept_bytes": node.kept * PAGE,
            "promised_bytes": node.promised * PAGE,
            "capacity_bytes": node.capacity * PAGE,
            "used_bytes": node.used * PAGE,
            "free_bytes": node.free() * PAGE,
            "silent_seconds": node.silent,
        })
    });
    let volumes = told.iter().flat_map(|status| {
        status.volumes.iter().map(|volume| {
            json!({
                "name": volume.name,
                "host": status.node,
                "size_bytes": volume.pages * PAGE,
                "here_bytes": volume.here * PAGE,
                "stays_bytes": volume.stays * PAGE,
                "local_bytes": volume.local.map(|pages| pages * PAGE),
                "processes": volume.processes,
                "evicted_pages": volume.evicted,
            })
        })
    });
    let kept = told.iter().flat_map(|status| {
        status.kept.iter().map(
            |kept| json!({ "node": status.node, "uuid": kept.uuid, "bytes": kept.pages * PAGE }),
        )
    });
    json!({
        "domain": name,
        "asked": told.iter().map(|status| status.node).collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
        "kept": kept.collect::<Vec<_>>(),
    })
}

fn to_text(name: &str, told: &[Status]) -> String {
    let numbers: Vec<String> = told.iter().map(|status| status.node.to_string()).collect();
    let numbers = match numbers.as_slice() {
        [one] => format!("node {one} of this machine says"),
        all => format!("nodes {} of this machine say", all.join(", ")),
    };
    let mut text = format!("{name}, as {numbers}\n\n");
    let bytes = |pages: u64| size::show(pages * PAGE);
    let nodes = told.first().into_iter().flat_map(|status| &status.nodes).map(|node| {
        let of = match (node.passive, node.standing) {
            (_, Standing::Gone) => " (removed)",
            (true, Standing::Drains) => " (passive, drains)",
            (false, Standing::Drains) => " (drains)",
            (true, Standing::There) => " (passive)",
            (false, Standing::There) => "",
        };
        vec![
            format!("{}{of}", node.node),
            node.address.to_string(),
            bytes(node.capacity),
            bytes(node.free()),
            format!("{} s", node.silent),
        ]
    });
    let head = ["node", "address", "capacity", "free", "silent for"];
    text.push_str(&output::table(&head, &nodes.collect::<Vec<_>>()));
    let volumes = told.iter().flat_map(|status| {
        status.volumes.iter().map(|volume| {
            vec![
                volume.name.clone(),
                status.node.to_string(),
                bytes(volume.pages),
                bytes(volume.here),
                bytes(volume.stays),
                volume.local.map_or("-".to_owned(), bytes),
                volume.processes.to_string(),
                bytes(volume.evicted),
            ]
        })
    });
    let volumes: Vec<Vec<String>> = volumes.collect();
    if !volumes.is_empty() {
        let head =
            ["volume", "host", "size", "on its host", "stays", "local", "processes", "sent away"];
        text.push('\n');
        text.push_str(&output::table(&head, &volumes));
    }
    let kept = told.iter().flat_map(|status| {
        let row = |uuid: &String, pages| vec![uuid.clone(), status.node.to_string(), bytes(pages)];
        status.kept.iter().map(move |kept| row(&kept.uuid, kept.pages))
    });
    let kept: Vec<Vec<String>> = kept.collect();
    if !kept.is_empty() {
        text.push('\n');
        text.push_str(&output::table(&["kept for others", "by node", "pages"], &kept));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::to_text;
    use ddmap::reach::control::Member;
    use ddmap::reach::status::{KeptStatus, Status, VolumeStatus};
    use std::net::SocketAddr;

    #[test]
    fn people_see_nodes_volumes_and_what_is_kept() {
        let address = SocketAddr::from(([10, 0, 0, 1], 7470));
        let (passive, silent) = (true, 3);
        let node = Member { passive, capacity: 1024, used: 256, silent, ..Member::new(2, address) };
        let (name, pages, here) = ("big".to_owned(), 2048, 512);
        let volume = VolumeStatus {
            name,
            pages,
            here,
            processes: 1,
            evicted: 256,
            stays: 64,
            local: Some(1024),
        };
        let kept = KeptStatus { uuid: "ab".to_owned(), pages: 128 };
        let (domain, nodes) = ("dm".to_owned(), vec![node]);
        let told = Status { domain, node: 2, nodes, volumes: vec![volume], kept: vec![kept] };
        let expected = "\
dm, as node 2 of this machine says

node               address  capacity      free  silent for
2 (passive)  10.0.0.1:7470  4.00 MiB  3.00 MiB         3 s

volume  host      size  on its host    stays     local  processes  sent away
big        2  8.00 MiB     2.00 MiB  256 KiB  4.00 MiB          1   1.00 MiB

kept for others  by node    pages
ab                     2  512 KiB
";
        assert_eq!(to_text("dm", &[told]), expected);
    }
}
