//! Runs of letters, many bytes at a time: by AVX2 where the processor has it, else eight ASCII letters at a time.
//!
//! Most text is words, and the length of a word cannot be predicted. A loop over its characters costs a mispredicted
//! branch per word; a vector of 32 bytes has the end of almost every word in it.

/// Skips letters. Need not know every letter.
pub(super) trait Letters: Copy {
    /// The start of a character from `at` on, itself the start of one, with nothing but letters between the two. Stops
    /// early only before a character that is not ASCII.
    fn skip(self, bytes: &[u8], at: usize) -> usize;
}

/// Eight ASCII letters at a time, on any processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl Letters for Portable {
    #[inline(always)]
    fn skip(self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(word) = bytes.get(at..at + 8) {
            let stops = not_ascii_letters(word.try_into().map_or(0, u64::from_le_bytes));
            if stops != 0 {
                return at + stops.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        while bytes.get(at).is_some_and(u8::is_ascii_alphabetic) {
            at += 1;
        }
        at
    }
}

/// The top bit of every byte that is not an ASCII letter.
#[inline(always)]
fn not_ascii_letters(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    // With the case bit set and the top bit clear, adding carries into the top bit exactly from a bound on.
    let folded = (word | (0x20 * EACH)) & !TOP;
    let from_a = folded + (0x80 - b'a' as u64) * EACH;
    let beyond_z = folded + (0x80 - b'z' as u64 - 1) * EACH;
    !(from_a & !beyond_z & !word) & TOP
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    };

    use super::Letters;

    const WIDTH: usize = 32;
    /// Sets of bytes by their low half: a byte belongs to a set if the set is in both tables.
    #[rustfmt::skip]
    const LOW: [u8; 32] = twice([
        14, 15, 7, 31, 23, 55, 55, 55,
        55, 23, 23, 37, 37, 5, 5, 5,
    ]);
    /// The sets that a high half has bytes in: 1 and 2 are ASCII letters, 4 bytes inside a character, 8 to 32 first
    /// bytes of characters that are all letters, and 0xC3, which begins two that are not.
    const HIGH: [u8; 32] = twice([0, 0, 0, 0, 1, 2, 1, 2, 4, 4, 4, 4, 16, 8, 32, 0]);

    const fn twice(table: [u8; 16]) -> [u8; 32] {
        let mut twice = [0; 32];
        let mut at = 0;
        while at < 32 {
            twice[at] = table[at % 16];
            at += 1;
        }
        twice
    }

    /// 32 bytes at a time. Knows the letters of ASCII, Latin and Cyrillic, and most ideographs and Hangul syllables.
    ///
    /// Must only be used where the processor has AVX2.
    #[derive(Debug, Clone, Copy)]
    pub(in super::super) struct Avx2;

    impl Letters for Avx2 {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn skip(self, bytes: &[u8], mut at: usize) -> usize {
            while let Some(chunk) = bytes.get(at..at + WIDTH) {
                // SAFETY: the chunk has 32 bytes, and `Avx2` is only used where there is AVX2.
                let stops = unsafe { stops(_mm256_loadu_si256(chunk.as_ptr().cast())) };
                if stops != 0 {
                    return at + stops.trailing_zeros() as usize;
                }
                at += WIDTH;
            }
            at + skip_last(&bytes[at.min(bytes.len())..])
        }
    }

    /// The same for less than 32 bytes.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn skip_last(bytes: &[u8]) -> usize {
        let mut chunk = [0; WIDTH];
        chunk[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: as above.
        let stops = unsafe { stops(_mm256_loadu_si256(chunk.as_ptr().cast())) };
        // The zeros after the bytes are no letters.
        stops.trailing_zeros() as usize
    }

    /// A bit for every byte that may not belong to a letter. Bytes inside a character are left to its first.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn stops(bytes: __m256i) -> u32 {
        let half = _mm256_set1_epi8(0x0F);
        let table = |table: &[u8; 32]| _mm256_loadu_si256(table.as_ptr().cast());
        let low = _mm256_shuffle_epi8(table(&LOW), _mm256_and_si256(bytes, half));
        let high = _mm256_shuffle_epi8(table(&HIGH), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), half));
        let others = _mm256_cmpeq_epi8(_mm256_and_si256(low, high), _mm256_setzero_si256());
        // U+00D7 and U+00F7, the signs × and ÷, are 0xC3 and then 0x97 or 0xB7, which differ in one bit.
        let lead = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(0xC3_u8 as i8))) as u32;
        let folded = _mm256_or_si256(bytes, _mm256_set1_epi8(0x20));
        let sign = _mm256_movemask_epi8(_mm256_cmpeq_epi8(folded, _mm256_set1_epi8(0xB7_u8 as i8))) as u32;
        // The byte after the last one is not known.
        _mm256_movemask_epi8(others) as u32 | lead & (sign >> 1 | 1 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenize::scan::scanner::is_letter;
    use crate::pretokenize::unicode::classes;

    fn numbers() -> impl Iterator<Item = usize> {
        let mut state = 3u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        })
    }

    /// Everything that `skip` promises, at every start of a character, with the text at every alignment and end.
    fn assert_skips(letters: impl Letters, text: &str) {
        let letter = |character: char| is_letter(classes()[character as usize]);
        for (start, _) in text.char_indices() {
            let end = letters.skip(text.as_bytes(), start);
            assert!(text.is_char_boundary(end) && text[start..end].chars().all(letter), "{text:?}: {start}..{end}");
            let next = text[end..].chars().next();
            assert!(next.is_none_or(|next| !next.is_ascii_alphabetic()), "{text:?}: {start}..{end}");
        }
    }

    fn assert_all_skip(text: &str) {
        assert_skips(Portable, text);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            assert_skips(Avx2, text);
        }
    }

    #[test]
    fn nothing_but_letters_is_skipped_around_every_character() {
        for character in '\0'..=char::MAX {
            assert_all_skip(&String::from_iter(['a', character, 'b', character]));
        }
    }

    #[test]
    fn nothing_but_letters_is_skipped_in_random_text_of_every_length() {
        let alphabet: Vec<char> = "azAZ@[`{õÄ×÷ßжЖѐ҂ӀԱ日本語鿿ー한ا१ \n1ǅʰ˂".chars().collect();
        let mut numbers = numbers();
        for round in 0..20_000 {
            let mostly_letters = if round % 2 == 0 { 4 } else { alphabet.len() };
            let text: String = (0..round % 90)
                .map(|_| {
                    let number = numbers.next().unwrap();
                    alphabet[number % if number % 31 < 28 { mostly_letters } else { alphabet.len() }]
                })
                .collect();
            assert_all_skip(&text);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_know_common_letters() {
        if is_x86_feature_detected!("avx2") {
            let text = "Grüße, ÕŠŽ русский 们 한국";
            for word in text.split([' ', ',']) {
                let padded = format!("{word}{}", "!".repeat(40));
                assert_eq!(Avx2.skip(padded.as_bytes(), 0), word.len(), "{word}");
            }
        }
    }
}
