//! Which language is worst off: the one with the most tokens, as a share of those that it is measured against.

use std::cmp::Reverse;

use super::pairs::Place;
use super::text::Text;
use super::words::Reader;
use crate::count::Counts;
use crate::error::{Error, Result};

/// What the languages are compared by. Empty for one text.
#[derive(Debug, Default)]
pub(super) struct Balance {
    measures: Vec<Measure>,
    max_share: MaxShare,
    /// For each language, how many merges were learned for it.
    learned: Vec<u64>,
}

/// The largest share of merges that one language may get, as a ratio.
#[derive(Debug, Clone, Copy)]
pub struct MaxShare {
    /// Above the line.
    pub numerator: u64,
    /// Below the line.
    pub denominator: u64,
}

impl Default for MaxShare {
    fn default() -> Self {
        Self { numerator: 1, denominator: 1 }
    }
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
    pub(super) fn new(measures: Vec<Measure>, max_share: MaxShare) -> Self {
        Self { learned: vec![0; measures.len()], measures, max_share }
    }

    /// Notes that a merge was learned for a language.
    pub(super) fn add(&mut self, language: usize) {
        if let Some(learned) = self.learned.get_mut(language) {
            *learned += 1;
        }
    }

    /// Whether one more merge would be more than the share that a language may get.
    fn is_full(&self, language: usize) -> bool {
        let MaxShare { numerator, denominator } = self.max_share;
        let all = u128::from(self.learned.iter().sum::<u64>()) + 1;
        (u128::from(self.learned[language]) + 1) * u128::from(denominator) > all * u128::from(numerator)
    }

    /// All languages, the one that is worst off first; equal ones in their order. Those that have their share come last.
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
        order.sort_by_key(|&language| self.is_full(language));
        order
    }
}

/// The number of tokens of a text, every one of whose pretokens has at least one.
pub(super) fn n_tokens(counts: &Counts, words: Reader<'_>) -> Result<u64> {
    let mut tokens = counts.total();
    words.for_each_pair_in(0..words.len(), |pair| tokens += u128::from(pair.count));
    words.stop.check()?;
    u64::try_from(tokens).map_err(|_| Error::TooFrequent)
}
