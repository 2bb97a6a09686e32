//! The machine, as far as figures depend on it.

use std::fs;

use crate::harness::stores;
use console::size::show;
use serde_json::{Value, json};

pub struct Machine {
    cpu: String,
    cpus: usize,
    memory: u64,
    kernel: String,
    keys: Result<(), String>,
    /// Whether volumes lie on huge pages.
    huge: bool,
    load: String,
}

impl Machine {
    pub fn look(huge: bool) -> Self {
        let line = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let found = text.lines().find(|line| line.starts_with(key))?;
            found.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let first = |file: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.split_whitespace().next().unwrap_or("?").to_owned()
        };
        let memory = line("/proc/meminfo", "MemTotal").unwrap_or_default();
        let kib = memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default();
        Self {
            cpu: line("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib << 10,
            kernel: first("/proc/sys/kernel/osrelease"),
            keys: pmem::key::available().map_err(|why| why.to_string()),
            huge,
            load: first("/proc/loadavg"),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "cpu": self.cpu, "cpus": self.cpus, "memory_bytes": self.memory,
            "kernel": self.kernel, "protection_key": self.keys.is_ok(),
            "class": stores::in_memory().0, "policy": stores::in_memory().1.to_string(),
            "huge_pages": self.huge, "load_before": self.load.parse::<f64>().ok(),
        })
    }

    /// What a reader should know: names, values.
    pub fn facts(&self) -> [(&'static str, String); 8] {
        let keys = match &self.keys {
            Ok(()) => "used: a stray pointer does not reach a volume".to_owned(),
            Err(why) => format!("none: {why}"),
        };
        let pages = if self.huge {
            "volumes lie on pages of 2 MiB"
        } else {
            "none: volumes lie in /dev/shm (as root: on pages of 2 MiB)"
        };
        [
            ("CPU", self.cpu.clone()),
            ("CPUs", self.cpus.to_string()),
            ("memory", show(self.memory)),
            ("kernel", format!("Linux {}", self.kernel)),
            ("protection keys", keys),
            ("volumes", stores::line()),
            ("huge pages", pages.to_owned()),
            ("load before", self.load.clone()),
        ]
    }
}
