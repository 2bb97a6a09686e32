//! `solera metrics`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Tell a monitor about volumes: space, processes, open files, locks, calls.
///
/// The text is Prometheus's (exposition format 0.0.4). Looking at a volume attaches nothing, and
/// nobody waits for it. A volume that cannot be read has `solera_volume_up` 0. What the nodes of a
/// domain tell is `solera node --metrics`.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0; 1 if a volume could not be read, where the text is printed or written once. With
--listen and --every it runs until a signal ends it.

Examples:
  solera metrics /dev/shm/v.pm                         printed, once
  solera metrics --listen 127.0.0.1:9471 /mnt/dax/*.pm
  solera metrics --textfile /var/lib/prometheus/node-exporter/solera.prom --every 15 v.pm")]
pub struct MetricsArgs {
    /// Answer `GET /metrics` at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "textfile")]
    pub listen: Option<SocketAddr>,
    /// Write a file, in one step: a program that reads it never sees a part.
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
    /// Write the file again after so many seconds, from 1 on [default: once].
    #[arg(long, value_name = "SECONDS", requires = "textfile",
          value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub every: Option<u64>,
    /// The volumes' files or devices, or `DOMAIN/VOLUME`.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<PathBuf>,
}
