//! Counts the frequent pairs of words, on all cores, without a table of all pairs.
//!
//! Most pairs are rare, and a table of all of them is far larger than the cache. So the counts of all pairs are first
//! added up by a hash of the pair: no pair occurs more often than its sum. Only pairs whose sum is large enough are then
//! counted one by one, in short lists, one for each such hash.
//!
//! Pairs are looked up in blocks: all loads of a block are under way before the first one is needed.

use std::ops::Range;

use rayon::prelude::*;

use super::pairs::Place;
use super::words::{Neighbours, Reader};
use crate::bpe::pair_key;
use crate::memory::{free_slots, prefetch};

/// The sums of the counts of pairs, by a hash.
pub(super) struct Sketch(Vec<u32>);

impl Sketch {
    /// Sums are about as many as there are slots of words for each of these.
    const SLOTS_A_SUM: usize = 16;
    /// Far more than the pairs that are wanted. Few in tests, so that pairs share a sum.
    const LEAST: usize = if cfg!(test) { 1 << 4 } else { 1 << 20 };

    pub(super) fn new(words: Reader<'_>, ranges: &[Range<usize>]) -> Self {
        let size = (words.len() / Self::SLOTS_A_SUM).next_power_of_two().max(Self::LEAST);
        let sum_up = |range: &Range<usize>| {
            let mut sums: Vec<u32> = free_slots(size);
            words.for_each_pair_in(range.clone(), |Neighbours { left, right, count, .. }| {
                let sum = &mut sums[cell(pair_key(left, right), size)];
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

    /// A count that about `wanted` pairs reach; 1 if there are not so many.
    pub(super) fn floor(&self, wanted: usize) -> u64 {
        let mut sums: Vec<u32> = self.0.iter().copied().filter(|&sum| sum > 0).collect();
        if sums.len() <= wanted {
            return 1;
        }
        u64::from(*sums.select_nth_unstable_by(wanted, |a, b| b.cmp(a)).1)
    }

    /// The hashes of pairs that may occur at least `floor` times.
    pub(super) fn hashes(self, floor: u64) -> Hashes {
        let (mut numbers, mut count) = (self.0, 0);
        for number in &mut numbers {
            let is_frequent = *number == u32::MAX || u64::from(*number) >= floor;
            *number = if is_frequent { count } else { NONE };
            count += u32::from(is_frequent);
        }
        Hashes { numbers, count: count as usize }
    }
}

/// The place of a pair in an array whose size is a power of two.
#[inline(always)]
fn cell(key: u64, size: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (size - 1)
}

/// Not the number of a hash.
const NONE: u32 = u32::MAX;

/// The hashes that frequent pairs may have, numbered.
pub(super) struct Hashes {
    /// By hash; `NONE` if no pair that has it is frequent.
    numbers: Vec<u32>,
    count: usize,
}

impl Hashes {
    /// The number of a pair's hash, or `NONE`.
    #[inline(always)]
    fn number(&self, key: u64) -> u32 {
        self.numbers[cell(key, self.numbers.len())]
    }

    /// Calls `each` with the neighbours in a range that may be frequent, their key and the number of its hash, in order.
    /// Calls `soon` with that number a little earlier.
    #[inline]
    fn for_each_in<T>(
        &self,
        words: Reader<'_>,
        range: &Range<usize>,
        items: &mut T,
        soon: impl Fn(&T, usize),
        mut each: impl FnMut(&mut T, &Neighbours, u64, usize),
    ) {
        let mut numbers = [NONE; Reader::BLOCK];
        words.for_each_block_in(range.clone(), |block| {
            for (number, pair) in numbers.iter_mut().zip(block) {
                *number = self.number(pair_key(pair.left, pair.right)); // no branch: the loads do not wait for each other
            }
            let numbers = &numbers[..block.len()];
            numbers.iter().for_each(|&number| soon(items, number as usize));
            for (&number, pair) in numbers.iter().zip(block).filter(|(number, _)| **number != NONE) {
                each(items, pair, pair_key(pair.left, pair.right), number as usize);
            }
        });
    }
}

/// Values by pair: a list for each hash. The first item of each list is at the number of the hash.
struct Table<T>(Vec<Item<T>>);

#[derive(Debug, Clone)]
struct Item<T> {
    key: u64,
    /// Where the next item of the list is; 0 if there is none.
    next: usize,
    value: T,
}

impl<T: Clone + Default> Table<T> {
    /// Not the key of a pair: tokens are numbered below 2^31.
    const FREE: u64 = u64::MAX;

    fn new(hashes: &Hashes) -> Self {
        Self(vec![Item { key: Self::FREE, next: 0, value: T::default() }; hashes.count])
    }

    /// The value of a pair whose hash has this number.
    #[inline]
    fn value(&mut self, number: usize, key: u64) -> &mut T {
        let mut at = number;
        while self.0[at].key != key {
            if self.0[at].key == Self::FREE {
                self.0[at].key = key;
            } else if self.0[at].next > 0 {
                at = self.0[at].next;
            } else {
                self.0[at].next = self.0.len();
                at = self.0.len();
                self.0.push(Item { key, next: 0, value: T::default() });
            }
        }
        &mut self.0[at].value
    }

    /// The value of a pair whose hash has this number, if it was set.
    #[inline]
    fn get_mut(&mut self, number: usize, key: u64) -> Option<&mut T> {
        self.place(number, key).map(|at| &mut self.0[at].value)
    }

    #[inline]
    fn place(&self, mut at: usize, key: u64) -> Option<usize> {
        while self.0[at].key != key {
            at = self.0[at].next;
            if at == 0 {
                return None;
            }
        }
        Some(at)
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().filter(|item| item.key != Self::FREE).map(|item| (item.key, &item.value))
    }

    /// Starts to load the first item of a list.
    #[inline(always)]
    fn prefetch(&self, number: usize) {
        prefetch(&self.0, number);
    }
}

/// The count of a pair in a range, and at how many places it is.
#[derive(Debug, Clone, Default)]
struct Total {
    count: u64,
    places: usize,
}

/// The pairs of a range that may be frequent.
pub(super) struct Totals(Table<Total>);

impl Totals {
    pub(super) fn new(words: Reader<'_>, range: &Range<usize>, hashes: &Hashes) -> Self {
        let mut totals = Table::<Total>::new(hashes);
        hashes.for_each_in(words, range, &mut totals, Table::prefetch, |totals, pair, key, number| {
            let total = totals.value(number, key);
            total.count += pair.count;
            total.places += 1;
        });
        Self(totals)
    }

    /// Every pair with its count.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(key, total)| (key, total.count))
    }

    /// The places of the pairs that are kept.
    pub(super) fn lists<P: Place>(
        self,
        words: Reader<'_>,
        range: &Range<usize>,
        hashes: &Hashes,
        is_kept: impl Fn(&u64) -> bool,
    ) -> Lists<P> {
        let (mut ends, mut end) = (Table::<Range<usize>>::new(hashes), 0);
        for (key, total) in self.0.iter().filter(|(key, _)| is_kept(key)) {
            *ends.value(hashes.number(key) as usize, key) = end..end;
            end += total.places;
        }
        drop(self);
        let mut lists = Lists { ranges: ends, places: vec![P::default(); end] };
        hashes.for_each_in(
            words,
            range,
            &mut lists,
            |lists, number| lists.ranges.prefetch(number),
            |lists, pair, key, number| {
                if let Some(range) = lists.ranges.get_mut(number, key) {
                    lists.places[range.end] = P::new(pair.place);
                    range.end += 1;
                }
            },
        );
        lists
    }
}

/// The places of pairs in a range of words.
pub(super) struct Lists<P> {
    /// Ranges of `places`, of the pairs that are kept.
    ranges: Table<Range<usize>>,
    places: Vec<P>,
}

impl<P> Lists<P> {
    pub(super) fn of(&self, hashes: &Hashes, key: u64) -> &[P] {
        let at = self.ranges.place(hashes.number(key) as usize, key);
        at.and_then(|at| self.places.get(self.ranges.0[at].value.clone())).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::{FxHashMap, FxHashSet};

    use super::super::pairs::Pairs;
    use super::super::words::{Words, BOUNDARY};
    use super::*;
    use crate::bpe::Random;
    use crate::stop::Stop;

    #[test]
    fn frequent_pairs_are_counted_exactly_whatever_the_number_of_threads() {
        let (mut random, never) = (Random(7), Stop::default());
        for round in 0..60 {
            let mut words = Words::default();
            for _ in 0..random.below(300) {
                let mut word: Vec<u32> = (0..2 + random.below(6)).map(|_| random.below(9) as u32).collect();
                word.push(BOUNDARY);
                words.append(&word, std::iter::once(1 + random.below(50) as u64));
            }
            let mut all: FxHashMap<u64, (u64, Vec<usize>)> = FxHashMap::default();
            words.reader(&never).for_each_pair_in(0..words.len(), |pair| {
                let (count, places) = all.entry(pair_key(pair.left, pair.right)).or_default();
                *count += pair.count;
                places.push(pair.place);
            });
            let refused: FxHashSet<u64> = [pair_key(1, 2)].into_iter().collect();
            let wanted = [1, 10, 1000][round % 3];
            for threads in 1..4 {
                let pairs = Pairs::<u32>::count(words.reader(&never), wanted, 5, &refused, threads).unwrap();
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
