//! What a node tells a monitor. Counters are those of all processes that ever had a volume
//! (`shared_memory/counters.rs`), and go on where the node is started anew.

use super::Shared;
use crate::node::host::Hosted;
use crate::protocol::PAGE;
use crate::shared_memory::counters::{Count, Counted, TimeHistogram, Touch, end_of};
use exposition::Text;
use std::sync::Arc;
use std::time::Duration;

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// A volume, and what was counted of it.
struct Of {
    hosted: Arc<Hosted>,
    name: String,
    counted: Counted,
}

impl Of {
    fn times(&self, kind: Touch) -> &TimeHistogram {
        self.counted.times(kind)
    }
}

/// A family of counters of volumes: its name, its label and what that says, what is counted, help.
struct Counters {
    name: &'static str,
    label: &'static str,
    of: &'static [(&'static str, Count, u64)],
    help: &'static str,
}

const COUNTERS: [Counters; 9] = [
    Counters {
        name: "fetch_bytes_total",
        label: "",
        of: &[("", Count::Fetched, PAGE)],
        help: "Bytes of pages that programs fetched from holders.",
    },
    Counters {
        name: "sent_bytes_total",
        label: "",
        of: &[("", Count::Sent, PAGE)],
        help: "Bytes of pages that were sent to holders.",
    },
    Counters {
        name: "second_copy_bytes_total",
        label: "",
        of: &[("", Count::Second, PAGE)],
        help: "Bytes of pages that were sent to a second holder, too.",
    },
    Counters {
        name: "evicted_pages_total",
        label: "kind",
        of: &[("dirty", Count::Sent, 1), ("clean", Count::Clean, 1), ("zero", Count::Zero, 1)],
        help: "Pages that left the host: sent (each counts once), or zeros, sent to nobody.",
    },
    Counters {
        name: "fault_waited_for_eviction_total",
        label: "",
        of: &[("", Count::WaitedForRoom, 1)],
        help: "Touches that waited for room.",
    },
    Counters {
        name: "prefetch_pages_total",
        label: "outcome",
        of: &[("used", Count::AheadUsed, 1), ("wasted", Count::AheadWasted, 1)],
        help: "Pages brought ahead, of windows behind which a thread went on, and of others.",
    },
    Counters {
        name: "lines_total",
        label: "outcome",
        of: &[("hit", Count::LineHit, 1), ("miss", Count::LineMiss, 1)],
        help: "Reads of lines of pages that stay at holders.",
    },
    Counters {
        name: "line_bytes_total",
        label: "",
        of: &[("", Count::LineBytes, 1)],
        help: "Bytes of lines that were fetched.",
    },
    Counters {
        name: "lost_pages_total",
        label: "",
        of: &[("", Count::Lost, 1)],
        help: "Pages that turned out to be lost.",
    },
];

const FALLBACKS: Counters = Counters {
    name: "fallbacks_total",
    label: "reason",
    of: &[
        ("unanswered", Count::Unanswered, 1),
        ("interrupted", Count::Interrupted, 1),
        ("in-use", Count::InUse, 1),
        ("not-held", Count::NotHeld, 1),
        ("refused", Count::Refused, 1),
    ],
    help: "Requests without answer; touches that gave way to a signal; pages that stayed.",
};

fn counters(text: &mut Text, volumes: &[Of], family: &Counters) {
    text.family(family.name, "counter", family.help);
    for volume in volumes {
        for (says, what, unit) in family.of {
            let labels = [("volume", &*volume.name), (family.label, says)];
            let labels = if family.label.is_empty() { &labels[..1] } else { &labels };
            text.sample(family.name, labels, volume.counted.get(*what) * unit);
        }
    }
}

