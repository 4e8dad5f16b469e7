//! One text in training: its words, its pairs, and the candidates for the next merge.

use std::collections::BinaryHeap;
use std::ops::Range;

use rustc_hash::FxHashSet;

use super::changes::Replacer;
use super::model::Model;
use super::pairs::{Candidate, Pairs, Place};
use super::words::Words;
use crate::bpe::pair_key;
use crate::error::Result;
use crate::stop::Stop;

/// The words and pairs of a text.
pub(super) struct Text<P> {
    pub(super) words: Words,
    pub(super) pairs: Pairs<P>,
    /// The known pairs that occur at least `min_count` times, with their counts when they were put there.
    heap: BinaryHeap<Candidate>,
    min_count: u64,
    known: Known,
    /// How many tokens were merged away, in the whole text.
    pub(super) merged: u64,
}

/// Which pairs of a text are known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    /// About so many, the most frequent; more when they run out.
    Frequent(usize),
    /// All of them: they are merged when another text asks for it.
    All,
}

impl<P: Place> Text<P> {
    /// A text whose pairs are candidates if they occur at least `min_count` times.
    pub(super) fn new(words: Words, min_count: u64, known: Known) -> Self {
        let pairs = Pairs { floor: u64::MAX, ..Pairs::default() };
        Self { words, pairs, heap: BinaryHeap::new(), min_count: min_count.max(1), known, merged: 0 }
    }

    /// Counts the pairs and puts the candidates on the heap: more of them each time.
    pub(super) fn count_pairs(
        &mut self,
        model: &Model<'_>,
        refused: &FxHashSet<u64>,
        threads: usize,
        stop: &Stop,
    ) -> Result<()> {
        self.pairs = Pairs::default(); // frees the memory before more is taken
        let wanted = match &mut self.known {
            Known::Frequent(wanted) => std::mem::replace(wanted, wanted.saturating_mul(2)),
            Known::All => usize::MAX,
        };
        self.pairs = Pairs::count(self.words.reader(stop), wanted, self.lowest_floor(), refused, threads)?;
        let tokens = |key: u64| ((key >> 32) as u32, key as u32);
        let frequent = self.pairs.table.iter().filter(|(_, pair)| pair.count >= self.min_count);
        let candidates: Vec<_> = frequent.map(|(&key, pair)| model.candidate(tokens(key), pair.count)).collect();
        self.heap = BinaryHeap::from(candidates);
        Ok(())
    }

    fn lowest_floor(&self) -> u64 {
        match self.known {
            Known::Frequent(_) => self.min_count,
            Known::All => 1,
        }
    }

    /// Puts a pair on the heap with the count it has now, unless that is too small.
    pub(super) fn push(&mut self, model: &Model<'_>, pair: (u32, u32), count: u64) {
        if count >= self.pairs.floor.max(self.min_count) {
            self.heap.push(model.candidate(pair, count));
        }
    }

    /// Takes the most frequent pair from the heap. None if no pair is frequent enough.
    pub(super) fn pop(
        &mut self,
        model: &Model<'_>,
        refused: &FxHashSet<u64>,
        threads: usize,
        stop: &Stop,
    ) -> Result<Option<Candidate>> {
        loop {
            stop.check()?;
            let Some(best) = self.heap.pop() else {
                if self.pairs.floor <= self.lowest_floor() {
                    return Ok(None);
                }
                self.count_pairs(model, refused, threads, stop)?;
                continue;
            };
            let key = pair_key(best.pair.0, best.pair.1);
            let Some(count) = self.pairs.table.get(&key).map(|pair| pair.count) else { continue };
            if count == best.count {
                return Ok(Some(best));
            }
            // The count has changed since. If it grew, a newer candidate is on the heap, and this one is dropped.
            if count < best.count {
                self.push(model, best.pair, count);
            }
        }
    }

    /// Replaces a pair by a token that is in no pair yet.
    pub(super) fn replace(
        &mut self,
        model: &Model<'_>,
        replacer: &mut Replacer<P>,
        (pair, places): ((u32, u32), Range<usize>),
        product: u32,
    ) {
        let (left, right) = pair;
        let changes = replacer.replace(&mut self.words, &self.pairs.places[places], pair, product);
        self.merged += changes.merged;
        for entry in changes.before.entries.iter().filter(|entry| entry.token != product) {
            self.pairs.subtract((entry.token, left), entry.count);
        }
        for entry in &changes.after.entries {
            self.pairs.subtract((right, entry.token), entry.count);
        }
        // Where two pairs followed each other, the product and the left token were neighbours for a moment.
        let moment = changes.before.of(product).map_or(0, |entry| entry.count);
        if let Some(entry) = changes.after.of(left) {
            entry.count -= moment;
        }
        let mut new = Vec::new();
        for (side, is_before) in [(&changes.before, true), (&changes.after, false)] {
            let pair_with = |token: u32| if is_before { (token, product) } else { (product, token) };
            new.extend(self.pairs.insert(side, pair_with));
        }
        changes.clear();
        self.words.set_occurred(product);
        new.into_iter().for_each(|(pair, count)| self.push(model, pair, count));
    }
}
