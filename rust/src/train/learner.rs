//! The training loop: takes the most frequent pair, adds its merge, and updates the words and pairs it changes.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::pairs::{Candidate, Pair};
use super::ranks::{AllMerges, RankSpace};
use super::task::{InterruptChecks, LearnedMerge, Task};
use super::words::Words;
use crate::bpe::{pair_key, Alphabet, Bpe, Merge, Merges};
use crate::error::Result;

/// The state of training.
pub(super) struct Learner<'b> {
    bpe: &'b Bpe,
    words: Words,
    alphabet: Alphabet,
    pairs: FxHashMap<u64, Pair>,
    heap: BinaryHeap<Candidate>,
    strings: Vec<Rc<str>>,
    /// New tokens by their string.
    new: FxHashMap<Rc<str>, u32>,
    /// Learned merges, beside those of the base.
    merges: FxHashMap<(u32, u32), Merge>,
    pub(super) learned: Vec<LearnedMerge>,
    /// Pairs whose count grew in the current step.
    grown: Vec<(u32, u32)>,
    /// Pairs with smaller counts are not on the heap: most are never merged, and a small heap stays in the cache.
    floor: u64,
    rank_space: RankSpace,
}

impl<'b> Learner<'b> {
    pub(super) fn new(
        bpe: &'b Bpe,
        words: Words,
        alphabet: Alphabet,
        task: &Task,
        interrupts: &mut InterruptChecks<'_>,
    ) -> Result<Self> {
        let mut pairs: FxHashMap<u64, Pair> = FxHashMap::default();
        for number in 0..words.starts.len() as u32 {
            interrupts.step(words.lengths[number as usize] as usize)?;
            let count = words.counts[number as usize];
            for pair in words.word(number).windows(2) {
                let pair = pairs.entry(pair_key(pair[0], pair[1])).or_default();
                pair.count = pair.count.saturating_add(count);
                if pair.words.last() != Some(&number) {
                    pair.words.push(number);
                }
            }
        }
        let strings: Vec<Rc<str>> = (0..bpe.len() as u32).map(|index| Rc::from(bpe.string(index))).collect();
        let mut learner = Self {
            bpe,
            words,
            alphabet,
            pairs,
            heap: BinaryHeap::new(),
            strings,
            new: FxHashMap::default(),
            merges: FxHashMap::default(),
            learned: Vec::new(),
            grown: Vec::new(),
            floor: u64::MAX,
            rank_space: RankSpace::new(&task.unreachable_ranks),
        };
        learner.lower_floor(task);
        Ok(learner)
    }

    /// Lowers the floor and puts the most frequent of the pairs below the old one on the heap. The heap must be empty.
    fn lower_floor(&mut self, task: &Task) {
        let wanted = task.max_candidates.max(1);
        let below = |pair: &Pair| !pair.refused && pair.count >= task.min_count && pair.count < self.floor;
        let mut counts: Vec<u64> = self.pairs.values().filter(|pair| below(pair)).map(|pair| pair.count).collect();
        let floor = if counts.len() > wanted {
            *counts.select_nth_unstable_by(wanted, |a, b| b.cmp(a)).1
        } else {
            task.min_count
        };
        let chosen = self.pairs.iter().filter(|(_, pair)| below(pair) && pair.count >= floor);
        let tokens = |key: u64| ((key >> 32) as u32, key as u32);
        let candidates: Vec<Candidate> = chosen.map(|(&key, pair)| self.candidate(tokens(key), pair.count)).collect();
        self.heap = BinaryHeap::from(candidates);
        self.floor = floor;
    }

    pub(super) fn learned_strings(&self) -> Vec<String> {
        self.strings[self.bpe.len()..].iter().map(|string| string.to_string()).collect()
    }

    fn candidate(&self, pair: (u32, u32), count: u64) -> Candidate {
        let string = |token: u32| Rc::clone(&self.strings[token as usize]);
        Candidate { count, left: string(pair.0), right: string(pair.1), pair }
    }

    pub(super) fn learn(&mut self, task: &Task, interrupts: &mut InterruptChecks<'_>) -> Result<()> {
        while self.new.len() < task.tokens {
            interrupts.step(InterruptChecks::STEP)?;
            let Some(best) = self.heap.pop() else {
                if self.floor <= task.min_count {
                    break;
                }
                self.lower_floor(task);
                continue;
            };
            let Some(pair) = self.pairs.get(&pair_key(best.pair.0, best.pair.1)) else { continue };
            if pair.count != best.count {
                // The count has changed since. If it grew, a newer candidate is on the heap, and this one is dropped.
                if pair.count >= self.floor && pair.count < best.count {
                    let candidate = self.candidate(best.pair, pair.count);
                    self.heap.push(candidate);
                }
                continue;
            }
            let string: String = [&*best.left, &*best.right].concat();
            let too_long = self.alphabet.byte_length(&string) > task.max_token_bytes;
            let against_rules = task.rules.is_some_and(|rules| !rules.allow(&string));
            let has_forbidden_part = self.may_not_be_part(best.pair.0, task) || self.may_not_be_part(best.pair.1, task);
            let unwanted = too_long || against_rules || has_forbidden_part || task.forbidden.contains(&string);
            if unwanted || !interrupts.callbacks.allow(&string) {
                let refused = Pair { refused: true, ..Pair::default() };
                self.pairs.insert(pair_key(best.pair.0, best.pair.1), refused);
                continue;
            }
            self.append(best, string, task, interrupts)?;
        }
        // The last call of `allow` may have asked to stop.
        interrupts.check_now()
    }

