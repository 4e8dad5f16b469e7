//! The tokens of pretokens by an edited model, from those by its base. They follow if
//!
//! 1. no new token is one that encoding starts from,
//! 2. a merge that uses a removed token makes a removed token,
//! 3. the merges are those of the base but for the ones that make removed tokens, in the same order, and the new ones
//!    stand together in them.
//!
//! Then a pretoken that has none of the removed tokens never had one on the way, by 2, so it has the same tokens without
//! them. If none of its tokens can come from a merge that stands after the new ones, its tokens are what is left when all
//! merges before the new ones were applied: the new merges go on from there. All other pretokens are encoded.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::alphabet::{byte_of, Alphabet};
use super::encode::PretokenEncoder;
use super::encoded::Encoded;
use super::merges::pair_key;
use super::model::{Bpe, Unknown};
use super::sorted::place;
use super::vocabulary::Vocabulary;

/// What encoding depends on beside the tokens and merges.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rules {
    alphabet: Alphabet,
    has_bytes: bool,
    unknown: Option<String>,
    fuse_unknown: bool,
    skip_merges: bool,
}

impl Rules {
    pub(super) fn of(bpe: &Bpe, skip_merges: bool) -> Self {
        let unknown = match &bpe.unknown {
            Unknown::Dropped => None,
            Unknown::Token(token) => Some(bpe.string(*token).to_string()),
            Unknown::Missing(string) => Some(string.clone()),
        };
        let (has_bytes, fuse_unknown) = (!bpe.bytes.is_empty(), bpe.fuse_unknown);
        Self { alphabet: bpe.alphabet, has_bytes, unknown, fuse_unknown, skip_merges }
    }
}

/// How tokens by the model that was first follow for another one.
pub(super) struct Derived<'e> {
    encoded: &'e Encoded,
    /// For each token of the first model its index in the other one, or `AGAIN`.
    moved: Vec<u32>,
    /// The rank of the first new merge.
    pub(super) new_from: u32,
    /// A bit for each new merge, by the hash of its pair; empty if there is none.
    new_pairs: Vec<u64>,
    /// The new tokens, where merges are skipped.
    new_tokens: FxHashSet<Box<[u8]>>,
}

/// In the place of a token: pretokens that have it are encoded again.
const AGAIN: u32 = u32::MAX;

impl<'e> Derived<'e> {
    /// None if the other model was not made from the first one in the way that the module describes.
    pub(super) fn new(encoded: &'e Encoded, bpe: &Bpe, skip_merges: bool) -> Option<Self> {
        let (before, after) = (&encoded.vocabulary, bpe.vocabulary());
        if encoded.rules != Rules::of(bpe, skip_merges) {
            return None;
        }
        let same = || (0..before.tokens.len() as u32).collect();
        let (moved, new_from) = (Vec::new(), after.merges.len() as u32);
        let mut derived = Self { encoded, moved, new_from, new_pairs: Vec::new(), new_tokens: FxHashSet::default() };
        if Arc::ptr_eq(before, after) {
            derived.moved = same();
            return Some(derived);
        }
        derived.moved = before.tokens.strings().map(|string| after.tokens.index(string).unwrap_or(AGAIN)).collect();
        let mut is_new = vec![true; after.tokens.len()];
        derived.moved.iter().filter(|&&token| token != AGAIN).for_each(|&token| is_new[token as usize] = false);
        let new_tokens: Vec<u32> = (0..).zip(is_new).filter_map(|(token, is_new)| is_new.then_some(token)).collect();
        if new_tokens.iter().any(|&token| bpe.is_atomic(token)) {
            return None;
        }
        derived.compare_merges(before, after)?;
        if skip_merges {
            derived.new_tokens = new_tokens.iter().filter_map(|&token| bytes_of(bpe, token)).collect();
        }
        Some(derived)
    }

