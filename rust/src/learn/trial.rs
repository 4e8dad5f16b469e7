//! What a new token of a model without merges would change, word by word, and remembered from one step to the next.
//!
//! If a word of a Unigram model contains the text of a new token once, its best path with the token is the best path of
//! what is before it, the token, and the best path of what is after it. So the word changes at scores above a threshold,
//! and always to the same tokens. If the text is the text of some neighbours of the word, they become the token, and the
//! rest stays. A word has to be judged again only when another token is added whose text it contains; and then only if
//! that token could lower the threshold far enough, which is by no more than the score that its text gains.

use std::collections::hash_map;
use std::hint::black_box;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::model::Growing;
use crate::stop::Stop;

/// What a word would save if known text became unknown in it.
const LOST: i32 = i32::MIN;
/// Sums of scores that differ by less may be equal.
const ROUNDING: f64 = 1e-6;
/// Words that are read together.
const TOGETHER: usize = 32;
/// Words that are worth a second thread.
const MANY: usize = 1 << 10;

/// A pretoken, what it is split into, and how often it occurs; never, if it is preserved.
pub(super) struct Word<'t> {
    pub(super) text: &'t str,
    pub(super) tokens: Vec<u32>,
    pub(super) count: u64,
}

impl AsRef<str> for Word<'_> {
    fn as_ref(&self) -> &str {
        self.text
    }
}

/// Why a token cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    Preserved,
    Other,
}

/// A word that contains the text of a token, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) word: u32,
    pub(super) at: u32,
    /// The word changes if the score of the token is higher than this, less what the scores of the word have gained.
    pub(super) level: f64,
    /// The tokens that are saved by the change.
    pub(super) saved: i32,
    pub(super) state: State,
}

/// What an entry says about its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The word changes at no lower score.
    Bound,
    /// The word changes at every higher score.
    Exact,
    /// Some neighbours become the token, and nothing else changes.
    Joined,
}

/// What is known about a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Its score; 0 in a model without scores.
    pub(super) score: f64,
    /// The bytes of its text; 0 if it stands for unknown text.
    pub(super) length: u32,
}

/// What is known about a word that tokens are added to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Past {
    /// How often the word occurs.
    pub(super) count: u64,
    /// By how much the score of a part of it can have grown since the beginning.
    pub(super) gained: f64,
    /// The step that last added a token whose text it contains.
    pub(super) touched: u32,
}

/// A token that may be added.
pub(super) struct Trial {
    pub(super) string: String,
    /// The number of tokens of the model for which the limits were computed.
    pub(super) tokens: usize,
    /// The tokens that contain its text and must stay reachable.
    pub(super) containing: Vec<u32>,
    /// The least and the largest score.
    pub(super) limits: (f64, f64),
    pub(super) entries: Vec<Entry>,
    /// The words of a Unigram model that contain the text several times. How they change depends on the score.
    pub(super) several: Vec<u32>,
    /// The step for which the entries are valid, and the score and what it saves were computed.
    pub(super) step: u32,
    pub(super) weight: (f64, i128),
}

impl Trial {
    /// The words that contain its text.
    pub(super) fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|entry| entry.word).chain(self.several.iter().copied())
    }
}

/// The score of a text, the number of its tokens, and of its bytes that are known.
type Part = (f64, usize, usize);

/// Parts of words before and after the text of a token. Many words end alike, and words in order begin alike.
#[derive(Default)]
struct Parts<'w> {
    before: (&'w str, Part),
    after: FxHashMap<&'w str, Part>,
    /// Memory for the tokens of a part.
    tokens: Vec<u32>,
}

/// What words are judged by. It is shared between threads.
#[derive(Clone, Copy)]
pub(super) struct Judge<'l> {
    pub(super) model: &'l Growing,
    pub(super) words: &'l [Word<'l>],
    pub(super) tokens: &'l [Known],
    pub(super) past: &'l [Past],
    pub(super) stop: &'l Stop,
}