    /// Whether a token may not be part of another.
    fn may_not_be_part(&self, token: u32, task: &Task) -> bool {
        let is_base = (token as usize) < self.bpe.len();
        task.forbidden.contains(&*self.strings[token as usize]) || is_base && self.bpe.is_placeholder(token)
    }

    /// Appends a merge and applies it to every word that has its pair.
    fn append(
        &mut self,
        best: Candidate,
        string: String,
        task: &Task,
        interrupts: &mut InterruptChecks<'_>,
    ) -> Result<()> {
        let existing = self.bpe.index(&string).or_else(|| self.new.get(string.as_str()).copied());
        let product = existing.unwrap_or_else(|| {
            let token = self.strings.len() as u32;
            let string: Rc<str> = Rc::from(string);
            self.strings.push(Rc::clone(&string));
            self.new.insert(string, token);
            token
        });
        let became_reachable = existing.is_some() || self.makes_reachable(product, task);
        let rank = self.rank_space.rank((self.bpe.merge_count() + self.learned.len()) as u32);
        self.merges.insert(best.pair, Merge { rank, product });
        let (left, right) = best.pair;
        self.learned.push(LearnedMerge { left, right, product, count: best.count });
        let words = self.pairs.remove(&pair_key(best.pair.0, best.pair.1)).map(|pair| pair.words).unwrap_or_default();
        for number in words {
            interrupts.step(self.words.lengths[number as usize] as usize)?;
            if became_reachable {
                self.encode_again(number);
            } else {
                self.replace(number, best.pair, product);
            }
        }
        self.pairs.remove(&pair_key(best.pair.0, best.pair.1));
        for pair in std::mem::take(&mut self.grown) {
            let count = self.pairs.get(&pair_key(pair.0, pair.1)).map_or(0, |pair| pair.count);
            if count >= self.floor {
                let candidate = self.candidate(pair, count);
                self.heap.push(candidate);
            }
        }
        Ok(())
    }

    /// Adds the merges by which a new token makes unreachable tokens reachable; returns whether there are any.
    ///
    /// They are placed before the merge of the new token among the learned ones, so that a prefix of the result that
    /// ends at a token has all merges that belong to it.
    fn makes_reachable(&mut self, token: u32, task: &Task) -> bool {
        let string = Rc::clone(&self.strings[token as usize]);
        let known = |rest: &str| self.bpe.index(rest).or_else(|| self.new.get(rest).copied());
        let mut merges = Vec::new();
        for (unreachable, rank, order) in &task.unreachable_ranks {
            let Some(product) = self.bpe.index(unreachable) else { continue };
            let after = unreachable.strip_prefix(&*string).and_then(known).map(|rest| (token, rest));
            let before = unreachable.strip_suffix(&*string).and_then(known).map(|rest| (rest, token));
            let merge = Merge { rank: self.rank_space.rank_before(*rank, *order), product };
            merges.extend(after.into_iter().chain(before).map(|pair| (pair, merge)));
        }
        merges.retain(|((left, right), _)| !self.may_not_be_part(*left, task) && !self.may_not_be_part(*right, task));
        merges.dedup();
        for &((left, right), merge) in &merges {
            self.merges.insert((left, right), merge);
            self.learned.push(LearnedMerge { left, right, product: merge.product, count: 0 });
        }
        !merges.is_empty()
    }

    /// Replaces a pair by a token that is in no merge yet.
    fn replace(&mut self, number: u32, (left, right): (u32, u32), product: u32) {
        let Range { start, end } = self.words.span(number);
        let (mut read, mut write) = (start, start);
        while read < end {
            let symbol = self.words.symbols[read];
            if symbol != left || read + 1 >= end || self.words.symbols[read + 1] != right {
                self.words.symbols[write] = symbol;
                (read, write) = (read + 1, write + 1);
                continue;
            }
            if write > start {
                let before = self.words.symbols[write - 1];
                self.subtract((before, left), number);
                self.add((before, product), number);
            }
            if read + 2 < end {
                let after = self.words.symbols[read + 2];
                self.subtract((right, after), number);
                self.add((product, after), number);
            }
            self.words.symbols[write] = product;
            (read, write) = (read + 2, write + 1);
        }
        self.words.lengths[number as usize] = (write - start) as u32;
    }

    /// Encodes a word again: listed merges may apply to a token that became reachable.
    fn encode_again(&mut self, number: u32) {
        let Range { start, end } = self.words.span(number);
        let before = self.words.symbols[start..end].to_vec();
        let mut after = before.clone();
        let all = AllMerges { base: self.bpe, learned: &self.merges, rank_space: self.rank_space };
        all.merge(&mut after, |_, _| ());
        if after == before {
            return;
        }
        before.windows(2).for_each(|pair| self.subtract((pair[0], pair[1]), number));
        after.windows(2).for_each(|pair| self.add((pair[0], pair[1]), number));
        self.words.symbols[start..start + after.len()].copy_from_slice(&after);
        self.words.lengths[number as usize] = after.len() as u32;
    }

    fn subtract(&mut self, pair: (u32, u32), number: u32) {
        if let Some(pair) = self.pairs.get_mut(&pair_key(pair.0, pair.1)) {
            pair.count = pair.count.saturating_sub(self.words.counts[number as usize]);
        }
    }

    fn add(&mut self, pair: (u32, u32), number: u32) {
        let entry = self.pairs.entry(pair_key(pair.0, pair.1)).or_default();
        if entry.refused {
            return;
        }
        entry.count = entry.count.saturating_add(self.words.counts[number as usize]);
        if entry.words.last() != Some(&number) {
            entry.words.push(number);
        }
        if self.grown.last() != Some(&pair) {
            self.grown.push(pair);
        }
    }
}
