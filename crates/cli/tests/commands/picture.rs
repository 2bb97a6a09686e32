//! `solera info --picture`: an SVG that is well-formed and says what the volume holds.

use std::process::Command;

use crate::support::{TestDir, shell, solera};

/// Reads the picture with an XML parser: squares, the colours that they have, and all texts.
const LOOK: &str = r#"
import sys, xml.etree.ElementTree as tree
ns = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == ns + "svg"
squares = [r for r in root.iter(ns + "rect") if r.find(ns + "title") is not None]
titles = [s.find(ns + "title").text for s in squares]
width, height = int(root.get("width")), int(root.get("height"))
assert all(int(s.get("x")) + 11 <= width and int(s.get("y")) + 11 <= height for s in squares)
print(len(squares), sum("huge page" in t for t in titles), sum(": free" in t for t in titles),
      sum("in pieces" in t for t in titles), sum("metadata" in t for t in titles))
for text in root.iter(ns + "text"):
    print(text.text)
"#;

#[test]
fn a_volume_is_drawn() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let work = format!(
        "mkdir -p {at}/d && head -c 10485760 /dev/zero > {at}/d/large && echo > {at}/small"
    );
    shell(&volume, &at, &work).ok();
    let picture = place.text("picture & co.svg");
    let info = solera(["info", "--json", "--picture", &picture, &volume]).json();
    let look = Command::new("python3").args(["-c", LOOK, &picture]).output().expect("python3");
    let said = String::from_utf8_lossy(&look.stdout);
    assert!(look.status.success(), "{}", String::from_utf8_lossy(&look.stderr));
    let counts: Vec<u64> =
        said.lines().next().unwrap_or("").split(' ').map(|n| n.parse().unwrap()).collect();
    let [all, huge, free, mixed, metadata] = counts[..] else { panic!("{said}") };
    assert_eq!((huge, free + mixed + huge + metadata), (5, all));
    assert_eq!(free * (2 << 20), info["free_aligned_bytes"].as_u64().unwrap());
    assert!(mixed >= 1 && metadata >= 1, "{said}");
    assert!(said.contains("v.pm") && said.contains("of the free space is whole chunks"), "{said}");
    let bad = solera(["info", "--picture", "/nowhere/at/all.svg", &volume]);
    assert!(bad.code != 0 && bad.err.contains("/nowhere/at/all.svg"), "{}", bad.err);
}
