//! The merges of the base and the learned ones in one ranking, for encoding words during training.

use rustc_hash::FxHashMap;

use crate::bpe::{Bpe, Merge, Merges};

/// The distance between the ranks of listed merges. It leaves free ranks before each of them, for merges that make
/// unreachable tokens reachable.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankSpace(u32);

impl RankSpace {
    /// The space that tokens of one rank need, given as (token, rank, order among those of one rank).
    pub(super) fn new(unreachable_ranks: &[(String, u32, u32)]) -> Self {
        Self(unreachable_ranks.iter().map(|(_, _, order)| order + 2).max().unwrap_or(1))
    }

    /// The rank of the merge at an index of the list. All ranks beyond 32 bits are the last rank.
    #[inline]
    pub(super) fn rank(self, index: u32) -> u32 {
        index.saturating_mul(self.0).saturating_add(self.0 - 1)
    }

    /// The rank of a merge that comes just before the listed merge at an index.
    pub(super) fn rank_before(self, index: u32, order: u32) -> u32 {
        index.saturating_mul(self.0).saturating_add(order)
    }
}

/// The merges of the base and the learned ones.
pub(super) struct AllMerges<'m> {
    pub(super) base: &'m Bpe,
    pub(super) learned: &'m FxHashMap<(u32, u32), Merge>,
    pub(super) rank_space: RankSpace,
}

impl Merges for AllMerges<'_> {
    #[inline]
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        let listed = self.base.merge_of(left, right);
        let listed = listed.map(|merge| Merge { rank: self.rank_space.rank(merge.rank), ..merge });
        listed.or_else(|| self.learned.get(&(left, right)).copied())
    }
}
