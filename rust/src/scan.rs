//! Hand-written scanners for the patterns that nearly everyone uses, equal to the regular expressions match for match.
//!
//! Each function below quotes its pattern and decides, character class by character class, what the backtracking
//! engine would. The tests compare them with that engine; a pattern that is not here goes through the engine itself.

use std::ops::Range;

use serde_json::Value;

use crate::unicode::{classes, CASELESS, LOWER, MARK, NUMBER, OTHER, SPACE, UPPER};

/// The class of the position after the last character: neither `\s` nor `\S`.
const END: u8 = 7;

/// A pre-tokenizer with a scanner of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    /// with numbers of at most so many digits: Llama-3 (3), Qwen-2 (1).
    Cl100k { digits: u8 },
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, where `numbers_apart` first sets
    /// every numeric character apart: GPT-2, SmolLM.
    Gpt2 { numbers_apart: bool },
    /// `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|…|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|…`
    Nemo,
}

const CL100K: [&str; 2] =
    [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"];
const NEMO: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

impl Pattern {
    /// The pattern of a `pre_tokenizer` in a `tokenizer.json`, if it is one of these to the letter.
    pub(crate) fn recognize(pre_tokenizer: &Value) -> Option<Self> {
        let steps = match pre_tokenizer["type"].as_str()? {
            "Sequence" => pre_tokenizer["pretokenizers"].as_array()?.as_slice(),
            _ => std::slice::from_ref(pre_tokenizer),
        };
        match steps {
            [bytes] if is_byte_level(bytes, true) => Some(Self::Gpt2 { numbers_apart: false }),
            [digits, bytes] if digits["type"] == "Digits" && digits["individual_digits"] == true => {
                is_byte_level(bytes, true).then_some(Self::Gpt2 { numbers_apart: true })
            }
            [split, bytes] if is_byte_level(bytes, false) && is_isolating_split(split) => {
                Self::of_regex(split["pattern"]["Regex"].as_str()?)
            }
            _ => None,
        }
    }

    fn of_regex(regex: &str) -> Option<Self> {
        match regex.strip_prefix(CL100K[0]).and_then(|rest| rest.strip_suffix(CL100K[1])) {
            Some(r"\p{N}{1,3}") => Some(Self::Cl100k { digits: 3 }),
            Some(r"\p{N}") => Some(Self::Cl100k { digits: 1 }),
            _ => (regex == NEMO).then_some(Self::Nemo),
        }
    }

    /// Tells `emit` every pretoken of a text, in order, as the bytes around it and its place in them.
    pub(crate) fn scan(self, text: &str, mut emit: impl FnMut(&[u8], Range<usize>)) {
        match self {
            Self::Cl100k { digits } => Scanner::new(text).cl100k(digits, emit),
            Self::Nemo => Scanner::new(text).nemo(emit),
            Self::Gpt2 { numbers_apart: false } => Scanner::new(text).gpt2(emit),
            Self::Gpt2 { numbers_apart: true } => {
                for part in text.split_inclusive(char::is_numeric) {
                    // The numeric character is the last, if there is one; what stands before it ends where it begins.
                    let words = part.trim_end_matches(char::is_numeric);
                    Scanner::new(words).gpt2(&mut emit);
                    if words.len() < part.len() {
                        emit(part.as_bytes(), words.len()..part.len());
                    }
                }
            }
        }
    }

    /// The last place to cut a text so that the pretokens of the two parts are those of the whole.
    ///
    /// Between a letter or number and the white space after it: no pattern matches across, none looks back, and none
    /// looks ahead from a letter or number.
    pub(crate) fn last_cut(text: &str) -> Option<usize> {
        let scanner = Scanner::new(text);
        let spaces = text.bytes().enumerate().rev().filter(|(_, byte)| matches!(byte, b' ' | b'\n'));
        spaces.map(|(at, _)| at).find(|&at| {
            let before = text[..at].chars().next_back().map_or(OTHER, |last| scanner.classes[last as usize]);
            is_letter(before) || before == NUMBER
        })
    }
}

fn is_byte_level(step: &Value, use_regex: bool) -> bool {
    step["type"] == "ByteLevel"
        && step["add_prefix_space"] == false
        && step.get("use_regex").map_or(Some(true), Value::as_bool) == Some(use_regex)
}

fn is_isolating_split(step: &Value) -> bool {
    step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] == false
}

#[inline(always)]
fn is_letter(class: u8) -> bool {
    class.wrapping_sub(UPPER) <= CASELESS - UPPER
}

