//! Hand-written scanners for common split patterns, equal to the regular expressions match for match.
//! A pattern that is not here goes through the regular-expression engine itself.
//!
//! Each scanner quotes its pattern and decides, by the class of each character, what the backtracking engine would.
//! The tests compare them with that engine.

mod cl100k;
mod gpt2;
mod letters;
mod scanner;

use std::ops::Range;

use serde_json::Value;

use self::letters::{Letters, Portable};
use self::scanner::{is_letter, Scanner};
use super::unicode::{NUMBER, OTHER};

/// A pre-tokenizer with a scanner of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    /// with numbers of at most `digits` digits: Llama-3 (3), Qwen-2 (1).
    Cl100k { digits: u8 },
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, where `split_numbers` first splits
    /// off every numeric character: GPT-2, SmolLM.
    Gpt2 { split_numbers: bool },
}

const CL100K: [&str; 2] =
    [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"];

impl Pattern {
    /// The pattern of a `pre_tokenizer` in a `tokenizer.json`, if it is one of these exactly.
    pub(crate) fn recognize(pre_tokenizer: &Value) -> Option<Self> {
        let steps = match pre_tokenizer["type"].as_str()? {
            "Sequence" => pre_tokenizer["pretokenizers"].as_array()?.as_slice(),
            _ => std::slice::from_ref(pre_tokenizer),
        };
        match steps {
            [bytes] if is_byte_level(bytes, true) => Some(Self::Gpt2 { split_numbers: false }),
            [digits, bytes] if digits["type"] == "Digits" && digits["individual_digits"] == true => {
                is_byte_level(bytes, true).then_some(Self::Gpt2 { split_numbers: true })
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
            _ => None,
        }
    }

    /// Calls `emit` with every pretoken of a text, in order, as the bytes of the text and its range in them.
    pub(crate) fn scan(self, text: &str, emit: impl FnMut(&[u8], Range<usize>)) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has these features.
            unsafe {
                self.scan_by_avx2(text, emit);
            }
            return;
        }
        self.scan_by(Portable, text, emit);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1")]
    fn scan_by_avx2(self, text: &str, emit: impl FnMut(&[u8], Range<usize>)) {
        self.scan_by(letters::Avx2, text, emit);
    }

    #[inline(always)]
    fn scan_by(self, letters: impl Letters, text: &str, emit: impl FnMut(&[u8], Range<usize>)) {
        match self {
            Self::Cl100k { digits } => Scanner::new(text, letters).cl100k(digits, emit),
            Self::Gpt2 { split_numbers: false } => Scanner::new(text, letters).gpt2(emit),
            Self::Gpt2 { split_numbers: true } => Scanner::splitting_numbers(text, letters).gpt2(emit),
        }
    }

    /// The last place to cut a text so that the pretokens of the two parts are those of the whole.
    ///
    /// Between a letter or number and the white space after it: no pattern matches across, none looks back, and none
    /// looks ahead from a letter or number.
    pub(crate) fn last_cut(text: &str) -> Option<usize> {
        let scanner = Scanner::new(text, Portable);
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
            (Pattern::Gpt2 { split_numbers: false }, SysRegex::new(GPT2).unwrap()),
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
    fn scanners_equal_the_engine_around_every_character() {
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
    fn numbers_that_are_split_off_end_the_text_before_them() {
        let mut pretokens = Vec::new();
        Pattern::Gpt2 { split_numbers: true }
            .scan("a  12 b½", |text, at| pretokens.push(String::from_utf8(text[at].to_vec()).unwrap()));
        assert_eq!(pretokens, ["a", "  ", "1", "2", " b", "½"]);
    }
}
