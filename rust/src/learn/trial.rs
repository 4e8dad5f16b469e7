//! What a new token of a model without merges would change, word by word, and remembered from one step to the next.
//!
//! If a word of a Unigram model contains the text of a new token once, its best path with the token is the best path of
//! what is before it, the token, and the best path of what is after it. So the word changes at scores above a threshold,
//! and always to the same tokens. If the text is the text of some neighbours of the word, they become the token, and the
//! rest stays. A word has to be judged again only when another token is added whose text it contains; and then only if
//! that token could lower the threshold far enough, which is by no more than the score that its text gains.
//!
//! Nearly every token that is judged is added next, so what its words become is kept and not computed again.

use std::hint::black_box;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::model::Growing;
use crate::stop::Stop;

/// What a word would save if known text became unknown in it.
const LOST: i32 = i32::MIN;
/// The token that may be added, in words that it changes.
pub(super) const NEW: u32 = u32::MAX;
/// Sums of scores that differ by less may be equal.
const ROUNDING: f64 = 1e-6;
/// Words that are read together.
const TOGETHER: usize = 32;
/// Words that are worth a second thread.
pub(super) const MANY: usize = if cfg!(test) { 4 } else { 1 << 10 };

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
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) word: u32,
    pub(super) at: u32,
    /// The word changes if the score of the token is higher than this, less what the scores of the word have gained.
    pub(super) level: f64,
    /// The tokens that are saved by the change.
    pub(super) saved: i32,
    pub(super) state: State,
    /// What the word becomes if it changes, with [`NEW`] for the token; None if it must be split to know it.
    pub(super) tokens: Option<Box<[u32]>>,
}

impl Entry {
    /// A word that is not judged.
    pub(super) fn new(word: u32, at: u32) -> Self {
        Self { word, at, level: f64::NEG_INFINITY, saved: 0, state: State::Bound, tokens: None }
    }

    /// Whether its word changes at a score; true, too, where rounding decides between two paths.
    pub(super) fn may_change(&self, past: &Past, score: f64) -> bool {
        self.level - past.gained < score + ROUNDING
    }

    /// Whether its word was never judged.
    fn is_new(&self) -> bool {
        self.state == State::Bound && self.level == f64::NEG_INFINITY
    }
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
    pub(super) several: Vec<Entry>,
    /// The step for which the entries are valid, and the score and what it saves were computed.
    pub(super) step: u32,
    pub(super) weight: (f64, i128),
}

impl Trial {
    /// The words that contain its text.
    pub(super) fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().chain(&self.several).map(|entry| entry.word)
    }
}

/// What is before or after the text of a token in a word.
#[derive(Debug, Clone, Copy)]
struct Part {
    score: f64,
    /// The number of its bytes that are known.
    known: u32,
    /// Its tokens, as a range.
    tokens: (u32, u32),
    /// Whether the tokens are in the memory of [`Parts`], and not in the word as it is.
    is_split: bool,
}

/// Parts of words before and after the text of a token. Many words end alike, and words in order begin alike.
#[derive(Default)]
struct Parts<'w> {
    before: Option<(&'w str, Part)>,
    after: FxHashMap<&'w str, Part>,
    /// The tokens of the parts that were split, one part after the other.
    tokens: Vec<u32>,
    /// Memory for the tokens of one text.
    scratch: Vec<u32>,
}

impl Parts<'_> {
    /// The tokens of a word that a token changes.
    fn joined(&self, word: &Word<'_>, parts: [Part; 2]) -> Box<[u32]> {
        let [before, after] = parts.map(|part| {
            let tokens = if part.is_split { &self.tokens } else { &word.tokens };
            &tokens[part.tokens.0 as usize..part.tokens.1 as usize]
        });
        [before, &[NEW], after].concat().into_boxed_slice()
    }
}

impl Part {
    fn number(&self) -> u32 {
        self.tokens.1 - self.tokens.0
    }
}

