//! Pairs of neighbouring tokens: how often each occurs and where, counted on all cores; and candidates for the next
//! merge in the order they are taken.

use std::cmp::Ordering;
use std::ops::Range;
use std::rc::Rc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::Side;
use super::words::{Neighbours, Words};
use crate::bpe::pair_key;

/// The place of a token: in 32 bits where that is enough, which halves the memory.
pub(super) trait Place: Copy + Ord + Default + Send + Sync {
    fn new(at: usize) -> Self;
    fn at(self) -> usize;
}

impl Place for u32 {
    #[inline(always)]
    fn new(at: usize) -> Self {
        at as u32
    }

    #[inline(always)]
    fn at(self) -> usize {
        self as usize
    }
}

impl Place for u64 {
    #[inline(always)]
    fn new(at: usize) -> Self {
        at as u64
    }

    #[inline(always)]
    fn at(self) -> usize {
        self as usize
    }
}

/// How often a pair occurs, and its places in order; at some of them it may not be any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    pub(super) count: u64,
    /// A range of [`Pairs::places`].
    pub(super) places: Range<usize>,
}

/// The pairs that were frequent enough when they were counted. Others are not known.
#[derive(Default)]
pub(super) struct Pairs<P> {
    pub(super) table: FxHashMap<u64, Pair>,
    pub(super) places: Vec<P>,
    /// Pairs with a smaller count are not in the table when they are counted.
    pub(super) floor: u64,
}

/// The count of a pair, and at how many places it is.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    count: u64,
    places: usize,
}

impl<P: Place> Pairs<P> {
    /// Counts all pairs and keeps those of at least `min_count`; if there are more than `wanted`, only the most
    /// frequent, and all that are as frequent as the last of them. `refused` ones are left out.
    pub(super) fn count(words: &Words, wanted: usize, min_count: u64, refused: &FxHashSet<u64>, shards: usize) -> Self {
        let totals: Vec<_> = (0..shards).into_par_iter().map(|shard| totals(words, shard, shards)).collect();
        let is_candidate = |key: &u64, total: &Total| total.count >= min_count && !refused.contains(key);
        let candidates = totals.iter().flatten().filter(|(key, total)| is_candidate(key, total));
        let mut counts: Vec<u64> = candidates.map(|(_, total)| total.count).collect();
        let floor = match counts.len() > wanted {
            true => *counts.select_nth_unstable_by(wanted, |a, b| b.cmp(a)).1,
            false => min_count,
        };
        let keep = |totals: FxHashMap<u64, Total>| -> Vec<(u64, Total)> {
            totals.into_iter().filter(|(key, total)| total.count >= floor && is_candidate(key, total)).collect()
        };
        Self::placed(words, totals.into_iter().map(keep).collect(), floor)
    }

    /// The same pairs with their places.
    fn placed(words: &Words, shards: Vec<Vec<(u64, Total)>>, floor: u64) -> Self {
        let size = |shard: &Vec<(u64, Total)>| shard.iter().map(|(_, total)| total.places).sum::<usize>();
        let mut places = vec![P::default(); shards.iter().map(size).sum()];
        let mut rest = places.as_mut_slice();
        let mut slices = Vec::with_capacity(shards.len());
        for shard in &shards {
            let (first, after) = std::mem::take(&mut rest).split_at_mut(size(shard));
            slices.push(first);
            rest = after;
        }
        let number = shards.len();
        let tasks: Vec<_> = shards.iter().zip(slices).enumerate().collect();
        tasks.into_par_iter().for_each(|(shard, (totals, slice))| fill(words, (shard, number), totals, slice));
        let mut start = 0;
        let mut table = FxHashMap::default();
        for (key, total) in shards.into_iter().flatten() {
            table.insert(key, Pair { count: total.count, places: start..start + total.places });
            start += total.places;
        }
        Self { table, places, floor }
    }

    /// Takes a pair out: its places, as a range of `places`.
    pub(super) fn remove(&mut self, pair: (u32, u32)) -> Range<usize> {
        self.table.remove(&pair_key(pair.0, pair.1)).unwrap_or_default().places
    }

    /// Sets the count and the places of a pair.
    pub(super) fn set(&mut self, key: u64, count: u64, places: &[P]) {
        let start = self.places.len();
        self.places.extend_from_slice(places);
        self.table.insert(key, Pair { count, places: start..self.places.len() });
    }

    /// Inserts the pairs that tokens on one side make with a new token, if they are frequent enough; returns them.
    pub(super) fn insert(&mut self, side: &Side<P>, pair_with: impl Fn(u32) -> (u32, u32)) -> Vec<((u32, u32), u64)> {
        const NOWHERE: usize = usize::MAX;
        let mut inserted = Vec::new();
        let mut end = self.places.len();
        let mut cursors = vec![NOWHERE; side.entries.len()];
        for (entry, cursor) in side.entries.iter().zip(&mut cursors) {
            if entry.count < self.floor {
                continue;
            }
            let pair = pair_with(entry.token);
            let places = end..end + entry.places;
            (*cursor, end) = (places.start, places.end);
            self.table.insert(pair_key(pair.0, pair.1), Pair { count: entry.count, places });
            inserted.push((pair, entry.count));
        }
        self.places.resize(end, P::default());
        for &(number, place) in &side.places {
            let cursor = &mut cursors[number as usize];
            if *cursor != NOWHERE {
                self.places[*cursor] = place;
                *cursor += 1;
            }
        }
        inserted
    }

    /// Subtracts from the count of a pair, if it is known.
    pub(super) fn subtract(&mut self, pair: (u32, u32), count: u64) {
        if let Some(pair) = self.table.get_mut(&pair_key(pair.0, pair.1)) {
            pair.count -= count;
        }
    }
}

/// The part of the pairs that a shard counts.
#[inline(always)]
fn shard_of(key: u64, shards: usize) -> usize {
    let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (hash * shards as u64 >> 32) as usize
}

/// The totals of the pairs of a shard.
fn totals(words: &Words, shard: usize, shards: usize) -> FxHashMap<u64, Total> {
    let mut totals: FxHashMap<u64, Total> = FxHashMap::default();
    words.for_each_pair(|Neighbours { left, right, count, .. }| {
        let key = pair_key(left, right);
        if shard_of(key, shards) == shard {
            let total = totals.entry(key).or_default();
            total.count += count;
            total.places += 1;
        }
    });
    totals
}

/// Writes the places of the given pairs of a shard to `places`, one pair after the other.
fn fill<P: Place>(words: &Words, (shard, shards): (usize, usize), totals: &[(u64, Total)], places: &mut [P]) {
    let mut start = 0;
    let mut cursors: FxHashMap<u64, usize> = FxHashMap::default();
    for (key, total) in totals {
        cursors.insert(*key, start);
        start += total.places;
    }
    words.for_each_pair(|Neighbours { place, left, right, .. }| {
        let key = pair_key(left, right);
        if shard_of(key, shards) == shard {
            if let Some(cursor) = cursors.get_mut(&key) {
                places[*cursor] = P::new(place);
                *cursor += 1;
            }
        }
    });
}

/// A pair with its count when it was put on the heap.
pub(super) struct Candidate {
    pub(super) count: u64,
    pub(super) left: Rc<str>,
    pub(super) right: Rc<str>,
    pub(super) pair: (u32, u32),
}

impl Ord for Candidate {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let by_strings = || (&other.left, &other.right).cmp(&(&self.left, &self.right));
        self.count.cmp(&other.count).then_with(by_strings)
    }
}

impl PartialOrd for Candidate {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}