    /// Finds the new merges; None if they do not stand together, or the others are not those of the first model.
    fn compare_merges(&mut self, before: &Vocabulary, after: &Vocabulary) -> Option<()> {
        let moved = |token: u32| self.moved[token as usize];
        let merges = before.merges.iter().zip(&before.products).filter(|(_, &product)| moved(product) != AGAIN);
        let kept: Vec<(u32, u32)> = merges.clone().map(|(&(left, right), _)| (moved(left), moved(right))).collect();
        let n_new = after.merges.len().checked_sub(kept.len())?;
        let start = kept.iter().zip(&after.merges).take_while(|(kept, merge)| kept == merge).count();
        // A removed token is in no merge of the other model, so it is in none that is kept.
        if kept[start..] != after.merges[start + n_new..] {
            return None;
        }
        let last: Vec<u32> = merges.skip(start).map(|(_, &product)| product).collect();
        last.into_iter().for_each(|product| self.moved[product as usize] = AGAIN);
        // What is made from such a product may itself have a merge that stands before the new ones.
        let mut found = true;
        while std::mem::take(&mut found) {
            for (&(left, right), &product) in before.merges.iter().zip(&before.products) {
                let [left, right, product] = [left, right, product].map(|token| token as usize);
                let from_last = self.moved[left] == AGAIN || self.moved[right] == AGAIN;
                if from_last && self.moved[product] != AGAIN {
                    self.moved[product] = AGAIN;
                    found = true;
                }
            }
        }
        self.new_from = start as u32;
        if n_new > 0 {
            self.new_pairs = vec![0; (n_new.next_power_of_two() / 4).max(1)]; // at least sixteen bits for each
            for &(left, right) in &after.merges[start..start + n_new] {
                let (word, bit) = self.bit(left, right);
                self.new_pairs[word] |= bit;
            }
        }
        Some(())
    }

    /// Where the bit of a pair is.
    #[inline]
    fn bit(&self, left: u32, right: u32) -> (usize, u64) {
        let bits = self.new_pairs.len().trailing_zeros() + 6;
        let at = place(pair_key(left, right), bits);
        (at >> 6, 1 << (at & 63))
    }

    /// The tokens of a pretoken before all new merges; false if it must be encoded again.
    #[inline]
    pub(super) fn start(&self, place: usize, tokens: &mut Vec<u32>) -> bool {
        tokens.clear();
        tokens.extend(self.encoded.tokens_of(place).iter().map(|&token| self.moved[token as usize]));
        !tokens.contains(&AGAIN)
    }

    /// The tokens of a pretoken; false if it must be encoded again.
    #[inline]
    pub(super) fn encode(
        &self,
        place: usize,
        pretoken: &[u8],
        encoder: &PretokenEncoder<'_>,
        tokens: &mut Vec<u32>,
    ) -> bool {
        if !self.start(place, tokens) || (!self.new_tokens.is_empty() && self.new_tokens.contains(pretoken)) {
            return false;
        }
        let is_new = |pair: &[u32]| {
            let (word, bit) = self.bit(pair[0], pair[1]);
            self.new_pairs[word] & bit != 0
        };
        if !self.new_pairs.is_empty() && tokens.windows(2).any(is_new) {
            encoder.merge(tokens, |_, _| ());
        }
        true
    }
}

