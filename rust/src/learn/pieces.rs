//! Learns tokens for models without merges: Unigram and WordPiece.
//!
//! Every distinct pretoken is split by the model. Then two neighbours become a token, again and again: those that save
//! the most tokens. A new token may change any word that contains its text, so each of these is split again, and what
//! the token saves in one and costs in another is added up. A pair is worth no more than the number of its occurrences.
//! Of equal pairs, the smaller pair of strings in code-point order is taken.
//!
//! A new token of a Unigram model gets the score that its frequency has among the old ones: the logarithm of its share,
//! plus the mean difference between score and logarithm of the old tokens of the text.

use std::collections::{BTreeSet, BinaryHeap};
use std::rc::Rc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::pairs::Candidate;
use super::suffixes::Suffixes;
use super::task::{Callbacks, Task, LEARNED_STEP};
use super::trial::{Entry, Judge, Obstacle, Past, State, Trial, Word};
use crate::bpe::{pair_key, Alphabet};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::model::{occurrences, Growing, Model};
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
        for string in given {
            let is_room = learner.result.given.iter().flatten().count() < task.tokens;
            let score = if is_room { learner.give(string)? } else { None };
            learner.result.given.push(score);
        }
        learner.count_pairs()?;
        learner.learn(task, callbacks)?;
        Ok(learner.result)
    }
}

/// The words that are remembered for pairs, at least. More are for large texts.
const REMEMBERED: usize = 1 << 22;

struct PieceLearner<'t> {
    model: Growing,
    words: Vec<Word<'t>>,
    /// How often each word occurs.
    counts: Vec<u64>,
    past: Past,
    /// The bytes of the text of every token; 0 if it stands for unknown text.
    lengths: Vec<u32>,
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
    /// The number of tokens of the text at first.
    total: f64,
    /// The mean difference of the score of a token and the logarithm of its share in the text.
    scale: f64,
    result: LearnedPieces,
    stop: &'t Stop,
}

impl<'t> PieceLearner<'t> {
    fn new(model: &Model, counts: &'t Counts, preserved: Option<&'t Counts>, stop: &'t Stop) -> Result<Self> {
        let model = Growing::new(model)?;
        let number = counts.len() + preserved.map_or(0, Counts::len);
        if number >= u32::MAX as usize {
            return Err(Error::TooMany { number: number as u64, what: "pretokens" });
        }
        let mut words: Vec<Word<'t>> = Vec::with_capacity(number);
        for (counts, is_preserved) in [(Some(counts), false), (preserved, true)] {
            let Some(counts) = counts else { continue };
            let word = |place: usize| {
                stop.check()?;
                let text = std::str::from_utf8(counts.pretoken(place)).map_err(|_| Error::NotText)?;
                let count = if is_preserved { 0 } else { counts.counts()[place] };
                let tokens = if model.is_too_long(text) { Vec::new() } else { model.split(text)? };
                Ok(Word { text, tokens, count })
            };
            words.par_extend((0..counts.len()).into_par_iter().map(word).collect::<Result<Vec<_>>>()?);
        }
        let (long, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| model.is_too_long(word.text));
        let long_preserved = long.iter().filter(|word| word.count == 0 && model.score(0).is_some());
        let long_preserved = long_preserved.map(|word| word.text).collect();
        // A word that is a token stays that token.
        let may_change = |word: &Word<'_>| !matches!(word.tokens[..], [only] if model.string(only) == word.text);
        let numbers = (0..).zip(&words).filter(|(_, word)| may_change(word)).map(|(number, _)| number);
        let suffixes = Suffixes::new(&words, numbers, stop)?;
        let mut learner = Self {
            suffixes,
            base: reachable(&model, stop)?,
            new: BTreeSet::new(),
            pairs: FxHashMap::default(),
            heap: BinaryHeap::new(),
            known: FxHashMap::default(),
            trials: FxHashMap::default(),
            remembered: 0,
            refused: FxHashSet::default(),
            strings: vec![None; model.len()],
            step: 1,
            total: 0.0,
            scale: 0.0,
            result: LearnedPieces::default(),
            counts: words.iter().map(|word| word.count).collect(),
            past: Past { touched: vec![1; words.len()], gained: vec![0.0; words.len()] },
            words,
            lengths: (0..model.len() as u32).map(|token| length_of(&model, token)).collect(),
            long_preserved,
            model,
            stop,
        };
        learner.measure()?;
        Ok(learner)
    }

