//! `solera export`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use vfs::{Kind, Node};

use crate::location::Location;
use crate::stream::{self, StreamError, StreamTotals};
use crate::tree::{Tree, VolumeTree};

/// Write a volume, or a directory of one, as a stream: for another machine, or another version.
///
/// The stream is a tar archive (POSIX.1-2001), which any tar lists and unpacks. It has everything:
/// owners by number, permissions, times to the nanosecond, extended attributes, holes, hard links,
/// symlinks, device nodes, fifos, sockets; and at its end how many objects there are, and the
/// SHA-256 of all before. What changes meanwhile is told as it was when it was come to: of one
/// moment is the stream of a `solera snapshot`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera export v.pm | ssh other solera import /mnt/dax/v.pm
  solera export v.pm | zstd > v.tar.zst
  solera export -o db.tar v.pm:/db           a directory
  tar -tvf db.tar")]
pub struct ExportArgs {
    /// A new file for the stream [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print as JSON what was written; with --output.
    #[arg(long, requires = "output")]
    pub json: bool,
    /// `VOLUME`, or a directory as `VOLUME:/path`.
    #[arg(value_name = "VOLUME[:/PATH]")]
    pub place: OsString,
}

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 17;

/// Writes the stream of a tree to a file, or to standard output.
pub fn run(args: &ExportArgs) -> Outcome {
    let (volume, path) = Location::on_volume(&args.place)?;
    if args.output.is_none() && io::stdout().is_terminal() {
        let advice = "give --output FILE, or lead it on: | solera import VOLUME";
        return Err(Failure::new("export to a terminal", "a stream is not for people", advice));
    }
    let tree = VolumeTree::attach_to_read(&volume)?;
    let asked = format!("export {}", tree.name(&path));
    let advice = "name the directory that it lies in; `solera cp` copies a file";
    let node = directory(&tree, &path, &asked, advice)?;
    let counted = if let Some(file) = &args.output {
        to_file(&tree, node, file, &asked)?
    } else {
        let out = BufWriter::with_capacity(GATHERED, io::stdout().lock());
        let exported = stream::export(tree.volume(), node, out);
        exported.map_err(|broken| failure(&tree, &asked, "standard output", broken))?
    };
    if args.json {
        output::emit_json(&counted.json())?;
    } else if let Some(file) = &args.output {
        let text = format!("{}: {}\n", file.display(), told(&counted));
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}

/// The directory that is asked for; `advice` is for what is none.
pub fn directory(
    tree: &VolumeTree,
    path: &[u8],
    asked: &str,
    advice: &str,
) -> Result<Node, Failure> {
    let found = tree.node(path).and_then(|node| Ok((node, tree.meta(path, true)?)));
    match found.map_err(|errno| tree.failure(asked.to_owned(), errno))? {
        (node, meta) if meta.kind == Kind::Directory => Ok(node),
        _ => Err(Failure::new(asked, "this is no directory", advice)),
    }
}

/// What went through, for people.
pub fn told(counted: &StreamTotals) -> String {
    let StreamTotals { files, directories, links, others, bytes, sha256 } = counted;
    let bytes = size::show(*bytes);
    format!(
        "{files} files of {bytes}, {directories} directories, {links} further names, {others} \
         others; SHA-256 {sha256}"
    )
}

/// To a new file, which is gone again if it does not come to its end.
fn to_file(
    tree: &VolumeTree,
    node: Node,
    path: &Path,
    asked: &str,
) -> Result<StreamTotals, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let file = made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let found = format!("{} is there already", path.display());
            Failure::new(asked, found, "name another file, or remove it first")
        }
        _ => Failure::io(format!("write {}", path.display()), &error),
    })?;
    let out = BufWriter::with_capacity(GATHERED, Durable(file));
    let exported = stream::export(tree.volume(), node, out);
    exported.map_err(|broken| {
        // What failed is told; that of it which cannot be removed stays.
        let _ = std::fs::remove_file(path);
        failure(tree, asked, &path.display().to_string(), broken)
    })
}

/// A file that is on its medium when it is flushed.
struct Durable(File);

impl Write for Durable {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

fn failure(tree: &VolumeTree, asked: &str, out: &str, broken: StreamError) -> Failure {
    match broken {
        StreamError::Stream(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            let found = format!("what reads {out} has ended before all was written");
            Failure::new(asked, found, "see what it has said")
        }
        StreamError::Stream(error) => Failure::io(format!("write {out}"), &error),
        StreamError::Wrong(found) => Failure::new(asked, found, ""),
        StreamError::Volume(path, errno) => {
            let path = path.strip_prefix(b"./").unwrap_or(&path);
            tree.failure(format!("{asked}: read {:?} in it", String::from_utf8_lossy(path)), errno)
        }
    }
}
