//! Programs that touch pages of another node where programs rarely touch memory: with all signals
//! blocked, on small signal stacks, in children of `vfork`, in 500 threads, by the kernel's own
//! access. `tests/domains/access_contexts.c` compares every word. A third of the cases, which the
//! commit chooses; with `SOLERA_TEST_LONG` all.

use crate::domain::Machine;
use crate::support::{Ran, compiled};

#[test]
fn pages_come_wherever_they_are_touched() {
    let machine = Machine::new();
    let _nodes = machine.domain_of_three();
    let program = &compiled("cli/tests/domains/access_contexts.c", &[]);
    let cases = [
        "blocked",
        "small-stack",
        "vfork",
        "exec",
        "many-threads",
        "calls",
        "direct",
        "by-another",
        "mappings",
    ];
    let chosen = |case: &&str| rotation::chosen(&format!("access_contexts {case}"), 3);
    for case in cases.into_iter().filter(chosen) {
        let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--", program, case, "/dm/odd", "32"];
        println!("{case}: {}", Ran::of(&mut machine.command(&line)).ended_with(0).err);
    }
}
