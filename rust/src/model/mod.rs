//! How pretokens are split into tokens: BPE, Unigram or WordPiece behind one interface.
//!
//! Everything that counts, compares or removes tokens asks this interface, and not which of the three it is. What only
//! BPE has, merges, is asked of [`Model::bpe`].

mod counted;
mod growing;
mod leaves;
mod remaining;
mod summary;
mod texts;
mod trie;
mod unigram;
mod word_piece;

use std::borrow::Cow;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::bpe::{Alphabet, Bpe, Origin, Tokens, CONTINUATION};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::stop::Stop;

pub(crate) use growing::{occurrences, Growing};
pub use remaining::Remaining;
pub use summary::Summary;
pub(crate) use unigram::has_exact_sums;
pub use unigram::Unigram;
pub use word_piece::WordPiece;

/// A model that splits pretokens into tokens.
#[derive(Debug)]
pub enum Model {
    /// Merges pairs by rank.
    Bpe(Bpe),
    /// Takes the path of the best score.
    Unigram(Unigram),
    /// Takes the longest token from left to right.
    WordPiece(WordPiece),
}

impl Model {
    /// The merges of the model.
    ///
    /// # Errors
    ///
    /// When it has none: it is not BPE.
    pub fn bpe(&self) -> Result<&Bpe> {
        match self {
            Self::Bpe(bpe) => Ok(bpe),
            _ => Err(Error::NoMerges),
        }
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        match self {
            Self::Bpe(bpe) => bpe.tokens(),
            Self::Unigram(unigram) => unigram.tokens(),
            Self::WordPiece(pieces) => pieces.tokens(),
        }
    }

    /// How pretokens are spelled.
    pub(crate) fn alphabet(&self) -> Alphabet {
        if let Self::Bpe(bpe) = self {
            bpe.alphabet
        } else {
            Alphabet::Text
        }
    }

    /// Adds the bytes that a token stands for when text is decoded.
    pub(crate) fn decode(&self, string: &str, bytes: &mut Vec<u8>) {
        match self {
            Self::WordPiece(_) => {
                bytes.extend_from_slice(string.strip_prefix(CONTINUATION).unwrap_or(string).as_bytes());
            }
            _ => self.alphabet().decode(string, bytes),
        }
    }

    /// The ids of the tokens that the model makes of one pretoken.
    ///
    /// # Errors
    ///
    /// When a character is outside the vocabulary and there is no token for unknown ones.
    pub fn encode(&self, pretoken: &str) -> Result<Vec<u32>> {
        if let Self::Bpe(bpe) = self {
            return bpe.encode(pretoken);
        }
        let mut tokens = Vec::new();
        self.split(pretoken, false, &|_| false, &mut tokens)?;
        Ok(self.ids_of(tokens))
    }

