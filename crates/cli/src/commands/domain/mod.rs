//! `solera domain`: a domain's key, and how the domain is, as its nodes on this machine say.

mod arguments;
mod leadership;
mod migration;
mod removal;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use ddmap::{Key, PAGE, Registry, RepairReport, Standing, Status, Store, UserStatus, WaitStatus};
use serde_json::{Value, json};
use volume::{FsckOptions, LostData};

use crate::domains;
use crate::loss::{self, Loss};
use arguments::DomainCommand;
pub use arguments::{DomainArgs, seconds};

/// How often `--watch` looks.
const STEP: Duration = Duration::from_secs(2);
/// Does what the command line names.
pub fn run(args: &DomainArgs) -> Outcome {
    match &args.command {
        DomainCommand::Create { key, name } => create(name, key),
        DomainCommand::Status { json, watch, name } => status(name, *json, *watch),
        DomainCommand::Drain { cancel: true, name, node, .. } => {
            removal::mark(name, *node, Standing::There)
        }
        DomainCommand::Drain { cancel: false, patience, name, node } => {
            removal::drain(name, *node, Duration::from_secs(*patience))
        }
        DomainCommand::Leave { patience, name, node } => {
            removal::leave(name, *node, Duration::from_secs(*patience))
        }
        DomainCommand::Forget { name, node } => removal::forget(name, *node),
        DomainCommand::First { to, force, json, name } => leadership::run(name, *to, *force, *json),
        DomainCommand::Move { to, json, volume } => migration::run(volume, *to, *json),
        DomainCommand::Repair { dry_run, json, volume } => repair(volume, *dry_run, *json),
    }
}

fn create(name: &str, key: &Path) -> Outcome {
    Registry::check_name("domain", name)?;
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
    let (_, volume) = Registry::parse(name)?;
    let region = Registry::find()?.resolve(name)?;
    let store = region.parent().and_then(Store::of_volume).ok_or_else(|| {
        Failure::new(format!("repair {name}"), "its node's store cannot be found", "")
    })?;
    let found = output::busy("comparing", || ddmap::repair(&store, volume, !dry_run))?;
    let RepairReport { looked_at, found, lost, silent } = found;
    let code = if lost.is_empty() && silent.is_empty() { 0 } else { CODE_LOST };
    // What would be lost is not known to be so, of any file.
    let files = if lost.is_empty() || dry_run { Vec::new() } else { files_of(&region)? };
    let rest = rest_of(&lost, &files);
    if json {
        let mut losses: Vec<Value> = Vec::new();
        for (data, loss) in &files {
            losses.extend(loss.to_json(Some(&data.place)));
        }
        losses.extend(rest.to_json(None));
        let lost: Vec<u64> = lost.iter().map(|one| one.0).collect();
        output::emit_json(&json!({
            "dry_run": dry_run,
            "pages": looked_at,
            "found_pages": found,
            "lost_pages": lost,
            "lost": losses,
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
    let of_file = |(data, loss): &(LostData, Loss)| format!("{}: {}", data.place, loss.text());
    lines.extend(files.iter().map(of_file));
    if !rest.is_none() {
        let of = if dry_run { "all files" } else { "no file" };
        lines.push(format!("{of}: {}", rest.text()));
    }
    if !files.is_empty() {
        lines.push("restore these files from copies, remove them, or overwrite them".to_owned());
    }
    output::emit((lines.join("\n") + "\n").as_bytes())?;
    Ok(code)
}

/// What is known to be lost of each file.
fn files_of(region: &Path) -> Result<Vec<(LostData, Loss)>, Failure> {
    let options = FsckOptions { known_lost: true, ..FsckOptions::default() };
    let report = output::busy("naming files", || volume::fsck(region, &options, &mut |_, _| {}))?;
    let losses = loss::by_file(region, &report.lost)?.unwrap_or_default();
    Ok(report.lost.into_iter().zip(losses).collect())
}

/// What is lost besides that of files.
fn rest_of(lost: &[(u64, Option<u16>)], files: &[(LostData, Loss)]) -> Loss {
    let named: BTreeSet<u64> = files.iter().flat_map(|(data, _)| loss::pages(data)).collect();
    let rest = lost.iter().filter(|(page, _)| !named.contains(page));
    Loss::of_pages(rest.map(|one| one.1))
}

fn status(name: &str, json: bool, watch: bool) -> Outcome {
    let registry = Registry::find()?;
    loop {
        let told = domains::told(&registry, name)?;
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
                "uuid": volume.uuid,
                "host": status.node,
                "size_bytes": volume.pages * PAGE,
                "here_bytes": volume.here * PAGE,
                "stays_bytes": volume.stays * PAGE,
                "local_bytes": volume.local.map(|pages| pages * PAGE),
                "processes": volume.processes,
                "evicted_pages": volume.evicted,
                "copies": volume.copies.max(1),
                "single_bytes": volume.single * PAGE,
                "healed_bytes": volume.healed * PAGE,
                "attached": volume.users,
                "waiting": volume.waiting,
            })
        })
    });
    let kept = told.iter().flat_map(|status| {
        status.kept.iter().map(|kept| {
            json!({
                "node": status.node,
                "uuid": kept.uuid,
                "volume": name_of(told, &kept.uuid),
                "bytes": kept.pages * PAGE,
            })
        })
    });
    let asks = told.iter().flat_map(|status| {
        status.asks.iter().map(|ask| {
            json!({
                "node": status.node,
                "volume": ask.volume,
                "seconds": ask.seconds,
                "host": (ask.waits.host != 0).then_some(ask.waits.host),
                "before": ask.waits.before,
                "attached": ask.waits.users,
            })
        })
    });
    json!({
        "domain": name,
        "first": told.iter().map(|status| (status.term, status.first)).max().map(|one| one.1),
        "term": told.iter().map(|status| status.term).max(),
        "asked": told.iter().map(|status| status.node).collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
        "kept": kept.collect::<Vec<_>>(),
        "asks": asks.collect::<Vec<_>>(),
    })
}

