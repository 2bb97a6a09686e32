//! What the tests of a process share, and what needs a process of its own.
//!
//! A process has few places for pagers (`paging/pagers.rs`), and what a program says of addresses
//! goes to all of them. So tests that attach regions have a [`Share`], a few at once; those that
//! say something of all addresses are alone ([`alone`]).

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// Tests that have a share at once; each has up to four pagers.
const SHARES: usize = 4;

/// Which threads have shares, and how many; which one is alone, or waits for it.
#[derive(Default)]
struct Shares {
    held: HashMap<ThreadId, usize>,
    alone: Option<ThreadId>,
}

static ALL: LazyLock<Mutex<Shares>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

/// Changes the shares when `may` allows it; waits until then.
fn change(may: impl Fn(&Shares) -> bool, act: impl FnOnce(&mut Shares)) {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let all = CHANGED.wait_while(all, |all| !may(all));
    act(&mut all.unwrap_or_else(PoisonError::into_inner));
    CHANGED.notify_all();
}

/// One of the tests of this process that have pagers.
pub struct Share(ThreadId);

impl Share {
    /// Waits for it. A thread that has one gets another one at once.
    pub fn new() -> Self {
        let own = thread::current().id();
        let may = |all: &Shares| {
            let is_free = all.held.len() < SHARES && all.alone.is_none();
            is_free || all.held.contains_key(&own) || all.alone == Some(own)
        };
        change(may, |all| *all.held.entry(own).or_default() += 1);
        Self(own)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let last = |all: &mut Shares| {
            let held = all.held.get_mut(&self.0).expect("a share");
            *held -= 1;
            if *held == 0 {
                all.held.remove(&self.0);
            }
        };
        change(|_| true, last);
    }
}

/// No other test of this process has pagers.
pub struct Alone(());

/// Waits until it is so.
pub fn alone() -> Alone {
    let own = thread::current().id();
    change(|all| all.alone.is_none(), |all| all.alone = Some(own));
    change(|all| all.held.is_empty(), |_| {});
    Alone(())
}

impl Drop for Alone {
    fn drop(&mut self) {
        change(|_| true, |all| all.alone = None);
    }
}

/// This test program, which runs one test alone, also an ignored one. `test`: its name behind
/// `module`, which is the caller's `module_path!()`.
pub fn program(module: &str, test: &str) -> Command {
    let name = format!("{module}::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--include-ignored", "--nocapture", "--exact"]);
    command.arg(name.trim_start_matches("ddmap::")).stdin(Stdio::null());
    command
}

/// Runs a test in a process of its own, in which no other one has threads or descriptors. In that
/// process it does nothing, and says `false`: the test goes on there.
pub fn apart(module: &str, test: &str) -> bool {
    const APART: &str = "SOLERA_TEST_APART";
    if std::env::var_os(APART).is_some() {
        return false;
    }
    let run = program(module, test).env(APART, "1").output().unwrap();
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(run.status.success(), "{test} in a process of its own: {said}");
    assert!(said.contains("1 passed"), "{said}");
    true
}
