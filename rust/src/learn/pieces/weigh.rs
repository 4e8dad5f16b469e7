//! Weighs tokens that may be added: the score of each, and how many tokens of the text it saves.

use rayon::prelude::*;

use super::{known, PieceLearner};
use crate::error::Result;
use crate::learn::trial::{Entry, Obstacle, Trial};
use crate::model::{has_exact_sums, occurrences};

/// The words that are remembered for pairs, at least. More are for large texts.
const REMEMBERED: usize = 1 << 22;

/// The score of a token, and how many tokens of the text it saves; or why it cannot be added.
pub(super) type Weighed = std::result::Result<(f64, i128), Obstacle>;

/// The tokens that contain a text, and the limits of its score.
type Limits = (Vec<u32>, (f64, f64));

impl PieceLearner<'_> {
    /// The score of the token of a pair that occurs so often, and how many tokens of the text it saves. What is learned
    /// about its words is remembered.
    pub(super) fn weighed(&mut self, key: u64, string: &str, count: u64) -> Result<Weighed> {
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

    pub(super) fn take_trial(&mut self, key: u64) -> Option<Trial> {
        let trial = self.trials.remove(&key)?;
        self.remembered -= trial.entries.len();
        Some(trial)
    }

    /// The tokens that contain the text of a token that may be added, and the limits of its score.
    pub(super) fn limits(&self, string: &str) -> Result<std::result::Result<Limits, Obstacle>> {
        let containing = self.tokens_with(string);
        let Some(limits) = self.model.limits(string, &containing)? else { return Ok(Err(Obstacle::Other)) };
        let text = self.model.text(string);
        let is_preserved = self.long_preserved.iter().any(|word| word.contains(text));
        Ok(if is_preserved { Err(Obstacle::Preserved) } else { Ok((containing, limits)) })
    }

    /// A token that may be added. Its words are not judged.
    pub(super) fn trial(&self, string: &str) -> Result<std::result::Result<Trial, Obstacle>> {
        let (containing, limits) = match self.limits(string)? {
            Ok(limits) => limits,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let mut places = self.suffixes.places(&self.words, self.model.text(string));
        places.par_sort_unstable_by_key(|(word, at)| u64::from(*word) << 32 | u64::from(*at));
        let has_scores = self.model.score(0).is_some();
        let (mut entries, mut several) = (Vec::with_capacity(places.len()), Vec::new());
        for group in places.chunk_by(|one, other| one.0 == other.0) {
            match group {
                [(word, at), _, ..] if has_scores => several.push(Entry::new(*word, *at)),
                [(word, at), ..] => entries.push(Entry::new(*word, *at)),
                [] => {}
            }
        }
        let tokens = self.model.len();
        let string = string.to_string();
        Ok(Ok(Trial { string, tokens, containing, limits, entries, several, step: 0, weight: (0.0, 0) }))
    }

    /// Judges a token that occurs so often: its score, and how many tokens of the text it saves.
    pub(super) fn weigh(&mut self, trial: &mut Trial, count: u64) -> Result<Weighed> {
        if trial.step == self.step {
            return Ok(Ok(trial.weight));
        }
        if !self.renew_limits(trial)? {
            return Ok(Err(Obstacle::Other));
        }
        let string = trial.string.clone();
        let Some(score) = self.score(&string, trial.limits, count) else { return Ok(Err(Obstacle::Other)) };
        let has_scores = self.model.score(0).is_some();
        if has_scores {
            self.judge().renew(trial, score)?;
        }
        let occurs_twice = |token: &&u32| occurrences(self.model.string(**token), &string).nth(1).is_some();
        let twice: Vec<u32> = trial.containing.iter().filter(occurs_twice).copied().collect();
        if !has_scores || !twice.is_empty() || !trial.several.is_empty() {
            let token = self.push(&string, score);
            let judged = self.judge_with(token, trial, &twice);
            self.model.pop();
            self.tokens.pop();
            if !judged? {
                return Ok(Err(Obstacle::Other));
            }
        }
        let saved = self.judge().saving(trial, score);
        trial.step = self.step;
        Ok(saved.map(|saved| {
            trial.weight = (score, saved);
            trial.weight
        }))
    }

    /// The score of a token that occurs so often; None if there is none within its limits.
    pub(super) fn score(&self, string: &str, limits: (f64, f64), count: u64) -> Option<f64> {
        let estimate = ((count as f64).max(1.0) / self.total).ln() + self.scale;
        self.model.score_within(string, estimate, limits)
    }

    /// Judges the words that must be split with the token, which the model has. False if a token that contains it twice
    /// becomes something else.
    fn judge_with(&self, token: u32, trial: &mut Trial, twice: &[u32]) -> Result<bool> {
        if self.model.score(token).is_none() {
            self.judge().renew(trial, 0.0)?;
            return Ok(true);
        }
        let mut scratch = Vec::new();
        for &token in twice {
            self.model.split_into(self.model.string(token), &mut scratch)?;
            if scratch != [token] {
                return Ok(false);
            }
        }
        self.judge().renew_several(&mut trial.several)?;
        Ok(true)
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
    pub(super) fn tokens_with(&self, string: &str) -> Vec<u32> {
        let (strings, suffixes) = &self.base;
        let from = (string.to_string(), 0);
        let new = self.new.range(from..).take_while(|(suffix, _)| suffix.starts_with(string)).map(|(_, token)| *token);
        let mut tokens: Vec<u32> =
            suffixes.places(strings, string).into_iter().map(|(token, _)| token).chain(new).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    pub(super) fn push(&mut self, string: &str, score: f64) -> u32 {
        let token = self.model.push(string, score);
        self.tokens.push(known(&self.model, token));
        self.is_exact = self.is_exact && self.model.score(token).is_none_or(has_exact_sums);
        token
    }
}
