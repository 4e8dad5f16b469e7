//! Which pieces SentencePiece's trainer may make, by the fields of its `trainer_spec`. Does not split text.

use std::sync::OnceLock;

use unicode_script::{Script, UnicodeScript};

/// The white space of SentencePiece.
pub(crate) const SPACE: char = '▁';
/// The script of characters that inherit theirs from a neighbour: it matches every script.
const ANY: u8 = u8::MAX;
/// No script: the rules treat the character in a way of its own.
pub(super) const APART: u8 = 250;
/// Characters that SentencePiece reserves: no piece contains one.
const RESERVED: [char; 4] = ['\0', '\t', ' ', '\u{2585}'];

/// Fields of a `trainer_spec`, by SentencePiece's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the names and types are SentencePiece's
pub struct PieceRules {
    /// Pieces keep to one script; Hiragana and Katakana count as Han.
    pub split_by_unicode_script: bool,
    /// Digits are of the script Common, and so separate from letters; otherwise they match every script.
    pub split_by_number: bool,
    /// Pieces do not span words; otherwise `▁` may stand inside one.
    pub split_by_whitespace: bool,
    /// A digit is a piece of its own.
    pub split_digits: bool,
    /// `▁` stands at the end of a piece rather than at its front.
    pub treat_whitespace_as_suffix: bool,
    /// Runs of `▁` may be pieces.
    pub allow_whitespace_only_pieces: bool,
    /// The longest piece, in characters.
    pub max_sentencepiece_length: usize,
}

impl Default for PieceRules {
    /// The rules of Llama.
    fn default() -> Self {
        Self {
            split_by_unicode_script: true,
            split_by_number: true,
            split_by_whitespace: true,
            split_digits: true,
            treat_whitespace_as_suffix: false,
            allow_whitespace_only_pieces: true,
            max_sentencepiece_length: 16,
        }
    }
}

impl PieceRules {
    /// Whether the trainer may make this piece.
    #[must_use]
    pub fn allow(&self, piece: &str) -> bool {
        let length = piece.chars().count();
        if length == 0 || length > self.max_sentencepiece_length {
            return false;
        }
        let is_allowed_run = self.allow_whitespace_only_pieces && piece.chars().all(|character| character == SPACE);
        let mut previous = ANY;
        piece.chars().enumerate().all(|(at, character)| {
            if character == SPACE {
                return is_allowed_run || self.allow_space(at, length);
            }
            let script = match self.script(character) {
                ANY if !is_digit(character) => previous, // inherited
                script => script,
            };
            let mixes_scripts = self.split_by_unicode_script && script != ANY && previous != ANY && script != previous;
            previous = script;
            let joins_digit = self.split_digits && is_digit(character) && length > 1;
            !mixes_scripts && !joins_digit && !RESERVED.contains(&character)
        })
    }

    /// Whether `▁` may be character `at` of a piece that has others too.
    fn allow_space(&self, at: usize, length: usize) -> bool {
        let (first, last) = (at == 0, at + 1 == length);
        match (self.treat_whitespace_as_suffix, self.split_by_whitespace) {
            (false, true) => first,
            (false, false) => first || !last,
            (true, true) => last,
            (true, false) => last || !first,
        }
    }

    /// Whether the trainer may make a piece with these two characters side by side, whatever stands around them.
    #[must_use]
    pub fn may_join(&self, left: char, right: char) -> bool {
        if self.split_digits && (is_digit(left) || is_digit(right)) {
            return false;
        }
        match (left == SPACE, right == SPACE) {
            (true, true) => self.allow_whitespace_only_pieces || !self.split_by_whitespace,
            (true, false) => !self.treat_whitespace_as_suffix || !self.split_by_whitespace,
            (false, true) => self.treat_whitespace_as_suffix || !self.split_by_whitespace,
            (false, false) => {
                let (left, right) = (self.script(left), self.script(right));
                !self.split_by_unicode_script || left == right || left == ANY || right == ANY
            }
        }
    }

    fn script(&self, character: char) -> u8 {
        if is_digit(character) && !self.split_by_number {
            ANY
        } else {
            scripts()[character as usize]
        }
    }
}

/// The script of every character that the rules treat by its script alone, by code point and as a number. [`APART`] for
/// digits and `▁`.
pub(super) fn letter_scripts() -> &'static [u8] {
    static SCRIPTS: OnceLock<Vec<u8>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        let mut scripts = scripts().to_vec();
        for character in ('0'..='9').chain('０'..='９').chain([SPACE]) {
            scripts[character as usize] = APART;
        }
        scripts
    })
}

#[inline]
fn is_digit(character: char) -> bool {
    matches!(character, '0'..='9' | '０'..='９')
}

/// The script of every code point, by code point, as a number; Hiragana and Katakana as Han.
fn scripts() -> &'static [u8] {
    static SCRIPTS: OnceLock<Vec<u8>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        (0..0x11_0000)
            .map(|code| match char::from_u32(code).map(|character| character.script()) {
                _ if code == 0x30FC => Script::Han as u8, // the long-vowel mark, whose script is Common
                Some(Script::Hiragana | Script::Katakana) => Script::Han as u8,
                Some(Script::Inherited) | None => ANY,
                Some(script) => script as u8,
            })
            .collect()
    })
}

