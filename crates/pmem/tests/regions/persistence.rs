//! What a region tells its hook: the crash explorer's view of every store.

use pmem::costs::CostCounter;
use pmem::trace::{Event, Trace};
use pmem::{Class, Locality, Region, UserIn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A region of zeroes and the trace of what happens to it.
fn traced(len: usize) -> (Region, Arc<Trace>) {
    let trace = Trace::new();
    (Region::in_memory(vec![0; len], Some(trace.clone())), trace)
}

/// Events without their places: `S`tore, `N`on-temporal store, `F`lush, `|` for a fence.
fn brief(trace: &Trace) -> Vec<String> {
    let events = trace.take().into_iter();
    events
        .map(|event| match event {
            Event::Store { off, bytes, streamed: false, .. } => format!("S{off}+{}", bytes.len()),
            Event::Store { off, bytes, streamed: true, .. } => format!("N{off}+{}", bytes.len()),
            Event::Flush { line, .. } => format!("F{line}"),
            Event::Fence { .. } => "|".to_owned(),
            Event::Mark(text) => text,
        })
        .collect()
}

#[test]
fn a_word_is_stored_flushed_and_fenced() {
    let (region, trace) = traced(4096);
    let _ = region.store64(72, 0x0102).unwrap().flush().fence();
    trace.mark("done");
    assert_eq!(brief(&trace), ["S72+8", "F64", "|", "done"]);
    assert_eq!(region.load64(72), Ok(0x0102));
}

#[test]
fn a_write_flushes_each_of_its_lines_once() {
    let (region, trace) = traced(4096);
    let dirty = region.write(60, &[1; 70]).unwrap();
    let _ = dirty.join(region.write(8, &[2; 8]).unwrap()).flush().fence();
    assert_eq!(brief(&trace), ["S60+70", "S8+8", "F0", "F64", "F128", "|"]);
}

#[test]
fn a_stream_goes_around_the_cache_but_for_ragged_ends() {
    let (region, trace) = traced(8192);
    let bytes = vec![9; 300];
    let _ = region.stream(64, &bytes[..128]).unwrap().fence();
    assert_eq!(brief(&trace), ["N64+128", "|"], "whole lines");
    let _ = region.stream(8, &bytes[..200]).unwrap().fence();
    assert_eq!(brief(&trace), ["N8+56", "N64+128", "N192+16", "|"], "whole words");
    let _ = region.stream(60, &bytes[..71]).unwrap().fence();
    assert_eq!(brief(&trace), ["S60+4", "F0", "N64+64", "S128+3", "F128", "|"], "ragged");
    let _ = region.stream(5, &bytes[..3]).unwrap().fence();
    assert_eq!(brief(&trace), ["S5+3", "F0", "|"], "inside a line");
    let _ = region.stream(5, &[]).unwrap().fence();
    assert_eq!(brief(&trace), ["|"], "nothing");
}

#[test]
fn what_is_recorded_is_what_is_stored() {
    let (region, trace) = traced(65_536);
    let pattern: Vec<u8> = (0..9000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    let first = region.write(3, &pattern[..200]).unwrap().flush();
    let second = region.stream_from(1001, &UserIn::new(&pattern), Locality::Near).unwrap();
    let third = region.copy(1001, 20_003, 7777).unwrap();
    let zeroed = region.stream_zero(1100, 1000).unwrap();
    let after = first.and(second).and(third).and(zeroed).fence();
    let _ = region.commit64(32_768, 42, &after).unwrap().flush().fence();
    let _ = region.commit_write(32_776, b"commit line", &after).unwrap().flush().fence();

    let mut replayed = vec![0; 65_536];
    for event in trace.take() {
        if let Event::Store { off, bytes, .. } = event {
            replayed[off as usize..off as usize + bytes.len()].copy_from_slice(&bytes);
        }
    }
    let mut real = vec![0; 65_536];
    region.read(0, &mut real).unwrap();
    assert!(replayed == real);
    assert_eq!(real[20_003..20_003 + 7777], pattern[..7777]);
}

#[test]
fn an_event_names_the_line_that_caused_it() {
    let (region, trace) = traced(4096);
    let _ = region.write(0, &[1]).unwrap().flush().fence();
    let line = line!() - 1;
    for event in trace.events() {
        let (Event::Store { at, .. } | Event::Flush { at, .. } | Event::Fence { at }) = event
        else {
            panic!("no marks were made");
        };
        assert_eq!((at.file(), at.line()), (file!(), line));
    }
}

#[test]
fn durable_caches_need_no_flush() {
    let (mut region, trace) = traced(4096);
    region.set_class(Class::Byte);
    let _ = region.store64(0, 1).unwrap().flush().fence();
    let _ = region.stream(3, &[1; 9]).unwrap().and(region.flush(0, 4096)).fence();
    assert_eq!(brief(&trace), ["S0+8", "|", "S3+9", "|"]);
    region.set_class(Class::CacheLine);
    let _ = region.store64(0, 1).unwrap().flush().fence();
    assert_eq!(brief(&trace), ["S0+8", "F0", "|"]);
}

#[test]
fn counts_add_up() {
    let counts = CostCounter::new();
    let mut region = Region::anonymous(8192).unwrap();
    region.set_class(Class::CacheLine);
    region.set_hook(counts.clone());
    let _ = region.store64(0, 1).unwrap().flush().fence();
    let _ = region.stream(64, &[1; 256]).unwrap().fence();
    let _ = region.flush(0, 200).fence();
    region.shared_store(8, 1).unwrap();
    assert_eq!(counts.stores.load(Relaxed), 2);
    assert_eq!(counts.flushed_lines.load(Relaxed), 1 + 4);
    assert_eq!(counts.fences.load(Relaxed), 3);
    assert_eq!(counts.streamed_bytes.load(Relaxed), 256);
}

/// By a direct store where the CPU has it, or through the cache: the same bytes, whole lines only,
/// inside the region only.
#[test]
fn a_line_is_stored_whole_or_not_at_all() {
    let line: [u8; 64] = std::array::from_fn(|index| index as u8 + 1);
    let (hooked, trace) = traced(4096);
    for region in [&Region::in_memory([0; 4096], None), &hooked] {
        let after = region.fence();
        let _ = region.commit_line(128, &line, &after).unwrap().fence();
        let _ = region.write_line(4032, &line).unwrap().fence();
        let mut all = [0; 4096];
        region.read(0, &mut all).unwrap();
        assert_eq!(all[128..192], line);
        assert_eq!(all[4032..], line);
        assert!(all[..128].iter().chain(&all[192..4032]).all(|&byte| byte == 0));
        for place in [8, 32, 4095, 4096, u64::MAX - 63] {
            assert!(region.write_line(place, &line).is_err(), "{place}");
        }
    }
    // A crash between the words of a line is possible where the CPU has no direct store.
    assert_eq!(brief(&trace), ["|", "S128+64", "F128", "|", "S4032+64", "F4032", "|"]);
}
