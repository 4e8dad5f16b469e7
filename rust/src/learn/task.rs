//! What continued training is asked for, what it returns, and what it asks its caller.

use rustc_hash::FxHashSet;

use super::learner::{Learner, Parallelism};
use super::model::Model;
use super::pairs::Place;
use super::scripts::ScriptFilter;
use super::texts::{EncodedTexts, Texts};
use crate::bpe::{Alphabet, Bpe};
use crate::error::Result;
use crate::pretokenize::PieceRules;
use crate::stop::Stop;

/// What continued training is asked for.
#[derive(Debug)]
pub struct Task {
    /// How many new tokens.
    pub tokens: usize,
    /// Pairs that occur less often are not merged.
    pub min_count: u64,
    /// The longest token that may be made, in bytes.
    pub max_token_bytes: usize,
    /// Strings that must become neither tokens nor parts of tokens: the added tokens.
    pub forbidden: FxHashSet<String>,
    /// SentencePiece: which pieces may be made.
    pub rules: Option<PieceRules>,
    /// The scripts that new tokens must keep to.
    pub scripts: Option<ScriptFilter>,
    /// For SentencePiece, where every pair that makes a token is a merge, listed or not: the tokens that the base cannot
    /// reach, each with the rank of the first merge that would follow its own, and its order among those of that rank.
    /// A new token may make one of them reachable.
    pub unreachable_ranks: Vec<(String, u32, u32)>,
    /// How many of the most frequent pairs to keep on the heap. The result does not depend on it, only the speed.
    pub max_candidates: usize,
}

impl Task {
    /// Whether a string must not become a token, whatever its parts are. `text` is what it stands for in a word.
    pub(super) fn refuses(&self, string: &str, text: &str, alphabet: Alphabet) -> bool {
        alphabet.byte_length(text) > self.max_token_bytes
            || self.rules.is_some_and(|rules| !rules.allow(string))
            || self.forbidden.contains(string)
            || self.scripts.as_ref().is_some_and(|scripts| !scripts.allows(text, alphabet))
    }
}

/// A merge that was learned. Tokens are numbered: base tokens by ascending id, then the new ones in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedMerge {
    /// Left token.
    pub left: u32,
    /// Right token.
    pub right: u32,
    /// Their product.
    pub product: u32,
    /// How often the pair occurred when it was learned.
    pub count: u64,
    /// The language it was learned for, by its index.
    pub language: u32,
}

/// A pair that was not merged, because it occurs in the preserved text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedPair {
    /// Left token.
    pub left: u32,
    /// Right token.
    pub right: u32,
    /// How often the pair occurred when it was refused.
    pub count: u64,
    /// How many merges were learned before.
    pub after: usize,
}

/// The result of continued training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// The new tokens, in the order they were learned.
    pub tokens: Vec<String>,
    /// The merges, in order. Those whose product existed make no new token.
    pub merges: Vec<LearnedMerge>,
    /// The pairs that were not merged because they occur in the preserved text, in order.
    pub refused: Vec<RefusedPair>,
}

/// What training asks its caller.
pub trait Callbacks {
    /// Whether a string may become a token; a pair that is refused is not proposed again.
    fn allow(&mut self, token: &str) -> bool;

    /// Called with the number of tokens that have been learned, once for [`LEARNED_STEP`] of them and at the end.
    fn learned(&mut self, _tokens: usize) {}
}

/// The tokens that are learned between two calls of [`Callbacks::learned`].
pub(super) const LEARNED_STEP: usize = 100;

impl Learned {
    /// Learns merges until there are `task.tokens` new tokens, or no pair is frequent enough. `callbacks` may refuse
    /// any new token.
    ///
    /// # Errors
    ///
    /// When a pretoken cannot be encoded, there are too many, or the caller stops the training.
    pub fn new(bpe: &Bpe, texts: &Texts<'_>, task: &Task, callbacks: &mut dyn Callbacks, stop: &Stop) -> Result<Self> {
        let encoded = EncodedTexts::new(bpe, texts, stop)?;
        if encoded.words.iter().all(|words| words.len() <= u32::MAX as usize) {
            Self::with_places::<u32>(bpe, encoded, task, Parallelism::default(), callbacks, stop)
        } else {
            Self::with_places::<u64>(bpe, encoded, task, Parallelism::default(), callbacks, stop)
        }
    }