fn touches(text: &mut Text, volumes: &[Of]) {
    let each = || volumes.iter().flat_map(|of| Touch::ALL.iter().map(move |kind| (of, *kind)));
    text.family("faults_total", "counter", "Touches that were served, by how.");
    for (of, kind) in each() {
        let labels = [("volume", &*of.name), ("kind", kind.name())];
        text.sample("faults_total", &labels, of.times(kind).count());
    }
    text.family("fault_seconds", "histogram", "How long touches took.");
    for (of, kind) in each() {
        let (labels, times) = ([("volume", &*of.name), ("kind", kind.name())], of.times(kind));
        let mut sum = 0;
        for (bucket, count) in times.buckets.iter().enumerate() {
            sum += count;
            // The power of two that ends here; the last bucket has all that took longer.
            if bucket % 4 == 0 && bucket + 1 < times.buckets.len() {
                let end = seconds(end_of(bucket)).to_string();
                let [volume, kind] = labels;
                text.sample("fault_seconds_bucket", &[volume, kind, ("le", &end)], sum);
            }
        }
        let [volume, kind] = labels;
        text.sample("fault_seconds_bucket", &[volume, kind, ("le", "+Inf")], times.count());
        text.sample("fault_seconds_sum", &labels, seconds(times.sum_ns));
        text.sample("fault_seconds_count", &labels, times.count());
    }
    let help = "The longest touch ever.";
    text.family("fault_longest_seconds", "gauge", help);
    for (of, kind) in each() {
        let labels = [("volume", &*of.name), ("kind", kind.name())];
        text.sample("fault_longest_seconds", &labels, seconds(of.times(kind).longest_ns));
    }
}

fn links(text: &mut Text, volumes: &[Of]) {
    let help = "Round trip to a holder, as TCP measures it.";
    let known: Vec<_> = volumes.iter().map(|of| (of, of.hosted.links_status())).collect();
    for (name, help) in [
        ("link_rtt_seconds", help),
        ("link_queue_requests", "Requests of the node to a holder that are under way."),
    ] {
        text.family(name, "gauge", help);
        for (of, links) in &known {
            for (node, rtt_us, queue) in links {
                let node = node.number().to_string();
                let labels = [("volume", &*of.name), ("node", &*node)];
                match (name, rtt_us) {
                    ("link_rtt_seconds", Some(us)) => {
                        text.sample(name, &labels, seconds(u64::from(*us) * 1000));
                    }
                    ("link_rtt_seconds", None) => {}
                    _ => text.sample(name, &labels, queue),
                }
            }
        }
    }
}

impl Shared {
    /// All of it.
    pub(super) fn metrics(&self) -> String {
        let mut text = Text::new("solera_ddmap_");
        let room = [
            ("capacity_bytes", self.room.capacity(), "Bytes that the node may have."),
            ("used_bytes", self.room.used(), "Bytes that it has, or is about to get."),
            ("kept_bytes", self.kept(), "Of them, bytes that it keeps for other nodes."),
            ("reserve_bytes", self.reserve, "Bytes that it keeps free."),
        ];
        for (name, pages, help) in room {
            text.family(name, "gauge", help);
            text.sample(name, &[], pages * PAGE);
        }
        let mut volumes = Vec::new();
        for hosted in self.hosts.served() {
            let counted = hosted.evictor.ground().counted_by_all();
            volumes.push(Of { name: hosted.name().to_owned(), counted, hosted });
        }
        let ground = |of: &Of| {
            let ground = of.hosted.evictor.ground();
            let share = ground.table.share();
            [ground.pages_in_file(), share.stays(), share.local().unwrap_or(0)]
        };
        for (at, name, help) in [
            (0, "volume_here_bytes", "Bytes of the volume that are on this host."),
            (1, "volume_stays_bytes", "Of them, bytes that must stay."),
            (2, "volume_local_bytes", "Besides those, bytes that may be here; 0: any number."),
        ] {
            text.family(name, "gauge", help);
            for of in &volumes {
                text.sample(name, &[("volume", &*of.name)], ground(of)[at] * PAGE);
            }
        }
        let help = "Pages that one holder has, and are to have two.";
        text.family("single_pages", "gauge", help);
        let gone = self.members.gone();
        for of in &volumes {
            let single = of.hosted.copies.single(&of.hosted.evictor, &gone);
            text.sample("single_pages", &[("volume", &*of.name)], single);
        }
        touches(&mut text, &volumes);
        for family in COUNTERS.iter().chain([&FALLBACKS]) {
            counters(&mut text, &volumes, family);
        }
        links(&mut text, &volumes);
        text.finish()
    }
}
