//! Weighs tokens that may be added: the score of each, and how many tokens of the text it saves.

use super::{known, PieceLearner};
use crate::error::Result;
use crate::learn::trial::{Entry, Obstacle, State, Trial};
use crate::model::occurrences;

/// The words that are remembered for pairs, at least. More are for large texts.
const REMEMBERED: usize = 1 << 22;

/// The score of a token, and how many tokens of the text it saves; or why it cannot be added.
pub(super) type Weighed = std::result::Result<(f64, i128), Obstacle>;

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

    /// A token that may be added. Its words are not judged.
    pub(super) fn trial(&self, string: &str) -> Result<std::result::Result<Trial, Obstacle>> {
        let text = self.model.text(string);
        let containing = self.tokens_with(string);
        let Some(limits) = self.model.limits(string, &containing)? else { return Ok(Err(Obstacle::Other)) };
        if self.long_preserved.iter().any(|word| word.contains(text)) {
            return Ok(Err(Obstacle::Preserved));
        }
        let places = self.suffixes.places(&self.words, text);
        let has_scores = self.model.score(0).is_some();
        let (mut entries, mut several) = (Vec::with_capacity(places.len()), Vec::new());
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
        let Some(score) = self.score(trial, count) else { return Ok(Err(Obstacle::Other)) };
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
            self.tokens.pop();
            match judged? {
                Some(outcomes) => several = outcomes,
                None => return Ok(Err(Obstacle::Other)),
            }
        }
        let saved = self.judge().saving(trial, score, &several);
        trial.step = self.step;
        Ok(saved.map(|saved| {
            trial.weight = (score, saved);
            trial.weight
        }))
    }

    /// The score of a token that occurs so often; None if there is none within its limits.
    pub(super) fn score(&self, trial: &Trial, count: u64) -> Option<f64> {
        let estimate = ((count as f64).max(1.0) / self.total).ln() + self.scale;
        self.model.score_within(&trial.string, estimate, trial.limits)
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
        token
    }
}
