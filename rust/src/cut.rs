//! Where the text of a SentencePiece-type tokenizer may be cut into short pieces without changing anything.
//!
//! These tokenizers have no pre-tokenizer: a pretoken is a whole document. Between two characters that no token has
//! side by side, no merge ever crosses; if moreover SentencePiece's trainer would never make a piece that spans them,
//! continued training will not either, and counting the pieces apart is exact.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::bpe::Bpe;
use crate::pieces::{PieceRules, SPACE};

const ASCII: usize = 128;

/// Cuts text where no token and no piece to come can span.
#[derive(Debug)]
pub struct Cutter {
    rules: PieceRules,
    /// Pairs of characters that the rules would keep apart and some token joins all the same.
    joined: FxHashSet<(char, char)>,
    /// Whether to cut between two ASCII characters, `left * 128 + right`; and between one and `▁`, before and after.
    ascii: Vec<bool>,
    before_space: Vec<bool>,
    after_space: Vec<bool>,
}

impl Cutter {
    /// The cutter for a vocabulary and the pieces that may join it. The added tokens, which text is searched for before
    /// it gets here, keep nothing together unless merges make them too.
    #[must_use]
    pub fn new(bpe: &Bpe, rules: PieceRules, added: &FxHashSet<String>) -> Self {
        let mut cutter = Self {
            rules,
            joined: FxHashSet::default(),
            ascii: Vec::new(),
            before_space: Vec::new(),
            after_space: Vec::new(),
        };
        for string in bpe.spelled_strings(added) {
            let pairs = string.chars().zip(string.chars().skip(1));
            cutter.joined.extend(pairs.filter(|&(left, right)| !rules.may_join(left, right)));
        }
        let ascii = || (0..ASCII as u8).map(char::from);
        cutter.ascii =
            ascii().flat_map(|left| ascii().map(move |right| (left, right))).map(|p| cutter.decide(p)).collect();
        cutter.before_space = ascii().map(|left| cutter.decide((left, SPACE))).collect();
        cutter.after_space = ascii().map(|right| cutter.decide((SPACE, right))).collect();
        cutter
    }

    /// The pairs that the rules would keep apart and some token joins, in order.
    #[must_use]
    pub fn joined(&self) -> Vec<(char, char)> {
        let mut pairs: Vec<_> = self.joined.iter().copied().collect();
        pairs.sort_unstable();
        pairs
    }

    /// Whether to cut between two characters.
    #[inline]
    pub(crate) fn cuts(&self, left: char, right: char) -> bool {
        match (left as usize, right as usize) {
            (left, right) if left < ASCII && right < ASCII => self.ascii[left * ASCII + right],
            (left, _) if left < ASCII && right == SPACE => self.before_space[left],
            (_, right) if right < ASCII && left == SPACE => self.after_space[right],
            _ => self.decide((left, right)),
        }
    }

    fn decide(&self, (left, right): (char, char)) -> bool {
        !self.rules.may_join(left, right) && !self.joined.contains(&(left, right))
    }

    /// Tells `emit` the pieces of a text, in order, as the bytes around each and its place in them.
    pub(crate) fn cut(&self, text: &str, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut characters = text.char_indices();
        let Some((_, mut left)) = characters.next() else { return };
        let mut start = 0;
        for (at, right) in characters {
            if self.cuts(left, right) {
                emit(text.as_bytes(), start..at);
                start = at;
            }
            left = right;
        }
        emit(text.as_bytes(), start..text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::Options;

    fn cutter(strings: &[&str]) -> Cutter {
        let tokens = strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect();
        Cutter::new(&Bpe::new(tokens, &[], &Options::default()).unwrap(), PieceRules::default(), &FxHashSet::default())
    }

    fn pieces(cutter: &Cutter, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        cutter.cut(text, |_, at| pieces.push(text[at].to_string()));
        pieces
    }

    #[test]
    fn text_is_cut_before_words_at_scripts_punctuation_and_digits() {
        let plain = cutter(&["a"]);
        assert_eq!(pieces(&plain, "▁tere▁кот,▁12"), ["▁tere", "▁кот", ",", "▁", "1", "2"]);
        assert_eq!(pieces(&plain, "猫がマットーabc"), ["猫がマットー", "abc"]);
        assert_eq!(pieces(&plain, "e\u{301}\u{301}x"), ["e\u{301}\u{301}x"]);
        assert_eq!(pieces(&plain, ""), [""; 0]);
    }

    #[test]
    fn a_pair_that_a_token_has_is_never_cut() {
        let odd = cutter(&["a", "ad▁õ", "x1"]);
        assert_eq!(pieces(&odd, "▁ad▁õx1y2"), ["▁ad▁õx1", "y", "2"]);
        assert_eq!(odd.joined(), [('d', '▁'), ('x', '1')]);
    }

    #[test]
    fn models_whose_unknown_characters_touch_their_neighbours_are_not_cut() {
        let bytes = || (0..=255u8).map(crate::alphabet::byte_token);
        let model = |strings: Vec<String>, merges: &[(u32, u32)], options: Options| {
            let tokens = strings.into_iter().zip(0..).map(|(string, id)| (id, string)).collect();
            Bpe::new(tokens, merges, &options).unwrap().may_be_cut()
        };
        let fallback = || Options { byte_fallback: true, ..Options::default() };
        let unknown = |fuse_unk| Options { unk_token: Some("u".into()), fuse_unk, ..Options::default() };
        let plain = || vec!["u".to_string(), "a".into(), "ua".into()];
        assert!(model(bytes().collect(), &[], fallback()));
        assert!(!model(bytes().skip(1).collect(), &[], fallback()));
        assert!(!model(plain(), &[], Options::default())); // unknown characters vanish, and neighbours meet
        assert!(model(plain(), &[], unknown(false)));
        assert!(!model(plain(), &[], unknown(true)));
        assert!(!model(plain(), &[(0, 1)], unknown(false)));
        let joined = bytes().chain(["<0x00><0x01>".to_string()]).collect();
        assert!(!model(joined, &[(0, 1)], fallback()));
    }
}
