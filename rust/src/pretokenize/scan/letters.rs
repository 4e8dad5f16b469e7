//! Which bytes of a text may end a run of letters, 64 at a time: by AVX2 where the processor has it.
//!
//! Most text is words. To look for the end of each is to wait for the end of the one before; all ends of 64 bytes are
//! found at once, whatever the words, and then taken one after the other.

/// Bytes in a window: the bits of a word.
pub(super) const WINDOW: usize = 64;

/// Finds bytes that are not part of letters. Need not know every letter.
pub(super) trait Letters: Copy {
    /// A bit for each of the 64 bytes from `base` on, the first lowest: 0 only for ASCII letters, for the first bytes of
    /// characters that are letters, and for all bytes inside characters. Every ASCII letter is 0, and 1 what is past
    /// the end of the text.
    fn stops(self, bytes: &[u8], base: usize) -> u64;
}

/// The 64 bytes from `base` on, with zeros, which are no letters, past the end.
#[inline(always)]
fn padded(bytes: &[u8], base: usize) -> [u8; WINDOW] {
    let mut window = [0; WINDOW];
    let rest = bytes.get(base..).unwrap_or_default();
    let length = rest.len().min(WINDOW);
    window[..length].copy_from_slice(&rest[..length]);
    window
}

/// For any processor. Knows the letters of ASCII alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl Letters for Portable {
    #[inline(always)]
    fn stops(self, bytes: &[u8], base: usize) -> u64 {
        match bytes.get(base..base + WINDOW) {
            Some(window) => portable_stops(window),
            None => portable_stops(&padded(bytes, base)),
        }
    }
}

#[inline(always)]
fn portable_stops(window: &[u8]) -> u64 {
    window.chunks_exact(8).rev().fold(0, |stops, eight| {
        let tops = not_letters(eight.try_into().map_or(0, u64::from_le_bytes));
        // Moves the top bits of the bytes together, the lowest byte lowest.
        stops << 8 | (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}

/// The top bit of every byte that is neither an ASCII letter nor inside a character.
#[inline(always)]
fn not_letters(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    // With the case bit set and the top bit clear, adding carries into the top bit exactly from a bound on.
    let folded = (word | (0x20 * EACH)) & !TOP;
    let from_a = folded + (0x80 - b'a' as u64) * EACH;
    let beyond_z = folded + (0x80 - b'z' as u64 - 1) * EACH;
    let inside = word & !(word << 1); // 10 are the top bits inside a character
    !(from_a & !beyond_z & !word | inside) & TOP
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    };

    use super::{padded, Letters, WINDOW};

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

    /// Knows the letters of ASCII, Latin and Cyrillic, and most ideographs and Hangul syllables.
    ///
    /// Must only be used where the processor has AVX2.
    #[derive(Debug, Clone, Copy)]
    pub(in super::super) struct Avx2;

    impl Letters for Avx2 {
        #[inline(always)]
        fn stops(self, bytes: &[u8], base: usize) -> u64 {
            match bytes.get(base..base + WINDOW).and_then(|window| window.try_into().ok()) {
                Some(window) => window_stops(window),
                None => window_stops(&padded(bytes, base)),
            }
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn window_stops(window: &[u8; WINDOW]) -> u64 {
        // SAFETY: the window has twice 32 bytes, and `Avx2` is only used where there is AVX2.
        let halves = unsafe {
            let first = window.as_ptr().cast::<__m256i>();
            [masks(_mm256_loadu_si256(first)), masks(_mm256_loadu_si256(first.add(1)))]
        };
        let [others, lead, sign] = [0, 1, 2].map(|mask| u64::from(halves[0][mask]) | u64::from(halves[1][mask]) << 32);
        // The byte after the last one is not known.
        others | lead & (sign >> 1 | 1 << 63)
    }

    /// Bits for the bytes that are not in the sets, for 0xC3, and for 0x97 and 0xB7, which after 0xC3 are the signs × and
    /// ÷.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn masks(bytes: __m256i) -> [u32; 3] {
        let half = _mm256_set1_epi8(0x0F);
        let table = |table: &[u8; 32]| _mm256_loadu_si256(table.as_ptr().cast());
        let low = _mm256_shuffle_epi8(table(&LOW), _mm256_and_si256(bytes, half));
        let high = _mm256_shuffle_epi8(table(&HIGH), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), half));
        let others = _mm256_cmpeq_epi8(_mm256_and_si256(low, high), _mm256_setzero_si256());
        let lead = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(0xC3_u8 as i8));
        let folded = _mm256_or_si256(bytes, _mm256_set1_epi8(0x20));
        let sign = _mm256_cmpeq_epi8(folded, _mm256_set1_epi8(0xB7_u8 as i8));
        [others, lead, sign].map(|mask| _mm256_movemask_epi8(mask) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenize::scan::scanner::is_letter;
    use crate::pretokenize::unicode::classes;

    /// Everything that `stops` promises, at every base.
    fn assert_stops(letters: impl Letters, text: &str) {
        let bytes = text.as_bytes();
        for base in 0..=bytes.len() + 1 {
            let stops = letters.stops(bytes, base);
            for (at, bit) in (base..base + WINDOW).zip(0..) {
                let stop = stops >> bit & 1 == 1;
                let expected = match text.get(at..).and_then(|rest| rest.chars().next()) {
                    None if at < bytes.len() => Some(false), // inside a character
                    None => Some(true),
                    Some(character) if character.is_ascii() => Some(!character.is_ascii_alphabetic()),
                    Some(character) if is_letter(classes()[character as usize]) => None,
                    Some(_) => Some(true),
                };
                assert!(expected.is_none_or(|expected| stop == expected), "byte {at} of {text:?} from {base} on");
            }
        }
    }

    fn assert_all_stop(text: &str) {
        assert_stops(Portable, text);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            assert_stops(Avx2, text);
        }
    }

    #[test]
    fn nothing_but_letters_is_skipped_whatever_the_character() {
        let mut text = String::new();
        for character in '\0'..=char::MAX {
            text.push(character);
            if text.len() > 90 {
                assert_all_stop(&text);
                text.clear();
            }
        }
    }

    #[test]
    fn nothing_but_letters_is_skipped_in_random_text_of_every_length() {
        let alphabet: Vec<char> = "azAZ@[`{õÄ×÷ßжЖѐ҂ӀԱ日本語鿿ー한ا१ \n1ǅʰ˂\0\u{7f}\u{80}😀".chars().collect();
        let mut state = 3u64;
        for round in 0..4_000 {
            let characters = (0..round % 150).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                alphabet[(state >> 33) as usize % alphabet.len()]
            });
            assert_all_stop(&characters.collect::<String>());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_know_common_letters() {
        if is_x86_feature_detected!("avx2") {
            for word in ["Grüße", "ÕŠŽ", "русский", "后", "쌀뷁", "ÀÿĀſƀʯ"] {
                assert_eq!(Avx2.stops(word.as_bytes(), 0).trailing_zeros() as usize, word.len(), "{word}");
            }
        }
    }
}
