//! Learns tokens for models without merges: Unigram and WordPiece.
//!
//! Every distinct pretoken is split by a copy of the model ([`Growing`]). Then two neighbours become a token, again and
//! again: those that save the most tokens. A new token may change any word that contains its text, so each of these is
//! split again, and what the token saves in one and costs in another is added up. A pair is worth no more than the number
//! of its occurrences. Of equal pairs, the smaller pair of strings in code-point order is taken.
//!
//! A new token of a Unigram model gets the score that its frequency has among the old ones: the logarithm of its share,
//! plus the mean difference between score and logarithm of the old tokens of the text.

mod add;
mod weigh;

use std::collections::{BTreeSet, BinaryHeap};
use std::rc::Rc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::pairs::Candidate;
use super::suffixes::Suffixes;
use super::task::{Callbacks, Task, LEARNED_STEP};
use super::trial::{Judge, Known, Obstacle, Past, Trial, Word, MANY};
use crate::bpe::{pair_key, Alphabet};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::model::{has_exact_sums, Growing, Model};
use crate::stop::Stop;

/// A token that was learned.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnedPiece {
    /// The left one of the two neighbours.
    pub left: String,
    /// The text of the right one.
    pub right: String,
    /// How often they were neighbours.
    pub count: u64,
    /// The score of the token; 0 for a model without scores.
    pub score: f64,
}

/// A pair that did not become a token, because text that must not change would have changed.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedPiece {
    /// The left one of the two neighbours.
    pub left: String,
    /// The text of the right one.
    pub right: String,
    /// How often they were neighbours.
    pub count: u64,
    /// How many tokens were learned before.
    pub after: usize,
}

/// The tokens that were learned for a model without merges.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LearnedPieces {
    /// The scores of the tokens that were given; None for one that cannot be added, because preserved text would change,
    /// text would become unknown, or no score makes it reachable.
    pub given: Vec<Option<f64>>,
    /// The tokens that were learned, in order.
    pub learned: Vec<LearnedPiece>,
    /// The pairs that preserved text refused, in order.
    pub refused: Vec<RefusedPiece>,
}

impl LearnedPieces {
    /// Adds the given tokens, and learns others until there are `task.tokens` in all or no pair is frequent enough.
    ///
    /// # Errors
    ///
    /// When a pretoken cannot be split or is not text, there are too many, or the caller stops the training.
    pub fn new(
        model: &Model,
        counts: &Counts,
        preserved: Option<&Counts>,
        given: &[String],
        task: &Task,
        callbacks: &mut dyn Callbacks,
        stop: &Stop,
    ) -> Result<Self> {
        let mut learner = PieceLearner::new(model, counts, preserved, stop)?;
        learner.give(given, task.tokens)?;
        learner.count_pairs()?;
        learner.learn(task, callbacks)?;
        Ok(learner.result)
    }
}

struct PieceLearner<'t> {
    model: Growing,
    words: Vec<Word<'t>>,
    past: Vec<Past>,
    tokens: Vec<Known>,
    /// Preserved words of a Unigram model that are too long to be split for every pair: no token may be in them.
    long_preserved: Vec<&'t str>,
    suffixes: Suffixes,
    /// The strings of the tokens of the base, and their suffixes, if they must stay reachable.
    base: (Vec<String>, Suffixes),
    /// The suffixes of the new tokens, if they must stay reachable.
    new: BTreeSet<(String, u32)>,
    pairs: FxHashMap<u64, u64>,
    heap: BinaryHeap<Candidate>,
    /// The pairs whose worth is known.
    known: FxHashMap<u64, Candidate>,
    /// What is remembered of pairs that were judged, and the number of words in it.
    trials: FxHashMap<u64, Trial>,
    remembered: usize,
    /// Pairs that must not become tokens, or could not when they were the most frequent.
    refused: FxHashSet<u64>,
    strings: Vec<Option<Rc<str>>>,
    step: u32,
    /// Whether sums of scores do not depend on their order.
    is_exact: bool,
    /// The number of tokens of the text at first.
    total: f64,
    /// The mean difference of the score of a token and the logarithm of its share in the text.
    scale: f64,
    result: LearnedPieces,
    stop: &'t Stop,
}

