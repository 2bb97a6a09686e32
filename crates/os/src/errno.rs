//! Error numbers for a person.

use rustix::io::Errno;

/// An error number in words for a person, without the number that the standard library appends.
pub fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
