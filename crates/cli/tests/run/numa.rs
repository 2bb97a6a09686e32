//! Memory nodes, simulated: programs write at home, what they start has the same home, files are
//! pinned.

use crate::support::{TestDir, command, solera};
use std::process::Command;

/// The first two CPUs that this test may use (or one, twice).
fn cpus() -> [usize; 2] {
    let allowed = rustix::thread::sched_getaffinity(None).expect("affinity");
    let mut found = (0..1024).filter(|&cpu| allowed.is_set(cpu));
    let first = found.next().expect("a CPU");
    [first, found.next().unwrap_or(first)]
}

/// `solera` on a machine whose nodes have these CPUs.
fn on_nodes(nodes: &str, arguments: &[&str]) -> String {
    let output = command().env("SOLERA_NUMA_NODES", nodes).args(arguments).output();
    let output = output.expect("solera starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn bytes_by_node(volume: &str, path: &str, nodes: &str) -> (serde_json::Value, Vec<u64>) {
    let told = on_nodes(nodes, &["numa", "get", "--json", &format!("{volume}:{path}")]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let bytes = told["bytes_by_node"].as_array().expect("a list").iter();
    (told["pinned_node"].clone(), bytes.map(|b| b.as_u64().expect("bytes")).collect())
}

#[test]
fn programs_write_at_home_and_so_do_those_they_start() {
    let place = TestDir::new();
    let (volume, at) = (place.text("v.pm"), place.prefix());
    solera(["format", "--size", "256M", "--groups", "4", &volume]).ok();
    let [here, there] = cpus();
    let nodes = format!("1000;{here}");
    // A shell at home on the second node starts a program on a CPU of the first: it is at home
    // there too.
    let line = format!(
        "head -c 9000000 /dev/zero > {at}/own; exec taskset -c {there} sh -c 'cat {at}/own > \
         {at}/child; sh -c \"cat {at}/own > {at}/grandchild\"'"
    );
    let run = ["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", &line];
    let pinned = Command::new("taskset")
        .args(["-c", &here.to_string()])
        .arg(command().get_program())
        .args(run)
        .env("SOLERA_NUMA_NODES", &nodes)
        .env_remove("LD_PRELOAD")
        .status();
    assert!(pinned.expect("taskset starts").success());
    for path in ["/own", "/child", "/grandchild"] {
        let (to, bytes) = bytes_by_node(&volume, path, &nodes);
        assert!(to.is_null() && bytes[0] == 0 && bytes[1] >= 9_000_000, "{path}: {bytes:?}");
    }
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_file_is_pinned() {
    let place = TestDir::new();
    let (volume, at) = (place.text("v.pm"), place.prefix());
    solera(["format", "--size", "256M", "--groups", "4", &volume]).ok();
    let nodes = "0-1023;1024";
    let run = |line: &str| {
        on_nodes(nodes, &["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", line]);
    };
    run(&format!("touch {at}/pinned {at}/free"));
    let pinned = format!("{volume}:/pinned");
    on_nodes(nodes, &["numa", "set", "--node", "1", &pinned]);
    run(&format!("head -c 5000000 /dev/zero | tee {at}/pinned > {at}/free"));
    let (to, bytes) = bytes_by_node(&volume, "/pinned", nodes);
    assert!(to == 1 && bytes[0] == 0 && bytes[1] >= 5_000_000, "{to} {bytes:?}");
    let (to, bytes) = bytes_by_node(&volume, "/free", nodes);
    assert!(to.is_null() && bytes[1] == 0, "{to} {bytes:?}");
    let free = format!("{volume}:/free");
    on_nodes(nodes, &["numa", "set", "--node", "1", "--move", &free]);
    let (to, bytes) = bytes_by_node(&volume, "/free", nodes);
    assert!(to == 1 && bytes[0] == 0 && bytes[1] >= 5_000_000, "{to} {bytes:?}");
    on_nodes(nodes, &["numa", "set", "--none", &pinned]);
    assert!(bytes_by_node(&volume, "/pinned", nodes).0.is_null());
    solera(["numa", "set", "--node", "7", &pinned]).refused(1, &["no such node"]);
    solera(["fsck", &volume]).ok();
}