impl<'t> PieceLearner<'t> {
    fn new(model: &Model, counts: &'t Counts, preserved: Option<&'t Counts>, stop: &'t Stop) -> Result<Self> {
        let (given, model) = (Growing::as_given(model)?, Growing::new(model)?);
        let number = counts.len() + preserved.map_or(0, Counts::len);
        if number >= u32::MAX as usize {
            return Err(Error::TooMany { number: number as u64, what: "pretokens" });
        }
        let mut words: Vec<Word<'t>> = Vec::with_capacity(number);
        let mut long_preserved = Vec::new();
        for (counts, is_preserved) in [(Some(counts), false), (preserved, true)] {
            for (text, count) in counts.into_iter().flat_map(Counts::iter) {
                let text = std::str::from_utf8(text).map_err(|_| Error::NotText)?;
                let count = if is_preserved { 0 } else { count };
                if !model.is_too_long(text) {
                    words.push(Word { text, tokens: Vec::new(), count });
                } else if count == 0 && model.score(0).is_some() {
                    long_preserved.push(text);
                }
            }
        }
        words.par_iter_mut().with_min_len(MANY).try_for_each_init(Vec::new, |tokens, word| {
            stop.check()?;
            model.split_into(word.text, tokens)?;
            word.tokens = tokens.to_vec();
            Ok(())
        })?;
        // A word that is a token stays that token.
        let may_change = |word: &Word<'_>| !matches!(word.tokens[..], [only] if model.string(only) == word.text);
        let numbers: Vec<u32> =
            (0..).zip(&words).filter(|(_, word)| may_change(word)).map(|(number, _)| number).collect();
        let suffixes = Suffixes::new(&words, &numbers, stop)?;
        let mut learner = Self {
            suffixes,
            base: reachable(&[&given, &model], stop)?,
            new: BTreeSet::new(),
            pairs: FxHashMap::default(),
            heap: BinaryHeap::new(),
            known: FxHashMap::default(),
            trials: FxHashMap::default(),
            remembered: 0,
            refused: FxHashSet::default(),
            strings: vec![None; model.len()],
            step: 1,
            is_exact: (0..model.len() as u32).all(|token| model.score(token).is_none_or(has_exact_sums)),
            total: 0.0,
            scale: 0.0,
            result: LearnedPieces::default(),
            past: words.iter().map(|word| Past { count: word.count, gained: 0.0, touched: 1 }).collect(),
            words,
            tokens: (0..model.len() as u32).map(|token| known(&model, token)).collect(),
            long_preserved,
            model,
            stop,
        };
        learner.measure()?;
        Ok(learner)
    }

    /// Measures the text before any token is added.
    fn measure(&mut self) -> Result<()> {
        self.require_countable()?;
        let mut shares: FxHashMap<u32, u64> = FxHashMap::default();
        let mut total = 0;
        for word in &self.words {
            self.stop.check()?;
            total += word.count * word.tokens.len() as u64;
            for &token in &word.tokens {
                let share = shares.entry(token).or_default();
                *share = share.saturating_add(word.count);
            }
        }
        let mut shares: Vec<(u32, u64)> = shares.into_iter().filter(|(_, count)| *count > 0).collect();
        shares.retain(|(token, _)| !self.model.is_unknown(*token));
        shares.sort_unstable(); // a sum of floats depends on the order
        let known = shares.iter().map(|(_, count)| *count as f64).sum::<f64>();
        let difference = |(token, count): &(u32, u64)| {
            let share = *count as f64 / known;
            Some(share * (self.model.score(*token)? - share.ln()))
        };
        self.scale = shares.iter().filter_map(difference).sum();
        self.total = (total as f64).max(1.0);
        Ok(())
    }

