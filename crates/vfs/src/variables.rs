//! The variables of the environment that Solera reads: `solera run --help` and solera(7) say of
//! each what stands here. What tests alone set is not among them.

/// Who sets a variable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Setter {
    /// A user; the command reads it.
    Command,
    /// A user, or `solera run` by its options; the libraries in each process read it.
    Process,
    /// A user, to measure or to try what the machine does not have.
    Trial,
    /// A process, for the program that it executes: nobody else.
    Exec,
}

/// A variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name, whole.
    pub name: &'static str,
    /// Who sets it.
    pub setter: Setter,
    /// Its values and their meaning; in brackets what counts where it is not set.
    pub meaning: &'static str,
}

const fn of(setter: Setter, name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, setter, meaning }
}

use Setter::{Command, Exec, Process, Trial};

/// All of them.
pub const VARIABLES: [Variable; 50] = [
    of(
        Command,
        "SOLERA_PRELOAD",
        "the path of the preload library, if it is not beside the command",
    ),
    of(
        Command,
        "SOLERA_PROGRESS",
        "seconds that a thing may take before its progress is shown [2]",
    ),
    of(Process, "SOLERA_VOLUME", "as --volume; of several volumes also SOLERA_VOLUME_2 and so on"),
    of(Process, "SOLERA_AT", "as --at; of several volumes also SOLERA_AT_2 and so on"),
    of(Process, "SOLERA_MODE", "as --mode [strict]"),
    of(Process, "SOLERA_CLASS", "as --class, for every command that attaches a volume"),
    of(Process, "SOLERA_READ_ONLY", "set: as --read-only"),
    of(Process, "SOLERA_SPLIT", "as --split"),
    of(Process, "SOLERA_EMULATE", "as --emulate"),
    of(
        Process,
        "SOLERA_SPLIT_MODE",
        "as --mode, below --split's directory, where there are volumes besides",
    ),
    of(Process, "SOLERA_SPLIT_WINDOW", "bytes of a mapped window [2097152, to 536870912]"),
    of(
        Process,
        "SOLERA_SPLIT_WINDOWS",
        "mapped windows at once; beyond, the coldest are unmapped [16384]",
    ),
    of(Process, "SOLERA_SPLIT_STAGING", "largest size of a staging file [167772160]"),
    of(Process, "SOLERA_SPLIT_STAGING_FILES", "how many staging files are kept ready [10]"),
    of(Process, "SOLERA_SPLIT_LOG", "bytes of the operation log, in strict mode [134217728]"),
    of(Process, "SOLERA_SPLIT_RELINK", "as --relink"),
    of(
        Process,
        "SOLERA_SPLIT_PATIENCE",
        "calls on a descriptor before it is served, in posix mode [2]",
    ),
    of(
        Trial,
        "SOLERA_SPLIT_TECHNIQUE",
        "what each is worth: split (nothing is staged), staging (relinks copy), relink [relink]",
    ),
    of(
        Process,
        "SOLERA_REPORT",
        "a file that each process appends `count reason function outcome` to",
    ),
    of(Process, "SOLERA_STRICT_SUPPORT", "set: as --strict-support"),
    of(Process, "SOLERA_GUARD", "off: as --no-guard"),
    of(Process, "SOLERA_NUMA", "as --numa"),
    of(Trial, "SOLERA_NUMA_NODES", "simulates memory nodes by their CPUs: 0-3;4-7"),
    of(Process, "SOLERA_CACHE", "as --cache, in bytes"),
    of(Process, "SOLERA_CACHE_DIR", "as --cache-dir, absolute"),
    of(Process, "SOLERA_CACHE_ATTACH", "as --attach, with --attach-min in bytes"),
    of(Process, "SOLERA_CACHE_MISS", "as --miss"),
    of(
        Process,
        "SOLERA_DDMAP",
        "as --patience, --prefetch, --policy, --evict, --local, --line-cache: \
         patience=SECONDS,ahead=auto,policy=lru,evict=background,local=BYTES,lines=BYTES",
    ),
    of(Process, "SOLERA_BYPASS", "names of programs, with colons between them, as --bypass"),
    of(
        Process,
        "SOLERA_KERNEL_AIO",
        "allow: io_uring and libaio are the kernel's, for a program that uses them for sockets or \
         for files outside only; on a volume's files they fail or hang [they say ENOSYS, and \
         programs use threads instead]",
    ),
    of(Process, "SOLERA_SQLITE_AFTER", "accesses of a file before the SQLite VFS maps it [64]"),
    of(
        Process,
        "SOLERA_ALIGN",
        "as --align: the path of libsolera_align.so, which is in LD_PRELOAD, too",
    ),
    of(Process, "SOLERA_PROFILE", "with --profile or --trace: the file in which processes count"),
    of(
        Process,
        "SOLERA_PROFILE_LIBRARY",
        "with these: the path of libsolera_profile.so, which is in LD_PRELOAD, too",
    ),
    of(
        Trial,
        "SOLERA_MEMORY",
        "reads and writes of volumes take as long as in dram, optane, optane6, cxl, cxl-ssd or \
         NS/GBs,NS/GBs (reads, writes: latency, bandwidth); what a program has mapped does not \
         [dram]",
    ),
    of(Trial, "SOLERA_FLUSH", "how lines are written back: clwb, clflushopt, clflush [the best]"),
    of(Trial, "SOLERA_COPY", "how bytes are copied: avx512, avx2, sse2 [the widest]"),
    of(
        Process,
        "SOLERA_KEEPER",
        "the command that mounts the volume for programs that no library can enter, as root; \
         empty: those are refused [the one that runs]",
    ),
    of(Exec, "SOLERA_KEEPER_REQUIRED", "the program is not executed without the volume"),
    of(Exec, "SOLERA_PROGRAM", "the files that the new and the old program are executed from"),
    of(Exec, "SOLERA_MOUNTED", "where the volumes are mounted"),
    of(Exec, "SOLERA_RESUME", "the engine's token for the new program"),
    of(Exec, "SOLERA_HELD", "the descriptions that the old program held"),
    of(Exec, "SOLERA_START", "the table of the libraries that the program gets as copies"),
    of(Exec, "SOLERA_CWD", "inode and generation of the working directory"),
    of(Exec, "SOLERA_FIFOS", "that open numbers may be fifos of a volume"),
    of(Exec, "SOLERA_LATE", "that nothing was held, which process says so, and its memory node"),
    of(Exec, "SOLERA_GUEST", "the file of the program that a host is to run, and its name"),
    of(Exec, "SOLERA_GUEST_CALLED", "what that program was called as"),
    of(Exec, "SOLERA_GUEST_TRACED", "that a debugger waits for it"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::{Setter, VARIABLES};

    const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    /// Crates that only test.
    const TESTING: [&str; 2] = ["explorer", "rotation"];

    /// The names of variables that a file has as strings, without its tests.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        text.split('"').filter(|word| {
            let letters = |rest: &str| rest.bytes().all(|at| at == b'_' || at.is_ascii_uppercase());
            word.strip_prefix("SOLERA_").is_some_and(|rest| !rest.is_empty() && letters(rest))
        })
    }

    /// Whether a file or a folder is of tests alone, or the table itself.
    fn is_apart(at: &Path) -> bool {
        let stem = at.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem.ends_with("_tests") || ["tests", "testing", "variables"].contains(&stem)
    }

    fn sources(at: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()) {
            if is_apart(&entry) {
                continue;
            }
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|ending| ending == "rs") {
                found.extend(named(&fs::read_to_string(entry).unwrap()).map(str::to_owned));
            }
        }
    }

    /// Each variable that a program or a library reads stands in the table.
    #[test]
    fn the_table_is_whole() {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(Path::new(PROJECT).join("crates")).unwrap() {
            let at = entry.unwrap().path();
            let testing = TESTING.iter().any(|name| at.ends_with(name));
            if !testing && at.join("src").is_dir() {
                sources(&at.join("src"), &mut found);
            }
        }
        let listed: BTreeSet<_> = VARIABLES.iter().map(|one| one.name.to_owned()).collect();
        assert_eq!(listed, found);
        assert_eq!(listed.len(), VARIABLES.len(), "twice");
    }

    /// The manual page has each variable that a user sets, with these words.
    #[test]
    fn the_manual_says_the_same() {
        let page = fs::read_to_string(Path::new(PROJECT).join("docs/man/solera.7")).unwrap();
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let users: Vec<_> = VARIABLES.iter().filter(|one| one.setter != Setter::Exec).collect();
        for one in &users {
            let meaning = one.meaning.replace('-', "\\-");
            let entry = format!(".TP .B {} {meaning} .", one.name);
            assert!(page.contains(&entry), "docs/man/solera.7 lacks {entry}");
        }
        assert_eq!(page.matches(" .B SOLERA_").count(), users.len());
    }
}
