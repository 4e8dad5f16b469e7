//! Adds tokens: splits the words that change, and counts their pairs.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::PieceLearner;
use crate::bpe::pair_key;
use crate::error::Result;
use crate::learn::suffixes::Place;
use crate::learn::trial::{State, Trial, Word, NEW};

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
        let (mut joined, mut split, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for entry in trial.entries.iter().chain(&trial.several) {
            if self.judge().may_change(entry, score) {
                match (entry.state, &entry.tokens) {
                    (State::Joined, _) => joined.push((entry.word, entry.at)),
                    (_, Some(tokens)) => split.push((entry.word, tokens)),
                    (_, None) => others.push(entry.word),
                }
            }
        }
        let others = self.judge().split(&others)?;
        for entry in &trial.entries {
            let past = &mut self.past[entry.word as usize];
            (past.gained, past.touched) = (past.gained + gain, self.step);
        }
        for entry in &trial.several {
            let most = self.words[entry.word as usize].text.len() / string.len().max(1);
            let past = &mut self.past[entry.word as usize];
            (past.gained, past.touched) = (past.gained + gain * most as f64, self.step);
        }
        let mut changes = PairChanges::default();
        for (number, at) in joined {
            let word = &mut self.words[number as usize];
            let (mut place, mut range) = (0, 0..0);
            for &old in &word.tokens {
                range.start += usize::from(place < at);
                range.end += usize::from(place < at + self.tokens[token as usize].length);
                place += self.tokens[old as usize].length;
            }
            changes.replace(word, range, [token].into_iter());
        }
        for (number, tokens) in split {
            let word = &mut self.words[number as usize];
            let (range, new) = differing(&word.tokens, tokens);
            changes.replace(word, range, new.iter().map(|other| if *other == NEW { token } else { *other }));
        }
        for (number, tokens) in others {
            let word = &mut self.words[number as usize];
            let (range, new) = differing(&word.tokens, &tokens);
            changes.replace(word, range, new.iter().copied());
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
