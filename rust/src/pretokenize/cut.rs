//! Where the text of a SentencePiece-type tokenizer may be cut into short pieces without changing anything.
//!
//! These tokenizers have no pre-tokenizer: a pretoken is a whole document. If no token contains two characters side by
//! side, no merge crosses between them. If SentencePiece's trainer would never make a piece that spans them either,
//! continued training will not, and counting the two sides separately is exact. Characters outside the vocabulary may
//! affect tokens further away: [`Bpe::cut_between`] says which characters are safe beside a cut.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::pieces::{letter_scripts, PieceRules, APART, SPACE};
use crate::bpe::Bpe;

const ASCII: usize = 128;
/// Code points of the first plane.
const PLANE: u32 = 0x1_0000;

/// Cuts text where neither a token nor a piece that training could add can span.
#[derive(Debug)]
pub struct Cutter {
    rules: PieceRules,
    /// Pairs of characters that the rules would keep apart and some token joins.
    joined: FxHashSet<(char, char)>,
    /// The characters that may stand beside a cut; None where all may.
    between: Option<FxHashSet<char>>,
    /// Whether to cut between two ASCII characters, `left * 128 + right`.
    ascii: Vec<bool>,
    /// Whether to cut between a character of the first plane and `▁`, before and after.
    before_space: Vec<bool>,
    after_space: Vec<bool>,
}

impl Cutter {
    /// The cutter for a vocabulary and the pieces that training could add. Added tokens are split out of the text before
    /// it is cut, so they prevent no cut unless merges make them too.
    #[must_use]
    pub fn new(bpe: &Bpe, rules: PieceRules, added: &FxHashSet<String>) -> Self {
        let mut cutter = Self {
            rules,
            joined: FxHashSet::default(),
            between: bpe.cut_between().map(|characters| characters.into_iter().collect()),
            ascii: Vec::new(),
            before_space: Vec::new(),
            after_space: Vec::new(),
        };
        for string in bpe.producible_strings(added) {
            let pairs = string.chars().zip(string.chars().skip(1));
            cutter.joined.extend(pairs.filter(|&(left, right)| !rules.may_join(left, right)));
        }
        let ascii = || (0..ASCII as u8).map(char::from);
        cutter.ascii =
            ascii().flat_map(|left| ascii().map(move |right| (left, right))).map(|p| cutter.decide(p)).collect();
        let plane = || (0..PLANE).map(|code| char::from_u32(code).unwrap_or('\0'));
        cutter.before_space = plane().map(|left| cutter.decide((left, SPACE))).collect();
        cutter.after_space = plane().map(|right| cutter.decide((SPACE, right))).collect();
        cutter
    }

    /// The pairs that the rules would keep apart and some token joins; and the characters that may stand beside a cut,
    /// None where all may. Both in order.
    #[must_use]
    pub fn limits(&self) -> (Vec<(char, char)>, Option<Vec<char>>) {
        let mut pairs: Vec<_> = self.joined.iter().copied().collect();
        pairs.sort_unstable();
        let mut between: Option<Vec<char>> = self.between.as_ref().map(|between| between.iter().copied().collect());
        between.iter_mut().for_each(|characters| characters.sort_unstable());
        (pairs, between)
    }

    /// Whether to cut between two characters.
    #[inline]
    pub(crate) fn cuts(&self, left: char, right: char) -> bool {
        let known = match (left as usize, right as usize) {
            (left, right) if left < ASCII && right < ASCII => self.ascii.get(left * ASCII + right),
            (left, _) if right == SPACE => self.before_space.get(left),
            (_, right) if left == SPACE => self.after_space.get(right),
            _ => None,
        };
        known.copied().unwrap_or_else(|| self.decide((left, right)))
    }

    fn decide(&self, (left, right): (char, char)) -> bool {
        let is_safe = |character: char| self.between.as_ref().is_none_or(|between| between.contains(&character));
        !self.rules.may_join(left, right) && !self.joined.contains(&(left, right)) && is_safe(left) && is_safe(right)
    }