/// `[^\s\p{L}\p{N}]`
#[inline(always)]
fn is_other(class: u8) -> bool {
    class == OTHER || class == MARK
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

struct Scanner<'t> {
    bytes: &'t [u8],
    classes: &'static [u8],
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Self {
        Self { bytes: text.as_bytes(), classes: classes() }
    }

    /// The class and width of the character at a boundary between characters.
    #[inline(always)]
    fn class(&self, at: usize) -> (u8, usize) {
        match self.bytes.get(at) {
            None => (END, 0),
            Some(&first) if first < 0x80 => (self.classes[first as usize], 1),
            Some(&first) => self.wide_class(at, first),
        }
    }

    #[inline]
    fn wide_class(&self, at: usize, first: u8) -> (u8, usize) {
        let tail = |place: usize| u32::from(self.bytes.get(at + place).copied().unwrap_or(0) & 0x3F);
        let first = u32::from(first);
        let (code, width) = match first {
            ..=0xDF => (((first & 0x1F) << 6) | tail(1), 2),
            0xE0..=0xEF => (((first & 0x0F) << 12) | (tail(1) << 6) | tail(2), 3),
            _ => (((first & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3), 4),
        };
        (self.classes[code as usize], width)
    }

    /// The end of the run of characters from `at` on whose class is wanted.
    #[inline(always)]
    fn run(&self, mut at: usize, wanted: impl Fn(u8) -> bool) -> usize {
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
    fn letters(&self, mut at: usize) -> usize {
        // Eight ASCII letters at a time, without a branch a letter: word lengths are what branch predictors miss.
        while let Some(word) = self.bytes.get(at..at + 8) {
            let stops = not_ascii_letters(word.try_into().map_or(0, u64::from_le_bytes));
            if stops != 0 {
                at += stops.trailing_zeros() as usize / 8;
                if self.bytes[at] < 0x80 {
                    return at;
                }
                break;
            }
            at += 8;
        }
        self.run(at, is_letter)
    }

    /// The end of the run of these bytes from `at` on.
    #[inline(always)]
    fn run_of(&self, mut at: usize, wanted: &[u8]) -> usize {
        while self.bytes.get(at).is_some_and(|byte| wanted.contains(byte)) {
            at += 1;
        }
        at
    }

    /// The end of a contraction whose apostrophe stands before `at`: `'s|'t|'re|'ve|'m|'ll|'d`.
    #[inline]
    fn contraction(&self, at: usize, ignore_case: bool) -> Option<usize> {
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
    fn white_space(&self, start: usize, newlines: bool) -> usize {
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

    #[inline(always)]
    fn cl100k(&self, digits: u8, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut start = 0;
        while start < self.bytes.len() {
            if self.bytes[start] == b' ' && self.bytes.get(start + 1).is_some_and(u8::is_ascii_alphabetic) {
                let end = self.letters(start + 1); // what most pretokens are
                emit(self.bytes, start..end);
                start = end;
                continue;
            }
            let (class, width) = self.class(start);
            let next = start + width;
            let end = if is_letter(class) {
                self.letters(next)
            } else if class == NUMBER {
                self.numbers(next, digits - 1)
            } else {
                self.cl100k_other(start, class, next)
            };
            emit(self.bytes, start..end);
            start = end;
        }
    }

    #[inline(always)]
    fn cl100k_other(&self, start: usize, class: u8, next: usize) -> usize {
        let first = self.bytes[start];
        if first == b'\'' {
            if let Some(end) = self.contraction(next, true) {
                return end;
            }
        }
        let (following, width) = self.class(next);
        if is_letter(following) && !matches!(first, b'\r' | b'\n') {
            return self.letters(next + width);
        }
        self.other_or_white_space(start, class, next, following, b"\r\n")
    }

    /// The end of ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, with `tail` for the `[\r\n]`.
    #[inline(always)]
    fn other_or_white_space(&self, start: usize, class: u8, next: usize, following: u8, tail: &[u8]) -> usize {
        if is_other(class) || (self.bytes[start] == b' ' && is_other(following)) {
            self.run_of(self.run(next, is_other), tail)
        } else {
            self.white_space(start, true)
        }
    }

    fn numbers(&self, mut at: usize, more: u8) -> usize {
        for _ in 0..more {
            match self.class(at) {
                (NUMBER, width) => at += width,
                _ => break,
            }
        }
        at
    }

    #[inline(always)]
    fn gpt2(&self, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut start = 0;
        while start < self.bytes.len() {
            let (class, width) = self.class(start);
            let first = self.bytes[start];
            let contraction = if first == b'\'' { self.contraction(start + 1, false) } else { None };
            let end = contraction.unwrap_or_else(|| {
                // A space goes with the word after it.
                let at = start + width;
                let (class, at) = match (first, self.class(at)) {
                    (b' ', (following, width)) if following != SPACE && following != END => (following, at + width),
                    _ => (class, at),
                };
                match class {
                    SPACE => self.white_space(start, false),
                    NUMBER => self.run(at, |class| class == NUMBER),
                    _ if is_letter(class) => self.letters(at),
                    _ => self.run(at, is_other),
                }
            });
            emit(self.bytes, start..end);
            start = end;
        }
    }

    #[inline(always)]
    fn nemo(&self, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut start = 0;
        while start < self.bytes.len() {
            let (class, width) = self.class(start);
            let next = start + width;
            let end = if class == NUMBER {
                next
            } else if let Some(end) = self.cased_word(start, class, next) {
                end
            } else {
                let (following, _) = self.class(next);
                self.other_or_white_space(start, class, next, following, b"\r\n/")
            };
            emit(self.bytes, start..end);
            start = end;
        }
    }

    /// The end of `P?U*L+|P?U+L*` where `P` is `[^\r\n\p{L}\p{N}]`, `U` may start a word and `L` may go on with it.
    #[inline(always)]
    fn cased_word(&self, start: usize, class: u8, next: usize) -> Option<usize> {
        if is_letter(class) {
            let (Ok(end) | Err(end)) = self.capitals_then_lower(start);
            return Some(end);
        }
        if matches!(self.bytes[start], b'\r' | b'\n') {
            return None;
        }
        match self.capitals_then_lower(next) {
            Ok(end) => Some(end),
            // A mark may also be the first character of the word itself; then it is an `L` and matches at once.
            Err(_) if class == MARK => self.capitals_then_lower(start).ok(),
            Err(capitals) => (capitals > next).then_some(capitals),
        }
    }

    /// The end of `U*L+` from `start` on, or else that of `U*`.
    #[inline(always)]
    fn capitals_then_lower(&self, start: usize) -> Result<usize, usize> {
        // subtle: caseless letters and marks are both `U` and `L`. `U*` takes all it can; where no `L` follows, it
        // gives characters back until `L+` can have one: the match ends after the last that is both.
        let (mut at, mut after_both) = (start, 0);
        loop {
            match self.class(at) {
                (UPPER, width) => at += width,
                (CASELESS | MARK, width) => {
                    at += width;
                    after_both = at;
                }
                (LOWER, _) => return Ok(self.run(at, |class| matches!(class, LOWER | CASELESS | MARK))),
                _ if after_both > 0 => return Ok(after_both),
                _ => return Err(at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::utils::SysRegex;

    use super::*;

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

    fn patterns() -> Vec<(Pattern, SysRegex)> {
        let cl100k = |digits: &str| SysRegex::new(&format!("{}{digits}{}", CL100K[0], CL100K[1])).unwrap();
        vec![
            (Pattern::Cl100k { digits: 3 }, cl100k(r"\p{N}{1,3}")),
            (Pattern::Cl100k { digits: 1 }, cl100k(r"\p{N}")),
            (Pattern::Gpt2 { numbers_apart: false }, SysRegex::new(GPT2).unwrap()),
            (Pattern::Nemo, SysRegex::new(NEMO).unwrap()),
        ]
    }

    fn assert_equal(pattern: Pattern, regex: &SysRegex, text: &str) {
        let mut ours = Vec::new();
        pattern.scan(text, |_, at| ours.push(&text[at]));
        let engine: Vec<&str> = regex.find_iter(text).map(|(start, end)| &text[start..end]).collect();
        assert_eq!(ours, engine, "{pattern:?} on {text:?}");
        if let Some(cut) = Pattern::last_cut(text) {
            let mut parts = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                pattern.scan(part, |_, at| parts.push(&part[at]));
            }
            assert_eq!(parts, engine, "{pattern:?} on {text:?} cut at {cut}");
        }
    }

    /// Characters that patterns treat differently, a few of every class.
    const ALPHABET: [char; 32] = [
        'a', 's', 'l', 'é', 'ß', 'A', 'S', 'Õ', 'ǅ', 'ʰ', '日', 'ا', '\u{301}', '\u{93f}', '1', '२', '½', ' ', ' ',
        '\t', '\n', '\r', '\u{a0}', '\u{3000}', '\'', '/', '!', '…', '🙂', '\0', '\u{200d}', 'ſ',
    ];

    #[test]
    fn scanners_equal_the_engine_on_every_string_of_three_and_on_random_longer_ones() {
        for (pattern, regex) in patterns() {
            for a in ALPHABET {
                for b in ALPHABET {
                    for c in ALPHABET {
                        assert_equal(pattern, &regex, &String::from_iter([a, b, c]));
                    }
                }
            }
            let mut state = 7u64;
            for _ in 0..60_000 {
                let mut text = String::new();
                for _ in 0..16 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    text.push(ALPHABET[(state >> 59) as usize]);
                }
                assert_equal(pattern, &regex, &text);
            }
        }
    }

    #[test]
    fn scanners_equal_the_engine_around_every_character_there_is() {
        for (pattern, regex) in patterns() {
            let mut text = String::new();
            for character in '\0'..=char::MAX {
                text.push('\'');
                text.push(character);
                text.push_str("x  ");
                text.push(character);
                text.push(character);
                if text.len() > 400 {
                    assert_equal(pattern, &regex, &text);
                    text.clear();
                }
            }
        }
    }

    #[test]
    fn numbers_set_apart_end_the_text_before_them() {
        let mut pretokens = Vec::new();
        Pattern::Gpt2 { numbers_apart: true }
            .scan("a  12 b½", |text, at| pretokens.push(String::from_utf8(text[at].to_vec()).unwrap()));
        assert_eq!(pretokens, ["a", "  ", "1", "2", " b", "½"]);
    }
}
