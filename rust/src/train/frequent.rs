//! Counts the frequent pairs of words, on all cores, without a table of all pairs.
//!
//! Most pairs are rare, and a table of all of them is far larger than the cache. So the counts of all pairs are first
//! added up by a hash of the pair, in an array of fixed size: no pair occurs more often than its sum. Only pairs whose
//! sum is large enough are then counted one by one.

use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::pairs::Place;
use super::words::{Neighbours, Words};
use crate::bpe::pair_key;
use crate::memory::free_slots;

/// The sums of the counts of pairs, by a hash.
pub(super) struct Sketch(Vec<u32>);

impl Sketch {
    const BITS: u32 = 20;

    pub(super) fn new(words: &Words, ranges: &[Range<usize>]) -> Self {
        let sum_up = |range: &Range<usize>| {
            let mut sums: Vec<u32> = free_slots(1 << Self::BITS);
            words.for_each_pair_in(range.clone(), |Neighbours { left, right, count, .. }| {
                let sum = &mut sums[Self::place(pair_key(left, right))];
                *sum = sum.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            });
            sums
        };
        let add = |mut sums: Vec<u32>, more: Vec<u32>| {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            sums
        };
        Self(ranges.par_iter().map(sum_up).reduce_with(add).unwrap_or_default())
    }

    #[inline]
    fn place(key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - Self::BITS)) as usize
    }

    /// A count that about `wanted` pairs reach; 1 if there are not so many.
    pub(super) fn floor(&self, wanted: usize) -> u64 {
        let mut sums: Vec<u32> = self.0.iter().copied().filter(|&sum| sum > 0).collect();
        if sums.len() <= wanted {
            return 1;
        }
        u64::from(*sums.select_nth_unstable_by(wanted, |a, b| b.cmp(a)).1)
    }

    /// Whether a pair may occur at least `floor` times.
    #[inline]
    fn may_reach(&self, key: u64, floor: u64) -> bool {
        let sum = self.0[Self::place(key)];
        sum == u32::MAX || u64::from(sum) >= floor
    }
}

/// The count of a pair in a range, and at how many places it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Total {
    pub(super) count: u64,
    places: usize,
}

/// The pairs of a range that may be frequent.
pub(super) struct Totals {
    pub(super) totals: Vec<(u64, Total)>,
    indices: FxHashMap<u64, usize>,
}

/// Not the index of a pair.
const NONE: usize = usize::MAX;

impl Totals {
    pub(super) fn new(words: &Words, range: &Range<usize>, sketch: &Sketch, floor: u64) -> Self {
        let mut totals: Vec<(u64, Total)> = Vec::new();
        let mut indices: FxHashMap<u64, usize> = FxHashMap::default();
        let mut recent = Recent::new();
        words.for_each_pair_in(range.clone(), |Neighbours { left, right, count, number, .. }| {
            let key = pair_key(left, right);
            let index = recent.get_or_insert(number, key, || match sketch.may_reach(key, floor) {
                true => *indices.entry(key).or_insert_with(|| {
                    totals.push((key, Total::default()));
                    totals.len() - 1
                }),
                false => NONE,
            });
            if let Some((_, total)) = totals.get_mut(index) {
                total.count += count;
                total.places += 1;
            }
        });
        Self { totals, indices }
    }

    /// The places of the pairs that are kept.
    pub(super) fn lists<P: Place>(
        self,
        words: &Words,
        range: &Range<usize>,
        is_kept: impl Fn(&u64) -> bool,
    ) -> Lists<P> {
        let Self { totals, indices } = self;
        let (mut starts, mut end) = (Vec::with_capacity(totals.len()), 0);
        for (key, total) in &totals {
            let kept = is_kept(key);
            starts.push(if kept { end } else { NONE });
            end += if kept { total.places } else { 0 };
        }
        let (mut cursors, mut places) = (starts.clone(), vec![P::default(); end]);
        let mut recent = Recent::new();
        words.for_each_pair_in(range.clone(), |Neighbours { place, left, right, number, .. }| {
            let key = pair_key(left, right);
            let index = recent.get_or_insert(number, key, || indices.get(&key).copied().unwrap_or(NONE));
            if let Some(cursor) = cursors.get_mut(index).filter(|cursor| **cursor != NONE) {
                places[*cursor] = P::new(place);
                *cursor += 1;
            }
        });
        let ranges = starts.into_iter().zip(cursors).map(|(start, end)| start..end).collect();
        Lists { indices, ranges, places }
    }
}

/// The places of pairs in a range of words.
pub(super) struct Lists<P> {
    indices: FxHashMap<u64, usize>,
    /// Ranges of `places`; empty for pairs that are not kept.
    ranges: Vec<Range<usize>>,
    places: Vec<P>,
}

impl<P> Lists<P> {
    pub(super) fn of(&self, key: u64) -> &[P] {
        let index = self.indices.get(&key).copied().unwrap_or(NONE);
        self.ranges.get(index).and_then(|range| self.places.get(range.clone())).unwrap_or(&[])
    }
}

/// The indices of recent pairs, by their number in the word. Words are sorted: many begin with the same pairs.
struct Recent([(u64, usize); Recent::SIZE]);

impl Recent {
    const SIZE: usize = 64;

    fn new() -> Self {
        Self([(u64::MAX, NONE); Self::SIZE])
    }

    #[inline]
    fn get_or_insert(&mut self, number: usize, key: u64, index: impl FnOnce() -> usize) -> usize {
        let recent = &mut self.0[number % Self::SIZE];
        if recent.0 != key {
            *recent = (key, index());
        }
        recent.1
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::super::pairs::Pairs;
    use super::super::words::BOUNDARY;
    use super::*;
    use crate::bpe::Random;

    #[test]
    fn frequent_pairs_are_counted_exactly_whatever_the_number_of_threads() {
        let mut random = Random(7);
        for round in 0..60 {
            let mut words = Words::default();
            for _ in 0..random.below(300) {
                let mut word: Vec<u32> = (0..2 + random.below(6)).map(|_| random.below(9) as u32).collect();
                word.push(BOUNDARY);
                words.append(&word, std::iter::once(1 + random.below(50) as u64));
            }
            let mut all: FxHashMap<u64, (u64, Vec<usize>)> = FxHashMap::default();
            words.for_each_pair_in(0..words.len(), |pair| {
                let (count, places) = all.entry(pair_key(pair.left, pair.right)).or_default();
                *count += pair.count;
                places.push(pair.place);
            });
            let refused: FxHashSet<u64> = [pair_key(1, 2)].into_iter().collect();
            let wanted = [1, 10, 1000][round % 3];
            for threads in 1..4 {
                let pairs = Pairs::<u32>::count(&words, wanted, 5, &refused, threads);
                let is_known =
                    |(key, (count, _)): &(&u64, &(u64, Vec<usize>))| *count >= pairs.floor && !refused.contains(key);
                assert_eq!(pairs.table.len(), all.iter().filter(is_known).count());
                for (key, pair) in &pairs.table {
                    let places = pairs.places[pair.places.clone()].iter().map(|place| place.at()).collect();
                    assert_eq!((pair.count, places), all[key]);
                }
                assert!(wanted < 1000 || pairs.floor == 5);
            }
        }
    }
}
