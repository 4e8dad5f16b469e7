//! Which language is worst off: the one with the most tokens, as a share of those that it is measured against.

use std::cmp::Reverse;

use super::pairs::Place;
use super::text::Text;
use super::words::Words;
use crate::count::Counts;
use crate::error::{Error, Result};

/// What the languages are compared by. Empty for one text.
#[derive(Debug, Default)]
pub(super) struct Balance {
    measures: Vec<Measure>,
}

/// How well off a language is: its tokens now, divided by a fixed number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// The text whose tokens count, by its index: the language's own, or its part of a parallel text.
    pub(super) text: usize,
    /// Its tokens under the base.
    pub(super) tokens: u64,
    /// The tokens that it is measured against: its own under the base, or those of the reference.
    pub(super) against: u64,
}

impl Balance {
    pub(super) fn new(measures: Vec<Measure>) -> Self {
        Self { measures }
    }

    /// All languages, the one that is worst off first; equal ones in their order.
    pub(super) fn worst_first<P: Place>(&self, texts: &[Text<P>]) -> Vec<usize> {
        if self.measures.is_empty() {
            return vec![0];
        }
        let now = |language: usize| {
            let measure = self.measures[language];
            u128::from(measure.tokens - texts[measure.text].merged)
        };
        let against = |language: usize| u128::from(self.measures[language].against.max(1));
        let mut order: Vec<usize> = (0..self.measures.len()).collect();
        order.sort_by(|&a, &b| Reverse(now(a) * against(b)).cmp(&Reverse(now(b) * against(a))));
        order
    }
}

/// The number of tokens of a text, every one of whose pretokens has at least one.
pub(super) fn n_tokens(counts: &Counts, words: &Words) -> Result<u64> {
    let mut tokens = counts.total();
    words.for_each_pair_in(0..words.len(), |pair| tokens += u128::from(pair.count));
    u64::try_from(tokens).map_err(|_| Error::TooFrequent)
}
