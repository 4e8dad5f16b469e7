//! Replaces a pair by its product everywhere, on all cores if it occurs often, and collects what that changes.

use std::ops::Range;

use rayon::prelude::*;

use super::pairs::Place;
use super::words::{Part, Words};

/// How many places ahead memory is loaded.
const AHEAD: usize = 16;

/// The tokens on one side of the replaced pairs.
#[derive(Default)]
pub(super) struct Side<P> {
    /// One entry for each distinct token.
    pub(super) entries: Vec<Entry>,
    /// For each replaced pair: the index of its entry, and the place of the new pair that it makes with the product.
    pub(super) places: Vec<(u32, P)>,
    /// The index of a token's entry, plus one; 0 if it has none.
    entry_of: Vec<u32>,
}

/// A token beside the product: how often, and at how many places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) token: u32,
    pub(super) count: u64,
    pub(super) places: usize,
}

impl<P: Place> Side<P> {
    #[inline]
    fn entry(&mut self, token: u32) -> u32 {
        if token as usize >= self.entry_of.len() {
            self.entry_of.resize(token as usize + 1, 0);
        }
        let number = &mut self.entry_of[token as usize];
        if *number == 0 {
            self.entries.push(Entry { token, count: 0, places: 0 });
            *number = self.entries.len() as u32;
        }
        *number - 1
    }

    #[inline]
    fn add(&mut self, token: u32, count: u64, place: usize) {
        let number = self.entry(token);
        let entry = &mut self.entries[number as usize];
        entry.count += count;
        entry.places += 1;
        self.places.push((number, P::new(place)));
    }

    /// Appends another side and empties it.
    fn append(&mut self, other: &mut Self) {
        let numbers: Vec<u32> = other.entries.iter().map(|entry| self.entry(entry.token)).collect();
        for (entry, &number) in other.entries.iter().zip(&numbers) {
            let sum = &mut self.entries[number as usize];
            sum.count += entry.count;
            sum.places += entry.places;
        }
        self.places.extend(other.places.iter().map(|&(number, place)| (numbers[number as usize], place)));
        other.clear();
    }

    fn clear(&mut self) {
        for entry in self.entries.drain(..) {
            self.entry_of[entry.token as usize] = 0;
        }
        self.places.clear();
    }

    /// The entry of a token.
    pub(super) fn of(&mut self, token: u32) -> Option<&mut Entry> {
        let number = self.entry_of.get(token as usize).copied().unwrap_or(0);
        self.entries.get_mut(number.checked_sub(1)? as usize)
    }
}

/// What replacing a pair changes: the tokens before and after it are now beside the product.
#[derive(Default)]
pub(super) struct Changes<P> {
    pub(super) before: Side<P>,
    pub(super) after: Side<P>,
    /// How many pairs were replaced, in the whole text.
    pub(super) merged: u64,
}

impl<P: Place> Changes<P> {
    pub(super) fn clear(&mut self) {
        self.before.clear();
        self.after.clear();
        self.merged = 0;
    }

    /// Replaces a pair at these places, which must be in order, by a token that is in no pair yet.
    fn replace(&mut self, mut part: Part<'_>, places: &[P], pair: (u32, u32), product: u32) {
        for (index, place) in places.iter().enumerate() {
            if let Some(soon) = places.get(index + AHEAD) {
                part.prefetch(soon.at());
            }
            let Some(merged) = part.merge(place.at(), pair, product) else { continue };
            self.merged += merged.count;
            if let Some((token, at)) = merged.before {
                self.before.add(token, merged.count, at);
            }
            if let Some(token) = merged.after {
                self.after.add(token, merged.count, place.at());
            }
        }
    }
}

/// Replaces pairs, with one [`Changes`] for each thread.
pub(super) struct Replacer<P> {
    changes: Vec<Changes<P>>,
    /// From how many places on a pair is replaced on all cores.
    parallel_from: usize,
}

impl<P: Place> Replacer<P> {
    pub(super) fn new(threads: usize, parallel_from: usize) -> Self {
        let changes =
            (0..threads.max(1)).map(|_| Changes { before: Side::default(), after: Side::default(), merged: 0 });
        Self { changes: changes.collect(), parallel_from }
    }

    /// Replaces a pair at these places, which must be in order, by a token that is in no pair yet.
    pub(super) fn replace(
        &mut self,
        words: &mut Words,
        places: &[P],
        pair: (u32, u32),
        product: u32,
    ) -> &mut Changes<P> {
        let threads = self.changes.len();
        if threads > 1 && places.len() >= self.parallel_from {
            let cuts = cuts(words, places, threads);
            let parts = split(words.whole(), places, &cuts);
            let tasks: Vec<_> = self.changes.iter_mut().zip(parts).collect();
            tasks.into_par_iter().for_each(|(changes, (part, range))| {
                changes.replace(part, &places[range], pair, product);
            });
        } else if let Some(changes) = self.changes.first_mut() {
            changes.replace(words.whole(), places, pair, product);
        }
        self.sum()
    }

    fn sum(&mut self) -> &mut Changes<P> {
        let (first, others) = self.changes.split_at_mut(1);
        for other in others {
            first[0].before.append(&mut other.before);
            first[0].after.append(&mut other.after);
            first[0].merged += std::mem::take(&mut other.merged);
        }
        &mut first[0]
    }
}

/// Where to divide the places so that no word is in two parts: (index of the first place after, start of its word).
fn cuts<P: Place>(words: &Words, places: &[P], parts: usize) -> Vec<(usize, usize)> {
    /// How far to look for the start of a word, and at how many places: without one nearby, there is no cut.
    const STEPS: usize = 64;
    let cut_near = |index: usize| {
        let nearby = (index.max(1)..places.len()).take(STEPS);
        let starts = nearby.filter_map(|index| Some((index, words.word_start(places[index].at(), STEPS)?)));
        starts.into_iter().find(|(index, start)| places[index - 1].at() < *start)
    };
    let mut cuts: Vec<_> = (1..parts).filter_map(|part| cut_near(places.len() * part / parts)).collect();
    cuts.dedup();
    cuts
}

/// The parts of the words between cuts, each with the range of its places.
fn split<'w, P: Place>(words: Part<'w>, places: &[P], cuts: &[(usize, usize)]) -> Vec<(Part<'w>, Range<usize>)> {
    let (mut parts, mut rest, mut start) = (Vec::new(), words, 0);
    for &(index, place) in cuts {
        let (before, after) = rest.split_at(place);
        parts.push((before, start..index));
        (rest, start) = (after, index);
    }
    parts.push((rest, start..places.len()));
    parts
}
