//! Compresses bytes in Snappy's format. Fast rather than small.

use super::delta::shared_prefix;
use super::thrift::write_varint;

/// Bytes that are compressed independently: distances then fit into 16 bits.
const BLOCK: usize = 1 << 16;
const HASH_BITS: u32 = 14;
/// The shortest match, which is also what is hashed.
const SHORTEST: usize = 4;
/// The longest match of one element.
const LONGEST: usize = 64;

/// The compressed bytes.
pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 2 + 16);
    write_varint(&mut out, bytes.len() as u64);
    let mut table = vec![0u16; 1 << HASH_BITS];
    for block in bytes.chunks(BLOCK) {
        table.fill(0);
        compress_block(&mut out, block, &mut table);
    }
    out
}

/// `table` has, by hash, the place of the last four bytes that were seen with it.
fn compress_block(out: &mut Vec<u8>, block: &[u8], table: &mut [u16]) {
    let four = |at: usize| block.get(at..at + SHORTEST).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    let (mut at, mut literal, mut misses) = (1, 0, 0);
    while let Some(word) = four(at) {
        let entry = &mut table[(word.wrapping_mul(0x1E35_A7BD) >> (32 - HASH_BITS)) as usize];
        let candidate = usize::from(std::mem::replace(entry, at as u16));
        if four(candidate) != Some(word) {
            // Where nothing matches, ever more bytes are skipped.
            misses += 1;
            at += 1 + (misses >> 5);
            continue;
        }
        let matched = shared_prefix(&block[candidate..], &block[at..]);
        write_literal(out, &block[literal..at]);
        write_copy(out, at - candidate, matched);
        at += matched;
        (literal, misses) = (at, 0);
    }
    write_literal(out, &block[literal..]);
}

fn write_literal(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        0 => return,
        length @ 1..=60 => out.push((length as u8 - 1) << 2),
        length @ 61..=256 => out.extend([60 << 2, (length - 1) as u8]),
        length => {
            out.push(61 << 2);
            out.extend(((length - 1) as u16).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// A match of any length as elements of at most 64 bytes, each with a distance of two bytes.
fn write_copy(out: &mut Vec<u8>, distance: usize, mut length: usize) {
    while length > 0 {
        let part = length.min(LONGEST);
        out.push((part as u8 - 1) << 2 | 2);
        out.extend((distance as u16).to_le_bytes());
        length -= part;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The obvious reader.
    pub(in crate::parquet) fn uncompress(bytes: &[u8]) -> Vec<u8> {
        let header = bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let length = bytes[..header].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7F));
        let (mut rest, mut out) = (&bytes[header..], Vec::new());
        while let Some((&tag, after)) = rest.split_first() {
            let number = |n: usize| after[..n].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            let size = usize::from(tag >> 2);
            if tag & 3 == 0 {
                let extra = size.saturating_sub(59);
                let size = if extra > 0 { number(extra) + 1 } else { size + 1 };
                out.extend_from_slice(&after[extra..extra + size]);
                rest = &after[extra + size..];
            } else {
                assert_eq!(tag & 3, 2, "the writer makes no other element");
                let distance = number(2);
                assert!(distance > 0);
                (0..=size).for_each(|_| out.push(out[out.len() - distance]));
                rest = &after[2..];
            }
        }
        assert_eq!(out.len(), length);
        out
    }

    #[test]
    fn bytes_are_read_back_as_they_were() {
        let mut state = 9u64;
        let mut number = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let lengths = (0..80).chain([255, 256, 257, 300, 65_535, 65_536, 65_537, 70_000, 200_000]);
        for length in lengths {
            for letters in [1, 2, 5, 256] {
                let bytes: Vec<u8> = (0..length).map(|_| (number() % letters) as u8).collect();
                assert_eq!(uncompress(&compress(&bytes)), bytes, "{length} bytes of {letters}");
            }
            let words: Vec<u8> = (0..length).flat_map(|_| ["sõna", "le", "ga"][number() % 3].bytes()).collect();
            let compressed = compress(&words);
            assert_eq!(uncompress(&compressed), words);
            assert!(length < 80 || compressed.len() < words.len());
        }
    }
}
