//! Applies a merge whose product other merges use: they are applied too, at once, as in the encoder.
//!
//! This happens when a token becomes reachable. It is rare, so it is simple rather than fast.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::model::Model;
use super::pairs::Place;
use super::text::Text;
use super::words::Reader;
use crate::bpe::{pair_key, Merges};
use crate::error::Result;
use crate::stop::Stop;

/// What happens to a pair: how much its count grows and shrinks, and the places where it is new.
#[derive(Default)]
struct Change<P> {
    plus: u64,
    minus: u64,
    places: Vec<P>,
}

type Changed<P> = FxHashMap<(u32, u32), Change<P>>;
/// Counts and places of pairs.
type Counted<P> = FxHashMap<u64, (u64, Vec<P>)>;

impl<P: Place> Text<P> {
    /// Merges a pair at these places, and then whatever merges apply beside it, lowest rank first.
    pub(super) fn merge_further(
        &mut self,
        model: &Model<'_>,
        refused: &FxHashSet<u64>,
        (pair, places): ((u32, u32), Range<usize>),
        (threads, stop): (usize, &Stop),
    ) -> Result<()> {
        let (changed, products) = self.merge_and_follow(model, pair, places);
        let mut unknown = Vec::new();
        for (pair, change) in changed {
            let key = pair_key(pair.0, pair.1);
            if self.pairs.table.contains_key(&key) {
                self.update(model, pair, change);
            } else if change.places.is_empty() || refused.contains(&key) {
                continue;
            } else if self.words.has_occurred(pair.0) && self.words.has_occurred(pair.1) {
                unknown.push(key);
            } else {
                self.add(model, pair, change.plus - change.minus, change.places);
            }
        }
        products.into_iter().for_each(|token| self.words.set_occurred(token));
        for (key, (count, places)) in count_again::<P>(self.words.reader(stop), &unknown, threads)? {
            self.add(model, ((key >> 32) as u32, key as u32), count, places);
        }
        Ok(())
    }

    /// Adds a pair that was not known, if it is frequent enough.
    fn add(&mut self, model: &Model<'_>, pair: (u32, u32), count: u64, mut places: Vec<P>) {
        if count >= self.pairs.floor {
            places.sort_unstable();
            places.dedup();
            self.pairs.set(pair_key(pair.0, pair.1), count, [places.as_slice()]);
            self.push(model, pair, count);
        }
    }

    fn merge_and_follow(
        &mut self,
        model: &Model<'_>,
        pair: (u32, u32),
        places: Range<usize>,
    ) -> (Changed<P>, FxHashSet<u32>) {
        let (mut changed, mut products) = (Changed::default(), FxHashSet::default());
        let mut words = std::mem::take(&mut self.words);
        let mut part = words.whole();
        let merges = model.all_merges();
        let entry = |place: usize, pair: (u32, u32)| {
            merges.merge_of(pair.0, pair.1).map(|merge| Reverse((merge.rank, place, pair, merge.product)))
        };
        let first = self.pairs.places[places].iter().filter_map(|place| entry(place.at(), pair));
        let mut heap: BinaryHeap<_> = first.collect();
        while let Some(Reverse((_, place, pair, product))) = heap.pop() {
            let Some(merged) = part.merge(place, pair, product) else { continue };
            products.insert(product);
            self.merged += merged.count;
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
        (changed, products)
    }

    /// Updates a known pair.
    fn update(&mut self, model: &Model<'_>, pair: (u32, u32), change: Change<P>) {
        let key = pair_key(pair.0, pair.1);
        let Some(known) = self.pairs.table.get(&key) else { return };
        let count = known.count + change.plus - change.minus;
        if change.places.is_empty() {
            self.pairs.subtract(pair, change.minus);
            return;
        }
        let mut places = change.places;
        places.extend_from_slice(&self.pairs.places[known.places.clone()]);
        places.sort_unstable();
        places.dedup();
        let grew = count > known.count;
        self.pairs.set(key, count, [places.as_slice()]);
        if grew {
            self.push(model, pair, count);
        }
    }
}

fn change<P: Place>(changed: &mut Changed<P>, from: (u32, u32), to: (u32, u32), count: u64, place: usize) {
    changed.entry(from).or_default().minus += count;
    let to = changed.entry(to).or_default();
    to.plus += count;
    to.places.push(P::new(place));
}

/// The counts and places of some pairs, on all cores.
fn count_again<P: Place>(words: Reader<'_>, keys: &[u64], threads: usize) -> Result<Counted<P>> {
    if keys.is_empty() {
        return Ok(Counted::default());
    }
    let parts: Vec<Counted<P>> =
        words.ranges(threads).into_par_iter().map(|range| count_in(words, range, keys)).collect();
    words.stop.check()?;
    let mut all = Counted::default();
    for (key, (count, places)) in parts.into_iter().flatten() {
        let sum = all.entry(key).or_default();
        sum.0 += count;
        sum.1.extend(places);
    }
    Ok(all)
}

fn count_in<P: Place>(words: Reader<'_>, range: Range<usize>, keys: &[u64]) -> Counted<P> {
    let left = |key: u64| (key >> 32) as usize;
    let last = keys.iter().map(|&key| left(key)).max().unwrap_or(0);
    let mut is_left = vec![false; last + 1]; // most pairs are none of these, and this says so quickly
    keys.iter().for_each(|&key| is_left[left(key)] = true);
    let mut counted: Counted<P> = keys.iter().map(|&key| (key, (0, Vec::new()))).collect();
    words.for_each_pair_in(range, |pair| {
        if !is_left.get(pair.left as usize).is_some_and(|is| *is) {
            return;
        }
        if let Some((count, places)) = counted.get_mut(&pair_key(pair.left, pair.right)) {
            *count += pair.count;
            places.push(P::new(pair.place));
        }
    });
    counted
}