/// The name of the volume of a number, if its host is a node of this machine.
fn name_of<'a>(told: &'a [Status], uuid: &str) -> Option<&'a str> {
    let mut volumes = told.iter().flat_map(|status| &status.volumes);
    volumes.find(|volume| volume.uuid == uuid).map(|volume| volume.name.as_str())
}

/// What of volumes of two copies has one, and what was copied anew.
fn copies_to_text(told: &[Status], text: &mut String) {
    let bytes = |pages: u64| size::show(pages * PAGE);
    let of_two = told.iter().flat_map(|status| &status.volumes).filter(|volume| volume.copies > 1);
    for volume in of_two.filter(|volume| volume.single + volume.healed > 0) {
        let (name, single, healed) = (&volume.name, bytes(volume.single), bytes(volume.healed));
        let line = match volume.single {
            0 => format!("{name}: all pages have two copies, {healed} were made anew"),
            _ => format!("{name}: {single} have one copy; {healed} were made anew"),
        };
        text.push_str(&line);
        text.push('\n');
    }
}

/// Who has a volume, and who waits for it.
fn turns_to_text(told: &[Status], text: &mut String) {
    for volume in told.iter().flat_map(|status| &status.volumes) {
        let user = |one: &UserStatus| format!("{} has it for {} s", one.process, one.seconds);
        let wait = |one: &WaitStatus| {
            format!("a program of node {} waits for {} s", one.node, one.seconds)
        };
        let users = volume.users.iter().map(user);
        let all: Vec<String> = users.chain(volume.waiting.iter().map(wait)).collect();
        if !all.is_empty() {
            let line = format!("{}: {}\n", volume.name, all.join("; "));
            text.push_str(&line);
        }
    }
    for status in told {
        for ask in &status.asks {
            let (volume, seconds, waits) = (&ask.volume, ask.seconds, &ask.waits);
            let line = format!("{volume}: a program here waits for {seconds} s: {waits}\n");
            text.push_str(&line);
        }
    }
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
        let is_first = told.iter().max_by_key(|status| status.term).map(|status| status.first);
        let marks = [
            (is_first == Some(node.node), "first"),
            (node.passive && node.standing != Standing::Gone, "passive"),
            (node.standing == Standing::Drains, "drains"),
            (node.standing == Standing::Gone, "removed"),
        ];
        let marks: Vec<&str> = marks.iter().filter(|one| one.0).map(|one| one.1).collect();
        let of = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
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
                volume.copies.max(1).to_string(),
            ]
        })
    });
    let volumes: Vec<Vec<String>> = volumes.collect();
    if !volumes.is_empty() {
        let head = [
            "volume",
            "host",
            "size",
            "on its host",
            "stays",
            "local",
            "processes",
            "sent away",
            "copies",
        ];
        text.push('\n');
        text.push_str(&output::table(&head, &volumes));
    }
    copies_to_text(told, &mut text);
    turns_to_text(told, &mut text);
    let kept = told.iter().flat_map(|status| {
        let row = |uuid: &String, pages| {
            // By its number where its host is elsewhere, or is gone.
            let name = name_of(told, uuid).map_or_else(|| uuid.clone(), ToOwned::to_owned);
            vec![name, status.node.to_string(), bytes(pages)]
        };
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
    use ddmap::{AskStatus, KeptStatus, Member, Status, UserStatus, VolumeStatus};
    use ddmap::{WaitStatus, Waits};
    use std::net::SocketAddr;

    #[test]
    fn people_see_nodes_volumes_and_what_is_kept() {
        let address = SocketAddr::from(([10, 0, 0, 1], 7470));
        let (passive, silent) = (true, 3);
        let node = Member { passive, capacity: 1024, used: 256, silent, ..Member::new(2, address) };
        let (name, uuid, pages, here) = ("big".to_owned(), "cd".to_owned(), 2048, 512);
        let volume = VolumeStatus {
            name,
            uuid,
            pages,
            here,
            processes: 1,
            evicted: 256,
            stays: 64,
            local: Some(1024),
            copies: 2,
            single: 32,
            healed: 256,
            users: vec![UserStatus { process: "77 (sqlite3)".to_owned(), seconds: 75 }],
            waiting: vec![WaitStatus { node: 3, seconds: 4 }],
        };
        let users = Some(vec![UserStatus { process: "5 (sleep)".to_owned(), seconds: 9 }]);
        let waits = Waits { host: 3, before: 1, users, ..Waits::default() };
        let asks = vec![AskStatus { volume: "other".to_owned(), seconds: 2, waits }];
        let kept = ["ab", "cd"].map(|uuid| KeptStatus { uuid: uuid.to_owned(), pages: 128 });
        let (domain, nodes) = ("dm".to_owned(), vec![node]);
        let (volumes, kept) = (vec![volume], kept.to_vec());
        let told = Status { domain, node: 2, first: 2, term: 3, nodes, volumes, kept, asks };
        let expected = "\
dm, as node 2 of this machine says

node                      address  capacity      free  silent for
2 (first, passive)  10.0.0.1:7470  4.00 MiB  3.00 MiB         3 s

volume  host      size  on its host    stays     local  processes  sent away  copies
big        2  8.00 MiB     2.00 MiB  256 KiB  4.00 MiB          1   1.00 MiB       2
big: 128 KiB have one copy; 1.00 MiB were made anew
big: 77 (sqlite3) has it for 75 s; a program of node 3 waits for 4 s
other: a program here waits for 2 s: node 3 has it: 5 (sleep), for 9 s; 1 program waits before \
this one

kept for others  by node    pages
ab                     2  512 KiB
big                    2  512 KiB
";
        assert_eq!(to_text("dm", &[told]), expected);
    }
}