/// What words are judged by. It is shared between threads.
#[derive(Clone, Copy)]
pub(super) struct Judge<'l> {
    pub(super) model: &'l Growing,
    pub(super) words: &'l [Word<'l>],
    pub(super) tokens: &'l [Known],
    pub(super) past: &'l [Past],
    /// Whether sums of scores do not depend on their order.
    pub(super) is_exact: bool,
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
            match has_scores {
                true => self.judge(entry, text, score, parts),
                false => self.outcome(entry, &mut parts.scratch),
            }
        };
        let is_stale = |entry: &mut Entry| {
            if entry.is_new() {
                return true;
            }
            let past = &self.past[entry.word as usize];
            let (is_touched, is_low) = (past.touched > trial.step, entry.may_change(past, score));
            if is_touched && has_scores && !is_low {
                entry.state = State::Bound;
            }
            is_touched && (is_low || !has_scores) || is_low && entry.state == State::Bound
        };
        let mut stale: Vec<&mut Entry> =
            trial.entries.iter_mut().filter_map(|entry| is_stale(entry).then_some(entry)).collect();
        let judge_all = |parts: &mut Parts<'l>, entries: &mut [&mut Entry]| -> Result<()> {
            // Words are far apart in memory. They are read for some entries together, so that the processor waits once.
            let first = |word: usize| self.words[word].tokens.first().map_or(0, |token| *token);
            let read = |entry: &&mut Entry| first(entry.word as usize) ^ self.past[entry.word as usize].touched;
            black_box(entries.iter().map(read).fold(0, u32::wrapping_add));
            entries.iter_mut().try_for_each(|entry| judge(parts, entry))
        };
        if stale.len() < MANY {
            let mut parts = Parts::default();
            return stale.chunks_mut(TOGETHER).try_for_each(|entries| judge_all(&mut parts, entries));
        }
        stale.par_chunks_mut(TOGETHER).with_min_len(MANY / 4 / TOGETHER).try_for_each_init(Parts::default, judge_all)
    }

    /// Some words with the tokens that the model splits them into.
    pub(super) fn split(self, words: &[u32]) -> Result<Vec<(u32, Vec<u32>)>> {
        let split = |tokens: &mut Vec<u32>, word: &u32| {
            self.stop.check()?;
            self.model.split_into(self.words[*word as usize].text, tokens)?;
            Ok((*word, tokens.to_vec()))
        };
        if words.len() < MANY {
            let mut tokens = Vec::new();
            return words.iter().map(|word| split(&mut tokens, word)).collect();
        }
        words.par_iter().with_min_len(MANY / 4).map_init(Vec::new, split).collect()
    }

    /// How many tokens of the text a token saves.
    pub(super) fn saving(self, trial: &Trial, score: f64) -> std::result::Result<i128, Obstacle> {
        let saved_by = |entries: &[Entry]| {
            let (mut saved, mut is_preserved) = (0, false);
            for entry in entries {
                let Past { count, gained, .. } = self.past[entry.word as usize];
                if entry.level - gained >= score {
                    continue;
                }
                if entry.saved == LOST {
                    return Err(Obstacle::Other);
                }
                is_preserved = is_preserved || count == 0;
                saved += i128::from(count) * i128::from(entry.saved);
            }
            Ok((saved, is_preserved))
        };
        let mut all = vec![saved_by(&trial.several)?];
        match trial.entries.len() < MANY {
            true => all.push(saved_by(&trial.entries)?),
            false => {
                let parts = trial.entries.par_chunks(MANY).map(saved_by);
                all.extend(parts.collect::<std::result::Result<Vec<_>, _>>()?);
            }
        }
        let (saved, is_preserved) = all.into_iter().fold((0, false), |sum, more| (sum.0 + more.0, sum.1 || more.1));
        match is_preserved {
            true => Err(Obstacle::Preserved),
            false => Ok(saved),
        }
    }

    /// Judges the words that contain the text of the last token of the model several times.
    pub(super) fn renew_several(self, several: &mut [Entry]) -> Result<()> {
        let judge = |scratch: &mut Vec<u32>, entry: &mut Entry| -> Result<()> {
            self.stop.check()?;
            self.outcome(entry, scratch)
        };
        if several.len() < MANY {
            let mut scratch = Vec::new();
            return several.iter_mut().try_for_each(|entry| judge(&mut scratch, entry));
        }
        several.par_iter_mut().with_min_len(MANY / 4).try_for_each_init(Vec::new, judge)
    }

    /// Judges a word by splitting it with the last token of the model. Its level is below or above all scores.
    fn outcome(self, entry: &mut Entry, scratch: &mut Vec<u32>) -> Result<()> {
        let word = &self.words[entry.word as usize];
        self.model.split_into(word.text, scratch)?;
        let is_changed = *scratch != word.tokens;
        let is_lost = is_changed && self.known_bytes(scratch) < self.known_bytes(&word.tokens);
        let saved = word.tokens.len() as i32 - scratch.len() as i32;
        let new = self.model.len() as u32 - 1;
        let tokens = scratch.iter().map(|token| if *token == new { NEW } else { *token });
        entry.tokens = is_changed.then(|| tokens.collect());
        entry.level = if is_changed { f64::NEG_INFINITY } else { f64::INFINITY };
        entry.saved = if is_lost { LOST } else { saved };
        entry.state = State::Exact;
        Ok(())
    }

    /// Judges a word of a Unigram model that contains a text once.
    fn judge<'w>(self, entry: &mut Entry, text: &str, score: f64, parts: &mut Parts<'w>) -> Result<()>
    where
        'l: 'w,
    {
        let word = &self.words[entry.word as usize];
        let (at, end) = (entry.at as usize, entry.at as usize + text.len());
        let (mut before, mut after, mut total, mut known) = (None, None, 0.0, 0);
        for (number, &token) in (0..).zip(&word.tokens) {
            before = before.or((known == at).then_some((total, number)));
            let token = self.tokens[token as usize];
            known += token.length as usize;
            total += token.score;
            after = after.or((known == end).then_some((total, number + 1)));
        }
        if known < word.text.len() {
            // Some of the text is unknown, so the places were wrong.
            (before, after) = (None, None);
            total = self.model.split_into(word.text, &mut parts.scratch)?;
        }
        entry.state = if before.is_some() && after.is_some() { State::Joined } else { State::Exact };
        let old = |score, from: usize, to: usize, known: usize| Part {
            score,
            known: known as u32,
            tokens: (from as u32, to as u32),
            is_split: false,
        };
        let before = match before {
            Some((score, number)) => old(score, 0, number, at),
            None => self.before(&word.text[..at], parts)?,
        };
        let after = match after {
            Some((score, number)) => old(total - score, number, word.tokens.len(), word.text.len() - end),
            None => self.after(&word.text[end..], parts)?,
        };
        let will_be_known = before.known as usize + text.len() + after.known as usize;
        let saved = word.tokens.len() as i32 - (before.number() + 1 + after.number()) as i32;
        entry.saved = if will_be_known < known { LOST } else { saved };
        let threshold = total - before.score - after.score;
        entry.level = threshold + self.past[entry.word as usize].gained;
        let changes = threshold < score - ROUNDING && entry.state == State::Exact;
        let is_whole = will_be_known == word.text.len();
        entry.tokens = (changes && is_whole && self.is_exact).then(|| parts.joined(word, [before, after]));
        Ok(())
    }

    /// What the part of a word before a text would be split into.
    fn before<'w>(self, text: &'w str, parts: &mut Parts<'w>) -> Result<Part> {
        if let Some((_, part)) = parts.before.filter(|(known, _)| *known == text) {
            return Ok(part);
        }
        let part = self.part(text, parts)?;
        parts.before = Some((text, part));
        Ok(part)
    }

    /// What the part of a word after a text would be split into.
    fn after<'w>(self, text: &'w str, parts: &mut Parts<'w>) -> Result<Part> {
        if let Some(part) = parts.after.get(text) {
            return Ok(*part);
        }
        let part = self.part(text, parts)?;
        parts.after.insert(text, part);
        Ok(part)
    }

    fn part(self, text: &str, parts: &mut Parts<'_>) -> Result<Part> {
        let score = self.model.split_into(text, &mut parts.scratch)?;
        let start = parts.tokens.len() as u32;
        parts.tokens.extend(&parts.scratch);
        let tokens = (start, parts.tokens.len() as u32);
        Ok(Part { score, known: self.known_bytes(&parts.scratch) as u32, tokens, is_split: true })
    }

    /// How many bytes of a word are known, given its tokens.
    pub(super) fn known_bytes(self, tokens: &[u32]) -> usize {
        tokens.iter().map(|token| self.tokens[*token as usize].length as usize).sum()
    }
}
