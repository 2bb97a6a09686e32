//! `solera door`: patched C libraries, by which a program's system calls reach a volume.

use std::fmt::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use console::failure::{Failure, Outcome};
use console::output;
use door::cache::{Cache, Held};
use door::image::{Image, KINDS, build_id_of};
use serde_json::{Value, json};

/// Patched C libraries, by which the system calls of programs reach a volume.
///
/// The text of a patched library is mapped over that of the library that a program has loaded. A
/// patched library is made on the machine that it is for, and never shipped.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0; 1 if a library cannot be patched, or a site of one is not right.

Notes:
They are kept below /usr/lib/x86_64-linux-gnu/solera/door, else /var/cache/solera/door, else
~/.cache/solera/door, by their build-id. Believed is a file of root's or one's own that nobody else
can write; root believes root's only.

Examples:
  solera door prepare                       patch the C library and the loader of this machine
  solera door status                        which are known, and where they lie
  solera door check                         run each changed place once
  solera door check ./libc.so.6             the same of another one")]
pub struct DoorArgs {
    #[command(subcommand)]
    pub command: DoorCommand,
}

/// What is asked.
#[derive(Subcommand)]
pub enum DoorCommand {
    /// Which C libraries are known here, where their patched text lies, how much of them is
    /// patched, and which users may read it.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        folder: FolderArg,
    },
    /// Make the patched file of a C library; one that is there and whole stays.
    Prepare {
        /// The C library, or a loader [default: those of this machine].
        file: Option<PathBuf>,
        #[command(flatten)]
        folder: FolderArg,
    },
    /// Run each changed place of a patched library once, with a handler that serves nothing, and
    /// compare registers, flags and stack with the library as it was.
    Check {
        /// The C library, or a loader [default: those of this machine].
        file: Option<PathBuf>,
        #[command(flatten)]
        folder: FolderArg,
    },
}

/// Where patched files lie.
#[derive(Args)]
pub struct FolderArg {
    /// The folder of patched files, instead of the usual ones.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

impl FolderArg {
    fn cache(&self) -> Cache {
        let mounts = vfs::mounts::list().unwrap_or_default();
        let volumes: Vec<&Path> = mounts.iter().map(|mount| mount.at.as_path()).collect();
        if let Some(folder) = &self.folder {
            return Cache::named(folder, &volumes);
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Cache::usual(home.as_deref(), &volumes)
    }
}

/// Does it.
pub fn run(args: &DoorArgs) -> Outcome {
    match &args.command {
        DoorCommand::Status { json, folder } => status(*json, &folder.cache()),
        DoorCommand::Prepare { file, folder } => prepare(file.as_deref(), &folder.cache()),
        DoorCommand::Check { file, folder } => check(file.as_deref(), &folder.cache()),
    }
}

/// A C library, or a loader.
struct Library {
    path: PathBuf,
    bytes: Vec<u8>,
    build_id: Vec<u8>,
}

impl Library {
    fn read(asked: &str, path: &Path) -> Result<Self, Failure> {
        let asked = format!("{asked} {}", path.display());
        let bytes = std::fs::read(path).map_err(|error| Failure::new(&asked, error, ""))?;
        let build_id =
            build_id_of(&bytes).map_err(|failed| Failure::new(&asked, failed, ADVICE))?;
        Ok(Self { path: path.to_owned(), bytes, build_id })
    }

