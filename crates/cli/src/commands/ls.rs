//! `solera ls`.

use std::ffi::OsString;
use std::fmt::Write;

use clap::Args;
use console::failure::{Failure, Outcome};
use console::output;
use serde_json::{Value, json};
use vfs::{Kind, Nanos};

use crate::location::{Location, base_name, display, join};
use crate::tree::{Meta, Tree, VolumeTree};

/// List a directory of a volume.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera ls /dev/shm/v.pm              the root
  solera ls -l /dev/shm/v.pm:/logs")]
pub struct LsArgs {
    /// Kind, permissions, links, owner, size and time of each.
    #[arg(short = 'l')]
    pub long: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// `VOLUME` or `VOLUME:/path`.
    #[arg(value_name = "VOLUME[:/PATH]")]
    pub place: OsString,
}

/// One line of the listing.
struct Line {
    name: Vec<u8>,
    meta: Meta,
    target: Option<Vec<u8>>,
}

/// Lists a directory, or one file.
pub fn run(args: &LsArgs) -> Outcome {
    let (volume, path) = Location::on_volume(&args.place)?;
    let tree = VolumeTree::attach_to_read(&volume)?;
    let lines = collect(&tree, &path)
        .map_err(|errno| Failure::errno(format!("list {}", tree.name(&path)), errno))?;
    if args.json {
        output::emit_json(&lines.iter().map(to_json).collect())?;
    } else if args.long {
        output::emit(&to_long(&lines))?;
    } else {
        let mut text = Vec::new();
        for line in &lines {
            text.extend_from_slice(&line.name);
            text.push(b'\n');
        }
        output::emit(&text)?;
    }
    Ok(0)
}

fn collect(tree: &VolumeTree, path: &[u8]) -> vfs::Result<Vec<Line>> {
    let line = |name: &[u8], path: &[u8]| {
        let meta = tree.meta(path, false)?;
        let link = meta.kind == Kind::Symlink;
        let target = if link { Some(tree.link_target(path)?) } else { None };
        Ok(Line { name: name.to_vec(), meta, target })
    };
    if tree.meta(path, true)?.kind != Kind::Directory {
        return Ok(vec![line(base_name(path), path)?]);
    }
    tree.list(path)?.iter().map(|name| line(name, &join(path, name))).collect()
}

fn to_json(line: &Line) -> Value {
    json!({
        "name": display(&line.name),
        "kind": kind_name(line.meta.kind),
        "mode": format!("{:04o}", line.meta.mode),
        "nlink": line.meta.nlink,
        "uid": line.meta.uid,
        "gid": line.meta.gid,
        "size": line.meta.size,
        "allocated_bytes": line.meta.allocated,
        "mtime_ns": line.meta.mtime,
        "ino": line.meta.ino,
        "target": line.target.as_deref().map(display),
    })
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
    }
}

fn to_long(lines: &[Line]) -> Vec<u8> {
    let width = |of: &dyn Fn(&Line) -> u64| {
        lines.iter().map(|line| of(line).to_string().len()).max().unwrap_or(1)
    };
    let links = width(&|line| line.meta.nlink.into());
    let (uids, gids) = (width(&|line| line.meta.uid.into()), width(&|line| line.meta.gid.into()));
    let sizes = width(&|line| line.meta.size);
    let mut text = Vec::new();
    for Line { name, meta, target } in lines {
        let mut row = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            row,
            "{} {:>links$} {:>uids$} {:>gids$} {:>sizes$} {} ",
            mode_text(meta),
            meta.nlink,
            meta.uid,
            meta.gid,
            meta.size,
            utc(meta.mtime),
        );
        text.extend_from_slice(row.as_bytes());
        text.extend_from_slice(name);
        if let Some(target) = target {
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(target);
        }
        text.push(b'\n');
    }
    text
}

/// `drwxr-xr-x`, with `s` and `t` as ls shows them.
fn mode_text(meta: &Meta) -> String {
    let mut text = String::from(match meta.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = meta.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (meta.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-21 20:15:00Z`: universal time, so that no time-zone data is needed.
fn utc(time: Nanos) -> String {
    let seconds = time.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01 of the proleptic Gregorian calendar: years then end with the leap day.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (-1, "1969-12-31 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (1_735_689_599, "2024-12-31 23:59:59Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
    }
}
