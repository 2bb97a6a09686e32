//! What this machine and this process have: CPU, memory, this command's libraries, the C library,
//! limits.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use console::preload;
use console::size;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::Finding;
use crate::commands::door;

pub fn look() -> Vec<Finding> {
    vec![cpu(), memory(), persistent(), shared(), library(), libc(), limits()]
}

/// A number of kB in a file of `/proc`, in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

fn cpu() -> Finding {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("x86-64", |(_, model)| model.trim());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let dispatch = match pmem::Dispatch::of_process() {
        Ok(dispatch) => dispatch,
        Err(wrong) => return Finding::broken("cpu", wrong, "unset the variable"),
    };
    let (flush, copy) = (format!("{:?}", dispatch.flush), format!("{:?}", dispatch.copy));
    let (flush, copy) = (flush.to_lowercase(), copy.to_lowercase());
    let found = format!("{model}, {count} processors; flush {flush}, copy {copy}");
    let key = pmem::key::available();
    let values = json!({
        "model": model,
        "processors": count,
        "flush": flush,
        "copy": copy,
        "protection_key": key.is_ok(),
    });
    match key {
        Ok(()) => Finding::works("cpu", format!("{found}, protection key")),
        Err(why) => Finding::less(
            "cpu",
            format!("{found}; {why}"),
            "a wild pointer of a program can damage its volume: take snapshots",
        ),
    }
    .with(values)
}

/// What the control group of this process may have, if there is a limit.
fn group_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next()?, parts.next()?) {
            ("", path) => Some(format!("/sys/fs/cgroup{path}/memory.max")),
            ("memory", path) => Some(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
            _ => None,
        }
    });
    let limit = |file: String| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    files.filter_map(limit).min()
}

fn memory() -> Finding {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (all, free) = (kib_of(&text, "MemTotal"), kib_of(&text, "MemAvailable"));
    let shown = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), size::show);
    let found = format!("{}, {} available", shown(all), shown(free));
    let limit = group_limit().filter(|limit| all.is_none_or(|all| *limit < all));
    let values = json!({ "bytes": all, "available_bytes": free, "group_limit_bytes": limit });
    match limit {
        None => Finding::works("memory", found),
        Some(limit) => Finding::less(
            "memory",
            format!("{found}; the control group may have {}", size::show(limit)),
            "what is written to a volume in DRAM counts there; at the limit the kernel kills",
        ),
    }
    .with(values)
}

/// Memory that outlives a reboot: devices, and mounts with DAX.
fn persistent() -> Finding {
    let mut places: Vec<String> = super::places::names_in(Path::new("/dev"))
        .filter(|name| name.starts_with("dax") && name.contains('.') || name.starts_with("pmem"))
        .map(|name| format!("/dev/{name}"))
        .collect();
    places.sort();
    places.extend(super::places::dax_mounts().iter().map(|at| at.display().to_string()));
    let values = json!({ "places": places });
    if places.is_empty() {
        let found = "no /dev/dax, no /dev/pmem, no mount with DAX: volumes in DRAM";
        Finding::less("persistent", found, "they go at a reboot: `solera snapshot` keeps a copy")
    } else {
        Finding::works("persistent", places.join(", "))
    }
    .with(values)
}

/// A tmpfs of less is a container's default.
const SHARED_LEAST: u64 = 1 << 30;

fn shared() -> Finding {
    let at = Path::new("/dev/shm");
    let advice = "mount a tmpfs there (mode 1777), or keep volumes elsewhere";
    let Ok(found) = rustix::fs::statfs(at) else {
        return Finding::less("/dev/shm", "there is none", advice);
    };
    let block = found.f_bsize as u64;
    let (all, free) = (found.f_blocks * block, found.f_bavail * block);
    let access = rustix::fs::access(at, rustix::fs::Access::WRITE_OK);
    let huge = has_huge_pages(at);
    let values = json!({
        "memory": flac::is_memory(at),
        "bytes": all,
        "free_bytes": free,
        "writable": access.is_ok(),
        "huge_pages": huge.is_ok(),
    });
    if !flac::is_memory(at) {
        Finding::less("/dev/shm", "it is no tmpfs", advice)
    } else if let Err(errno) = access {
        let found = format!("this user may not write there: {}", os::describe(errno));
        Finding::less("/dev/shm", found, advice)
    } else if (1..SHARED_LEAST).contains(&all) {
        let found = format!("a tmpfs of {}", size::show(all));
        Finding::less("/dev/shm", found, "give it more (of a container: `--shm-size`)")
    } else {
        let found = match all {
            0 => "a tmpfs without a limit".to_owned(),
            _ => format!("a tmpfs of {}, {} free", size::show(all), size::show(free)),
        };
        match huge {
            Ok(()) => Finding::works("/dev/shm", format!("{found}, huge pages")),
            Err((why, advice)) => Finding::less("/dev/shm", format!("{found}; {why}"), advice),
        }
    }
    .with(values)
}