    /// Refuses counts whose sums could overflow. Given tokens may turn unknown words into many known tokens.
    fn require_countable(&self) -> Result<()> {
        let total =
            |words: &[Word<'_>]| words.iter().map(|word| u128::from(word.count) * word.tokens.len() as u128).sum();
        let totals: Vec<u128> = self.words.par_chunks(MANY).map(total).collect();
        u64::try_from(totals.into_iter().sum::<u128>()).map(drop).map_err(|_| Error::TooFrequent)
    }

    fn count_pairs(&mut self) -> Result<()> {
        self.require_countable()?;
        let count = |words: &[Word<'_>]| {
            let mut pairs: FxHashMap<u64, u64> = FxHashMap::default();
            for word in words {
                self.stop.check()?;
                for pair in word.tokens.windows(2).filter(|_| word.count > 0) {
                    *pairs.entry(pair_key(pair[0], pair[1])).or_default() += word.count;
                }
            }
            Ok(pairs)
        };
        let part = self.words.len().div_ceil(rayon::current_num_threads()).max(MANY);
        let parts = self.words.par_chunks(part).map(count).collect::<Result<Vec<_>>>()?;
        // Given tokens changed words, and counted their pairs.
        self.pairs.clear();
        for part in parts {
            match self.pairs.is_empty() {
                true => self.pairs = part,
                false => part.into_iter().for_each(|(key, count)| *self.pairs.entry(key).or_default() += count),
            }
        }
        let pairs: Vec<(u64, u64)> = self.pairs.iter().map(|(key, count)| (*key, *count)).collect();
        let candidates: Vec<Candidate> = pairs.into_iter().map(|(key, count)| self.candidate(key, count)).collect();
        self.heap = BinaryHeap::from(candidates);
        Ok(())
    }

    fn learn(&mut self, task: &Task, callbacks: &mut dyn Callbacks) -> Result<()> {
        let given = self.result.given.iter().flatten().count();
        while given + self.result.learned.len() < task.tokens {
            let Some(best) = self.next(task, callbacks)? else { break };
            let (left, right) = best.pair;
            let count = self.pairs.get(&pair_key(left, right)).copied().unwrap_or_default();
            let string = self.model.joined(left, right);
            let weighed = self.weighed(pair_key(left, right), &string, count)?;
            self.known.remove(&pair_key(left, right));
            let trial = self.take_trial(pair_key(left, right));
            let (Ok((score, _)), Some(trial)) = (weighed, trial) else {
                // Another new token may have narrowed the limits of its score.
                self.refused.insert(pair_key(left, right));
                continue;
            };
            let piece = LearnedPiece {
                left: self.model.string(left).to_string(),
                right: self.model.text(self.model.string(right)).to_string(),
                count,
                score,
            };
            self.add(&trial, score)?;
            self.result.learned.push(piece);
            let new = given + self.result.learned.len();
            if new % LEARNED_STEP == 0 {
                callbacks.learned(new);
            }
        }
        callbacks.learned(given + self.result.learned.len());
        // The last call of `allow` may have asked to stop.
        self.stop.check()
    }

    /// The pair that is worth most; None if no pair is worth enough.
    fn next(&mut self, task: &Task, callbacks: &mut dyn Callbacks) -> Result<Option<Candidate>> {
        self.forget_touched();
        let mut best = self.known.values().max().cloned();
        while let Some(top) = self.heap.pop() {
            self.stop.check()?;
            let (left, right) = top.pair;
            let key = pair_key(left, right);
            let count = self.pairs.get(&key).copied().unwrap_or_default();
            if self.refused.contains(&key) || self.known.contains_key(&key) || count == 0 {
                continue;
            }
            if count != top.count {
                // If it grew, a newer candidate is on the heap, and this one is dropped.
                if count < top.count {
                    self.heap.push(Candidate { count, ..top });
                }
                continue;
            }
            if top.count < task.min_count || best.as_ref().is_some_and(|best| *best > top) {
                self.heap.push(top);
                break;
            }
            let string = self.model.joined(left, right);
            let is_allowed = self.trials.contains_key(&key);
            if self.is_unwanted(top.pair, &string, task) || !(is_allowed || callbacks.allow(&string)) {
                self.refused.insert(key);
                self.take_trial(key);
                continue;
            }
            match self.weighed(key, &string, count)? {
                Ok((_, saved)) => {
                    let worth = u64::try_from(saved).unwrap_or_default().min(count);
                    let candidate = Candidate { count: worth, ..top };
                    if best.as_ref().is_none_or(|best| candidate > *best) {
                        best = Some(candidate.clone());
                    }
                    self.known.insert(key, candidate);
                }
                Err(obstacle) => {
                    if matches!(obstacle, Obstacle::Preserved) {
                        let (left, right) = (top.left.to_string(), self.model.text(&top.right).to_string());
                        self.result.refused.push(RefusedPiece { left, right, count, after: self.result.learned.len() });
                    }
                    self.refused.insert(key);
                    self.take_trial(key);
                }
            }
        }
        Ok(best.filter(|best| best.count >= task.min_count.max(1)))
    }

    /// Puts the pairs back on the heap whose worth may have changed with the last token.
    fn forget_touched(&mut self) {
        let (past, trials) = (&self.past, &self.trials);
        let is_touched = |key: &u64| {
            let trial = trials.get(key);
            trial.is_none_or(|trial| trial.words().any(|word| past[word as usize].touched > trial.step))
        };
        let forgotten: Vec<u64> = self.known.keys().filter(|key| is_touched(key)).copied().collect();
        for key in forgotten {
            if let Some(known) = self.known.remove(&key) {
                let count = self.pairs.get(&key).copied().unwrap_or_default();
                self.heap.push(Candidate { count, ..known });
            }
        }
    }

    /// Whether a pair must not become this token.
    fn is_unwanted(&self, pair: (u32, u32), string: &str, task: &Task) -> bool {
        let is_apart = |token: u32| self.model.is_unknown(token) || task.forbidden.contains(self.model.string(token));
        is_apart(pair.0)
            || is_apart(pair.1)
            || self.model.contains(string)
            || task.refuses(string, self.model.text(string), Alphabet::Text)
    }

    fn judge(&self) -> Judge<'_> {
        let Self { model, words, tokens, past, stop, is_exact, .. } = self;
        Judge { model, words, tokens, past, is_exact: *is_exact, stop }
    }

