//! The normalizations of the fast routes: NFC, NFKC, and `▁` for spaces. Others go through the library.

use std::borrow::Cow;

use unicode_normalization_alignments::{is_nfc_quick, is_nfkc_quick, IsNormalized, UnicodeNormalization};

use super::pieces::SPACE;

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

/// Writes text with `▁` for spaces. `at_start`: it begins the document. `begins`: it begins the given part of it.
pub(super) fn spell_spaces(text: &str, prefix: Prefix, at_start: bool, begins: bool, spelled: &mut String) {
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
        spelled.push(SPACE);
    }
    // Words are short: looking at every byte is faster than searching for each space.
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte == b' ' {
            spelled.push_str(&text[start..at]);
            spelled.push(SPACE);
            start = at + 1;
        }
    }
    spelled.push_str(&text[start..]);
}

pub(super) fn to_nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || matches!(is_nfc_quick(text.chars()), IsNormalized::Yes) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().map(|(character, _)| character).collect())
    }
}

pub(super) fn to_nfkc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || matches!(is_nfkc_quick(text.chars()), IsNormalized::Yes) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfkc().map(|(character, _)| character).collect())
    }
}
