//! Counts tokens: encodes every distinct pretoken once and adds up its count, on all cores.

use std::ops::Range;

use rayon::prelude::*;

use super::encoders::Shared;
use super::Model;
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

impl Model {
    /// How often each token occurs when counted pretokens are encoded, by ascending id. Tokens that never occur are left
    /// out.
    ///
    /// With `uses`, every use of a token in a merge counts too. `by_merges` turns merge skipping off.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`], when a pretoken of a text vocabulary is not UTF-8, and when it is stopped.
    pub fn token_counts(&self, counts: &Counts, by_merges: bool, uses: bool, stop: &Stop) -> Result<Vec<(u32, u64)>> {
        let shared = Shared::new(self, by_merges);
        let count_chunk = |places: Range<usize>| -> Result<Vec<u64>> {
            let mut totals = vec![0u64; self.tokens().len()];
            let (mut string, mut symbols) = (String::new(), Vec::new());
            let mut encoder = shared.encoder();
            for place in places {
                stop.check()?;
                let (pretoken, count) = (counts.pretoken(place), counts.counts()[place]);
                let mut add = |index: u32| totals[index as usize] = totals[index as usize].saturating_add(count);
                match &shared {
                    // Every merge counts, so none may be left out.
                    Shared::Bpe(encoder, _) if uses => {
                        let on_merge = |(left, right): (u32, u32), _| [left, right].into_iter().for_each(&mut add);
                        encoder.encode_with(pretoken, &mut string, &mut symbols, on_merge)?;
                        symbols.iter().for_each(|&index| add(index));
                    }
                    _ => encoder.encode(pretoken)?.iter().for_each(|&index| add(index)),
                }
            }
            Ok(totals)
        };
        let chunks = counts.chunks(1 << 16, u64::MAX);
        let add = |mut sum: Vec<u64>, more: Vec<u64>| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            Ok(sum)
        };
        let zero = || vec![0; self.tokens().len()];
        let totals = chunks.into_par_iter().map(count_chunk).try_reduce(zero, add)?;
        Ok(self.tokens().ids().iter().copied().zip(totals).filter(|(_, total)| *total > 0).collect())
    }
}
