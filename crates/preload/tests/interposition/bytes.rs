//! The library's own copies, fills and comparisons, beside loops over bytes. This program is linked
//! with them, too.

use std::hint::black_box;

#[path = "../../src/runtime/bytes.rs"]
mod own;

/// Lengths around every bound of the code.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=330).chain(2040..=2056).chain(4090..=4100).chain([8192, 65_537])
}

/// Bytes that differ from their neighbours.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 131 + at / 251) as u8).collect()
}

#[test]
fn copies_move_each_byte_once_and_no_other() {
    const AROUND: usize = 160;
    for len in lengths() {
        for shift in (0..=140).chain([150, 155]).filter(|shift| len < 300 || shift % 7 == 0) {
            for forward in [true, false] {
                let before = pattern(len + 2 * AROUND);
                let (from, to) =
                    if forward { (AROUND, AROUND - shift) } else { (AROUND - shift, AROUND) };
                let mut expected = before.clone();
                for at in 0..len {
                    expected[to + at] = black_box(before[from + at]);
                }
                let mut found = before.clone();
                let start = found.as_mut_ptr();
                // SAFETY: both inside the buffer.
                let answer = unsafe {
                    libc::memmove(start.add(to).cast(), start.add(from).cast(), black_box(len))
                };
                assert_eq!(answer as usize, start as usize + to, "{len} by {shift}");
                assert!(found == expected, "{len} bytes from {from} to {to}");
                // Apart, as `memcpy` demands.
                let source = pattern(len + 32);
                let mut target = vec![7; len + 64];
                // SAFETY: both inside their buffers.
                unsafe {
                    let to = target.as_mut_ptr().add(shift % 16);
                    libc::memcpy(to.cast(), source.as_ptr().add(shift % 13).cast(), black_box(len));
                }
                for (at, byte) in target.iter().enumerate() {
                    let inside = at.checked_sub(shift % 16).filter(|at| *at < len);
                    let wanted = inside.map_or(7, |at| source[shift % 13 + at]);
                    assert_eq!(*byte, wanted, "{len} bytes, at {at}");
                }
            }
        }
    }
}

#[test]
fn fills_stay_inside() {
    for len in lengths() {
        for start in 0..17 {
            let mut found = vec![1_u8; len + 64];
            // SAFETY: inside the buffer. Of the value only the lowest byte counts.
            let answer = unsafe {
                let at = found.as_mut_ptr().add(start);
                libc::memset(at.cast(), black_box(0x1_23a5), black_box(len)) as usize - at as usize
            };
            assert_eq!(answer, 0);
            let right = found.iter().enumerate().all(|(at, byte)| {
                *byte == if (start..start + len).contains(&at) { 0xa5 } else { 1 }
            });
            assert!(right, "{len} bytes from {start}");
        }
    }
}

#[test]
fn comparisons_tell_the_first_difference() {
    for len in lengths().filter(|len| *len < 300) {
        let one = pattern(len + 20);
        for start in [0, 1, 7] {
            let compare = |other: &[u8]| {
                // SAFETY: that many bytes of both.
                unsafe {
                    libc::memcmp(
                        one.as_ptr().add(start).cast(),
                        other.as_ptr().add(start).cast(),
                        black_box(len),
                    )
                }
            };
            let mut other = one.clone();
            assert_eq!(compare(&other), 0, "{len} equal bytes");
            // What lies behind is not looked at.
            other[start + len] ^= 1;
            assert_eq!(compare(&other), 0, "{len} equal bytes, another behind them");
            for at in 0..len {
                let mut other = one.clone();
                other[start + at] = other[start + at].wrapping_add(100);
                // A later difference of the other sign does not count.
                if at + 1 < len {
                    other[start + at + 1] = other[start + at + 1].wrapping_sub(100);
                }
                let wanted = one[start + at].cmp(&other[start + at]);
                assert_eq!(compare(&other).cmp(&0), wanted, "{len} bytes, at {at}");
            }
        }
    }
}

#[test]
fn lengths_of_texts_end_at_the_first_nul() {
    for len in 0..200 {
        for start in 0..17 {
            let mut text = vec![1_u8; start + len + 40];
            text[start + len] = 0;
            if start > 0 {
                text[start - 1] = 0;
            }
            // SAFETY: a text that ends inside the buffer; the copy is larger.
            unsafe {
                let at = text.as_ptr().add(start);
                assert_eq!(libc::strlen(at.cast()), len, "from {start}");
                let mut copy = vec![9_u8; len + 2];
                libc::strcpy(copy.as_mut_ptr().cast(), at.cast());
                assert_eq!((copy[len], copy[len + 1]), (0, 9));
                assert!(copy[..len].iter().all(|byte| *byte == 1));
            }
        }
    }
}
