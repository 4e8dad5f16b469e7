//! Applies ranked merges to a pretoken: lowest rank first, leftmost first. Does not know the strings of tokens.
//!
//! There are two algorithms with the same result: a scan for short pretokens, a heap for long ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pretokens of at most this many symbols are merged by scanning for the lowest rank. Longer ones use a heap:
/// the scan is quadratic, and a document without a space can be one pretoken.
const SCAN_AT_MOST: usize = 64;

/// Rank and product of a merge, tokens as indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Merge {
    pub(crate) rank: u32,
    pub(crate) product: u32,
}

/// Ranked merges, and their application to a pretoken.
pub(crate) trait Merges {
    /// The merge of two neighbours, if they have one.
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge>;

    /// Applies merges until none applies, lowest rank first, leftmost first; calls `on_merge` with each.
    fn merge(&self, symbols: &mut Vec<u32>, on_merge: impl FnMut((u32, u32), Merge)) {
        if symbols.len() <= SCAN_AT_MOST {
            self.merge_by_scan(symbols, on_merge);
        } else {
            self.merge_by_heap(symbols, on_merge);
        }
    }

    fn merge_by_scan(&self, symbols: &mut Vec<u32>, mut on_merge: impl FnMut((u32, u32), Merge)) {
        const NONE: Merge = Merge { rank: u32::MAX, product: 0 };
        let mut next = [NONE; SCAN_AT_MOST];
        let mut pairs = symbols.len().saturating_sub(1);
        let merge_at = |symbols: &[u32], at: usize| self.merge_of(symbols[at], symbols[at + 1]).unwrap_or(NONE);
        for (at, merge) in next[..pairs].iter_mut().enumerate() {
            *merge = merge_at(symbols, at);
        }
        // `min_by_key` returns the first of equals: the leftmost.
        while let Some((at, &merge)) = next[..pairs].iter().enumerate().min_by_key(|(_, merge)| merge.rank) {
            if merge == NONE {
                return;
            }
            on_merge((symbols[at], symbols[at + 1]), merge);
            symbols[at] = merge.product;
            symbols.remove(at + 1);
            next.copy_within(at + 1..pairs, at);
            pairs -= 1;
            if at > 0 {
                next[at - 1] = merge_at(symbols, at - 1);
            }
            if at < pairs {
                next[at] = merge_at(symbols, at);
            }
        }
    }

    fn merge_by_heap(&self, symbols: &mut Vec<u32>, mut on_merge: impl FnMut((u32, u32), Merge)) {
        const MERGED: u32 = u32::MAX;
        let count = symbols.len();
        let mut previous: Vec<usize> = (0..count).map(|at| at.wrapping_sub(1)).collect();
        let mut following: Vec<usize> = (1..=count).collect();
        let mut heap: BinaryHeap<Reverse<(u32, usize, u32, u32)>> = BinaryHeap::with_capacity(count);
        let entry = |at: usize, left: u32, right: u32| {
            self.merge_of(left, right).map(|merge| Reverse((merge.rank, at, left, right)))
        };
        for at in 1..count {
            heap.extend(entry(at - 1, symbols[at - 1], symbols[at]));
        }
        while let Some(Reverse((_, at, left, right))) = heap.pop() {
            let after = following[at];
            // An entry is stale when either of its symbols has been merged away since it was pushed.
            if symbols[at] != left || after >= count || symbols[after] != right {
                continue;
            }
            let Some(merge) = self.merge_of(left, right) else { continue };
            on_merge((left, right), merge);
            symbols[at] = merge.product;
            symbols[after] = MERGED;
            following[at] = following[after];
            if following[at] < count {
                previous[following[at]] = at;
                heap.extend(entry(at, symbols[at], symbols[following[at]]));
            }
            if previous[at] < count {
                heap.extend(entry(previous[at], symbols[previous[at]], symbols[at]));
            }
        }
        symbols.retain(|&symbol| symbol != MERGED);
    }
}

/// A pair as one number, which hashes in one step.
#[inline]
pub(crate) fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