    fn candidate(&mut self, key: u64, count: u64) -> Candidate {
        let pair = ((key >> 32) as u32, key as u32);
        let mut string = |token: u32| {
            let string = self.strings[token as usize].get_or_insert_with(|| Rc::from(self.model.string(token)));
            Rc::clone(string)
        };
        Candidate { count, left: string(pair.0), right: string(pair.1), pair }
    }
}

fn known(model: &Growing, token: u32) -> Known {
    let length = if model.is_unknown(token) { 0 } else { model.text(model.string(token)).len() as u32 };
    Known { score: model.score(token).unwrap_or_default(), length }
}

/// The tokens of a Unigram model whose text becomes them, in one of its forms, and their suffixes. Those of WordPiece
/// always stay reachable.
fn reachable(forms: &[&Growing; 2], stop: &Stop) -> Result<(Vec<String>, Suffixes)> {
    let [model, _] = forms;
    if model.score(0).is_none() {
        return Ok((Vec::new(), Suffixes::default()));
    }
    let strings: Vec<String> = (0..model.len() as u32).map(|token| model.string(token).to_string()).collect();
    let becomes = |model: &Growing, token: u32| model.split(&strings[token as usize]).is_ok_and(|all| all == [token]);
    let is_reachable = |token: &u32| forms.iter().any(|model| becomes(model, *token));
    let numbers: Vec<u32> = (0..strings.len() as u32).into_par_iter().filter(is_reachable).collect();
    let suffixes = Suffixes::new(&strings, &numbers, stop)?;
    Ok((strings, suffixes))
}

#[cfg(test)]
mod tests;
