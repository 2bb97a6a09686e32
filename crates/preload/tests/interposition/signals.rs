//! Signals and threads: handlers that use the volume at any moment, the rules of `sigaction` line
//! by line against the kernel, waits that signals end, faults of the program's own, cancellation.

use crate::support::{same, same_hosted};

#[test]
fn every_call_is_interrupted() {
    same("interrupted");
}

#[test]
fn the_rules_are_the_kernels() {
    same("signals");
}

/// A signal that met our handler of a fault was kept with that one's mask: from then on the thread
/// had SIGSEGV blocked, and the next bad pointer ended the process.
#[test]
fn signals_at_faults_leave_the_mask() {
    same("crossed");
}

/// By the program's own instructions: what arrives by SIGSYS.
#[test]
fn calls_outside_the_c_library() {
    same("trapped");
}

/// The thread that a static program's C library makes for them had its signal unblocked before it
/// was the program's.
#[test]
fn timers_that_threads_tell_of() {
    same("timers");
}

#[test]
fn the_least_signal_stack_is_enough() {
    same("small_stack");
}

#[test]
fn the_least_stacks_are_enough() {
    same("least_stacks");
}

#[test]
fn a_fork_gives_way_to_who_holds_the_c_librarys_locks() {
    same("gives_way");
}

#[test]
fn a_lone_thread_that_cancels_itself_ends_in_its_next_call_that_may_wait() {
    same("lone");
}

#[test]
fn what_moves_bytes_and_waits_is_interrupted() {
    same("moving");
}

/// A thread of a static program that has no signal stack of its own got one of 64 KiB: handlers
/// that interrupted each other there wrote over what lay below, or ended the program by SIGSEGV.
#[test]
fn handlers_that_interrupt_each_other_have_room() {
    same_hosted("nested");
}
