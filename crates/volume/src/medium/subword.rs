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
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    if let Some(word) = words.get_mut(chunks.len()) {
        *word = match bytes.last_chunk::<8>() {
            Some(_) if rest.is_empty() => 0,
            Some(last) => u64::from_le_bytes(*last) >> (64 - rest.len() * 8),
            None => few(rest),
        };
    }
    Some(words)
}

/// Less than eight bytes.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    let at = |index: usize| u64::from(bytes[index]) << (index * 8);
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let last = u64::from(u32::from_le_bytes(*last));
            u64::from(u32::from_le_bytes(*first)) | last << ((bytes.len() - 4) * 8)
        }
        _ if bytes.is_empty() => 0,
        _ => at(0) | at(bytes.len() / 2) | at(bytes.len() - 1),
    }
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
