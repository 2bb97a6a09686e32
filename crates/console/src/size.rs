//! Sizes as people write and read them: `4G`, `512M`, `1.5 GiB`. All units are powers of 1024.

/// The units, smallest first: the suffix that is read, the name that is printed.
const UNITS: [(char, &str); 5] =
    [('K', "KiB"), ('M', "MiB"), ('G', "GiB"), ('T', "TiB"), ('P', "PiB")];

/// Reads a size in bytes: digits, then nothing, `K`, `M`, `G`, `T` or `P` (any case; a `B` or `iB`
/// after it changes nothing).
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[digits.len()..].to_ascii_uppercase();
    let number: u64 = digits.parse().map_err(|_| expected(text))?;
    let unit = suffix.strip_suffix("IB").or_else(|| suffix.strip_suffix('B')).unwrap_or(&suffix);
    let place = UNITS.iter().position(|(letter, _)| unit == letter.to_string());
    let shift = match place {
        Some(place) => 10 * (place as u32 + 1),
        None if unit.is_empty() => 0,
        None => return Err(expected(text)),
    };
    number.checked_mul(1 << shift).ok_or_else(|| {
        format!("`{text}` is more than 16 EiB, the largest number of bytes there is")
    })
}

fn expected(text: &str) -> String {
    format!("`{text}` is not a size: give a whole number of bytes, or one with K, M, G or T (4G)")
}

/// Prints a number of bytes with three or more significant digits: `512 B`, `1.50 KiB`, `4.00 GiB`.
pub fn show(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 100.0 { 0 } else { 2 };
    format!("{value:.digits$} {}", UNITS[unit].1)
}

/// `part` of `whole` in percent; 0 of nothing is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::{parse, show};

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("4k"), Ok(4096));
        assert_eq!(parse("64M"), Ok(64 << 20));
        assert_eq!(parse("4GiB"), Ok(4 << 30));
        assert_eq!(parse("2TB"), Ok(2 << 40));
        assert_eq!(parse("100B"), Ok(100));
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "G", "-1", "4X", "1.5G", "4 G", "4GG", "99999999T", "20000000000000000000"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_three_digits() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(1536), "1.50 KiB");
        assert_eq!(show((1 << 20) - 1), "1.00 MiB");
        assert_eq!(show(4 << 30), "4.00 GiB");
        assert_eq!(show(300 << 30), "300 GiB");
    }
}