impl<'l> Judge<'l> {
    /// Judges the words of a trial again that a step after its own has touched and that may change at a score. A model
    /// without scores has the token.
    pub(super) fn renew(self, trial: &mut Trial, score: f64) -> Result<()> {
        let text = self.model.text(&trial.string);
        let has_scores = self.model.score(0).is_some();
        let judge = |parts: &mut Parts<'l>, entry: &mut Entry| -> Result<()> {
            self.stop.check()?;
            let word = &self.words[entry.word as usize];
            let (threshold, saved, state) = match has_scores {
                true => self.threshold(word, entry.at as usize, text, parts)?,
                false => {
                    self.outcome(word, &mut parts.tokens).map(|(threshold, saved)| (threshold, saved, State::Exact))?
                }
            };
            let level = threshold + self.past[entry.word as usize].gained;
            *entry = Entry { level, saved, state, ..*entry };
            Ok(())
        };
        let is_stale = |entry: &mut Entry| {
            let is_touched = self.past[entry.word as usize].touched > trial.step;
            let is_low = self.may_change(entry, score);
            if is_touched && has_scores && !is_low {
                entry.state = State::Bound;
            }
            is_touched && (is_low || !has_scores) || is_low && entry.state == State::Bound
        };
        let mut stale: Vec<&mut Entry> =
            trial.entries.iter_mut().filter_map(|entry| is_stale(entry).then_some(entry)).collect();
        let judge_all = |parts: &mut Parts<'l>, entries: &mut [&mut Entry]| -> Result<()> {
            // Words are far apart in memory. They are read for some entries together, so that the processor waits once.
            let first = |entry: &&mut Entry| self.words[entry.word as usize].tokens.first().map_or(0, |token| *token);
            black_box(entries.iter().map(first).fold(0, u32::wrapping_add));
            entries.iter_mut().try_for_each(|entry| judge(parts, entry))
        };
        if stale.len() < MANY {
            let mut parts = Parts::default();
            return stale.chunks_mut(TOGETHER).try_for_each(|entries| judge_all(&mut parts, entries));
        }
        stale.par_chunks_mut(TOGETHER).with_min_len(MANY / 4 / TOGETHER).try_for_each_init(Parts::default, judge_all)
    }

    /// Whether a word changes at a score; true, too, where rounding decides between two paths.
    pub(super) fn may_change(self, entry: &Entry, score: f64) -> bool {
        entry.level - self.past[entry.word as usize].gained < score + ROUNDING
    }

    /// Some words with the tokens that the model splits them into.
    pub(super) fn split(self, words: &[u32]) -> Result<Vec<(u32, Vec<u32>)>> {
        let split = |word: &u32| {
            self.stop.check()?;
            Ok((*word, self.model.split(self.words[*word as usize].text)?))
        };
        match words.len() < MANY {
            true => words.iter().map(split).collect(),
            false => words.par_iter().with_min_len(MANY / 4).map(split).collect(),
        }
    }

    /// How many tokens of the text a token saves, given the words that have its text several times with their outcome.
    pub(super) fn saving(
        self,
        trial: &Trial,
        score: f64,
        several: &[(f64, i32)],
    ) -> std::result::Result<i128, Obstacle> {
        let (mut saved, mut is_preserved) = (0, false);
        let threshold = |entry: &Entry| entry.level - self.past[entry.word as usize].gained;
        let once = trial.entries.iter().map(|entry| (entry.word, threshold(entry), entry.saved));
        let several = trial.several.iter().zip(several).map(|(word, outcome)| (*word, outcome.0, outcome.1));
        for (word, _, tokens) in once.chain(several).filter(|(_, threshold, _)| *threshold < score) {
            if tokens == LOST {
                return Err(Obstacle::Other);
            }
            let count = self.past[word as usize].count;
            is_preserved = is_preserved || count == 0;
            saved += i128::from(count) * i128::from(tokens);
        }
        if is_preserved {
            return Err(Obstacle::Preserved);
        }
        Ok(saved)
    }

    /// Whether a word changes with the last token of the model, as a threshold below or above all scores; and what that
    /// saves.
    pub(super) fn outcome(self, word: &Word<'_>, scratch: &mut Vec<u32>) -> Result<(f64, i32)> {
        self.model.split_into(word.text, scratch)?;
        if *scratch == word.tokens {
            return Ok((f64::INFINITY, 0));
        }
        let is_lost = self.known_bytes(scratch) < self.known_bytes(&word.tokens);
        let saved = word.tokens.len() as i32 - scratch.len() as i32;
        Ok((f64::NEG_INFINITY, if is_lost { LOST } else { saved }))
    }

    /// The score above which a word of a Unigram model changes that contains a text once, and what that saves.
    fn threshold<'w>(self, word: &Word<'w>, at: usize, text: &str, parts: &mut Parts<'w>) -> Result<(f64, i32, State)> {
        let end = at + text.len();
        let (mut before, mut after, mut total, mut known) = (None, None, 0.0, 0);
        for (number, &token) in (0..).zip(&word.tokens) {
            before = before.or((known == at).then_some((total, number, at)));
            let token = self.tokens[token as usize];
            known += token.length as usize;
            total += token.score;
            after = after.or((known == end).then_some((total, number + 1)));
        }
        if known < word.text.len() {
            // Some of the text is unknown, so the places were wrong.
            (before, after) = (None, None);
            total = self.model.split_into(word.text, &mut parts.tokens)?;
        }
        let state = if before.is_some() && after.is_some() { State::Joined } else { State::Exact };
        let after = after.map(|(score, number)| (total - score, word.tokens.len() - number, word.text.len() - end));
        let before = match before {
            Some(before) => before,
            None if parts.before.0 == &word.text[..at] => parts.before.1,
            None => {
                let part = self.part(&word.text[..at], &mut parts.tokens)?;
                parts.before = (&word.text[..at], part);
                part
            }
        };
        let after = match after {
            Some(after) => after,
            None => match parts.after.entry(&word.text[end..]) {
                hash_map::Entry::Occupied(known) => *known.get(),
                hash_map::Entry::Vacant(place) => *place.insert(self.part(&word.text[end..], &mut parts.tokens)?),
            },
        };
        let is_lost = before.2 + text.len() + after.2 < known;
        let saved = word.tokens.len() as i32 - (before.1 + 1 + after.1) as i32;
        Ok((total - before.0 - after.0, if is_lost { LOST } else { saved }, state))
    }

    /// What a part of a word would be split into.
    fn part(self, text: &str, tokens: &mut Vec<u32>) -> Result<Part> {
        let score = self.model.split_into(text, tokens)?;
        Ok((score, tokens.len(), self.known_bytes(tokens)))
    }

    /// How many bytes of a word are known, given its tokens.
    pub(super) fn known_bytes(self, tokens: &[u32]) -> usize {
        tokens.iter().map(|token| self.tokens[*token as usize].length as usize).sum()
    }
}
