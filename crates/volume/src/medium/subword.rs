//! Bytes and halves as words, made in registers.
//!
//! A load of a word that was stored in parts waits until all these stores have left the CPU; behind
//! a fence that is for all stores under way, some 100 ns. So what is stored in parts is loaded in
//! these parts, and words are put together here.

/// A word of two halves.
#[inline]
pub(crate) const fn halves(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Bytes, padded with zeros; `None` if they are more than the words hold.
#[inline]
pub(crate) fn padded<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    if bytes.len() > N * 8 {
        return None;
    }
    let mut words = [0; N];
    if bytes.len() < 8 {
        if let Some(first) = words.first_mut() {
            *first = few(bytes);
        }
        return Some(words);
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    if let Some(word) = words.get_mut(chunks.len()) {
        *word = match bytes.last_chunk::<8>() {
            Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - rest.len() * 8),
            _ => 0,
        };
    }
    Some(words)
}

/// Less than eight bytes.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << ((bytes.len() - 4) * 8);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        let last = u64::from(u16::from_le_bytes(*last));
        return u64::from(u16::from_le_bytes(*first)) | last << ((bytes.len() - 2) * 8);
    }
    bytes.first().map_or(0, |&only| u64::from(only))
}

#[cfg(test)]
mod tests {
    use super::padded;

    #[test]
    fn bytes_of_every_length_are_padded_with_zeros() {
        for length in 0..=40 {
            let text: Vec<u8> = (0..length).map(|at| at as u8 + 1).collect();
            let mut bytes = [0; 40];
            bytes[..length].copy_from_slice(&text);
            assert_eq!(padded::<5>(&text), Some(zerocopy::transmute!(bytes)), "{length}");
        }
        assert_eq!(padded::<5>(&[1; 41]), None);
        assert_eq!(padded(b"abc"), Some([0x63_6261]));
    }
}