    /// Measures the text before any token is added.
    fn measure(&mut self) -> Result<()> {
        let mut shares: FxHashMap<u32, u64> = FxHashMap::default();
        let mut total = 0u128;
        for word in &self.words {
            self.stop.check()?;
            total += u128::from(word.count) * word.tokens.len() as u128;
            for &token in &word.tokens {
                let share = shares.entry(token).or_default();
                *share = share.saturating_add(word.count);
            }
        }
        // No sum of counts is larger, so none overflows.
        u64::try_from(total).map_err(|_| Error::TooFrequent)?;
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

    /// Adds a token that was not learned, and returns its score; None if it cannot be added.
    fn give(&mut self, string: &str) -> Result<Option<f64>> {
        if self.model.contains(string) {
            return Ok(None);
        }
        let Ok(mut trial) = self.trial(string)? else { return Ok(None) };
        let places = self.suffixes.places(&self.words, self.model.text(string));
        let count = places.iter().map(|(word, _)| self.words[*word as usize].count).fold(0, u64::saturating_add);
        match self.weigh(&mut trial, count)? {
            Ok((score, _)) => {
                self.add(&trial, score)?;
                Ok(Some(score))
            }
            Err(_) => Ok(None),
        }
    }

    fn count_pairs(&mut self) -> Result<()> {
        self.pairs.clear(); // given tokens changed words, and counted their pairs
        for word in &self.words {
            self.stop.check()?;
            for pair in word.tokens.windows(2).filter(|_| word.count > 0) {
                *self.pairs.entry(pair_key(pair[0], pair[1])).or_default() += word.count;
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
        let (touched, trials) = (&self.past.touched, &self.trials);
        let is_touched = |key: &u64| {
            let trial = trials.get(key);
            trial.is_none_or(|trial| trial.words().any(|word| touched[word as usize] > trial.step))
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

    /// The score of the token of a pair that occurs so often, and how many tokens of the text it saves. What is learned
    /// about its words is remembered.
    fn weighed(&mut self, key: u64, string: &str, count: u64) -> Result<Weighed> {
        let mut trial = match self.take_trial(key) {
            Some(trial) => trial,
            None => match self.trial(string)? {
                Ok(trial) => trial,
                Err(obstacle) => return Ok(Err(obstacle)),
            },
        };
        let weighed = self.weigh(&mut trial, count)?;
        if self.remembered > REMEMBERED.max(self.words.len()) {
            self.trials.retain(|key, _| self.known.contains_key(key));
            self.remembered = self.trials.values().map(|trial| trial.entries.len()).sum();
        }
        self.remembered += trial.entries.len();
        self.trials.insert(key, trial);
        Ok(weighed)
    }

    fn take_trial(&mut self, key: u64) -> Option<Trial> {
        let trial = self.trials.remove(&key)?;
        self.remembered -= trial.entries.len();
        Some(trial)
    }

    /// A token that may be added. Its words are not judged.
    fn trial(&self, string: &str) -> Result<std::result::Result<Trial, Obstacle>> {
        let text = self.model.text(string);
        let containing = self.tokens_with(string);
        let Some(limits) = self.model.limits(string, &containing)? else { return Ok(Err(Obstacle::Other)) };
        if self.long_preserved.iter().any(|word| word.contains(text)) {
            return Ok(Err(Obstacle::Preserved));
        }
        let places = self.suffixes.places(&self.words, text);
        let has_scores = self.model.score(0).is_some();
        let (mut entries, mut several) = (Vec::new(), Vec::new());
        for group in places.chunk_by(|one, other| one.0 == other.0) {
            match group {
                [(word, _), _, ..] if has_scores => several.push(*word),
                [(word, at), ..] => entries.push(Entry {
                    word: *word,
                    at: *at,
                    level: f64::NEG_INFINITY,
                    saved: 0,
                    state: State::Bound,
                }),
                [] => {}
            }
        }
        let tokens = self.model.len();
        Ok(Ok(Trial { string: string.to_string(), tokens, containing, limits, entries, several, step: 0 }))
    }

    /// Judges a token that occurs so often: its score, and how many tokens of the text it saves.
    fn weigh(&mut self, trial: &mut Trial, count: u64) -> Result<Weighed> {
        if !self.renew_limits(trial)? {
            return Ok(Err(Obstacle::Other));
        }
        let string = trial.string.clone();
        let estimate = ((count as f64).max(1.0) / self.total).ln() + self.scale;
        let Some(score) = self.model.score_within(&string, estimate, trial.limits) else {
            return Ok(Err(Obstacle::Other));
        };
        let has_scores = self.model.score(0).is_some();
        if has_scores {
            self.judge().renew(trial, score)?;
        }
        let occurs_twice = |token: &&u32| occurrences(self.model.string(**token), &string).nth(1).is_some();
        let twice: Vec<u32> = trial.containing.iter().filter(occurs_twice).copied().collect();
        let mut several = Vec::new();
        if !has_scores || !twice.is_empty() || !trial.several.is_empty() {
            let token = self.push(&string, score);
            let judged = self.judge_with(token, trial, &twice);
            self.model.pop();
            self.lengths.pop();
            match judged? {
                Some(outcomes) => several = outcomes,
                None => return Ok(Err(Obstacle::Other)),
            }
        }
        trial.step = self.step;
        Ok(self.judge().saving(trial, score, &several).map(|saved| (score, saved)))
    }

    /// What becomes of the words that must be split with the token, which the model has; None if a token that contains
    /// it, or itself, becomes something else.
    fn judge_with(&self, token: u32, trial: &mut Trial, twice: &[u32]) -> Result<Option<Vec<(f64, i32)>>> {
        let (judge, mut scratch) = (self.judge(), Vec::new());
        if self.model.score(token).is_none() {
            judge.renew(trial, 0.0)?;
            return Ok(Some(Vec::new()));
        }
        for &token in twice {
            self.model.split_into(self.model.string(token), &mut scratch)?;
            if scratch != [token] {
                return Ok(None);
            }
        }
        let outcome = |word: &u32| {
            self.stop.check()?;
            judge.outcome(&self.words[*word as usize], &mut scratch)
        };
        trial.several.iter().map(outcome).collect::<Result<Vec<_>>>().map(Some)
    }

    fn judge(&self) -> Judge<'_> {
        let Self { model, words, lengths, counts, past, stop, .. } = self;
        Judge { model, words, lengths, counts, past, stop }
    }

    /// Computes the limits of the score again if a new token may have changed them. False if there is no such score.
    fn renew_limits(&self, trial: &mut Trial) -> Result<bool> {
        let string = &trial.string;
        let changes = |token: u32| {
            let new = self.model.string(token);
            let is_in = |token: &u32| self.model.string(*token).contains(new);
            new.contains(string.as_str()) || string.contains(new) || trial.containing.iter().any(is_in)
        };
        let is_changed = self.model.score(0).is_some() && (trial.tokens as u32..self.model.len() as u32).any(changes);
        trial.tokens = self.model.len();
        if is_changed {
            trial.containing = self.tokens_with(string);
            match self.model.limits(string, &trial.containing)? {
                Some(limits) => trial.limits = limits,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The tokens with longer strings that contain a string, and must stay reachable.
    fn tokens_with(&self, string: &str) -> Vec<u32> {
        let (strings, suffixes) = &self.base;
        let from = (string.to_string(), 0);
        let new = self.new.range(from..).take_while(|(suffix, _)| suffix.starts_with(string)).map(|(_, token)| *token);
        let mut tokens: Vec<u32> =
            suffixes.places(strings, string).into_iter().map(|(token, _)| token).chain(new).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    fn push(&mut self, string: &str, score: f64) -> u32 {
        let token = self.model.push(string, score);
        self.lengths.push(length_of(&self.model, token));
        token
    }

    /// Adds a token.
    fn add(&mut self, trial: &Trial, score: f64) -> Result<()> {
        let string = &trial.string;
        // The score that the text of the token gains: no part of a word gains more, for each time that it has the text.
        let gain = match self.model.score(0) {
            Some(_) => score - self.model.split_into(string, &mut Vec::new())?,
            None => 0.0,
        };
        let token = self.push(string, score);
        self.strings.push(None);
        self.step += 1;
        if self.model.score(token).is_some() {
            self.new.extend(string.char_indices().map(|(at, _)| (string[at..].to_string(), token)));
        }
        for word in trial.words() {
            self.past.touched[word as usize] = self.step;
        }
        let changed = self.judge().changes(token, trial, score)?;
        for entry in &trial.entries {
            self.past.gained[entry.word as usize] += gain;
        }
        for &word in &trial.several {
            let most = self.words[word as usize].text.len() / string.len().max(1);
            self.past.gained[word as usize] += gain * most as f64;
        }
        let mut grown: FxHashSet<u64> = FxHashSet::default();
        for (number, tokens) in changed {
            let word = &mut self.words[number as usize];
            let before = std::mem::replace(&mut word.tokens, tokens);
            let (before, after) = differing(&before, &word.tokens);
            for pair in before.windows(2) {
                if let Some(count) = self.pairs.get_mut(&pair_key(pair[0], pair[1])) {
                    *count -= word.count;
                }
            }
            for pair in after.windows(2).filter(|_| word.count > 0) {
                let key = pair_key(pair[0], pair[1]);
                *self.pairs.entry(key).or_default() += word.count;
                grown.insert(key);
            }
        }
        for key in grown {
            let count = self.pairs[&key];
            let candidate = self.candidate(key, count);
            self.heap.push(candidate);
        }
        Ok(())
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

/// The score of a token, and how many tokens of the text it saves; or why it cannot be added.
type Weighed = std::result::Result<(f64, i128), Obstacle>;

/// The tokens of a word before and after a change, without those at its ends that are the same and whose pairs are.
fn differing<'s>(before: &'s [u32], after: &'s [u32]) -> (&'s [u32], &'s [u32]) {
    let same = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let first = same.saturating_sub(1);
    let (before, after) = (&before[first..], &after[first..]);
    let same = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    let last = same.saturating_sub(1);
    (&before[..before.len() - last], &after[..after.len() - last])
}

/// The bytes of the text of a token; 0 if it stands for unknown text.
fn length_of(model: &Growing, token: u32) -> u32 {
    if model.is_unknown(token) {
        0
    } else {
        model.text(model.string(token)).len() as u32
    }
}

/// The tokens of a Unigram model whose text becomes them, and their suffixes. Those of WordPiece always stay reachable.
fn reachable(model: &Growing, stop: &Stop) -> Result<(Vec<String>, Suffixes)> {
    if model.score(0).is_none() {
        return Ok((Vec::new(), Suffixes::default()));
    }
    let strings: Vec<String> = (0..model.len() as u32).map(|token| model.string(token).to_string()).collect();
    let is_reachable = |token: &u32| model.split(&strings[*token as usize]).is_ok_and(|tokens| tokens == [*token]);
    let numbers: Vec<u32> = (0..strings.len() as u32).into_par_iter().filter(is_reachable).collect();
    let suffixes = Suffixes::new(&strings, numbers.into_iter(), stop)?;
    Ok((strings, suffixes))
}

#[cfg(test)]
mod tests;