/// Whether files there get huge pages; why not, and what to do.
fn has_huge_pages(at: &Path) -> Result<(), (&'static str, &'static str)> {
    let file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let told = fs::read_to_string(file).unwrap_or_default();
    if told.contains("[force]") {
        Ok(())
    } else if told.is_empty() || told.contains("[deny]") {
        let why = "the kernel gives shared memory no huge pages";
        Err((why, "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    } else if flac::has_huge_pages(at) {
        Ok(())
    } else {
        let why = "pages of 4 KiB, so mapped files take more page faults";
        Err((why, "as root: mount -o remount,huge=advise /dev/shm"))
    }
}

/// Whether nothing of a file system can be mapped to be executed.
fn is_noexec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

fn library() -> Finding {
    match preload::find_library() {
        Err(failure) => Finding::broken("library", failure.to_string(), ""),
        Ok(path) if is_noexec(&path) => Finding::broken(
            "library",
            format!("{} lies on a file system that is mounted noexec", path.display()),
            "the loader maps nothing of it: install it elsewhere, or set SOLERA_PRELOAD",
        )
        .with(json!({ "path": path })),
        Ok(path) => {
            Finding::works("library", path.display().to_string()).with(json!({ "path": path }))
        }
    }
}

/// The C library of this process, and its patched text.
fn libc() -> Finding {
    // SAFETY: a text of the C library's own, which never changes.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = version.to_string_lossy();
    let Some(known) = door::of_this_process() else {
        let advice = "say which C library this is in a report";
        return Finding::less(
            "c library",
            format!("glibc {version}, whose file is not found"),
            advice,
        );
    };
    let own = known.library.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let mut values = door::to_json(&known);
    values["version"] = json!(version);
    let prepare = "solera door prepare";
    let by_each = "each process patches its own memory";
    match &known.held {
        Ok((held, Ok(_))) if is_noexec(&held.path) => Finding::less(
            "c library",
            format!(
                "glibc {version}, {own}; its patched text {} lies on a file system that is mounted \
                 noexec: each process copies it",
                held.path.display()
            ),
            "mount that without noexec",
        ),
        Ok((_, Ok(image))) => {
            let coverage = door::coverage(image);
            Finding::works("c library", format!("glibc {version}, {own}; patched: {coverage}"))
        }
        Ok((held, Err(damaged))) => Finding::less(
            "c library",
            format!(
                "glibc {version}; its patched text {}: {damaged}: {by_each}",
                held.path.display()
            ),
            prepare,
        ),
        Err(why) => {
            let why = why.iter().filter(|(_, why)| why != door::THERE_IS_NONE);
            let why: Vec<String> =
                why.map(|(path, why)| format!("{}: {why}", path.display())).collect();
            let why = if why.is_empty() { "is not made yet".to_owned() } else { why.join(", ") };
            let found = format!("glibc {version}, {own}; its patched text {why}: {by_each}");
            Finding::less("c library", found, prepare)
        }
    }
    .with(values)
}

/// What the kernel allows as a rule.
const MAPPINGS: u64 = 65_530;
/// With fewer descriptors there may be none for a volume.
const NUMBERS: u64 = 1024;

fn limits() -> Finding {
    let soft = |resource| getrlimit(resource).current;
    let (space, file) = (soft(Resource::As), soft(Resource::Fsize));
    let numbers = soft(Resource::Nofile);
    let told = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let mappings = told.trim().parse::<u64>().ok();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_filtered = status
        .lines()
        .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    let values = json!({
        "address_space_bytes": space,
        "file_bytes": file,
        "descriptors": numbers,
        "mappings": mappings,
        "system_call_filter": is_filtered,
    });
    let mut narrow = Vec::new();
    if let Some(space) = space {
        let space = size::show(space);
        narrow.push(format!("address space {space} (ulimit -v): a larger volume is not attached"));
    }
    if let Some(file) = file {
        let file = size::show(file);
        narrow.push(format!("files of {file} (ulimit -f), on volumes, too"));
    }
    if let Some(numbers) = numbers.filter(|numbers| *numbers < NUMBERS) {
        narrow.push(format!("{numbers} descriptors (ulimit -n): there may be none for a volume"));
    }
    if let Some(mappings) = mappings.filter(|mappings| *mappings < MAPPINGS) {
        narrow.push(format!("{mappings} mappings (vm.max_map_count): fewer files can be mapped"));
    }
    let filter = if is_filtered { "; a filter of system calls is in force" } else { "" };
    if narrow.is_empty() {
        Finding::works("limits", format!("none that matters{filter}"))
    } else {
        Finding::less("limits", format!("{}{filter}", narrow.join("; ")), "raise them")
    }
    .with(values)
}
