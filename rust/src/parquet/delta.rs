//! Parquet's delta encodings: numbers as differences, packed into few bits; sorted byte strings without the bytes that
//! they share with the one before.

use super::thrift::{write_varint, write_zigzag};

/// Values in a block, which has one smallest difference.
const BLOCK: usize = 128;
/// Values in a miniblock, which has one number of bits.
const MINIBLOCK: usize = 32;

/// Appends numbers as `DELTA_BINARY_PACKED`.
pub(super) fn write_numbers(bytes: &mut Vec<u8>, values: impl ExactSizeIterator<Item = u64>) {
    write_varint(bytes, BLOCK as u64);
    write_varint(bytes, (BLOCK / MINIBLOCK) as u64);
    write_varint(bytes, values.len() as u64);
    let mut values = values;
    let Some(mut last) = values.next() else { return write_zigzag(bytes, 0) };
    write_zigzag(bytes, last as i64);
    let (mut block, mut length) = ([0; BLOCK], 0);
    for value in values {
        // Differences of 64-bit numbers wrap around, and so do the sums when they are read.
        block[length] = value.wrapping_sub(last) as i64;
        last = value;
        length += 1;
        if length == BLOCK {
            write_block(bytes, &block);
            length = 0;
        }
    }
    if length > 0 {
        write_block(bytes, &block[..length]);
    }
}

fn write_block(bytes: &mut Vec<u8>, differences: &[i64]) {
    let smallest = differences.iter().copied().min().unwrap_or(0);
    write_zigzag(bytes, smallest);
    let mut excess = [0; BLOCK];
    for (excess, difference) in excess.iter_mut().zip(differences) {
        *excess = difference.wrapping_sub(smallest) as u64;
    }
    let width = |values: &[u64]| 64 - values.iter().fold(0, |all, value| all | value).leading_zeros();
    bytes.extend(excess.chunks_exact(MINIBLOCK).map(|values| width(values) as u8));
    let filled = differences.len().div_ceil(MINIBLOCK);
    for values in excess.chunks_exact(MINIBLOCK).take(filled) {
        pack(bytes, values, width(values));
    }
}

/// Appends numbers of `width` bits, the lowest bit first.
fn pack(bytes: &mut Vec<u8>, values: &[u64], width: u32) {
    let (mut bits, mut n_bits) = (0u128, 0);
    for &value in values {
        bits |= u128::from(value) << n_bits;
        n_bits += width;
        if n_bits >= 64 {
            bytes.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= 64;
            n_bits -= 64;
        }
    }
    // 32 values of any width are whole bytes.
    bytes.extend_from_slice(&(bits as u64).to_le_bytes()[..n_bits as usize / 8]);
}

/// Appends byte strings as `DELTA_BYTE_ARRAY`: each without the bytes that it shares with the one before.
pub(super) fn write_strings<'s>(bytes: &mut Vec<u8>, strings: impl Iterator<Item = &'s [u8]>) {
    let (mut shared, mut rest, mut suffixes) = (Vec::new(), Vec::new(), Vec::new());
    let mut last: &[u8] = &[];
    for string in strings {
        let prefix = shared_prefix(last, string);
        shared.push(prefix as u64);
        rest.push((string.len() - prefix) as u64);
        suffixes.extend_from_slice(&string[prefix..]);
        last = string;
    }
    write_numbers(bytes, shared.into_iter());
    write_numbers(bytes, rest.into_iter());
    bytes.extend_from_slice(&suffixes);
}

/// How many bytes two byte strings begin with alike.
#[inline]
pub(super) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let mut at = 0;
    for (a, b) in words {
        let different = word(a) ^ word(b);
        if different != 0 {
            return at + different.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn read_zigzag(bytes: &mut &[u8]) -> i64 {
        let value = read_varint(bytes);
        (value >> 1) as i64 ^ -((value & 1) as i64)
    }

    /// The obvious reader: bit by bit.
    pub(in crate::parquet) fn read_numbers(bytes: &mut &[u8]) -> Vec<u64> {
        let (block, miniblocks, length) = (read_varint(bytes), read_varint(bytes), read_varint(bytes) as usize);
        let size = (block / miniblocks) as usize;
        let mut values = vec![read_zigzag(bytes) as u64];
        while values.len() < length {
            let smallest = read_zigzag(bytes);
            let (widths, rest) = bytes.split_at(miniblocks as usize);
            *bytes = rest;
            for &width in widths {
                if values.len() >= length {
                    break;
                }
                let (packed, rest) = bytes.split_at(usize::from(width) * size / 8);
                *bytes = rest;
                for at in 0..size {
                    let bit = |place: usize| u64::from(packed[place / 8] >> (place % 8) & 1);
                    let start = at * usize::from(width);
                    let excess: u64 = (0..usize::from(width)).map(|place| bit(start + place) << place).sum();
                    let last = values[values.len() - 1];
                    values.push(last.wrapping_add(smallest as u64).wrapping_add(excess));
                }
            }
        }
        values.truncate(length);
        values
    }

    #[test]
    fn numbers_are_read_back_as_they_were() {
        let mut state = 5u64;
        for length in (0..70).chain([127, 128, 129, 130, 160, 161, 257, 300]) {
            for width in [1, 2, 7, 13, 33, 63, 64] {
                let values: Vec<u64> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (state ^ state >> 29) >> (64 - width)
                    })
                    .collect();
                let mut bytes = Vec::new();
                write_numbers(&mut bytes, values.iter().copied());
                let mut rest = &bytes[..];
                let read = read_numbers(&mut rest);
                assert!(rest.is_empty());
                assert_eq!(read[..length], values, "{length} numbers of {width} bits");
            }
        }
    }

    #[test]
    fn the_shared_prefix_is_the_longest() {
        for length in 0..40 {
            let (a, mut b) = (vec![1; length], vec![1; length + 3]);
            assert_eq!(shared_prefix(&a, &b), length);
            for at in 0..length {
                b[at] = 129;
                assert_eq!(shared_prefix(&a, &b), at);
                assert_eq!(shared_prefix(&b, &a), at);
                b[at] = 1;
            }
        }
    }

    #[test]
    fn strings_share_their_first_bytes() {
        let mut bytes = Vec::new();
        write_strings(&mut bytes, ["", "a", "abc", "abd", "b"].iter().map(|string| string.as_bytes()));
        let mut rest = &bytes[..];
        assert_eq!(read_numbers(&mut rest), [0, 0, 1, 2, 0]);
        assert_eq!(read_numbers(&mut rest), [0, 1, 2, 1, 1]);
        assert_eq!(rest, b"abcdb");
    }
}
