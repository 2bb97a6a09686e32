//! A control group with a memory limit.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::cleanup;

/// One of this test's own, which goes with it.
pub struct Group(PathBuf);

impl Group {
    /// `None`, and it says so, where this test may not make one.
    pub fn new(limit: u64) -> Option<Self> {
        let number = cleanup::next_number();
        let name = format!("solera-test-{}-{number}", std::process::id());
        let kinds =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, file) in kinds {
            let group = Self(Path::new(root).join(&name));
            if Path::new(root).join("cgroup.procs").exists()
                && fs::create_dir(&group.0).is_ok_and(|()| {
                    cleanup::goes_at_the_end(&group.0);
                    true
                })
                && fs::write(group.0.join(file), limit.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        eprintln!("a control group with a memory limit cannot be made: nothing tested");
        None
    }

    /// What a shell does to be in it.
    pub fn entry(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn killed(&self) -> u64 {
        let texts = ["memory.events", "memory.oom_control"].map(|file| self.0.join(file));
        let text = texts.iter().find_map(|file| fs::read_to_string(file).ok()).expect("its events");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("a count").parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
