//! The normalizations of the fast routes: NFC, NFKC, and `▁` for spaces. Others go through the library.

use std::borrow::Cow;
use std::iter::once;
use std::sync::OnceLock;

use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{is_nfc_quick, is_nfkc_quick, IsNormalized, UnicodeNormalization};

use super::pieces::SPACE;

/// The class of a character that normalization leaves alone and that nothing before it affects: text may be normalized
/// in parts that begin with one (Unicode Standard Annex 15, "Stable code points").
const STABLE: u8 = 0;
/// The class of a character that normalization may change, or join with what is before it. No combining class is 255.
const UNSURE: u8 = u8::MAX;
/// Characters from here on are classified one by one: few texts have any.
const TABLE: u32 = 0x2_0000;
/// Bytes that are looked at together.
const BLOCK: usize = 32;

/// Bytes that are written for a byte of text while spaces are spelled: those of any character.
const WIDTH: usize = 4;
/// What is written for every byte of text, and how many bytes of it count.
static SPELLINGS: [([u8; WIDTH], u8); 256] = {
    let (mut spellings, mut byte) = ([([0; WIDTH], 1); 256], 0);
    while byte < 256 {
        spellings[byte].0[0] = byte as u8;
        byte += 1;
    }
    let length = SPACE.encode_utf8(&mut spellings[b' ' as usize].0).len();
    spellings[b' ' as usize].1 = length as u8;
    spellings
};
/// Bytes that a block of text may have once its spaces are spelled: as many as a `u8` counts.
const SPELLED: usize = 256;

/// A Unicode normalization form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Nfc,
    Nfkc,
}

/// What a form does with every character: [`STABLE`], [`UNSURE`], or else its combining class.
struct Classes {
    form: Form,
    table: Vec<u8>,
    /// The first byte of the first character that is not stable: text with smaller bytes only is normalized.
    first: u8,
    /// Whether no unstable character begins with a byte.
    stable: [bool; 256],
}

/// When a `▁` is put before text between added tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Never,
    /// Before every text.
    Always,
    /// Before every text that does not begin with one.
    Missing,
    /// Before the beginning of the document, if that does not begin with one.
    MissingAtStart,
}

/// Writes text with `▁` for spaces, as UTF-8. `at_start`: it begins the document. `begins`: it begins the given part of
/// it.
pub(super) fn spell_spaces(text: &str, prefix: Prefix, at_start: bool, begins: bool, spelled: &mut Vec<u8>) {
    // Text that begins a later part of a document continues the text before the cut.
    let continues = begins && !at_start;
    let has_prefix = text.starts_with([' ', SPACE]);
    let wanted = match prefix {
        Prefix::Never => false,
        Prefix::Always => !continues,
        Prefix::Missing => !continues && !has_prefix,
        Prefix::MissingAtStart => at_start && !has_prefix,
    };
    spelled.clear();
    spelled.reserve(text.len() + text.len() / 2);
    if wanted {
        spelled.extend_from_slice(&SPELLINGS[usize::from(b' ')].0[..SPACE.len_utf8()]);
    }
    // Words are short: writing four bytes for each byte, and counting those that are used, is faster than searching for
    // spaces.
    let mut block = [0; SPELLED + WIDTH];
    for bytes in text.as_bytes().chunks(SPELLED / WIDTH) {
        let mut end = 0u8;
        for &byte in bytes {
            let (spelling, length) = SPELLINGS[usize::from(byte)];
            block[usize::from(end)..][..WIDTH].copy_from_slice(&spelling);
            end += length;
        }
        spelled.extend_from_slice(&block[..usize::from(end)]);
    }
}

