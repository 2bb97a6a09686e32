//! `solera import`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;
use console::failure::{Failure, Outcome};
use console::output;
use rustix::io::Errno;

use super::export::{directory, told};
use crate::location::Location;
use crate::stream::{self, StreamError};
use crate::tree::{Tree, VolumeTree};

/// Read a stream of `solera export` into a volume, or into a directory of one.
///
/// All of it or nothing: it is put into the directory .solera-import there, and from there to its
/// place when its end has come and its sum is right. A stream that is torn or changed is refused,
/// and so is one with a name that is there already. Owners are those of the stream, by number. An
/// empty directory also gets the attributes of the one that was exported.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera format --size 64G /mnt/dax/v.pm && solera import -i v.tar /mnt/dax/v.pm
  zstd -dc v.tar.zst | solera import v.pm:/restored")]
pub struct ImportArgs {
    /// The stream's file [default: standard input].
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Print as JSON what was read.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// `VOLUME`, or a directory that is there, as `VOLUME:/path`.
    #[arg(value_name = "VOLUME[:/PATH]")]
    pub place: OsString,
}

/// Bytes that are read at a time.
const GATHERED: usize = 1 << 17;

/// Reads the stream of a file, or of standard input, into a directory.
pub fn run(args: &ImportArgs) -> Outcome {
    let (volume, path) = Location::on_volume(&args.place)?;
    let (source, name): (Box<dyn Read>, _) = match &args.input {
        Some(file) => {
            let name = file.display().to_string();
            let opened = File::open(file);
            let opened = opened.map_err(|error| Failure::io(format!("read {name}"), &error))?;
            (Box::new(opened), name)
        }
        None if io::stdin().is_terminal() => {
            let advice = "give --input FILE, or lead one in: solera export VOLUME | ...";
            let found = "nobody types a stream";
            return Err(Failure::new("import from a terminal", found, advice));
        }
        None => (Box::new(io::stdin().lock()), "standard input".to_owned()),
    };
    let tree = VolumeTree::attach(&volume)?;
    let asked = format!("import {name} into {}", tree.name(&path));
    let advice = "name a directory, which may have other things in it";
    let node = directory(&tree, &path, &asked, advice)?;
    let source = BufReader::with_capacity(GATHERED, source);
    let counted = stream::import(tree.volume(), node, source);
    let counted = counted.map_err(|broken| failure(&tree, &asked, &name, broken))?;
    if args.json {
        output::emit_json(&counted.json())?;
    } else {
        output::emit(format!("{}: {}\n", tree.name(&path), told(&counted)).as_bytes())?;
    }
    Ok(0)
}

fn failure(tree: &VolumeTree, asked: &str, source: &str, broken: StreamError) -> Failure {
    match broken {
        StreamError::Stream(error) => Failure::io(format!("read {source}"), &error),
        StreamError::Wrong(found) => {
            let advice = "nothing of it was kept; a tar archive of another program is unpacked by \
                          tar: solera run --volume VOLUME --at /pm -- tar -C /pm -xf FILE";
            Failure::new(asked, found, advice)
        }
        StreamError::Volume(path, Errno::EXIST) => {
            let found = format!("{:?} is there already", String::from_utf8_lossy(&path));
            Failure::new(asked, found, "nothing was changed; name another directory")
        }
        StreamError::Volume(path, errno) => {
            let path = path.strip_prefix(b"./").unwrap_or(&path);
            tree.failure(format!("{asked}: make {:?}", String::from_utf8_lossy(path)), errno)
        }
    }
}
