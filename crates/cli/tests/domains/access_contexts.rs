//! Programs that touch pages of another node where programs rarely touch memory: with all signals
//! blocked, on small signal stacks, in children of `vfork`, in 500 threads, by the kernel's own
//! access. `tests/domains/access_contexts.c` compares every word.

use crate::domain::Machine;
use crate::support::{Ran, compile};
use std::path::Path;

#[test]
fn pages_come_wherever_they_are_touched() {
    let machine = Machine::new();
    let _nodes = machine.domain_of_three();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/domains/access_contexts.c");
    let program = machine.0.path("odd");
    compile(&source, &program, &["-O1", "-pthread"]);
    let program = program.to_str().expect("a path");
    for case in [
        "blocked",
        "small-stack",
        "vfork",
        "exec",
        "many-threads",
        "calls",
        "direct",
        "by-another",
        "mappings",
    ] {
        let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--", program, case, "/dm/odd", "32"];
        println!("{case}: {}", Ran::of(&mut machine.command(&line)).ended_with(0).err);
    }
}
