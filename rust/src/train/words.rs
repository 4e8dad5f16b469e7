//! The words that training works on: distinct pretokens as tokens, with their counts.

use std::ops::Range;

use rayon::prelude::*;

use super::task::InterruptChecks;
use crate::bpe::{Alphabet, Bpe};
use crate::count::Counts;
use crate::error::{Error, Result};

/// Distinct pretokens as tokens, with their counts. Pretokens of one token have no pair and are left out.
pub(super) struct Words {
    /// The tokens of all words; a word that has shrunk leaves its tail unused.
    pub(super) symbols: Vec<u32>,
    /// Where each word begins. In 64 bits: a large corpus has more than 2^32 symbols.
    pub(super) starts: Vec<u64>,
    pub(super) lengths: Vec<u32>,
    pub(super) counts: Vec<u64>,
}

impl Words {
    pub(super) fn new(
        bpe: &Bpe,
        counts: &Counts,
        alphabet: Alphabet,
        interrupts: &mut InterruptChecks<'_>,
    ) -> Result<Self> {
        const PRETOKENS: usize = 1 << 14;
        const BYTES: u64 = 1 << 20;
        const CHUNKS: usize = 32;
        let encoder = bpe.pretoken_encoder(alphabet, bpe.ignores_merges());
        let encode = |places: &Range<usize>| {
            let (mut symbols, mut lengths) = (Vec::new(), Vec::new());
            let (mut string, mut word) = (String::new(), Vec::new());
            for place in places.clone() {
                encoder.encode(counts.pretoken(place), &mut string, &mut word)?;
                if word.len() > 1 {
                    symbols.extend_from_slice(&word);
                    lengths.push((place, narrow(word.len(), "tokens in a pretoken")?));
                }
            }
            Ok::<_, Error>((symbols, lengths))
        };
        let mut words = Self { symbols: Vec::new(), starts: Vec::new(), lengths: Vec::new(), counts: Vec::new() };
        // On all cores, in groups: between two groups, the caller may stop the training.
        for group in counts.chunks(PRETOKENS, BYTES).chunks(CHUNKS) {
            for (symbols, lengths) in group.par_iter().map(encode).collect::<Result<Vec<_>>>()? {
                words.append(&symbols, &lengths, counts);
            }
            interrupts.step(InterruptChecks::SYMBOLS)?;
        }
        narrow(words.starts.len(), "distinct pretokens")?;
        Ok(words)
    }

    fn append(&mut self, symbols: &[u32], lengths: &[(usize, u32)], counts: &Counts) {
        let mut start = self.symbols.len() as u64;
        self.symbols.extend_from_slice(symbols);
        for &(place, length) in lengths {
            self.starts.push(start);
            self.lengths.push(length);
            self.counts.push(counts.counts()[place]);
            start += u64::from(length);
        }
    }

    #[inline]
    pub(super) fn span(&self, number: u32) -> Range<usize> {
        let start = self.starts[number as usize] as usize;
        start..start + self.lengths[number as usize] as usize
    }

    #[inline]
    pub(super) fn word(&self, number: u32) -> &[u32] {
        &self.symbols[self.span(number)]
    }
}

/// A number that must fit into 32 bits.
fn narrow(number: usize, what: &'static str) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::TooMany { number: number as u64, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_32_bits_is_an_error() {
        assert_eq!(narrow(u32::MAX as usize, "words"), Ok(u32::MAX));
        let many = Error::TooMany { number: 1 << 32, what: "words" };
        assert_eq!(narrow(1 << 32, "words"), Err(many));
    }

    #[test]
    fn words_may_begin_beyond_32_bits() {
        let mut words = Words { symbols: Vec::new(), starts: vec![5 << 32], lengths: vec![7], counts: vec![1] };
        assert_eq!(words.span(0), (5usize << 32)..(5usize << 32) + 7);
        let mut counts = Counts::default();
        counts.push(b"ab", 3).unwrap();
        words.append(&[1, 2], &[(0, 2)], &counts);
        assert_eq!((words.span(1), words.word(1)), (0..2, &[1, 2][..]));
    }
}