    fn with_places<P: Place>(
        bpe: &Bpe,
        encoded: EncodedTexts,
        task: &Task,
        parallelism: Parallelism,
        callbacks: &mut dyn Callbacks,
        stop: &Stop,
    ) -> Result<Self> {
        let model = Model::new(bpe, task);
        let mut learner = Learner::<P>::new(model, encoded, task, parallelism);
        learner.learn(task, callbacks, stop)?;
        let Learner { model, refused_pairs, .. } = learner;
        Ok(Self { tokens: model.learned_strings(), merges: model.learned, refused: refused_pairs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random};
    use crate::count::Counts;
    use crate::error::Error;
    use crate::stop::tests::stops_anywhere;

    /// Allows every token.
    struct Silent;

    impl Callbacks for Silent {
        fn allow(&mut self, _: &str) -> bool {
            true
        }
    }

    fn one(counts: &[&Counts], task: &Task, bpe: &Bpe, stop: &Stop) -> Result<Learned> {
        let texts = Texts { languages: counts, ..Texts::default() };
        Learned::new(bpe, &texts, task, &mut Silent, stop)
    }

    fn task(tokens: usize, min_count: u64, max_candidates: usize) -> Task {
        Task {
            tokens,
            min_count,
            max_token_bytes: 99,
            forbidden: FxHashSet::default(),
            rules: None,
            scripts: None,
            unreachable_ranks: Vec::new(),
            max_candidates,
        }
    }

    /// What is learned on random words of one to three languages, with places of one type.
    fn learned<P: Place>(seed: u64, parallelism: Parallelism) -> Learned {
        let mut random = Random(seed);
        let bpe = random.byte_level(seed as usize % 40, seed % 3 > 0, &Options::default());
        let mut counts = vec![Counts::default(); 1 + seed as usize % 4 / 2 * 2];
        for (word, place) in random.words(400, 1 + seed as usize % 20).into_iter().zip(0..) {
            let language = place % counts.len();
            counts[language].push(word.as_bytes(), 1 + random.below(9) as u64).unwrap();
        }
        let mut preserved = Counts::default();
        preserved.push(random.words(1, 6)[0].as_bytes(), 1).unwrap();
        let counts: Vec<&Counts> = counts.iter().collect();
        let preserved = Some(&preserved).filter(|_| seed % 5 == 0);
        let parallel = Some((&counts[..], counts[0])).filter(|_| seed % 7 == 0);
        let texts = Texts { languages: &counts, parallel, preserved, ..Texts::default() };
        let task = task(60, 2, 1 + seed as usize % 50);
        let encoded = EncodedTexts::new(&bpe, &texts, &Stop::default()).unwrap();
        Learned::with_places::<P>(&bpe, encoded, &task, parallelism, &mut Silent, &Stop::default()).unwrap()
    }

    #[test]
    fn threads_and_the_width_of_places_do_not_change_the_result() {
        let mut existing = 0;
        for seed in 0..300 {
            let expected = learned::<u32>(seed, Parallelism { threads: 1, parallel_from: usize::MAX });
            assert_eq!(learned::<u32>(seed, Parallelism { threads: 3, parallel_from: 1 }), expected);
            assert_eq!(learned::<u64>(seed, Parallelism { threads: 2, parallel_from: 4 }), expected);
            existing += expected.merges.len() - expected.tokens.len();
        }
        assert!(existing > 10, "{existing} merges make a token that exists");
    }

    #[test]
    fn a_pretoken_of_a_megabyte_is_not_read_again_for_every_merge() {
        let bpe = Random(1).byte_level(0, true, &Options::default());
        let mut random = Random(2);
        let text: Vec<u8> = (0..1 << 20).map(|_| b'a' + random.below(2) as u8).collect();
        let mut counts = Counts::default();
        counts.push(&text, 2).unwrap();
        let task = task(3000, 2, 9999);
        let learned = one(&[&counts], &task, &bpe, &Stop::default()).unwrap();
        assert_eq!(learned.tokens.len(), 3000);
    }

    #[test]
    fn counts_whose_sum_does_not_fit_are_an_error() {
        let bpe = Random(1).byte_level(0, true, &Options::default());
        let mut counts = Counts::default();
        counts.push(b"aab", u64::MAX / 2).unwrap();
        let task = task(1, 1, 9);
        let learned = one(&[&counts], &task, &bpe, &Stop::default());
        assert_eq!(learned, Err(Error::TooFrequent));
    }

    #[test]
    fn training_can_be_stopped_in_any_phase() {
        let letters: Vec<(u32, String)> = ('a'..='z').zip(0..).map(|(letter, id)| (id, letter.to_string())).collect();
        let bpe = Bpe::new(letters, &[], &Options::default()).unwrap();
        let word = |number: u32| (0..64).map(move |at| b'a' + (number >> (at % 16)) as u8 % 4);
        let bytes: Vec<u8> = (0..40_000).flat_map(word).collect();
        let offsets: Vec<u64> = (0..=40_000).map(|at| 64 * at).collect();
        let counts = Counts::from_columns(bytes, &offsets, vec![2; 40_000]).unwrap();
        // A copy has no kept tokens.
        let looks = stops_anywhere(|stop| one(&[&counts.clone()], &task(9, 1, 99), &bpe, stop));
        // For each group of words, while pairs are counted, for each pair, and at the end.
        assert!(looks > 3 + 6 + 9, "{looks} looks");
    }
}
