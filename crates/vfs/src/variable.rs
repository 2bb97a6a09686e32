//! Reads variables of the environment, for all faces: a value has a meaning, or is refused by a
//! text that names the variable. One that is not set is `None`.

use std::str::FromStr;

/// The value by its text; `FromStr`'s error begins with that.
pub fn parsed<T: FromStr<Err = String>>(name: &str) -> Result<Option<T>, String> {
    read(name, str::parse)
}

/// A number, in decimal.
pub fn number(name: &str) -> Result<Option<u64>, String> {
    read(name, |text| text.parse().map_err(|_| format!("{text} is not a number")))
}

/// Whether it is `word`. It may also be one of the others, or empty.
pub fn is(name: &str, word: &str, others: &[&str]) -> Result<bool, String> {
    let found = read(name, |text| {
        let known = text.is_empty() || text == word || others.contains(&text);
        let all = [&[word], others].concat().join(", ");
        if known { Ok(text == word) } else { Err(format!("{text} is not one of {all}")) }
    });
    Ok(found? == Some(true))
}

/// Whether a list of names, with colons between them (`SOLERA_BYPASS`), has a program: by what it
/// was called as, or by its executable, whole if the name has a slash. Allocates nothing.
pub fn names_program(names: &[u8], executable: &[u8], called: &[u8]) -> bool {
    let last = |path| <[u8]>::rsplit(path, |&byte| byte == b'/').next().unwrap_or_default();
    let own = [executable, last(executable), last(called)];
    let mut names = names.split(|&byte| byte == b':').filter(|name| !name.is_empty());
    names.any(|name| own.contains(&name))
}

fn read<T>(
    name: &str,
    meaning: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let found = meaning(&text.to_string_lossy());
    found.map(Some).map_err(|wrong| format!("{name}={wrong}; correct it, or unset it"))
}