/// The normalized text: borrowed if nothing changes, and only the changed stretches are ever normalized.
pub(super) fn normalized(text: &str, form: Form) -> Cow<'_, str> {
    let classes = Classes::of(form);
    let (mut changed, mut done) = (String::new(), 0);
    let (mut at, mut previous) = (0, STABLE);
    while at < text.len() {
        let end = text.len().min(at + BLOCK);
        if text.as_bytes()[at..end].iter().fold(0, |most, &byte| most.max(byte)) < classes.first {
            // The last bytes of a stable character may be in the next block: they are stable by themselves.
            (at, previous) = (end, STABLE);
            continue;
        }
        let stable = text.as_bytes()[at..].iter().take_while(|&&byte| classes.stable[byte as usize]).count();
        if stable > 0 {
            // It ends before the first byte of a character, or in one that is stable.
            (at, previous) = (at + stable, STABLE);
            continue;
        }
        for character in text[at..].chars() {
            let class = classes.class(character);
            if class != STABLE && class < previous || class == UNSURE {
                let stretch = classes.stretch(text, done, at);
                let new = form.normalize(&text[stretch.clone()]);
                if new != text[stretch.clone()] {
                    changed.push_str(&text[done..stretch.start]);
                    changed.push_str(&new);
                    done = stretch.end;
                }
                (at, previous) = (stretch.end, STABLE);
                break;
            }
            at += character.len_utf8();
            previous = class;
            if at >= end {
                break;
            }
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    changed.push_str(&text[done..]);
    Cow::Owned(changed)
}

/// Whether a form leaves a character as it is, whatever stands before it.
pub(super) fn is_stable(character: char, form: Form) -> bool {
    Classes::of(form).class(character) == STABLE
}

impl Form {
    fn normalize(self, text: &str) -> String {
        match self {
            Self::Nfc => text.nfc().map(|(character, _)| character).collect(),
            Self::Nfkc => text.nfkc().map(|(character, _)| character).collect(),
        }
    }

    fn class(self, character: char) -> u8 {
        let quick = match self {
            Self::Nfc => is_nfc_quick(once(character)),
            Self::Nfkc => is_nfkc_quick(once(character)),
        };
        match quick {
            IsNormalized::Yes => canonical_combining_class(character),
            IsNormalized::No | IsNormalized::Maybe => UNSURE,
        }
    }
}

impl Classes {
    fn of(form: Form) -> &'static Self {
        static NFC: OnceLock<Classes> = OnceLock::new();
        static NFKC: OnceLock<Classes> = OnceLock::new();
        let classes = match form {
            Form::Nfc => &NFC,
            Form::Nfkc => &NFKC,
        };
        classes.get_or_init(|| {
            let characters = || (0..TABLE).map(|code| char::from_u32(code).unwrap_or('\0'));
            let table: Vec<u8> = characters().map(|character| form.class(character)).collect();
            let mut stable = [true; 256];
            stable[0xF0..].fill(false); // all planes but the first
            for (character, _) in characters().zip(&table).filter(|(_, class)| **class != STABLE) {
                stable[character.encode_utf8(&mut [0; 4]).as_bytes()[0] as usize] = false;
            }
            let first = (0..u8::MAX).find(|&byte| !stable[byte as usize]).unwrap_or(u8::MAX);
            Self { form, table, first, stable }
        })
    }

    #[inline(always)]
    fn class(&self, character: char) -> u8 {
        match self.table.get(character as usize) {
            Some(class) => *class,
            None => self.form.class(character),
        }
    }

    /// From the last stable character before `at`, which has an unstable one, up to the next stable one.
    fn stretch(&self, text: &str, done: usize, at: usize) -> std::ops::Range<usize> {
        let is_stable = |(_, character): &(usize, char)| self.class(*character) == STABLE;
        let start = text[done..at].char_indices().rev().find(is_stable).map_or(done, |(place, _)| done + place);
        let end = text[at..].char_indices().find(is_stable).map_or(text.len(), |(place, _)| at + place);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Bengali, Tamil, Tibetan, Hangul, kana and Han, with what
    /// changes or joins under normalization, and characters outside the first plane.
    const CHARACTERS: &str = "ab e\u{301}\u{327}\u{323}é\u{344}\u{37e}Å\u{212b}ж\u{483}\u{487}א\u{5b0}\u{5bc}\u{fb2a}\
        ب\u{64b}\u{653}\u{655}क\u{93c}\u{94d}\u{958}\u{9c7}\u{9be}\u{b92}\u{bd7}\u{f71}\u{f72}\u{f73}\
        \u{1100}\u{1161}\u{11a8}가각か\u{3099}\u{309a}猫ｶ\u{ff9e}①½ﬁ\u{a0}\u{1d15e}\u{1d165}\u{110ba}\u{11099}\
        \u{1d7ce}\u{2f800}\u{20000}😀";

    fn texts() -> impl Iterator<Item = String> {
        let characters: Vec<char> = CHARACTERS.chars().collect();
        let mut state = 5u64;
        let mut below = move |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        (0..60_000).map(move |_| {
            // Plain text of any length before, so that what changes stands at every place of a block, and on its border.
            let plain = ["a", "é", "ж", "猫", "क"][below(5)].repeat(below(2 * BLOCK));
            let odd: String = (0..below(9)).map(|_| characters[below(characters.len())]).collect();
            let after = ["", " b", "\u{301}", "猫"][below(4)].repeat(below(BLOCK));
            plain + &odd + &after
        })
    }

    #[test]
    fn text_is_normalized_as_by_the_library() {
        for form in [Form::Nfc, Form::Nfkc] {
            let (mut changed, mut same) = (0, 0);
            for text in texts() {
                let expected = form.normalize(&text);
                let result = normalized(&text, form);
                assert_eq!(result, expected, "{form:?} of {text:?}");
                let is_borrowed = matches!(result, Cow::Borrowed(_));
                assert_eq!(is_borrowed, expected == text, "{form:?} of {text:?}");
                changed += usize::from(!is_borrowed);
                same += usize::from(is_borrowed);
            }
            assert!(changed > 10_000 && same > 10_000, "{changed} changed, {same} did not");
        }
    }

    #[test]
    fn every_character_after_a_letter_and_before_a_mark_is_normalized_as_by_the_library() {
        for character in '\0'..='\u{30000}' {
            for text in [format!("e{character}"), format!("가{character}\u{301}a")] {
                assert_eq!(normalized(&text, Form::Nfc), Form::Nfc.normalize(&text), "{text:?}");
                assert_eq!(normalized(&text, Form::Nfkc), Form::Nfkc.normalize(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn a_text_of_marks_alone_takes_linear_time() {
        let marks = "\u{323}\u{301}".repeat(200_000);
        assert_eq!(normalized(&marks, Form::Nfc), Form::Nfc.normalize(&marks));
    }
}
