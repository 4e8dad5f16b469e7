//! The training loop: takes the most frequent pair, adds its merge, and updates the words and pairs it changes.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::Replacer;
use super::pairs::{Candidate, Pairs, Place};
use super::ranks::{AllMerges, RankSpace};
use super::task::{InterruptChecks, LearnedMerge, Task};
use super::words::{Words, BOUNDARY};
use crate::bpe::{pair_key, Alphabet, Bpe, Merge};
use crate::error::{Error, Result};

/// What the speed of training depends on; the result does not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parallelism {
    pub(super) threads: usize,
    /// From how many places on a pair is replaced on all cores.
    pub(super) parallel_from: usize,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self { threads: rayon::current_num_threads(), parallel_from: 4096 }
    }
}

/// The state of training.
pub(super) struct Learner<'b, P> {
    bpe: &'b Bpe,
    pub(super) words: Words,
    alphabet: Alphabet,
    pub(super) pairs: Pairs<P>,
    /// The known pairs, with their counts when they were put there.
    heap: BinaryHeap<Candidate>,
    /// How many pairs to count next time.
    wanted: usize,
    /// Pairs that must not be merged.
    pub(super) refused: FxHashSet<u64>,
    strings: Vec<Rc<str>>,
    /// New tokens by their string.
    new: FxHashMap<Rc<str>, u32>,
    /// Learned merges, beside those of the base.
    merges: FxHashMap<(u32, u32), Merge>,
    pub(super) learned: Vec<LearnedMerge>,
    replacer: Replacer<P>,
    pub(super) parallelism: Parallelism,
    rank_space: RankSpace,
}

impl<'b, P: Place> Learner<'b, P> {
    pub(super) fn new(bpe: &'b Bpe, words: Words, alphabet: Alphabet, task: &Task, parallelism: Parallelism) -> Self {
        Self {
            bpe,
            words,
            alphabet,
            pairs: Pairs { table: FxHashMap::default(), places: Vec::new(), floor: u64::MAX },
            heap: BinaryHeap::new(),
            wanted: task.max_candidates.max(1),
            refused: FxHashSet::default(),
            strings: (0..bpe.len() as u32).map(|index| Rc::from(bpe.string(index))).collect(),
            new: FxHashMap::default(),
            merges: FxHashMap::default(),
            learned: Vec::new(),
            replacer: Replacer::new(parallelism.threads, parallelism.parallel_from),
            parallelism,
            rank_space: RankSpace::new(&task.unreachable_ranks),
        }
    }

    /// Counts the pairs and puts the most frequent on the heap: more of them each time.
    fn count_pairs(&mut self, task: &Task) {
        self.pairs = Pairs::default(); // frees the memory before more is taken
        let threads = self.parallelism.threads;
        self.pairs = Pairs::count(&self.words, self.wanted, task.min_count.max(1), &self.refused, threads);
        self.wanted = self.wanted.saturating_mul(2);
        let tokens = |key: u64| ((key >> 32) as u32, key as u32);
        let table = self.pairs.table.iter();
        let candidates: Vec<Candidate> = table.map(|(&key, pair)| self.candidate(tokens(key), pair.count)).collect();
        self.heap = BinaryHeap::from(candidates);
    }

    pub(super) fn learned_strings(&self) -> Vec<String> {
        self.strings[self.bpe.len()..].iter().map(|string| string.to_string()).collect()
    }

    fn candidate(&self, pair: (u32, u32), count: u64) -> Candidate {
        let string = |token: u32| Rc::clone(&self.strings[token as usize]);
        Candidate { count, left: string(pair.0), right: string(pair.1), pair }
    }

    /// Puts a pair on the heap with the count it has now, unless that is too small.
    pub(super) fn push(&mut self, pair: (u32, u32), count: u64) {
        if count >= self.pairs.floor {
            let candidate = self.candidate(pair, count);
            self.heap.push(candidate);
        }
    }

    pub(super) fn learn(&mut self, task: &Task, interrupts: &mut InterruptChecks<'_>) -> Result<()> {
        while self.new.len() < task.tokens {
            interrupts.step(InterruptChecks::STEP)?;
            let Some(best) = self.heap.pop() else {
                if self.pairs.floor <= task.min_count.max(1) {
                    break;
                }
                self.count_pairs(task);
                interrupts.check_now()?;
                continue;
            };
            let key = pair_key(best.pair.0, best.pair.1);
            let Some(count) = self.pairs.table.get(&key).map(|pair| pair.count) else { continue };
            if count != best.count {
                // The count has changed since. If it grew, a newer candidate is on the heap, and this one is dropped.
                if count < best.count {
                    self.push(best.pair, count);
                }
                continue;
            }
            let string: String = [&*best.left, &*best.right].concat();
            if self.is_unwanted(best.pair, &string, task) || !interrupts.callbacks.allow(&string) {
                self.refused.insert(key);
                self.pairs.table.remove(&key);
                continue;
            }
            self.append(best, string, task, interrupts)?;
        }
        // The last call of `allow` may have asked to stop.
        interrupts.check_now()
    }

    fn is_unwanted(&self, pair: (u32, u32), string: &str, task: &Task) -> bool {
        let too_long = self.alphabet.byte_length(string) > task.max_token_bytes;
        let against_rules = || task.rules.is_some_and(|rules| !rules.allow(string));
        let has_forbidden_part = || self.may_not_be_part(pair.0, task) || self.may_not_be_part(pair.1, task);
        too_long || against_rules() || has_forbidden_part() || task.forbidden.contains(string)
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
        let product = match existing {
            Some(token) => token,
            None => self.new_token(string)?,
        };
        let became_reachable = existing.is_some() || self.makes_reachable(product, task);
        let rank = self.rank_space.rank((self.bpe.merge_count() + self.learned.len()) as u32);
        self.merges.insert(best.pair, Merge { rank, product });
        let (left, right) = best.pair;
        self.learned.push(LearnedMerge { left, right, product, count: best.count });
        let places = self.pairs.remove(best.pair);
        interrupts.step(places.len())?;
        if became_reachable {
            self.merge_further(best.pair, places);
        } else {
            self.replace(best.pair, places, product);
        }
        Ok(())
    }

    fn new_token(&mut self, string: String) -> Result<u32> {
        let token = self.strings.len() as u32;
        if token >= BOUNDARY {
            return Err(Error::TooMany { number: u64::from(token), what: "tokens" });
        }
        let string: Rc<str> = Rc::from(string);
        self.strings.push(Rc::clone(&string));
        self.new.insert(string, token);
        Ok(token)
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

    /// All merges, for encoding.
    pub(super) fn all_merges(&self) -> AllMerges<'_> {
        AllMerges { base: self.bpe, learned: &self.merges, rank_space: self.rank_space }
    }

    /// Replaces a pair by a token that is in no pair yet.
    fn replace(&mut self, pair: (u32, u32), places: Range<usize>, product: u32) {
        let (left, right) = pair;
        let changes = self.replacer.replace(&mut self.words, &self.pairs.places[places], pair, product);
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
        new.into_iter().for_each(|(pair, count)| self.push(pair, count));
    }
}
