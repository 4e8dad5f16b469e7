//! Adds tokens: splits the words that change, and counts their pairs.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::PieceLearner;
use crate::bpe::pair_key;
use crate::error::Result;
use crate::learn::suffixes::Place;
use crate::learn::trial::{Entry, Known, Past, State, Trial, Word, MANY, NEW};
use crate::model::Growing;
use crate::stop::Stop;

impl PieceLearner<'_> {
    /// Adds tokens that were not learned, while there is room.
    pub(super) fn give(&mut self, given: &[String], room: usize) -> Result<()> {
        if given.is_empty() {
            return Ok(());
        }
        let mut known: FxHashSet<char> =
            (0..self.model.len() as u32).flat_map(|token| self.model.string(token).chars()).collect();
        let mut waiting = Waiting { words: Vec::new(), is_in: vec![false; self.words.len()] };
        for string in given {
            let is_room = self.result.given.iter().flatten().count() < room;
            let is_new = string.chars().count() == 1 && !string.chars().any(|character| known.contains(&character));
            known.extend(string.chars());
            let score = match is_room && !self.model.contains(string) {
                false => None,
                true if is_new && self.model.score(0).is_some() => self.give_character(string, &mut waiting)?,
                true => {
                    self.split_again(&mut waiting)?;
                    self.give_string(string)?
                }
            };
            self.result.given.push(score);
        }
        self.split_again(&mut waiting)
    }

    /// Adds a string, and returns its score; None if it cannot be added.
    pub(super) fn give_string(&mut self, string: &str) -> Result<Option<f64>> {
        let Ok(mut trial) = self.trial(string)? else { return Ok(None) };
        let count = self.count_of(&self.suffixes.places(&self.words, self.model.text(string)));
        match self.weigh(&mut trial, count)? {
            Ok((score, _)) => {
                self.add(&trial, score)?;
                Ok(Some(score))
            }
            Err(_) => Ok(None),
        }
    }

    /// Adds a character that no token of a Unigram model has. It stays apart in every word, and the rest of the word is
    /// split as before. So the words wait until all such characters are added.
    fn give_character(&mut self, string: &str, waiting: &mut Waiting) -> Result<Option<f64>> {
        let Ok((_, limits)) = self.limits(string)? else { return Ok(None) };
        let places = self.suffixes.places(&self.words, string);
        if places.iter().any(|(word, _)| self.past[*word as usize].count == 0) {
            return Ok(None);
        }
        let score = self.score(string, limits, self.count_of(&places));
        if let Some(score) = score {
            self.push_new(string, score);
            places.iter().for_each(|(word, _)| waiting.add(*word));
        }
        Ok(score)
    }

    /// Splits the words that wait for it. Their pairs are not counted.
    fn split_again(&mut self, waiting: &mut Waiting) -> Result<()> {
        waiting.words.sort_unstable();
        for (word, tokens) in self.judge().split(&waiting.words)? {
            self.words[word as usize].tokens = tokens;
        }
        waiting.clear();
        Ok(())
    }

    /// How often the words of some places occur in the text.
    fn count_of(&self, places: &[Place]) -> u64 {
        places.iter().map(|(word, _)| self.past[*word as usize].count).fold(0, u64::saturating_add)
    }

    /// Adds a token, and counts the pairs of the words that it changes.
    pub(super) fn add(&mut self, trial: &Trial, score: f64) -> Result<()> {
        let string = &trial.string;
        // The score that the text of the token gains: no part of a word gains more, for each time that it has the text.
        let gain = match self.model.score(0) {
            Some(_) => score - self.model.split_into(string, &mut Vec::new())?,
            None => 0.0,
        };
        let token = self.push_new(string, score);
        self.step += 1;
        let adding = Adding {
            model: &self.model,
            known: &self.tokens,
            is_exact: self.is_exact,
            token,
            score,
            gain,
            step: self.step,
            stop: self.stop,
        };
        let several = adding.change(&mut self.words, &mut self.past, 0, &trial.several)?;
        let changes = adding.change_in_parallel(&mut self.words, &mut self.past, 0, &trial.entries)?.plus(several);
        for entry in &trial.several {
            let most = self.words[entry.word as usize].text.len() / string.len().max(1);
            self.past[entry.word as usize].gained += gain * most.saturating_sub(1) as f64;
        }
        for (key, change) in changes.counts {
            let count = self.pairs.entry(key).or_default();
            let before = std::mem::replace(count, count.wrapping_add(change));
            let after = *count;
            if after > before {
                let candidate = self.candidate(key, after);
                self.heap.push(candidate);
            }
        }
        Ok(())
    }

    /// Adds a token to the model, and to what must stay reachable.
    fn push_new(&mut self, string: &str, score: f64) -> u32 {
        let token = self.push(string, score);
        self.strings.push(None);
        if self.model.score(token).is_some() {
            self.new.extend(string.char_indices().map(|(at, _)| (string[at..].to_string(), token)));
        }
        token
    }
}