    /// Calls `emit` with the pieces of a text, in order, as the bytes of the text and the range of each.
    pub(crate) fn cut(&self, text: &str, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let scripts = letter_scripts();
        let mut characters = text.char_indices();
        let Some((_, mut left)) = characters.next() else { return };
        let (mut start, mut left_script) = (0, scripts[left as usize]);
        for (at, right) in characters {
            let script = scripts[right as usize];
            // Two characters of one script are never cut: most pairs are decided here.
            if (script == APART || script != left_script) && self.cuts(left, right) {
                emit(text.as_bytes(), start..at);
                start = at;
            }
            (left, left_script) = (right, script);
        }
        emit(text.as_bytes(), start..text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Alphabet, Options};

    fn cutter(strings: &[&str]) -> Cutter {
        let unknown = Options { unk_token: Some("a".into()), ..Options::default() };
        Cutter::new(&model(strings, &[], &unknown), PieceRules::default(), &FxHashSet::default())
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
        let joining = cutter(&["a", "ad▁õ", "x1"]);
        assert_eq!(pieces(&joining, "▁ad▁õx1y2"), ["▁ad▁õx1", "y", "2"]);
        assert_eq!(joining.limits(), (vec![('d', '▁'), ('x', '1')], None));
    }

    fn model(strings: &[&str], merges: &[(u32, u32)], options: &Options) -> Bpe {
        let tokens = strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect();
        Bpe::new(tokens, merges, options).unwrap()
    }

    #[test]
    fn text_is_cut_only_beside_known_characters_if_unknown_ones_affect_their_neighbours() {
        let bytes: Vec<String> = (0..=255u8).map(crate::bpe::byte_token).collect();
        let bytes = || bytes.iter().map(String::as_str);
        let fallback = Options { byte_fallback: true, ..Options::default() };
        let unknown = |fuse_unk| Options { unk_token: Some("u".into()), fuse_unk, ..Options::default() };
        let plain = ["u", "a", "ua"];
        let between = |strings: &[&str], merges: &[(u32, u32)], options: &Options| {
            model(strings, merges, options).cut_between().map(String::from_iter)
        };
        let all: Vec<&str> = bytes().collect();
        let without = |missing: &'static str| bytes().filter(move |byte| *byte != missing);
        assert_eq!(between(&all, &[], &fallback), None);
        let tab: Vec<&str> = without("<0x09>").collect();
        assert_eq!(between(&tab, &[], &fallback), Some(String::new()));
        let tab: Vec<&str> = without("<0x09>").chain(["\t"]).collect();
        assert_eq!(between(&tab, &[], &fallback), None); // as Gemma-2
        let never: Vec<&str> = without("<0xFF>").collect();
        assert_eq!(between(&never, &[], &fallback), None); // no character has this byte
        let lead: Vec<&str> = without("<0xE2>").chain(["a"]).collect();
        assert_eq!(between(&lead, &[], &fallback), Some("a".into()));
        assert_eq!(between(&plain, &[], &Options::default()), Some("au".into())); // unknown characters are dropped
        assert_eq!(between(&plain, &[], &unknown(false)), None);
        assert_eq!(between(&plain, &[], &unknown(true)), Some("au".into()));
        assert_eq!(between(&plain, &[(0, 1)], &unknown(false)), Some("au".into()));
        let joined: Vec<&str> = bytes().chain(["<0x00><0x01>"]).collect();
        assert_eq!(between(&joined, &[(0, 1)], &fallback), Some(String::new()));
    }

    #[test]
    fn a_byte_token_that_merges_make_is_never_cut() {
        let strings = ["<", "0", "x", "4", "1", ">", "<0", "x4", "1>", "<0x4", "<0x41>"];
        let merges = [(0, 1), (2, 3), (4, 5), (6, 7), (9, 8)];
        let options = Options { byte_fallback: true, ..Options::default() };
        let made = Cutter::new(&model(&strings, &merges, &options), PieceRules::default(), &FxHashSet::default());
        assert_eq!(pieces(&made, "1<0x41>1"), ["1", "<0x41>", "1"]);
    }

    /// A generator of small numbers, the same ones every time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }
    }

    /// A model over a few characters, some of them without a token, with merges of any two tokens, unknown and byte tokens included.
    fn random_model(numbers: &mut Numbers) -> Bpe {
        let byte_tokens = ["<0xC3>", "<0xB5>", "<0xA4>", "<0x09>"];
        let pool = ["a", "b", "1", "▁", "ж", ",", "õ", "ä", "\t", "<unk>"];
        let mut strings: Vec<String> = Vec::new();
        for string in pool.iter().chain(&byte_tokens) {
            if numbers.below(3) > 0 {
                strings.push((*string).to_string());
            }
        }
        let mut merges = Vec::new();
        for _ in 0..numbers.below(10) {
            let Some(most) = strings.len().checked_sub(1) else { break };
            let pair = (numbers.below(most + 1), numbers.below(most + 1));
            let is_placeholder = |string: &str| string.starts_with('<');
            if (is_placeholder(&strings[pair.0]) || is_placeholder(&strings[pair.1])) && numbers.below(4) > 0 {
                continue; // in a quarter of the cases, such merges are kept
            }
            let product = strings[pair.0].clone() + &strings[pair.1];
            let pair = (pair.0 as u32, pair.1 as u32);
            if product.chars().count() < 9 && !merges.contains(&pair) {
                if !strings.contains(&product) {
                    strings.push(product);
                }
                merges.push(pair);
            }
        }
        let unk = strings.iter().any(|string| string == "<unk>") && numbers.below(2) == 0;
        let options = Options {
            alphabet: Alphabet::Text,
            byte_fallback: numbers.below(2) == 0,
            unk_token: unk.then(|| "<unk>".into()),
            fuse_unk: numbers.below(2) == 0,
            ignore_merges: false,
        };
        let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
        model(&strings, &merges, &options)
    }

    #[test]
    fn tokens_of_cut_text_are_those_of_whole_text_in_any_model() {
        let mut numbers = Numbers(7);
        let (mut cuts, mut restricted) = (0, 0);
        for _ in 0..30_000 {
            let bpe = random_model(&mut numbers);
            let cutter = Cutter::new(&bpe, PieceRules::default(), &FxHashSet::default());
            let length = numbers.below(14);
            let characters = ['a', 'b', '1', '▁', 'ж', ',', 'õ', 'ä', '\t', '猫'];
            let text: String = (0..length).map(|_| characters[numbers.below(characters.len())]).collect();
            let pieces = pieces(&cutter, &text);
            let mut separate: Vec<u32> = pieces.iter().flat_map(|piece| bpe.encode(piece).unwrap()).collect();
            let mut whole = bpe.encode(&text).unwrap();
            separate.sort_unstable();
            whole.sort_unstable();
            assert_eq!(separate, whole, "{text:?} as {pieces:?} in {bpe:?}");
            cuts += pieces.len().saturating_sub(1);
            restricted += usize::from(bpe.cut_between().is_some() && pieces.len() > 1);
        }
        assert!(cuts > 20_000 && restricted > 1_000, "{cuts} cuts, {restricted} texts of restricted models");
    }
}
