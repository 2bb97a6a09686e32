//! `solera generate`: manual pages and completions that say what `--help` says, and the pages that
//! are written by hand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::TestDir;

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Pages that no command is generated for.
const BY_HAND: [&str; 3] =
    ["crates/capi/solera.3", "docs/man/solera.7", "docs/man/solera-volume.5"];

fn run(command: &mut Command) -> Output {
    command.output().expect("it runs")
}

fn solera(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        run(Command::new(env!("CARGO_BIN_EXE_solera")).args(arguments));
    let said = String::from_utf8(stdout).expect("text");
    assert!(status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&stderr));
    said
}

fn is_there(command: &str) -> bool {
    let found = run(Command::new("sh").args(["-c", &format!("command -v {command}")]));
    if !found.status.success() {
        println!("skipped: there is no {command} (scripts/setup.sh --tests)");
    }
    found.status.success()
}

/// A folder with the generated pages, that goes at the end.
struct Pages(TestDir);

impl Pages {
    fn new() -> Self {
        let dir = TestDir::new();
        solera(&["generate", "man", "--date", "2026-11-27", &dir.text("pages")]);
        Self(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path("pages")
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.path()).expect("the folder");
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// The commands of a command, as its help lists them.
fn commands(of: &[&str]) -> Vec<String> {
    let help = solera(&[of, &["--help"]].concat());
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let listed = rest.lines().take_while(|line| line.starts_with("  "));
    let is_name = |line: &&str| !line.starts_with("   ");
    let names = listed.filter(is_name).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn each_command_has_a_page_with_its_options_and_its_examples() {
    let pages = Pages::new();
    let mut expected = BTreeSet::from(["solera.1".to_owned()]);
    for command in commands(&[]) {
        expected.insert(format!("solera-{command}.1"));
        for inner in commands(&[&command]) {
            expected.insert(format!("solera-{command}-{inner}.1"));
        }
    }
    assert!(expected.contains("solera-domain-leave.1"), "{expected:?}");
    assert_eq!(pages.names(), expected);
    let page = std::fs::read_to_string(pages.path().join("solera-run.1")).unwrap();
    let plain =
        page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\*(Aq", "'");
    let help = solera(&["run", "--help"]);
    let options = help.lines().filter_map(|line| line.trim().split([' ', '=']).next());
    let options: Vec<&str> = options.filter(|word| word.starts_with("--")).collect();
    assert!(options.len() > 20, "{options:?}");
    for option in options {
        assert!(plain.contains(option), "{option} is not in the page of run");
    }
    for section in ["EXIT STATUS", "ENVIRONMENT", "NOTES", "EXAMPLES", "SEE ALSO"] {
        assert_eq!(
            page.matches(&format!(".SH \"{section}\"")).count()
                + page.matches(&format!(".SH {section}\n")).count(),
            1,
            "{section}"
        );
    }
    for line in help.lines().filter(|line| line.starts_with("  solera ")) {
        assert!(plain.contains(line), "{line} is not in the page of run");
    }
}

#[test]
fn neither_man_nor_mandoc_has_a_word_to_say() {
    let pages = Pages::new();
    let generated = pages.names().into_iter().map(|name| pages.path().join(name));
    let by_hand = BY_HAND.iter().map(|name| Path::new(PROJECT).join(name));
    let all: Vec<PathBuf> = generated.chain(by_hand).collect();
    if is_there("mandoc") {
        let said = run(Command::new("mandoc").args(["-T", "lint"]).args(&all));
        // Where the pages lie is not where their neighbours are.
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let lines: Vec<&str> =
            said.lines().filter(|line| !line.contains("referenced manual")).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
    if is_there("man") {
        for page in all {
            let said = run(Command::new("man")
                .args(["--warnings", "-l"])
                .arg(&page)
                .env("MANWIDTH", "80"));
            let warnings = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
            assert!(!said.stdout.is_empty());
        }
    }
}

#[test]
fn pages_by_hand_are_of_this_version() {
    let version = solera(&["--version"]);
    for page in BY_HAND {
        let text = std::fs::read_to_string(Path::new(PROJECT).join(page)).unwrap();
        assert!(text.contains(&format!("\"{}\"", version.trim())), "{page} is not of {version}");
    }
    let package =
        std::fs::read_to_string(Path::new(PROJECT).join("crates/capi/Cargo.toml")).unwrap();
    let needs = format!("solera (= {})", version.trim().trim_start_matches("solera "));
    assert!(package.contains(&needs), "libsolera-dev does not need {needs}");
}

#[test]
fn completions_know_the_commands_and_no_hidden_ones() {
    for shell in ["bash", "zsh", "fish"] {
        let text = solera(&["generate", "completions", shell]);
        assert!(text.contains("domain") && text.contains("leave"), "{shell}");
        assert!(!text.contains("-worker") && !text.contains("generate"), "{shell}: hidden ones");
        if shell == "fish" || !is_there(shell) {
            continue;
        }
        let checked = run(Command::new(shell).args(["-n", "-c", &text]));
        assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
    }
    let asked = r#"eval "$1"; COMP_WORDS=(solera domain le); COMP_CWORD=2; _solera solera le domain
        echo "${COMPREPLY[@]}""#;
    let text = solera(&["generate", "completions", "bash"]);
    let said = run(Command::new("bash").args(["-c", asked, "bash", &text]));
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "leave");
}

#[test]
fn a_folder_that_cannot_be_made_and_a_wrong_date_are_errors() {
    let at = format!("{PROJECT}/README.md/man1");
    let said = run(Command::new(env!("CARGO_BIN_EXE_solera")).args([
        "generate",
        "man",
        "--date",
        "2026-11-27",
        &at,
    ]));
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(1));
    assert!(error.contains("cannot write manual pages to"), "{error}");
    let said = run(Command::new(env!("CARGO_BIN_EXE_solera"))
        .args(["generate", "man", "--date", "today", "/dev/shm"]));
    assert_eq!(said.status.code(), Some(2));
}