/// A token that is added to the model, and what is needed to change words by it. It is shared between threads.
struct Adding<'l> {
    model: &'l Growing,
    known: &'l [Known],
    is_exact: bool,
    token: u32,
    score: f64,
    /// The score that its text gains.
    gain: f64,
    step: u32,
    stop: &'l Stop,
}

impl Adding<'_> {
    /// As [`Self::change`], with entries in the order of their words.
    fn change_in_parallel(
        &self,
        words: &mut [Word<'_>],
        past: &mut [Past],
        first: u32,
        entries: &[Entry],
    ) -> Result<PairChanges> {
        if entries.len() < MANY {
            return self.change(words, past, first, entries);
        }
        let (before, after) = entries.split_at(entries.len() / 2);
        let middle = after[0].word;
        let (words, more_words) = words.split_at_mut((middle - first) as usize);
        let (past, more_past) = past.split_at_mut((middle - first) as usize);
        let (changes, more) = rayon::join(
            || self.change_in_parallel(words, past, first, before),
            || self.change_in_parallel(more_words, more_past, middle, after),
        );
        Ok(changes?.plus(more?))
    }

    /// Changes the words of some entries, given the number of the first of all words, and counts how their pairs change.
    fn change(&self, words: &mut [Word<'_>], past: &mut [Past], first: u32, entries: &[Entry]) -> Result<PairChanges> {
        let (mut changes, mut scratch) = (PairChanges::default(), Vec::new());
        for entry in entries {
            self.stop.check()?;
            let at = (entry.word - first) as usize;
            let (word, past) = (&mut words[at], &mut past[at]);
            let may_change = entry.may_change(past, self.score);
            (past.gained, past.touched) = (past.gained + self.gain, self.step);
            if may_change {
                self.change_word(word, entry, &mut changes, &mut scratch)?;
            }
        }
        Ok(changes)
    }

    fn change_word(
        &self,
        word: &mut Word<'_>,
        entry: &Entry,
        changes: &mut PairChanges,
        scratch: &mut Vec<u32>,
    ) -> Result<()> {
        match (entry.state, &entry.tokens) {
            (State::Joined, _) if self.is_exact => {
                changes.replace(word, self.joined(word, entry.at), [self.token].into_iter())
            }
            (_, Some(tokens)) => {
                let (range, new) = differing(&word.tokens, tokens);
                let new = new.iter().map(|other| if *other == NEW { self.token } else { *other });
                changes.replace(word, range, new);
            }
            (_, None) => {
                self.model.split_into(word.text, scratch)?;
                let (range, new) = differing(&word.tokens, scratch);
                changes.replace(word, range, new.iter().copied());
            }
        }
        Ok(())
    }

    /// The tokens of a word that become the token, whose text begins at a place.
    fn joined(&self, word: &Word<'_>, at: u32) -> Range<usize> {
        let (mut place, mut range) = (0, 0..0);
        for &old in &word.tokens {
            range.start += usize::from(place < at);
            range.end += usize::from(place < at + self.known[self.token as usize].length);
            place += self.known[old as usize].length;
        }
        range
    }
}

/// Words that wait to be split again.
struct Waiting {
    words: Vec<u32>,
    is_in: Vec<bool>,
}

impl Waiting {
    fn add(&mut self, word: u32) {
        if !std::mem::replace(&mut self.is_in[word as usize], true) {
            self.words.push(word);
        }
    }

    fn clear(&mut self) {
        self.words.drain(..).for_each(|word| self.is_in[word as usize] = false);
    }
}

/// By how much the counts of pairs change, modulo 2^64.
#[derive(Default)]
struct PairChanges {
    counts: FxHashMap<u64, u64>,
}

impl PairChanges {
    fn plus(mut self, other: Self) -> Self {
        for (key, change) in other.counts {
            let sum = self.counts.entry(key).or_default();
            *sum = sum.wrapping_add(change);
        }
        self
    }

    /// Replaces some tokens of a word.
    fn replace(&mut self, word: &mut Word<'_>, range: Range<usize>, new: impl ExactSizeIterator<Item = u32>) {
        let first = range.start.saturating_sub(1);
        for pair in word.tokens[first..word.tokens.len().min(range.end + 1)].windows(2) {
            let change = self.counts.entry(pair_key(pair[0], pair[1])).or_default();
            *change = change.wrapping_sub(word.count);
        }
        let end = range.start + new.len() + 1;
        word.tokens.splice(range, new);
        for pair in word.tokens[first..word.tokens.len().min(end)].windows(2) {
            let change = self.counts.entry(pair_key(pair[0], pair[1])).or_default();
            *change = change.wrapping_add(word.count);
        }
    }
}

/// The tokens of a word that differ from new ones, and those in their place.
fn differing<'s>(before: &[u32], after: &'s [u32]) -> (Range<usize>, &'s [u32]) {
    let first = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let rest = before[first..].iter().rev().zip(after[first..].iter().rev());
    let last = rest.take_while(|(one, other)| one == other).count();
    (first..before.len() - last, &after[first..after.len() - last])
}
