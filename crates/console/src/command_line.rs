//! Repeats the command line as typed, with an option added, so that messages give whole commands.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

use clap::Command;

/// Commands of commands.
const GROUPS: [&str; 3] = ["numa", "bench", "domain"];

/// What was typed, and the commands that it may be of.
struct CommandLine {
    line: Vec<OsString>,
    commands: fn() -> Command,
}

static LINE: OnceLock<CommandLine> = OnceLock::new();

/// Says what was typed; of a helper of mount(8), what would have been.
pub fn remember(line: &[OsString], commands: fn() -> Command) {
    // It is said once.
    let _ = LINE.set(CommandLine { line: line.to_vec(), commands });
}

/// The command line of this process with `option` behind the command's name; of a command without
/// that option, with the variable of its name before all.
pub fn with_option(option: &[&str]) -> String {
    let Some(CommandLine { line, commands }) = LINE.get() else { return compose(&[], option) };
    let arguments = line.get(1..).unwrap_or_default();
    match option {
        [name, value] if !takes(&commands(), arguments, name) => {
            let variable = name.trim_start_matches('-').to_uppercase();
            format!("SOLERA_{variable}={value} {}", compose(arguments, &[]))
        }
        _ => compose(arguments, option),
    }
}

/// Whether the command of these arguments has an option of that name.
pub fn takes(commands: &Command, arguments: &[OsString], option: &str) -> bool {
    let mut command = commands;
    let mut words = arguments.iter();
    while let Some(inner) = words.next().and_then(|word| command.find_subcommand(word)) {
        command = inner;
    }
    let option = option.trim_start_matches('-');
    command.get_arguments().any(|argument| argument.get_long() == Some(option))
}

fn compose(arguments: &[OsString], option: &[&str]) -> String {
    let is_group = arguments.first().is_some_and(|first| GROUPS.iter().any(|name| first == name));
    let (command, rest) = arguments.split_at((1 + usize::from(is_group)).min(arguments.len()));
    let mut words = vec!["solera".to_owned()];
    words.extend(command.iter().map(|word| quoted(word)));
    words.extend(option.iter().map(|&word| word.to_owned()));
    words.extend(rest.iter().map(|word| quoted(word)));
    words.join(" ")
}

/// A word as a shell takes it.
pub fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::compose;
    use std::ffi::OsString;

    #[test]
    fn the_option_stands_behind_the_command() {
        let line = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            compose(&words, &["--class", "page"])
        };
        assert_eq!(line(&["trim", "/v.pm"]), "solera trim --class page /v.pm");
        let numa = line(&["numa", "set", "--none", "v:/a b"]);
        assert_eq!(numa, "solera numa set --class page --none 'v:/a b'");
        assert_eq!(line(&["cp", "it's", "v:/"]), r"solera cp --class page 'it'\''s' v:/");
    }
}