/// The bytes of a token, as pretokens have them.
fn bytes_of(bpe: &Bpe, token: u32) -> Option<Box<[u8]>> {
    match bpe.alphabet {
        Alphabet::ByteLevel => bpe.string(token).chars().map(byte_of).collect(),
        Alphabet::Text => Some(bpe.string(token).as_bytes().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random, TokenList};
    use crate::count::Counts;
    use crate::stop::Stop;

    /// A model with other tokens and merges, which are given as strings.
    fn model(strings: &[String], merges: &[(String, String)], options: &Options) -> Option<Bpe> {
        let mut list = TokenList::with_capacity(strings.len());
        strings.iter().zip(0..).for_each(|(string, id)| list.push(string, id));
        let tokens = list.tokens().ok()?;
        let index = |string: &String| tokens.index(string);
        let pairs =
            merges.iter().map(|(left, right)| Some((index(left)?, index(right)?))).collect::<Option<Vec<_>>>()?;
        Bpe::of(Arc::new(Vocabulary::new(tokens, pairs)), options).ok()
    }

    fn merges_of(bpe: &Bpe) -> Vec<(String, String)> {
        let string = |token: u32| bpe.string(token).to_string();
        bpe.vocabulary().merges.iter().map(|&(left, right)| (string(left), string(right))).collect()
    }

    fn counts_of(words: &[String]) -> Counts {
        let mut counts = Counts::default();
        words.iter().for_each(|word| counts.push(word.as_bytes(), 1).unwrap());
        counts
    }

    /// Some tokens removed, with the merges that need them, and new merges at one place or anywhere.
    fn edited(random: &mut Random, bpe: &Bpe, options: &Options, anywhere: bool) -> Option<Bpe> {
        let mut merges = merges_of(bpe);
        let mut strings: Vec<String> = bpe.strings().map(String::from).collect();
        for _ in 0..random.below(5) {
            let removed = strings.remove(random.below(strings.len()));
            let uses = |(left, right): &(String, String)| {
                [left, right].contains(&&removed) || format!("{left}{right}") == removed
            };
            merges.retain(|merge| !uses(merge));
        }
        let mut place = random.below(merges.len() + 1);
        for _ in 0..random.below(6) {
            let part = |random: &mut Random| strings[random.below(strings.len())].clone();
            let pair = (part(random), part(random));
            let product = format!("{}{}", pair.0, pair.1);
            if !merges.contains(&pair) {
                if !strings.contains(&product) {
                    strings.insert(random.below(strings.len()), product);
                }
                merges.insert(place, pair);
                place = if anywhere { random.below(merges.len() + 1) } else { place + 1 };
            }
        }
        if random.below(8) == 0 {
            strings.push(["é", "€", "ab ab"][random.below(3)].to_string()); // a token without a merge
        }
        strings.sort_by_key(|string| string.len() % 3); // other indices
        model(&strings, &merges, options)
    }

    #[test]
    fn tokens_that_follow_from_those_of_another_model_are_those_of_an_encoder() {
        let (mut followed, mut encoded, mut changed) = (0, 0, 0);
        for seed in 0..3000u64 {
            let mut random = Random(seed);
            let unknown = (seed % 5 == 0).then(|| "a".to_string());
            let options = Options { ignore_merges: seed % 2 == 0, unk_token: unknown, ..Options::default() };
            let options = if seed % 3 == 0 { Options { alphabet: Alphabet::Text, ..options } } else { options };
            let base = match seed % 3 {
                0 => random.text(24, &options),
                _ => random.byte_level(24, seed % 2 > 0, &options),
            };
            let Some(other) = edited(&mut random, &base, &options, seed % 4 == 0) else { continue };
            let counts = counts_of(&random.words(60, 7));
            let (skip, never) = (options.ignore_merges, Stop::default());
            base.counted(&counts, skip, &never).unwrap();
            for model in [&base, &other] {
                let shared = model.counted(&counts, skip, &never).unwrap();
                let (mut encoder, plain) = (shared.encoder(), model.pretoken_encoder(skip));
                let (mut string, mut expected, mut below) = (String::new(), Vec::new(), Vec::new());
                for place in 0..counts.len() {
                    if plain.encode(counts.pretoken(place), &mut string, &mut expected).is_err() {
                        assert!(encoder.encode(place).is_err(), "seed {seed}");
                        continue;
                    }
                    assert_eq!(encoder.encode(place).unwrap(), expected, "seed {seed}");
                    let Some(derived) = &shared.derived else { continue };
                    if shared.tokens_below(derived.new_from, place, &mut below)
                        && plain.skipped(counts.pretoken(place)).is_none()
                    {
                        plain.merge(&mut below, |_, merge| assert!(merge.rank >= derived.new_from));
                        assert_eq!(below, expected);
                        followed += 1;
                    }
                }
                encoded += usize::from(shared.derived.is_none());
                changed += usize::from(shared.derived.is_some() && std::ptr::eq(model, &other));
            }
        }
        assert!(followed > 50_000 && encoded > 100 && changed > 500, "{followed} {encoded} {changed}");
    }

    #[test]
    fn a_token_from_a_merge_after_the_new_ones_is_found_where_its_own_merge_stands_before_them() {
        let strings = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|&(a, b)| (a.into(), b.into())).collect::<Vec<_>>();
        let options = Options::default();
        let base =
            model(&strings(&["a", "b", "c", "abc", "ab"]), &pairs(&[("ab", "c"), ("a", "b")]), &options).unwrap();
        let merges = pairs(&[("ab", "c"), ("b", "c"), ("a", "b")]);
        let other = model(&strings(&["a", "b", "c", "abc", "ab", "bc"]), &merges, &options).unwrap();
        let (counts, never) = (counts_of(&strings(&["abc"])), Stop::default());
        assert_eq!(base.counted(&counts, false, &never).unwrap().encoder().encode(0).unwrap(), [3]);
        let counted = other.counted(&counts, false, &never).unwrap();
        assert_eq!(counted.encoder().encode(0).unwrap(), [0, 5]);
        assert!(!counted.tokens_below(1, 0, &mut Vec::new()));
    }

    #[test]
    fn merge_skipping_and_other_rules_are_not_mixed_up() {
        let mut random = Random(9);
        let (plain, skipping) = (Options::default(), Options { ignore_merges: true, ..Options::default() });
        let bpe = random.byte_level(40, false, &skipping);
        let merging = Bpe::of(Arc::clone(bpe.vocabulary()), &plain).unwrap();
        let (counts, never) = (counts_of(&random.words(100, 6)), Stop::default());
        assert!(bpe.counted(&counts, true, &never).unwrap().derived.is_some());
        assert!(bpe.counted(&counts, false, &never).unwrap().derived.is_none());
        assert!(merging.counted(&counts, false, &never).unwrap().derived.is_none());
        assert!(bpe.counted(&counts.clone(), false, &never).unwrap().derived.is_some());
        assert_eq!(counts, counts.clone());
    }
}
