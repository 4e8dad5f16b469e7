//! Applies a merge whose product other merges use: they are applied too, at once, as in the encoder.
//!
//! This happens when a token becomes reachable. It is rare, so it is simple rather than fast.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::learner::Learner;
use super::pairs::Place;
use super::words::Words;
use crate::bpe::{pair_key, Merges};

/// What happens to a pair: how much its count grows and shrinks, and the places where it is new.
#[derive(Default)]
struct Change<P> {
    plus: u64,
    minus: u64,
    places: Vec<P>,
}

type Changed<P> = FxHashMap<(u32, u32), Change<P>>;

impl<P: Place> Learner<'_, P> {
    /// Merges a pair at these places, and then whatever merges apply beside it, lowest rank first.
    pub(super) fn merge_further(&mut self, pair: (u32, u32), places: Range<usize>) {
        let changed = self.merge_and_follow(pair, places);
        let mut unknown = Vec::new();
        for (pair, change) in changed {
            let key = pair_key(pair.0, pair.1);
            if self.pairs.table.contains_key(&key) {
                self.update(pair, &change);
            } else if !change.places.is_empty() && !self.refused.contains(&key) {
                unknown.push(key);
            }
        }
        for (key, (count, places)) in count_again::<P>(&self.words, &unknown) {
            if count >= self.pairs.floor {
                self.pairs.set(key, count, &places);
                self.push(((key >> 32) as u32, key as u32), count);
            }
        }
    }

    fn merge_and_follow(&mut self, pair: (u32, u32), places: Range<usize>) -> Changed<P> {
        let mut changed = Changed::default();
        let mut words = std::mem::take(&mut self.words);
        let mut part = words.whole();
        let merges = self.all_merges();
        let entry = |place: usize, pair: (u32, u32)| {
            merges.merge_of(pair.0, pair.1).map(|merge| Reverse((merge.rank, place, pair, merge.product)))
        };
        let first = self.pairs.places[places].iter().filter_map(|place| entry(place.at(), pair));
        let mut heap: BinaryHeap<_> = first.collect();
        while let Some(Reverse((_, place, pair, product))) = heap.pop() {
            let Some(merged) = part.merge(place, pair, product) else { continue };
            changed.entry(pair).or_default().minus += merged.count;
            if let Some((token, at)) = merged.before {
                change(&mut changed, (token, pair.0), (token, product), merged.count, at);
                heap.extend(entry(at, (token, product)));
            }
            if let Some(token) = merged.after {
                change(&mut changed, (pair.1, token), (product, token), merged.count, place);
                heap.extend(entry(place, (product, token)));
            }
        }
        self.words = words;
        changed
    }

    /// Updates a known pair.
    fn update(&mut self, pair: (u32, u32), change: &Change<P>) {
        let key = pair_key(pair.0, pair.1);
        let Some(known) = self.pairs.table.get(&key) else { return };
        let count = known.count + change.plus - change.minus;
        if change.places.is_empty() {
            self.pairs.subtract(pair, change.minus);
            return;
        }
        let mut places = [&self.pairs.places[known.places.clone()], &change.places].concat();
        places.sort_unstable();
        places.dedup();
        let grew = count > known.count;
        self.pairs.set(key, count, &places);
        if grew {
            self.push(pair, count);
        }
    }
}

fn change<P: Place>(changed: &mut Changed<P>, from: (u32, u32), to: (u32, u32), count: u64, place: usize) {
    changed.entry(from).or_default().minus += count;
    let to = changed.entry(to).or_default();
    to.plus += count;
    to.places.push(P::new(place));
}

/// The counts and places of some pairs.
fn count_again<P: Place>(words: &Words, keys: &[u64]) -> Vec<(u64, (u64, Vec<P>))> {
    let mut found: FxHashMap<u64, (u64, Vec<P>)> = keys.iter().map(|&key| (key, (0, Vec::new()))).collect();
    if keys.is_empty() {
        return Vec::new();
    }
    words.for_each_pair(|pair| {
        if let Some((count, places)) = found.get_mut(&pair_key(pair.left, pair.right)) {
            *count += pair.count;
            places.push(P::new(pair.place));
        }
    });
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable_by_key(|(key, _)| *key);
    found
}
