//! What must hold of the rows, beyond what the compiler refuses.

extern crate std;

use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;

/// Every name of the C library stands once.
#[test]
fn each_symbol_stands_in_one_place() {
    let rows = ROWS.iter().map(|row| row.symbols);
    let mut seen = BTreeMap::new();
    for symbol in rows.chain(COMPOSED.iter().map(|each| each.symbols)).flatten() {
        *seen.entry(*symbol).or_insert(0) += 1;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// Where an argument names another one, that is a length.
#[test]
fn lengths_are_where_they_are_said_to_be() {
    for row in ROWS {
        assert!(row.arguments.len() <= 6, "{}", row.name);
        for argument in row.arguments {
            if let Argument::In(at)
            | Argument::Out(at)
            | Argument::ListIn(at)
            | Argument::ListOut(at) = *argument
            {
                assert_eq!(row.arguments.get(at), Some(&Argument::Len), "{}", row.name);
            }
        }
    }
}

/// The numbers and names of this machine's kernel headers, as far as they go, are the table's.
#[test]
fn numbers_are_the_headers() {
    let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let Ok(text) = std::fs::read_to_string(header) else {
        std::eprintln!("skipped: {header} is not installed");
        return;
    };
    for line in text.lines().filter_map(|line| line.strip_prefix("#define __NR_")) {
        let (name, number) = line.split_once(' ').expect("a name and a number");
        let number: usize = number.trim().parse().expect("a number");
        if number <= LAST {
            assert_eq!(row(number).map(|row| row.name), Some(name), "{number}");
        }
    }
}

#[test]
fn the_library_sees_what_concerns_it() {
    for name in ["read", "setuid", "mmap", "clone3", "pipe2", "execve", "mount", "rt_sigaction"] {
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        assert!(wanted(row.number), "{name}");
    }
    for name in ["getpid", "futex", "clock_gettime", "uname", "kill", "sched_yield"] {
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        assert!(!wanted(row.number), "{name}");
    }
    assert!(wanted(LAST + 1) && !wanted(LEFT_OUT.0) && row(usize::MAX).is_none());
}

#[test]
fn calls_on_one_descriptor_alone_are_known() {
    let is = |name: &str| ROWS.iter().any(|row| row.name == name && is_of_descriptor(row.number));
    for name in ["read", "pwrite64", "fstat", "getdents64", "fsync", "flock", "fchmod"] {
        assert!(is(name), "{name}");
    }
    for name in ["close", "dup", "sendfile", "openat", "fchdir", "mmap", "ioctl", "fcntl", "stat"] {
        assert!(!is(name), "{name}");
    }
    assert!(!is_of_descriptor(LAST + 1) && !is_of_descriptor(usize::MAX));
}
