//! `solera import`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};

use console::failure::{Failure, Outcome};
use console::output;
use rustix::io::Errno;

use super::export::{directory, told};
use crate::args::ImportArgs;
use crate::place::Place;
use crate::stream::{self, Broken};
use crate::tree::{Tree, VolumeTree};

/// Bytes that are read at a time.
const GATHERED: usize = 1 << 17;

/// Reads the stream of a file, or of standard input, into a directory.
pub fn run(args: &ImportArgs) -> Outcome {
    let (volume, path) = Place::on_volume(&args.place)?;
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

fn failure(tree: &VolumeTree, asked: &str, source: &str, broken: Broken) -> Failure {
    match broken {
        Broken::Stream(error) => Failure::io(format!("read {source}"), &error),
        Broken::Wrong(found) => {
            let advice = "nothing of it was kept; a tar archive of another program is unpacked by \
                          tar: solera run --volume VOLUME --at /pm -- tar -C /pm -xf FILE";
            Failure::new(asked, found, advice)
        }
        Broken::Volume(path, Errno::EXIST) => {
            let found = format!("{:?} is there already", String::from_utf8_lossy(&path));
            Failure::new(asked, found, "nothing was changed; name another directory")
        }
        Broken::Volume(path, errno) => {
            let path = path.strip_prefix(b"./").unwrap_or(&path);
            tree.failure(format!("{asked}: make {:?}", String::from_utf8_lossy(path)), errno)
        }
    }
}