    fn patched(&self, asked: &str) -> Result<Image, Failure> {
        Image::make(&self.bytes, &door::wanted).map_err(|failed| {
            Failure::new(format!("{asked} {}", self.path.display()), failed, ADVICE)
        })
    }
}

const ADVICE: &str =
    "name the C library (libc.so.6) or the loader (ld-linux-x86-64.so.2) of a program";

/// Where C libraries and loaders usually lie, besides those of this process.
const USUAL: [&str; 8] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    "/lib64/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/libc.so.6",
    "/usr/lib/ld-linux-x86-64.so.2",
    "/usr/lib64/libc.so.6",
    "/usr/lib64/ld-linux-x86-64.so.2",
];

/// The C library and the loader that this process has loaded.
fn loaded() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libc.so.") || name.starts_with("libc-2.") || name.starts_with("ld-")
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The library that is asked for, or those of this process.
fn named(asked: &str, file: Option<&Path>) -> Result<Vec<Library>, Failure> {
    let paths = file.map_or_else(loaded, |file| vec![file.to_owned()]);
    if paths.is_empty() {
        return Err(Failure::new(asked, "this process has loaded no C library", ADVICE));
    }
    paths.iter().map(|path| Library::read(asked, path)).collect()
}

/// Makes the patched file of this machine's C library, unless one is there that is believed:
/// without it each process would patch its own in memory.
pub fn prepare_for_programs() {
    let cache = FolderArg { folder: None }.cache();
    for path in loaded().into_iter().filter(|path| is_c_library(path)) {
        // The build-id stands in the first page.
        let mut first = [0; 4096];
        let read = std::fs::File::open(&path).and_then(|file| file.read_at(&mut first, 0));
        let known = read.ok().and_then(|read| build_id_of(&first[..read]).ok());
        if known.is_some_and(|id| cache.find(&id).is_ok()) {
            continue;
        }
        // Where this cannot be done each process does it for itself.
        if let Ok(library) = Library::read("patch", &path)
            && let Ok(image) = library.patched("patch")
        {
            let _ = cache.install(&image);
        }
    }
}

fn prepare(file: Option<&Path>, cache: &Cache) -> Outcome {
    for library in named("patch", file)? {
        let image = library.patched("patch")?;
        let (path, there) = cache.install(&image).map_err(|(folder, error)| {
            let asked =
                format!("keep the patched {} in {}", library.path.display(), folder.display());
            Failure::new(asked, error, "name another folder with --folder, or run it as root")
        })?;
        let there = if there { ", there already" } else { "" };
        let text = format!("{}: {}{there}\n", library.path.display(), path.display());
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}

fn check(file: Option<&Path>, cache: &Cache) -> Outcome {
    let mut code = 0;
    for library in named("check", file)? {
        let asked = || format!("check {}", library.path.display());
        // What lies there is checked; what does not is made for this.
        let (image, of) = match cache.find(&library.build_id) {
            Ok(held) => {
                let read = std::fs::read(&held.path).map_err(|error| {
                    Failure::new(format!("read {}", held.path.display()), error, "")
                })?;
                let image = Image::read(&read).map_err(|damaged| {
                    let advice = "`solera door prepare` makes it anew";
                    Failure::new(format!("read {}", held.path.display()), damaged, advice)
                })?;
                (image, format!("of {}", held.path.display()))
            }
            Err(_) => (library.patched("check")?, "of a file made for this".to_owned()),
        };
        if image.footer.elf_size != library.bytes.len() as u64 {
            return Err(Failure::new(asked(), format!("{of}: it is of another size"), ""));
        }
        let (sites, wrong) = door::check::check(&library.bytes, &image).map_err(|error| {
            let advice = "it needs memory that may be written and executed, and 4 GiB of addresses";
            Failure::new(asked(), error, advice)
        })?;
        let mut text = format!("{}: {sites} sites {of} run once, ", library.path.display());
        let _ = match wrong.len() {
            0 => writeln!(text, "all as the library's own"),
            count => writeln!(text, "{count} of them wrong"),
        };
        for wrong in &wrong {
            let _ = writeln!(text, "  {wrong}");
        }
        output::emit(text.as_bytes())?;
        if !wrong.is_empty() {
            code = 1;
        }
    }
    Ok(code)
}

/// What is known of one build.
pub struct Known {
    build_id: Vec<u8>,
    /// Where the library lies; none of one that is in a cache only.
    pub library: Option<PathBuf>,
    /// The patched file that is believed; else why each one is not.
    pub held: Result<Whole, Vec<(PathBuf, String)>>,
}

/// A patched file that is believed, and what it holds, or why that is damaged.
type Whole = (Held, Result<Image, String>);

/// Why a file that was not made is not believed.
pub const THERE_IS_NONE: &str = "there is none";

impl Known {
    fn of(cache: &Cache, build_id: Vec<u8>, library: Option<PathBuf>) -> Self {
        let held = match cache.find(&build_id) {
            Ok(held) => {
                let whole = std::fs::read(&held.path)
                    .map_err(|error| error.to_string())
                    .and_then(|bytes| Image::read(&bytes).map_err(|damaged| damaged.to_string()));
                Ok((held, whole))
            }
            Err(why) => Err(why.into_iter().map(|(path, why)| (path, why.to_string())).collect()),
        };
        Self { build_id, library, held }
    }
}

fn known(cache: &Cache) -> Vec<Known> {
    let mut found: Vec<(Vec<u8>, Option<PathBuf>)> = Vec::new();
    for path in loaded().into_iter().chain(USUAL.map(PathBuf::from)) {
        let Ok(library) = Library::read("read", &path) else { continue };
        if !found.iter().any(|(build_id, _)| *build_id == library.build_id) {
            found.push((library.build_id, Some(library.path)));
        }
    }
    for build_id in cache.builds() {
        if !found.iter().any(|(other, _)| *other == build_id) {
            found.push((build_id, None));
        }
    }
    found.into_iter().map(|(build_id, library)| Known::of(cache, build_id, library)).collect()
}

/// The C library of this process.
pub fn of_this_process() -> Option<Known> {
    let library = loaded().into_iter().find(|path| is_c_library(path))?;
    let library = Library::read("read", &library).ok()?;
    Some(Known::of(&FolderArg { folder: None }.cache(), library.build_id, Some(library.path)))
}

/// Not the loader.
fn is_c_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libc"))
}

/// Who may read a patched file: its folder lets in everybody, or its owner alone.
fn readers(held: &Held) -> String {
    let folder = held.path.parent().and_then(|folder| std::fs::metadata(folder).ok());
    let open = |mode: u32, bits: u32| mode & bits == bits;
    match (folder, held.file.metadata()) {
        (Some(folder), Ok(file)) if open(folder.mode(), 0o5) && open(file.mode(), 0o4) => {
            "all users that may enter the folders above".to_owned()
        }
        (Some(folder), _) => format!("user {}", folder.uid()),
        (None, _) => "nobody".to_owned(),
    }
}

fn status(as_json: bool, cache: &Cache) -> Outcome {
    let known = known(cache);
    if as_json {
        let libraries: Vec<Value> = known.iter().map(to_json).collect();
        let folders: Vec<_> = cache
            .folders()
            .iter()
            .map(|folder| json!({ "whose": folder.whose.name(), "path": folder.path }))
            .collect();
        output::emit_json(&json!({ "libraries": libraries, "folders": folders }))?;
        return Ok(0);
    }
    let mut text = String::new();
    for one in &known {
        let name = one.library.as_ref().map_or_else(
            || "a library that is not here".to_owned(),
            |path| path.display().to_string(),
        );
        let _ = writeln!(text, "{name}\n  build-id    {}", hexadecimal(&one.build_id));
        match &one.held {
            Ok((held, Ok(image))) => {
                let _ = writeln!(text, "  patched     {}", held.path.display());
                let _ = writeln!(text, "  read by     {}", readers(held));
                let _ = writeln!(text, "  coverage    {}", coverage(image));
            }
            Ok((held, Err(damaged))) => {
                let _ = writeln!(text, "  patched     {}: {damaged}", held.path.display());
            }
            Err(why) => {
                let _ = writeln!(text, "  patched     no (`solera door prepare`)");
                for (path, why) in why.iter().filter(|(_, why)| why != THERE_IS_NONE) {
                    let _ = writeln!(text, "  not         {}: {why}", path.display());
                }
            }
        }
    }
    output::emit(text.as_bytes())?;
    Ok(0)
}

pub fn coverage(image: &Image) -> String {
    let left: Vec<_> = KINDS
        .iter()
        .zip(image.counts())
        .skip(4)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let (patched, all) = (image.footer.patched, image.records.len());
    format!("{patched} of {all} system calls; left: {}", left.join(", "))
}

/// All of it, for programs.
pub fn to_json(one: &Known) -> Value {
    let mut value = json!({
        "build_id": hexadecimal(&one.build_id),
        "library": one.library,
        "patched": null,
    });
    match &one.held {
        Ok((held, whole)) => {
            value["patched"] = json!({
                "path": held.path,
                "whose": held.whose.name(),
                "read_by": readers(held),
                "damaged": whole.as_ref().err(),
            });
            if let Ok(image) = whole {
                let kinds: serde_json::Map<String, Value> = KINDS
                    .iter()
                    .zip(image.counts())
                    .map(|(kind, count)| (kind.replace('-', "_"), count.into()))
                    .collect();
                value["coverage"] = json!({
                    "system_calls": image.records.len(),
                    "patched": image.footer.patched,
                    "kinds": kinds,
                });
            }
        }
        Err(why) => {
            value["not_believed"] = why
                .iter()
                .map(|(path, why)| json!({ "path": path, "why": why }))
                .collect::<Vec<_>>()
                .into();
        }
    }
    value
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
