//! Counts tokens: encodes every distinct pretoken once and adds up its count, on all cores.

use std::ops::Range;

use rayon::prelude::*;

use super::model::Bpe;
use super::sorted::SortedEncoder;
use crate::count::Counts;
use crate::error::Result;

impl Bpe {
    /// How often each token occurs when counted pretokens are encoded, by ascending id. Tokens that never occur are left
    /// out.
    ///
    /// With `uses`, every use of a token in a merge counts too.
    ///
    /// # Errors
    ///
    /// As [`Bpe::encode`], and when a pretoken of a text vocabulary is not UTF-8.
    pub fn token_counts(&self, counts: &Counts, by_merges: bool, uses: bool) -> Result<Vec<(u32, u64)>> {
        let encoder = self.pretoken_encoder(self.ignore_merges && !by_merges);
        let characters = encoder.whole_characters();
        let count_chunk = |places: Range<usize>| -> Result<Vec<u64>> {
            let mut totals = vec![0u64; self.len()];
            let (mut string, mut symbols) = (String::new(), Vec::new());
            let mut sorted = SortedEncoder::new(&encoder, characters.as_ref());
            for place in places {
                let (pretoken, count) = (counts.pretoken(place), counts.counts()[place]);
                let mut add = |index: u32| totals[index as usize] = totals[index as usize].saturating_add(count);
                if uses {
                    // Every merge counts, so none may be left out.
                    let on_merge = |(left, right): (u32, u32), _| [left, right].into_iter().for_each(&mut add);
                    encoder.encode_with(pretoken, &mut string, &mut symbols, on_merge)?;
                    symbols.iter().for_each(|&index| add(index));
                } else {
                    sorted.encode(pretoken)?.iter().for_each(|&index| add(index));
                }
            }
            Ok(totals)
        };
        const CHUNK: usize = 1 << 16;
        let chunks: Vec<Range<usize>> =
            (0..counts.len()).step_by(CHUNK).map(|at| at..counts.len().min(at + CHUNK)).collect();
        let add = |mut sum: Vec<u64>, more: Vec<u64>| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            Ok(sum)
        };
        let zero = || vec![0; self.len()];
        let totals = chunks.into_par_iter().map(count_chunk).try_reduce(zero, add)?;
        Ok(self.ids().iter().copied().zip(totals).filter(|(_, total)| *total > 0).collect())
    }
}
