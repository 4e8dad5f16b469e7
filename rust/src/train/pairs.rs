//! Pairs of neighbouring tokens: their counts, and candidates for the next merge in the order they are taken.

use std::cmp::Ordering;
use std::rc::Rc;

/// How often a pair occurs, and the words that had it at some time; some of them may not have it any more.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) count: u64,
    pub(super) words: Vec<u32>,
    /// It must not be merged: its count and words are no longer kept.
    pub(super) refused: bool,
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
