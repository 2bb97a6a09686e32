//! Users and groups as people name them: `USER`, `USER:GROUP`, `USER:` (the group of the user's
//! login), `:GROUP`; by name or number, as chown(1) takes them.

use std::ffi::{CStr, CString, c_char, c_int};

use console::failure::Failure;

/// Bytes of an entry of the user database; systems need 1 KiB, large groups more.
const ENTRY_BYTES: usize = 1 << 20;

/// The owner that something is to get; `None`: as it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Owner {
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl Owner {
    /// Looks the names up.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let asked = || format!("give the volume to \"{text}\"");
        let advice = "give names or numbers: --owner USER, USER:GROUP, USER: or :GROUP";
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let unknown = |what: &str, name: &str| {
            Failure::new(asked(), format!("there is no {what} \"{name}\""), advice)
        };
        let mut owner = Self::default();
        let mut login = None;
        if !user.is_empty() {
            let found = user_named(user);
            login = found.map(|(_, group)| group);
            let id = found.map(|(user, _)| user).or_else(|| number(user));
            owner.user = Some(id.ok_or_else(|| unknown("user", user))?);
        }
        match group {
            None => {}
            Some("") if user.is_empty() => {}
            Some("") => {
                owner.group = Some(login.ok_or_else(|| unknown("login of the user", user))?);
            }
            Some(group) => {
                let id = group_named(group).or_else(|| number(group));
                owner.group = Some(id.ok_or_else(|| unknown("group", group))?);
            }
        }
        if owner == Self::default() {
            return Err(Failure::new(asked(), "it names nobody", advice));
        }
        Ok(owner)
    }
}

/// A number, with or without a name. The highest means "as it is" to the kernel.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number != u32::MAX)
}

/// The numbers of a user and of its login's group.
fn user_named(name: &str) -> Option<(u32, u32)> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let found = look_up(name, |name, buffer| {
        let mut found = std::ptr::null_mut();
        let (at, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: a text, and places of our own with their sizes.
        let failed =
            unsafe { libc::getpwnam_r(name.as_ptr(), &raw mut entry, at, length, &raw mut found) };
        (failed, found.is_null())
    });
    found.then_some((entry.pw_uid, entry.pw_gid))
}

fn group_named(name: &str) -> Option<u32> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let found = look_up(name, |name, buffer| {
        let mut found = std::ptr::null_mut();
        let (at, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: as above.
        let failed =
            unsafe { libc::getgrnam_r(name.as_ptr(), &raw mut entry, at, length, &raw mut found) };
        (failed, found.is_null())
    });
    found.then_some(entry.gr_gid)
}

/// Whether the database knows a name: `ask` gives an error number, and whether nothing was found.
fn look_up(name: &str, ask: impl FnOnce(&CStr, &mut [c_char]) -> (c_int, bool)) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    let (failed, nothing) = ask(&name, &mut vec![0; ENTRY_BYTES]);
    failed == 0 && !nothing
}

#[cfg(test)]
mod tests {
    use super::Owner;

    #[test]
    fn names_and_numbers_as_chown_takes_them() {
        let parse = |text: &str| Owner::parse(text).ok().map(|owner| (owner.user, owner.group));
        assert_eq!(parse("root"), Some((Some(0), None)));
        assert_eq!(parse("root:"), Some((Some(0), Some(0))));
        assert_eq!(parse("root:root"), Some((Some(0), Some(0))));
        assert_eq!(parse(":root"), Some((None, Some(0))));
        assert_eq!(parse("4321:8765"), Some((Some(4321), Some(8765))));
        for wrong in ["", ":", "no-such-user", "root:no-such-group", "4294967295", "-1", "4321:"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
