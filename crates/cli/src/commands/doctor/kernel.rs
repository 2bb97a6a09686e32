//! What the kernel gives: found out by asking it, not by its number, where that can be.

use std::ffi::OsStr;
use std::fs;

use console::preload;
use console::preload::program;
use serde_json::json;

use super::Finding;

pub fn look() -> Vec<Finding> {
    vec![kernel(), own_calls(), fuse(), userfaultfd()]
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let attaches = flac::program::is_possible();
    let values = json!({ "release": release, "attach": attaches });
    if attaches {
        Finding::works("kernel", format!("Linux {release}"))
    } else {
        let found = format!("Linux {release}: `--attach` does nothing");
        Finding::less("kernel", found, "it takes Linux 6.12; all else works")
    }
    .with(values)
}

/// Programs whose system calls do not pass the C library.
fn own_calls() -> Finding {
    let subject = "own calls";
    let what = "static and Go programs, calls by instructions of a program's own";
    let by_mount = "serve such programs by a mount (`solera mount`), or use Linux 5.11 or later \
                    without a filter that forbids PR_SET_SYSCALL_USER_DISPATCH";
    let (dispatch, can_host) = (os::has_call_dispatch(), os::can_host());
    let host = preload::find_host();
    let values = json!({ "dispatch": dispatch, "can_host": can_host, "host": host });
    match (dispatch, can_host, &host) {
        (false, ..) => Finding::less(
            subject,
            format!("the kernel, or a filter of system calls, does not let them be served: {what}"),
            by_mount,
        ),
        (true, false, _) => Finding::less(
            subject,
            "no `wrfsbase` in user code: static and Go programs are not served",
            "use Linux 5.9 or later on a CPU with FSGSBASE, or a mount",
        ),
        (true, true, None) => Finding::less(
            subject,
            "there is no solera-host beside the library: static and Go programs are not served",
            "install it (`make install`, or the package), or serve them by a mount",
        ),
        (true, true, Some(host)) => Finding::works(subject, format!("{what}: {}", host.display())),
    }
    .with(values)
}

fn fuse() -> Finding {
    let device = fuse::check_device();
    let is_root = rustix::process::geteuid().is_root();
    let may_keep = vfs::keeper::is_permitted();
    let helper = program::find(OsStr::new(fuse::HELPER)).ok();
    let values = json!({
        "device": device.is_ok(),
        "root": is_root,
        "made_for_programs": may_keep,
        "helper": helper,
    });
    let without = "no mounts, and no programs that no library can enter (set-user-id, 32 bits)";
    match device {
        Err(text) => {
            // What was found; what to do.
            let (found, advice) = text.rsplit_once("; ").unwrap_or((&text, ""));
            Finding::less("fuse", format!("{found}: {without}"), advice)
        }
        Ok(()) if may_keep => Finding::works(
            "fuse",
            "mounts; programs that no library can enter (set-user-id, 32 bits)",
        ),
        Ok(()) if is_root => {
            let found =
                format!("this root may not mount (CAP_SYS_ADMIN, CAP_SYS_CHROOT): {without}");
            Finding::less("fuse", found, "mount outside the container")
        }
        Ok(()) if helper.is_none() => {
            let found = format!("there is no {}: {without}", fuse::HELPER);
            Finding::less("fuse", found, "install the package fuse3")
        }
        Ok(()) => Finding::works(
            "fuse",
            "mounts for this user; set-user-id programs by root's `solera run`",
        ),
    }
    .with(values)
}

fn userfaultfd() -> Finding {
    let opened = ddmap::Uffd::open();
    let clean = opened.as_ref().is_ok_and(ddmap::Uffd::can_protect);
    let values = json!({ "works": opened.is_ok(), "clean_pages": clean });
    match opened {
        Err(errno) => {
            let why = ddmap::userfaultfd_missing("", errno);
            let found = format!("no volumes of domains: {}", why.found);
            Finding::less("userfaultfd", found, why.advice)
        }
        Ok(_) if clean => Finding::works("userfaultfd", "volumes of domains"),
        Ok(_) => Finding::less(
            "userfaultfd",
            "volumes of domains; pages that were only loaded are sent back whole",
            "use Linux 6.4 or later",
        ),
    }
    .with(values)
}