/// The Unicode names of the scripts that the characters of a text have, sorted.
#[must_use]
pub fn script_names(text: &str) -> Vec<&'static str> {
    let mut names: Vec<_> = text.chars().map(|character| character.script().full_name()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The script of most of the complete characters of a token; of several that are equally frequent, the first.
///
/// Digits, punctuation, white space and combining marks do not count. A token that has nothing else is `Common`, unless
/// it has a part of a character.
#[must_use]
pub(crate) fn main_script(token: &[u8]) -> &'static str {
    let (mut found, mut complete) = (Vec::<(Script, usize)>::new(), 0);
    for chunk in token.utf8_chunks() {
        complete += chunk.valid().len();
        for script in chunk.valid().chars().map(|character| character.script()) {
            if matches!(script, Script::Common | Script::Inherited | Script::Unknown) {
                continue;
            }
            match found.iter_mut().find(|(known, _)| *known == script) {
                Some((_, count)) => *count += 1,
                None => found.push((script, 1)),
            }
        }
    }
    match found.into_iter().rev().max_by_key(|(_, count)| *count) {
        Some((script, _)) => script.full_name(),
        None if complete == token.len() => Script::Common.full_name(),
        None => "part of a character",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_a_token_is_that_of_most_of_its_characters() {
        let cases = [
            (" tere", "Latin"),
            ("привет", "Cyrillic"),
            ("1999", "Common"),
            ("\u{301}", "Common"),
            ("aб", "Latin"),
            ("aбв", "Cyrillic"),
            ("猫が", "Han"),
            ("в a1", "Cyrillic"),
            ("", "Common"),
        ];
        cases.iter().for_each(|(text, script)| assert_eq!(main_script(text.as_bytes()), *script, "{text}"));
        assert_eq!(main_script(&"кот".as_bytes()[..5]), "Cyrillic");
        assert_eq!(main_script(&"кот".as_bytes()[..1]), "part of a character");
        assert_eq!(main_script(b" \xd0"), "part of a character");
    }

    #[test]
    fn pieces_follow_every_rule_of_the_trainer_spec() {
        let rules = PieceRules::default();
        for piece in ["▁tere", "te", "▁", "▁▁▁", "1", "猫がマットー", "e\u{301}x", "\u{301}x", "?!", "▁?!"]
        {
            assert!(rules.allow(piece), "{piece}");
        }
        let long = "a".repeat(17);
        for piece in ["", "a▁b", "te▁", "▁▁a", "12", "▁1", "aж", "a?", "猫a", "a\tb", "a b", "▅a", "а\u{301}b", &long]
        {
            assert!(!rules.allow(piece), "{piece}");
        }
        let digits = PieceRules { split_digits: false, ..rules };
        assert!(digits.allow("12") && !digits.allow("a1"));
        let numbers = PieceRules { split_digits: false, split_by_number: false, ..rules };
        assert!(numbers.allow("a1ж") && numbers.allow("1?") && !numbers.allow("aж"));
        let scripts = PieceRules { split_by_unicode_script: false, ..rules };
        assert!(scripts.allow("aж?"));
        let no_runs = PieceRules { allow_whitespace_only_pieces: false, ..rules };
        assert!(no_runs.allow("▁") && !no_runs.allow("▁▁"));
        let suffix = PieceRules { treat_whitespace_as_suffix: true, ..rules };
        assert!(suffix.allow("te▁") && !suffix.allow("▁te") && suffix.allow("▁▁"));
        let phrases = PieceRules { split_by_whitespace: false, ..rules };
        assert!(phrases.allow("a▁b") && phrases.allow("▁a▁▁b") && !phrases.allow("a▁"));
        let both = PieceRules { split_by_whitespace: false, treat_whitespace_as_suffix: true, ..rules };
        assert!(both.allow("a▁b▁") && !both.allow("▁a"));
    }

    #[test]
    fn no_script_has_the_number_that_stands_for_none() {
        assert!(scripts().iter().all(|script| *script != APART));
        assert_eq!(letter_scripts().iter().filter(|script| **script == APART).count(), 21);
    }

    #[test]
    fn characters_that_a_piece_may_have_side_by_side_may_be_joined() {
        let characters = ['a', 'b', 'ж', '猫', 'が', '1', '2', '?', '\u{301}', SPACE];
        for bits in 0..64u32 {
            let flag = |at: u32| bits >> at & 1 == 1;
            let rules = PieceRules {
                split_by_unicode_script: flag(0),
                split_by_number: flag(1),
                split_by_whitespace: flag(2),
                split_digits: flag(3),
                treat_whitespace_as_suffix: flag(4),
                allow_whitespace_only_pieces: flag(5),
                max_sentencepiece_length: 16,
            };
            for number in 0..10_000usize {
                let piece: Vec<char> = (0..4).map(|at| characters[number / 10usize.pow(at) % 10]).collect();
                if rules.allow(&piece.iter().collect::<String>()) {
                    assert!(piece.windows(2).all(|pair| rules.may_join(pair[0], pair[1])), "{rules:?} {piece:?}");
                }
            }
        }
    }
}
