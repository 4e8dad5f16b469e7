//! The base with the tokens and merges learned so far.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::pairs::Candidate;
use super::task::{LearnedMerge, Task};
use super::words::BOUNDARY;
use crate::bpe::{Bpe, Merge, Merges};
use crate::error::{Error, Result};

/// The tokens and merges of the base, and the learned ones.
pub(super) struct Model<'b> {
    bpe: &'b Bpe,
    strings: Vec<Rc<str>>,
    /// New tokens by their string.
    new: FxHashMap<Rc<str>, u32>,
    /// Learned merges, beside those of the base.
    merges: FxHashMap<(u32, u32), Merge>,
    pub(super) learned: Vec<LearnedMerge>,
    rank_space: RankSpace,
}

/// A merge that was appended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Appended {
    pub(super) product: u32,
    /// Whether other merges use the product, so that they may follow.
    pub(super) may_merge_further: bool,
}

impl<'b> Model<'b> {
    pub(super) fn new(bpe: &'b Bpe, task: &Task) -> Self {
        Self {
            bpe,
            strings: (0..bpe.len() as u32).map(|index| Rc::from(bpe.string(index))).collect(),
            new: FxHashMap::default(),
            merges: FxHashMap::default(),
            learned: Vec::new(),
            rank_space: RankSpace::new(&task.unreachable_ranks),
        }
    }

    /// The number of new tokens.
    pub(super) fn n_new(&self) -> usize {
        self.new.len()
    }

    pub(super) fn learned_strings(&self) -> Vec<String> {
        self.strings[self.bpe.len()..].iter().map(|string| string.to_string()).collect()
    }

    pub(super) fn candidate(&self, pair: (u32, u32), count: u64) -> Candidate {
        let string = |token: u32| Rc::clone(&self.strings[token as usize]);
        Candidate { count, left: string(pair.0), right: string(pair.1), pair }
    }

    /// All merges, for encoding.
    pub(super) fn all_merges(&self) -> AllMerges<'_> {
        AllMerges { base: self.bpe, learned: &self.merges, rank_space: self.rank_space }
    }

    /// Whether a pair must not become this token.
    pub(super) fn is_unwanted(&self, pair: (u32, u32), string: &str, task: &Task) -> bool {
        let (left, right) = pair;
        task.refuses(string, string, self.bpe.alphabet)
            || self.may_not_be_part(left, task)
            || self.may_not_be_part(right, task)
    }

    /// Whether a token may not be part of another.
    fn may_not_be_part(&self, token: u32, task: &Task) -> bool {
        let is_base = (token as usize) < self.bpe.len();
        task.forbidden.contains(&*self.strings[token as usize]) || is_base && self.bpe.is_placeholder(token)
    }

    /// Appends a merge that is learned for a language.
    pub(super) fn append(&mut self, best: &Candidate, string: String, language: u32, task: &Task) -> Result<Appended> {
        let existing = self.bpe.index(&string).or_else(|| self.new.get(string.as_str()).copied());
        let product = match existing {
            Some(token) => token,
            None => self.new_token(string)?,
        };
        let may_merge_further = existing.is_some() || self.makes_reachable(product, language, task);
        let rank = self.rank_space.rank((self.bpe.merge_count() + self.learned.len()) as u32);
        self.merges.insert(best.pair, Merge { rank, product });
        let (left, right) = best.pair;
        self.learned.push(LearnedMerge { left, right, product, count: best.count, language });
        Ok(Appended { product, may_merge_further })
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
    fn makes_reachable(&mut self, token: u32, language: u32, task: &Task) -> bool {
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
            self.learned.push(LearnedMerge { left, right, product: merge.product, count: 0, language });
        }
        !merges.is_empty()
    }
}

/// The distance between the ranks of listed merges. It leaves free ranks before each of them, for merges that make
/// unreachable tokens reachable.
#[derive(Debug, Clone, Copy)]
struct RankSpace(u32);

impl RankSpace {
    /// The space that tokens of one rank need, given as (token, rank, order among those of one rank).
    fn new(unreachable_ranks: &[(String, u32, u32)]) -> Self {
        Self(unreachable_ranks.iter().map(|(_, _, order)| order + 2).max().unwrap_or(1))
    }

    /// The rank of the merge at an index of the list. All ranks beyond 32 bits are the last rank.
    #[inline]
    fn rank(self, index: u32) -> u32 {
        index.saturating_mul(self.0).saturating_add(self.0 - 1)
    }

    /// The rank of a merge that comes just before the listed merge at an index.
    fn rank_before(self, index: u32, order: u32) -> u32 {
        index.saturating_mul(self.0).saturating_add(order)
    }
}

/// The merges of the base and the learned ones in one ranking, for encoding words during training.
pub(super) struct AllMerges<'m> {
    base: &'m Bpe,
    learned: &'m FxHashMap<(u32, u32), Merge>,
    rank_space: RankSpace,
}

impl Merges for AllMerges<'_> {
    #[inline]
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        let listed = self.base.merge_of(left, right);
        let listed = listed.map(|merge| Merge { rank: self.rank_space.rank(merge.rank), ..merge });
        listed.or_else(|| self.learned.get(&(left, right)).copied())
    }
}