    /// As [`Model::encode`], with merge skipping off.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`].
    pub fn encode_by_merges(&self, pretoken: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bpe(bpe) => bpe.encode_by_merges(pretoken),
            _ => self.encode(pretoken),
        }
    }

    /// Adds the tokens of a text, as indices, without those that are removed. `continues`: the text is the end of a word.
    /// Returns the score of the text; 0 without scores.
    ///
    /// Not for BPE, where merges decide.
    fn split(
        &self,
        text: &str,
        continues: bool,
        is_removed: &impl Fn(u32) -> bool,
        tokens: &mut Vec<u32>,
    ) -> Result<f64> {
        match self {
            Self::Bpe(_) => Err(Error::NotForMerges),
            Self::Unigram(unigram) => unigram.encode(text, is_removed, tokens),
            Self::WordPiece(pieces) => pieces.encode(text, continues, is_removed, tokens).map(|()| 0.0),
        }
    }

    fn ids_of(&self, tokens: Vec<u32>) -> Vec<u32> {
        tokens.into_iter().map(|token| self.tokens().ids()[token as usize]).collect()
    }

    /// How each token is made, by ascending id.
    #[must_use]
    pub fn origins(&self) -> Cow<'_, [Origin]> {
        match self {
            Self::Bpe(bpe) => Cow::Borrowed(&bpe.structure().origins),
            _ => (0..self.tokens().len() as u32).into_par_iter().map(|token| self.origin(token)).collect(),
        }
    }

    /// The ids of the tokens that encoding starts from, ascending.
    #[must_use]
    pub fn atomic(&self) -> Vec<u32> {
        let origins = self.origins();
        let both = self.tokens().ids().iter().zip(origins.iter());
        both.filter(|(_, origin)| **origin == Origin::Atomic).map(|(&id, _)| id).collect()
    }

    /// The ids of all tokens that some tokens are made of, theirs included, ascending.
    #[must_use]
    pub fn with_parts(&self, mut ids: Vec<u32>) -> Vec<u32> {
        let (origins, mut found) = (self.origins(), vec![false; self.tokens().len()]);
        while let Some(id) = ids.pop() {
            let Some(token) = self.tokens().index_of_id(id) else { continue };
            if let (false, Origin::Merged(left, right)) =
                (std::mem::replace(&mut found[token as usize], true), origins[token as usize])
            {
                ids.extend([left, right]);
            }
        }
        self.tokens().ids().iter().zip(found).filter(|(_, found)| *found).map(|(&id, _)| id).collect()
    }

    fn origin(&self, token: u32) -> Origin {
        let string = self.tokens().string(token);
        let is_reachable = match self {
            Self::Bpe(bpe) => return bpe.structure().origins[token as usize],
            Self::Unigram(unigram) if unigram.is_byte(token) => return Origin::Atomic,
            // What a token is split into does not depend on the text around it.
            Self::Unigram(_) => self.encode(string).is_ok_and(|ids| ids == [self.tokens().ids()[token as usize]]),
            Self::WordPiece(_) => true,
        };
        let text = match self {
            Self::WordPiece(_) => string.strip_prefix(CONTINUATION).unwrap_or(string),
            _ => string,
        };
        match (text.chars().nth(1), is_reachable) {
            (None, _) => Origin::Atomic,
            (_, true) => Origin::Whole,
            (_, false) => Origin::Unreachable,
        }
    }

    /// The ids of tokens whose removal could change text that is not split into them. Not for BPE, where all that is
    /// built from a token would change.
    #[must_use]
    pub fn must_stay(&self) -> Vec<u32> {
        let stays = |token: &u32| match self {
            Self::Bpe(_) => true,
            Self::Unigram(unigram) => unigram.must_stay(*token),
            Self::WordPiece(pieces) => pieces.must_stay(*token),
        };
        self.ids_of((0..self.tokens().len() as u32).filter(stays).collect())
    }

    /// How often counted pretokens have each character that the model drops or replaces by the unknown token.
    ///
    /// # Errors
    ///
    /// When a pretoken of a text vocabulary is not UTF-8, and when it is stopped.
    pub fn lost_counts(&self, counts: &Counts, by_merges: bool, stop: &Stop) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut totals: FxHashMap<Vec<u8>, u64> = FxHashMap::default();
        for (pretoken, count) in counts.iter() {
            stop.check()?;
            let mut add = |text: &[u8]| {
                let total = totals.entry(text.to_vec()).or_default();
                *total = total.saturating_add(count);
            };
            let text = || std::str::from_utf8(pretoken).map_err(|_| Error::NotText);
            match self {
                Self::Bpe(bpe) => bpe.lost(pretoken, by_merges, add)?,
                Self::Unigram(unigram) => unigram.lost(text()?, |character| add(character.as_bytes()))?,
                Self::WordPiece(pieces) => pieces.lost(text()?, |character| add(character.as_bytes()))?,
            }
        }
        let mut totals: Vec<_> = totals.into_iter().collect();
        totals.sort_unstable();
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustc_hash::FxHashSet;
    use tokenizers::models::{unigram, wordpiece};

    use super::*;
    use crate::bpe::{TokenList, Vocabulary};

    /// Small numbers, the same ones every time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }

        fn text(&mut self, longest: usize) -> String {
            let characters: Vec<char> = "aab▁õ猫<u>##".chars().collect();
            (0..self.below(longest + 1)).map(|_| characters[self.below(characters.len())]).collect()
        }
    }

    fn vocabulary(strings: &[String]) -> Arc<Vocabulary> {
        let mut list = TokenList::default();
        strings.iter().zip(0..).for_each(|(string, id)| list.push(string, id));
        Arc::new(Vocabulary::from_ids(list.tokens().unwrap(), &[]).unwrap())
    }

    /// Different strings of at least one character.
    fn strings(numbers: &mut Numbers, first: &str) -> Vec<String> {
        let mut strings = vec![first.to_string()];
        for _ in 0..numbers.below(30) {
            let string = numbers.text(4);
            if !string.is_empty() && !strings.contains(&string) {
                strings.push(string);
            }
        }
        strings
    }

    fn upstream_ids(model: &impl tokenizers::Model, text: &str) -> Option<Vec<u32>> {
        model.tokenize(text).ok().map(|tokens| tokens.into_iter().map(|token| token.id).collect())
    }

    /// A Unigram model as this crate and as the library has it. Scores repeat, so that paths are equal.
    fn random_unigram(numbers: &mut Numbers) -> (Model, unigram::Unigram) {
        let mut strings = strings(numbers, "<u>");
        let byte_fallback = numbers.below(3) == 0;
        if byte_fallback {
            strings.extend((0..=255u8).filter(|_| numbers.below(40) > 0).map(crate::bpe::byte_token));
        }
        let scores: Vec<f64> = strings.iter().map(|_| -(numbers.below(6) as f64)).collect();
        let unknown = if numbers.below(5) > 0 { Some(numbers.below(strings.len())) } else { None };
        let listed = strings.iter().cloned().zip(scores.iter().copied()).collect();
        let library = unigram::Unigram::from(listed, unknown, byte_fallback).unwrap();
        let ours = Unigram::new(vocabulary(&strings), scores, unknown.map(|id| id as u32), byte_fallback).unwrap();
        (Model::Unigram(ours), library)
    }

    fn random_word_piece(numbers: &mut Numbers) -> (Model, wordpiece::WordPiece) {
        let mut strings = strings(numbers, "<u>");
        let inside: Vec<String> = strings.iter().map(|string| format!("##{string}")).collect();
        strings.extend(
            inside.into_iter().filter(|string| numbers.below(2) > 0 && !strings.contains(string)).collect::<Vec<_>>(),
        );
        let longest = 1 + numbers.below(12);
        let vocab: FxHashMap<&str, u32> = strings.iter().map(String::as_str).zip(0..).collect();
        let json = serde_json::json!({"type": "WordPiece", "unk_token": "<u>", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": longest, "vocab": vocab});
        let library = serde_json::from_str(&json.to_string()).unwrap();
        (Model::WordPiece(WordPiece::new(vocabulary(&strings), "<u>".into(), longest)), library)
    }

    #[test]
    fn scores_are_those_that_the_library_reads_from_a_file() {
        let mut numbers = Numbers(5);
        let strings: Vec<String> = (0..2_000).map(|number| format!("{number}")).collect();
        let mut score = || -(numbers.below(1 << 31) as f64) / 3f64.powi(numbers.below(40) as i32);
        let written: Vec<f64> = strings.iter().map(|_| score()).collect();
        let vocab: Vec<(&String, f64)> = strings.iter().zip(written.iter().copied()).collect();
        let json = serde_json::json!({"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false});
        let library: unigram::Unigram = serde_json::from_str(&json.to_string()).unwrap();
        let ours = Unigram::of_file(vocabulary(&strings), &written, Some(0), false).unwrap();
        let read: Vec<f64> = library.iter().map(|(_, score)| *score).collect();
        assert_eq!(ours.settings().0, read);
        assert!(read.iter().zip(&written).any(|(read, written)| read != written));
    }

    #[test]
    fn unigram_and_word_piece_split_text_as_the_library_does() {
        let mut numbers = Numbers(3);
        let (mut split, mut failed) = (0, 0);
        for _ in 0..1500 {
            let ((unigram, its), (pieces, theirs)) = (random_unigram(&mut numbers), random_word_piece(&mut numbers));
            for _ in 0..20 {
                let text = numbers.text(14);
                let expected = if text.is_empty() { Some(Vec::new()) } else { upstream_ids(&its, &text) };
                assert_eq!(unigram.encode(&text).ok(), expected, "{text:?} {its:?} {unigram:?}");
                split += usize::from(expected.as_ref().is_some_and(|ids| ids.len() > 2));
                failed += usize::from(expected.is_none());
                assert_eq!(pieces.encode(&text).ok(), upstream_ids(&theirs, &text), "{text:?} {pieces:?}");
            }
        }
        assert!(split > 5_000 && failed > 100, "{split} {failed}");
    }

    /// The model without some tokens. Ids do not move.
    fn without(model: &Model, removed: &[bool]) -> Model {
        let kept = || (0..model.tokens().len() as u32).filter(|&token| !removed[token as usize]);
        let mut list = TokenList::default();
        kept().for_each(|token| list.push(model.tokens().string(token), token));
        let vocabulary = Arc::new(Vocabulary::from_ids(list.tokens().unwrap(), &[]).unwrap());
        match model {
            Model::Bpe(_) => unreachable!(),
            Model::Unigram(unigram) => {
                let (scores, unknown, byte_fallback) = unigram.settings();
                let scores = kept().map(|token| scores[token as usize]).collect();
                Model::Unigram(Unigram::new(vocabulary, scores, unknown, byte_fallback).unwrap())
            }
            Model::WordPiece(pieces) => Model::WordPiece(WordPiece::new(vocabulary, "<u>".into(), pieces.longest())),
        }
    }

    /// The law of pruning: what used only kept tokens is split as before.
    #[test]
    fn removing_unused_tokens_changes_nothing() {
        let mut numbers = Numbers(9);
        let mut checked = 0;
        for round in 0..2000 {
            let model = if round % 2 == 0 { random_unigram(&mut numbers).0 } else { random_word_piece(&mut numbers).0 };
            let stay = model.must_stay();
            let tokens = 0..model.tokens().len() as u32;
            let removed: Vec<bool> = tokens.map(|token| numbers.below(3) == 0 && !stay.contains(&token)).collect();
            let smaller = without(&model, &removed);
            for _ in 0..10 {
                let text = numbers.text(12);
                let (mut before, mut after) = (Vec::new(), Vec::new());
                if model.split(&text, false, &|_| false, &mut before).is_err() {
                    continue;
                }
                if before.iter().all(|&token| !removed[token as usize]) {
                    let result = model.split(&text, false, &|token| removed[token as usize], &mut after);
                    assert!(result.is_ok() && before == after, "{text:?} {model:?}");
                    assert_eq!(smaller.encode(&text).unwrap(), model.ids_of(before.clone()), "{text:?} {model:?}");
                    checked += usize::from(before.len() > 1);
                }
            }
        }
        assert!(checked > 2_000, "{checked}");
    }

    #[test]
    fn a_removed_token_is_split_into_others() {
        let strings = ["<u>", "a", "b", "c", "ab", "abc", "##b", "##c", "##bc"].map(String::from);
        let pieces = Arc::new(Model::WordPiece(WordPiece::new(vocabulary(&strings), "<u>".into(), 100)));
        let parts = pieces.parts(&FxHashSet::default()).unwrap();
        assert_eq!((&parts[5].1, &parts[8].1), (&vec![4, 7], &vec![6, 7]));
        let mut remaining = Remaining::new(pieces);
        assert_eq!([remaining.remove(4).unwrap(), remaining.remove(5).unwrap()], [vec![1, 6], vec![1, 8]]);
        assert_eq!([remaining.remove(7).unwrap(), remaining.remove(8).unwrap()], [vec![0], vec![0]]);
    }

    #[test]
    fn a_unigram_token_that_its_parts_beat_is_unreachable() {
        let strings = ["<u>", "a", "b", "ab", "ba", "<0x41>"].map(String::from);
        let scores = vec![0.0, -1.0, -1.0, -3.0, -1.5, -9.0];
        let model = Model::Unigram(Unigram::new(vocabulary(&strings), scores, Some(0), true).unwrap());
        let expected = [Origin::Unreachable, Origin::Atomic, Origin::Atomic, Origin::Unreachable, Origin::Whole];
        assert_eq!(model.origins()[1..5], expected[1..]);
        assert_eq!(model.origins()[5], Origin::Atomic);
    }
}
