//! What a vocabulary has, in numbers and examples: layout of ids, tokens with the same bytes, the longest tokens.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Model;
use crate::bpe::Origin;

/// A summary of a model with its added tokens. A token is *learned* if it is not an added one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of learned tokens.
    pub learned: usize,
    /// The number of tokens that encoding starts from, added ones included.
    pub atomic: usize,
    /// Learned tokens whose bytes are not UTF-8.
    pub not_utf8: usize,
    /// Learned tokens that stand for the same bytes as another.
    pub shared_bytes: usize,
    /// The ids of the learned tokens with the most bytes, longest first.
    pub longest: Vec<u32>,
}

impl Model {
    /// The summary of the model. `added` has the ids of added tokens, whether the vocabulary lists them or not;
    /// `examples` is how many of the longest tokens to give.
    #[must_use]
    pub fn summary(&self, added: &FxHashSet<u32>, examples: usize) -> Summary {
        let (origins, ids) = (self.origins(), self.tokens().ids());
        let id = |token: u32| ids[token as usize];
        let learned: Vec<u32> = (0..ids.len() as u32).filter(|&token| !added.contains(&id(token))).collect();
        let (bytes, spans) = self.bytes_of(&learned);
        let bytes_of = |&(start, end): &(usize, usize)| &bytes[start..end];
        let mut sharing: FxHashMap<&[u8], usize> =
            FxHashMap::with_capacity_and_hasher(learned.len(), Default::default());
        spans.iter().for_each(|span| *sharing.entry(bytes_of(span)).or_default() += 1);
        let mut longest: Vec<(Reverse<usize>, u32)> =
            spans.iter().zip(&learned).map(|(&(start, end), &token)| (Reverse(end - start), id(token))).collect();
        longest.sort_unstable();
        Summary {
            learned: learned.len(),
            atomic: origins.iter().filter(|origin| **origin == Origin::Atomic).count(),
            not_utf8: spans.iter().filter(|span| std::str::from_utf8(bytes_of(span)).is_err()).count(),
            shared_bytes: sharing.into_values().filter(|&count| count > 1).sum(),
            longest: longest.into_iter().take(examples).map(|(_, id)| id).collect(),
        }
    }

    /// The ids of the learned tokens that no text becomes, ascending. `added` has the ids of added tokens.
    #[must_use]
    pub fn unreachable(&self, added: &FxHashSet<u32>) -> Vec<u32> {
        let origins = self.origins();
        let all = self.tokens().ids().iter().zip(origins.iter());
        let failing = all.filter(|(id, origin)| **origin == Origin::Unreachable && !added.contains(id));
        failing.map(|(&id, _)| id).collect()
    }

    /// The bytes that tokens stand for, one after the other, and where those of each begin and end.
    fn bytes_of(&self, tokens: &[u32]) -> (Vec<u8>, Vec<(usize, usize)>) {
        let mut bytes = Vec::new();
        let mut span = |&token: &u32| {
            let start = bytes.len();
            self.decode(self.tokens().string(token), &mut bytes);
            (start, bytes.len())
        };
        let spans = tokens.iter().map(&mut span).collect();
        (bytes, spans)
    }

    /// Runs of ids in the same use: the first, the last, and whether they belong to added tokens. Holes are left out.
    #[must_use]
    pub fn runs(&self, added: &FxHashSet<u32>) -> Vec<(u32, u32, bool)> {
        let mut ids: Vec<u32> = self.tokens().ids().iter().copied().chain(added.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut runs: Vec<(u32, u32, bool)> = Vec::new();
        for id in ids {
            let is_added = added.contains(&id);
            match runs.last_mut() {
                Some((_, last, use_)) if *use_ == is_added && id.checked_sub(1) == Some(*last) => *last = id,
                _ => runs.push((id, id, is_added)),
            }
        }
        runs
    }
}
