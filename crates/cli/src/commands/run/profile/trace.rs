//! The calls themselves, as Chrome and Perfetto read them: the format of trace events, in JSON.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use record::{Area, By, Kind, Map};
use serde_json::{Value, json};

use super::Run;
use super::totals::{areas, path_of};

/// A call that was kept.
struct TracedCall {
    begun: u64,
    ticks: u64,
    bytes: u64,
    who: [u32; 2],
    file: u32,
    what: u32,
}

/// The calls that are in an area's ring.
fn kept<'m>(map: &'m Map, area: &'m Area) -> impl Iterator<Item = TracedCall> + 'm {
    let written = area.events.load(Relaxed);
    let first = written.saturating_sub(u64::from(map.ring()));
    (first..written).map(move |number| {
        let event = map.event(area, number);
        TracedCall {
            begun: event.begun.load(Relaxed),
            ticks: event.ticks.load(Relaxed),
            bytes: event.bytes.load(Relaxed),
            who: [0, 1].map(|part| event.who[part].load(Relaxed)),
            file: event.file.load(Relaxed),
            what: event.what.load(Relaxed),
        }
    })
}

/// The trace: the last calls of all, in the order in which they began.
pub fn of(map: &Map, run: &Run) -> String {
    let areas = areas(map);
    let mut calls: Vec<TracedCall> = areas.iter().flat_map(|area| kept(map, area)).collect();
    // What a process was killed in is half written.
    calls.retain(|call| call.begun >= run.begun);
    calls.sort_by_key(|call| call.begun);
    let written: u64 = areas.iter().map(|area| area.events.load(Relaxed)).sum();
    let most = map.ring() as usize;
    let calls = &calls[calls.len().saturating_sub(most)..];
    let us = |ticks: u64| ticks as f64 * run.ns_per_tick / 1e3;
    let mut paths: BTreeMap<u32, String> = BTreeMap::new();
    let mut events: Vec<Value> = areas.iter().filter_map(|area| named(area)).collect();
    events.extend(calls.iter().map(|call| {
        let kind = Kind::ALL.get(call.what as usize & 0xFFFF).map_or("?", |kind| kind.name());
        let by = By::ALL.get((call.what >> 16) as usize).map_or("?", |by| by.name());
        let mut told = serde_json::Map::new();
        if call.file > 0 {
            let path = paths
                .entry(call.file)
                .or_insert_with(|| path_of(map, call.file as usize % record::FILES));
            told.insert("file".to_owned(), json!(path));
        }
        if call.bytes > 0 {
            told.insert("bytes".to_owned(), json!(call.bytes));
        }
        json!({
            "name": kind,
            "cat": by,
            "ph": "X",
            "ts": us(call.begun - run.begun),
            "dur": us(call.ticks),
            "pid": call.who[0],
            "tid": call.who[1],
            "args": told,
        })
    }));
    let dropped = written - (calls.len() as u64).min(written);
    let other = json!({ "calls": calls.len(), "dropped": dropped });
    let trace = json!({ "displayTimeUnit": "ns", "otherData": other, "traceEvents": events });
    format!("{trace}\n")
}

/// Says what the process of an area is called.
fn named(area: &Area) -> Option<Value> {
    let process = area.process.load(Relaxed);
    let name: Vec<u8> = area.name.iter().map(|byte| byte.load(Relaxed)).collect();
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    (process != 0).then(
        || json!({ "name": "process_name", "ph": "M", "pid": process, "args": { "name": name } }),
    )
}
