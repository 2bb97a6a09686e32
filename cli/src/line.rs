//! The command line as it was typed, with something added: what a message tells people to type is whole.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

/// Commands of commands.
const GROUPS: [&str; 2] = ["numa", "bench"];

static LINE: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says what was typed; of a helper of mount(8), what would have been.
pub fn remember(line: &[OsString]) {
    // It is said once.
    let _ = LINE.set(line.to_vec());
}

/// The command line of this process with `option` behind the command's name.
pub fn with_option(option: &[&str]) -> String {
    let line = LINE.get().map_or(&[][..], Vec::as_slice);
    compose(line.get(1..).unwrap_or_default(), option)
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
