//! `solera cat`.

use std::ffi::{OsStr, OsString};

use clap::Args;
use console::failure::{Failure, Outcome};
use console::output;
use rustix::io::Errno;
use vfs::Kind;

use crate::location::Location;
use crate::tree::{Tree, VolumeTree};

/// Write files of a volume to standard output.
#[derive(Args)]
#[command(after_help = "\
Example:
  solera cat /dev/shm/v.pm:/logs/today | grep error")]
pub struct CatArgs {
    /// Files, each as `VOLUME:/path`.
    #[arg(required = true, value_name = "VOLUME:/PATH")]
    pub places: Vec<OsString>,
}

/// Writes the files to standard output, one after another.
pub fn run(args: &CatArgs) -> Outcome {
    args.places.iter().try_for_each(|place| cat(place))?;
    Ok(0)
}

fn cat(text: &OsStr) -> Result<(), Failure> {
    let Location::OnVolume { volume, path } = Location::parse(text)? else {
        return Err(Failure::new(
            format!("cat {}", text.to_string_lossy()),
            "this is no place on a volume",
            "name it as VOLUME:/path",
        ));
    };
    let tree = VolumeTree::attach_to_read(&volume)?;
    let failed = |errno| Failure::errno(format!("read {}", tree.name(&path)), errno);
    let meta = tree.meta(&path, true).map_err(failed)?;
    match meta.kind {
        Kind::File => {}
        Kind::Directory => return Err(failed(Errno::ISDIR)),
        _ => return Err(failed(Errno::NXIO)),
    }
    let file = tree.open(&path).map_err(failed)?;
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let length = file.read_at(offset, &mut buffer).map_err(failed)?;
        if length == 0 {
            return Ok(());
        }
        output::emit(&buffer[..length])?;
        offset += length as u64;
    }
}
