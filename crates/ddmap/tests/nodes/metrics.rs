//! What a monitor is told: over real nodes and HTTP, with counts that are exact.

use crate::paging::pager::PagerOptions;
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::State;
use crate::shared_memory::counters::Count;
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store, touch};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn answer(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Samples by name and labels, of a text that is as promtool wants it.
fn scrape(at: SocketAddr) -> BTreeMap<String, f64> {
    let answer = answer(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.ends_with('\n'));
    let (mut samples, mut kinds, mut helped) = (BTreeMap::new(), BTreeMap::new(), None);
    let mut family = "";
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.ends_with('.'), "{line}");
            helped = Some(name);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(helped, Some(name), "its HELP stands above it");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(kinds.insert(name, kind).is_none(), "{name} stands once");
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(name.starts_with("solera_ddmap_") && name.bytes().all(fits), "{name}");
            family = name;
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let name = sample.split('{').next().unwrap();
        let rest = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} in {family}"));
        let histogram = kinds[family] == "histogram";
        let rests = if histogram { &["_bucket", "_sum", "_count"][..] } else { &[""] };
        assert!(rests.contains(&rest), "{line}");
        if let Some((_, labels)) = sample.split_once('{') {
            for label in labels.strip_suffix('}').unwrap().split(',') {
                let (name, value) = label.split_once('=').unwrap();
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{line}");
                assert!(
                    value.len() > 2 && value.starts_with('"') && value.ends_with('"'),
                    "{line}"
                );
            }
        }
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0, "{line}");
        assert!(samples.insert(sample.to_owned(), value).is_none(), "{sample} stands once");
    }
    samples
}

fn get(samples: &BTreeMap<String, f64>, name: &str) -> u64 {
    let found = samples.get(&format!("solera_ddmap_{name}"));
    *found.unwrap_or_else(|| panic!("{name} in {samples:#?}")) as u64
}

fn faults(samples: &BTreeMap<String, f64>, kind: &str) -> u64 {
    get(samples, &format!("faults_total{{volume=\"v\",kind=\"{kind}\"}}"))
}

#[test]
fn each_touch_of_an_absent_page_is_one_remote_fault_and_the_dead_stay_counted() {
    let (folder, capacity) = (TestDir::new(), 4 << 20);
    let first = Running::start(&folder.at("1"), capacity, None);
    let _second = Running::start(&folder.at("2"), 8 << 20, Some(first.address));
    let pages = 2 * capacity / PAGE;
    let path = Store::at(first.store.clone()).create_volume("v", pages * PAGE, 1).unwrap();
    let wishes = PagerOptions { ahead: PrefetchMode::Off, ..PagerOptions::default() };
    let attach = || region_of(&path.join("region"), wishes);
    let (region, pager) = attach();
    // The last 100 become zeros.
    // Not in ascending order, in which the next ones would be there, too.
    for page in (0..pages).rev() {
        store(&region, page, if page < pages - 100 { page } else { 0 });
    }
    let before = scrape(first.metrics);
    assert_eq!(faults(&before, "local"), pages, "each page is new once");
    assert_eq!(faults(&before, "remote"), 0);
    let absent = |page: &u64| pager.ground().table.word(*page).state() == State::Absent;
    let held: Vec<u64> = (0..pages - 100).filter(absent).take(500).collect();
    assert_eq!(held.len(), 500);
    for page in &held {
        touch(&region, *page);
    }
    let after = scrape(first.metrics);
    assert_eq!(faults(&after, "remote"), 500);
    assert_eq!(get(&after, "fetch_bytes_total{volume=\"v\"}"), 500 * PAGE);
    assert_eq!(faults(&after, "local"), pages);
    let count = "fault_seconds_count{volume=\"v\",kind=\"remote\"}";
    assert_eq!(get(&after, count), 500);
    assert_eq!(get(&after, &count.replace("count{", "bucket{").replace('}', ",le=\"+Inf\"}")), 500);
    let mut buckets: Vec<(f64, f64)> = after
        .iter()
        .filter(|one| one.0.contains("fault_seconds_bucket{volume=\"v\",kind=\"remote\""))
        .map(|one| {
            let end = one.0.split("le=\"").nth(1).unwrap().trim_end_matches("\"}");
            (end.parse().unwrap_or(f64::INFINITY), *one.1)
        })
        .collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(buckets.is_sorted_by_key(|one| one.1) && buckets.len() > 20, "{buckets:?}");
    let gone = |kind| get(&after, &format!("evicted_pages_total{{volume=\"v\",kind=\"{kind}\"}}"));
    assert_eq!(get(&after, "sent_bytes_total{volume=\"v\"}"), gone("dirty") * PAGE);
    assert!(gone("zero") >= 1 && gone("zero") <= 100, "{}", gone("zero"));
    assert!(gone("dirty") >= pages - capacity / PAGE, "{}", gone("dirty"));
    assert!(after.contains_key("solera_ddmap_link_rtt_seconds{volume=\"v\",node=\"2\"}"));
    // Here, and not mapped by a second process: it traps there. Backward, since those behind one
    // are mapped with it.
    let here: Vec<u64> = (0..pages).rev().filter(|page| !absent(page)).take(50).collect();
    let (other, second) = attach();
    for page in &here {
        touch(&other, *page);
    }
    assert_eq!(second.counted().get(Count::Fetched), 0);
    let minor = faults(&scrape(first.metrics), "minor");
    assert!(minor >= 50, "{minor}");
    drop((region, pager, other, second));
    let (_region, _pager) = attach();
    let last = scrape(first.metrics);
    assert_eq!((faults(&last, "remote"), faults(&last, "local")), (500, pages));
}

#[test]
fn a_monitor_that_hangs_or_talks_nonsense_holds_up_nobody() {
    let folder = TestDir::new();
    let node = Running::start(&folder.at("1"), 4 << 20, None);
    // It says nothing, and half of a request.
    let silent = TcpStream::connect(node.metrics).unwrap();
    let mut half = TcpStream::connect(node.metrics).unwrap();
    half.write_all(b"GET /met").unwrap();
    assert_eq!(get(&scrape(node.metrics), "capacity_bytes"), 4 << 20);
    let other = answer(node.metrics, "GET / HTTP/1.1\r\n\r\n");
    assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
    let post = answer(node.metrics, "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    let mut endless = TcpStream::connect(node.metrics).unwrap();
    // The node closes it: nothing more is taken then.
    let refused = (0..100_000).any(|_| endless.write_all(&[b'x'; 1024]).is_err());
    assert!(refused, "a head without an end is taken for ever");
    // As a program of this machine: the same thread hears of it.
    let path = Store::at(node.store.clone()).create_volume("v", 64 * PAGE, 1).unwrap();
    let (region, _pager) = region_of(&path.join("region"), PagerOptions::default());
    store(&region, 3, 4);
    drop((silent, half));
}
