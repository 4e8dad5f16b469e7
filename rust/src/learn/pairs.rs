//! Pairs of neighbouring tokens: how often each occurs and where, counted on all cores; and candidates for the next
//! merge in the order they are taken.

use std::cmp::Ordering;
use std::ops::Range;
use std::rc::Rc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::Side;
use super::frequent::{Lists, Sketch, Totals};
use super::words::Reader;
use crate::bpe::pair_key;
use crate::error::Result;

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

impl<P: Place> Pairs<P> {
    /// Counts the most frequent pairs: about `wanted`, none below `min_count`, and none of `refused`.
    pub(super) fn count(
        words: Reader<'_>,
        wanted: usize,
        min_count: u64,
        refused: &FxHashSet<u64>,
        threads: usize,
    ) -> Result<Self> {
        let ranges = words.ranges(threads);
        let sketch = Sketch::new(words, &ranges);
        let floor = sketch.floor(wanted).max(min_count);
        let hashes = sketch.hashes(floor);
        let parts: Vec<Totals> = ranges.par_iter().map(|range| Totals::new(words, range, &hashes)).collect();
        words.stop.check()?;
        let mut sums: FxHashMap<u64, u64> = FxHashMap::default();
        for (key, count) in parts.iter().flat_map(Totals::counts) {
            *sums.entry(key).or_default() += count;
        }
        let is_kept = |key: &u64| sums.get(key).is_some_and(|&sum| sum >= floor) && !refused.contains(key);
        let lists: Vec<Lists<P>> =
            ranges.par_iter().zip(parts).map(|(range, part)| part.lists(words, range, &hashes, is_kept)).collect();
        words.stop.check()?;
        let mut pairs = Self { table: FxHashMap::default(), places: Vec::new(), floor };
        for (&key, &count) in sums.iter().filter(|(key, _)| is_kept(key)) {
            pairs.set(key, count, lists.iter().map(|lists| lists.of(&hashes, key)));
        }
        Ok(pairs)
    }

    /// Takes a pair out: its places, as a range of `places`.
    pub(super) fn remove(&mut self, pair: (u32, u32)) -> Range<usize> {
        self.table.remove(&pair_key(pair.0, pair.1)).unwrap_or_default().places
    }

    /// Sets the count and the places of a pair, given in parts.
    pub(super) fn set<'p>(&mut self, key: u64, count: u64, parts: impl IntoIterator<Item = &'p [P]>)
    where
        P: 'p,
    {
        let start = self.places.len();
        parts.into_iter().for_each(|places| self.places.extend_from_slice(places));
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

/// A pair with its count when it was put on the heap.
#[derive(Clone)]
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
