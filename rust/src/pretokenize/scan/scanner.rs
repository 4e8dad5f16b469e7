//! What the scanners share: the class of a character, and the ends of runs of a class.

use std::cell::Cell;
use std::sync::OnceLock;

use super::letters::{Letters, WINDOW};
use crate::pretokenize::unicode::{classes, LETTER, NUMBER, OTHER, SPACE};

/// The class of the position after the last character: neither `\s` nor `\S`. Also that of a character that is split
/// off before the pattern is applied, so that the text before it ends there.
pub(super) const END: u8 = 4;

/// The classes where every numeric character is split off.
fn without_numbers() -> &'static [u8] {
    static CLASSES: OnceLock<Vec<u8>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let mut classes = classes().to_vec();
        // Not by `NUMBER`: the standard library, which decides here, may follow a newer Unicode version.
        for character in ('\0'..=LAST_NUMERIC).filter(|character| character.is_numeric()) {
            classes[character as usize] = END;
        }
        classes
    })
}

/// No character after it is numeric.
const LAST_NUMERIC: char = '\u{1FFFF}';

#[inline(always)]
pub(super) fn is_letter(class: u8) -> bool {
    class == LETTER
}

/// `[^\s\p{L}\p{N}]`
#[inline(always)]
pub(super) fn is_other(class: u8) -> bool {
    class == OTHER
}

/// Reads the characters of a text by their classes.
pub(super) struct Scanner<'t, L> {
    pub(super) bytes: &'t [u8],
    pub(super) classes: &'static [u8],
    letters: L,
    /// Where the current window begins, and its bits.
    window: Cell<(usize, u64)>,
}

impl<'t, L: Letters> Scanner<'t, L> {
    #[inline(always)]
    pub(super) fn new(text: &'t str, letters: L) -> Self {
        let bytes = text.as_bytes();
        Self { bytes, classes: classes(), letters, window: Cell::new((0, letters.stops(bytes, 0))) }
    }

    /// A scanner of text from which every numeric character is split off before the pattern is applied.
    #[inline(always)]
    pub(super) fn splitting_numbers(text: &'t str, letters: L) -> Self {
        Self { classes: without_numbers(), ..Self::new(text, letters) }
    }

    /// The class and width of the character at a boundary between characters.
    #[inline(always)]
    pub(super) fn class(&self, at: usize) -> (u8, usize) {
        match self.bytes.get(at) {
            None => (END, 0),
            Some(&first) if first < 0x80 => (self.classes[first as usize], 1),
            Some(&first) => self.wide_class(at, first),
        }
    }

    #[inline(always)]
    fn wide_class(&self, at: usize, first: u8) -> (u8, usize) {
        match self.bytes.get(at + 1..at + 4) {
            Some(&[second, third, fourth]) => self.class_of([first, second, third, fourth]),
            _ => {
                let byte = |place: usize| self.bytes.get(at + place).copied().unwrap_or(0);
                self.class_of([first, byte(1), byte(2), byte(3)])
            }
        }
    }

    /// The class and width of the character that some bytes begin with, which is not ASCII.
    #[inline(always)]
    fn class_of(&self, bytes: [u8; 4]) -> (u8, usize) {
        let [first, second, third, fourth] = bytes.map(u32::from);
        let tail = |byte: u32| byte & 0x3F;
        let (code, width) = match first {
            ..=0xDF => (((first & 0x1F) << 6) | tail(second), 2),
            0xE0..=0xEF => (((first & 0x0F) << 12) | (tail(second) << 6) | tail(third), 3),
            _ => (((first & 0x07) << 18) | (tail(second) << 12) | (tail(third) << 6) | tail(fourth), 4),
        };
        (self.classes[code as usize], width)
    }

    /// The end of the run of characters from `at` on whose class is wanted.
    #[inline(always)]
    pub(super) fn run(&self, mut at: usize, wanted: impl Fn(u8) -> bool) -> usize {
        loop {
            let (class, width) = self.class(at);
            if width == 0 || !wanted(class) {
                return at;
            }
            at += width;
        }
    }

    /// The end of the run of letters from `at` on.
    #[inline(always)]
    pub(super) fn letters(&self, mut at: usize) -> usize {
        loop {
            let stops = self.stops_from(at);
            if stops != 0 {
                at += stops.trailing_zeros() as usize;
                break;
            }
            at = (at | (WINDOW - 1)) + 1;
        }
        match self.bytes.get(at) {
            Some(&first) if first >= 0x80 => self.wide_letters(at),
            _ => at,
        }
    }

    /// Bits for the bytes from `at` to the end of its window that may not belong to a letter.
    #[inline(always)]
    fn stops_from(&self, at: usize) -> u64 {
        let base = at & !(WINDOW - 1);
        let (begin, mut stops) = self.window.get();
        if begin != base {
            stops = self.letters.stops(self.bytes, base);
            self.window.set((base, stops));
        }
        stops >> (at - base)
    }

    /// The same where the next character is not ASCII.
    #[inline(never)]
    fn wide_letters(&self, at: usize) -> usize {
        self.run(at, is_letter)
    }

    /// The end of the run of the bytes `wanted` from `at` on.
    #[inline(always)]
    fn run_of(&self, mut at: usize, wanted: &[u8]) -> usize {
        while self.bytes.get(at).is_some_and(|byte| wanted.contains(byte)) {
            at += 1;
        }
        at
    }

    /// The end of a contraction whose apostrophe is just before `at`: `'s|'t|'re|'ve|'m|'ll|'d`.
    #[inline]
    pub(super) fn contraction(&self, at: usize, ignore_case: bool) -> Option<usize> {
        let letter = |place: usize| {
            let byte = self.bytes.get(at + place).copied().unwrap_or(0);
            if ignore_case {
                byte.to_ascii_lowercase()
            } else {
                byte
            }
        };
        match (letter(0), letter(1)) {
            (b's' | b't' | b'm' | b'd', _) => Some(at + 1),
            (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 2),
            // U+017F, the long s, is an s where case does not count.
            (0xC5, 0xBF) if ignore_case => Some(at + 2),
            _ => None,
        }
    }

    /// The end of the match of `\s*[\r\n]+|\s+(?!\S)|\s+` (the first part where `newlines`) at white space.
    #[inline]
    pub(super) fn white_space(&self, start: usize, newlines: bool) -> usize {
        let (mut at, mut last, mut after_newline) = (start, start, 0);
        loop {
            let (class, width) = self.class(at);
            if class == SPACE {
                last = at;
                at += width;
                if newlines && matches!(self.bytes[last], b'\r' | b'\n') {
                    after_newline = at;
                }
                continue;
            }
            return match class {
                _ if after_newline > 0 => after_newline,
                END => at,
                _ if last > start => last,
                _ => at,
            };
        }
    }

    /// The end of ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
    #[inline(always)]
    pub(super) fn other_or_white_space(&self, start: usize, class: u8, next: usize, following: u8) -> usize {
        if is_other(class) || (self.bytes[start] == b' ' && is_other(following)) {
            self.run_of(self.run(next, is_other), b"\r\n")
        } else {
            self.white_space(start, true)
        }
    }

    #[inline]
    pub(super) fn numbers(&self, mut at: usize, more: u8) -> usize {
        for _ in 0..more {
            match self.class(at) {
                (NUMBER, width) => at += width,
                _ => break,
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_numeric_character_and_every_number_of_the_engine_is_split_off() {
        for character in '\0'..=char::MAX {
            let class = without_numbers()[character as usize];
            assert_eq!(class == END, character.is_numeric(), "{character:?}");
            assert_ne!(class, NUMBER, "{character:?}");
        }
    }
}
