//! No flush and no fence of the engine is idle: each call site is left out in turn, and it shows.
//!
//! `make mutate`, or `cargo test --release -p solera-explorer --features inject --test mutate --
//! --nocapture`. Sites that nothing shows stand in `mutants.txt`, each with the reason why it
//! cannot show. It takes some seconds a site, longer where nothing shows; `SOLERA_MUTATE=text`
//! tries only the sites whose name contains the text, `SOLERA_MINUTES` is the time for one site
//! [2].

use explorer::mutation::{Survey, names};
use pmem::inject::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// `NAME: reason` of each line that is no comment.
fn listed() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("crates/explorer/tests/mutants.txt"))
        .expect("the list");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| line.split_once(": ").expect("a name, and the reason"));
    parts.map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect()
}

/// Sources of the engine, tests apart.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the engine").flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_test = name.ends_with("_tests") || name == "testing";
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
}

/// The lines of the engine's source that flush or fence, as the text goes.
fn written() -> BTreeSet<(String, u32)> {
    let (root, mut files) = (root(), Vec::new());
    sources(&root.join("crates/volume/src"), &mut files);
    let mut lines = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a source");
        let file = path.strip_prefix(&root).expect("below the root").display().to_string();
        for (number, line) in (1..).zip(text.lines().take_while(|line| *line != "#[cfg(test)]")) {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains(".fence()") || code.contains(".flush(") {
                lines.insert((file.clone(), number));
            }
        }
    }
    lines
}

#[test]
fn each_flush_and_fence_is_missed() {
    let wanted = std::env::var("SOLERA_MUTATE").unwrap_or_default();
    let minutes = std::env::var("SOLERA_MINUTES").ok().and_then(|text| text.parse().ok());
    let longest = Duration::from_secs(60 * minutes.unwrap_or(2));
    let survey = Survey::take();
    let sites: BTreeSet<Site> = survey
        .sites()
        .into_iter()
        .filter(|site| site.at.file().starts_with("crates/volume/"))
        .collect();
    let (names, listed) = (names(&root(), &sites), listed());
    println!("{} sites are reached", sites.len());
    let (mut unseen, mut caught) = (Vec::new(), 0);
    for site in sites.iter().filter(|site| names[*site].contains(&wanted)) {
        let begun = Instant::now();
        let shown = survey.hunt(*site, longest);
        let (name, line) = (&names[site], site.at.line());
        let seconds = begun.elapsed().as_secs_f64();
        if let Some(text) = shown {
            // What the dead ones had open stays open in this process: that shows nothing.
            assert!(!text.contains("os error 24"), "{name}: no descriptors are left: {text}");
            caught += 1;
            println!("{name} ({line}): {seconds:.1} s, {}", text.lines().next().unwrap_or(""));
            continue;
        }
        let reason = listed.get(name).map_or("NOT CAUGHT", String::as_str);
        println!("{name} ({line}): {seconds:.1} s, nothing: {reason}");
        if !listed.contains_key(name) {
            unseen.push(name.clone());
        }
    }
    let reached: BTreeSet<(String, u32)> =
        sites.iter().map(|site| (site.at.file().to_owned(), site.at.line())).collect();
    let silent: Vec<String> = written()
        .difference(&reached)
        .map(|(file, line)| format!("{file}:{line}"))
        .filter(|place| place.contains(&wanted))
        .collect();
    println!("{caught} caught; not reached by a single call: {}", silent.join(", "));
    let gone: Vec<&String> =
        listed.keys().filter(|name| !names.values().any(|known| known == *name)).collect();
    assert!(gone.is_empty(), "listed, but there is no such site: {gone:?}");
    assert!(unseen.is_empty(), "neither caught nor listed: {unseen:#?}");
    assert!(caught > 0 || !wanted.is_empty(), "nothing was tried");
}
