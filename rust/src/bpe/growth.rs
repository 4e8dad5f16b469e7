//! How often new tokens occur for every number of new merges, from one encoding of each pretoken.
//!
//! Exact if the new merges rank after all others. Encoding always takes the merge of the lowest rank. With fewer merges
//! it takes the same ones in the same order, and ends before the first that it lacks. So a merge is taken if the table
//! has it and all that were taken before it.

use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::encode::PretokenEncoder;
use super::model::Bpe;
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

/// Changes of occurrences, by the number of a new merge and the index of a token.
type Changes = FxHashMap<(u32, u32), i64>;

/// The number of a token that is not new.
const OLD: u32 = u32::MAX;

impl Bpe {
    /// How the occurrences of new tokens change with each new merge: its number, the id of a token, and the change;
    /// in order.
    ///
    /// With the first n new merges, a new token occurs as often as its changes with numbers below n add up to.
    /// `first_rank` is the rank of the first new merge, the merge with number 0. `new_tokens` has the id of each new
    /// token, and the number of the first merge that makes it.
    ///
    /// # Errors
    ///
    /// As [`crate::Model::token_counts`].
    pub fn growth(
        &self,
        counts: &Counts,
        first_rank: u32,
        new_tokens: &[(u32, u32)],
        stop: &Stop,
    ) -> Result<Vec<(u32, u32, i64)>> {
        let mut numbers = vec![OLD; self.len()];
        for (id, number) in new_tokens {
            if let Ok(index) = self.ids().binary_search(id) {
                numbers[index] = *number;
            }
        }
        let encoder = self.pretoken_encoder(self.ignores_merges());
        let growth = Growth { encoder: &encoder, first_rank, numbers, stop };
        let chunks = counts.chunks(1 << 16, u64::MAX);
        let changes = chunks.into_par_iter().map(|places| growth.changes(counts, places)).try_reduce(
            Changes::default,
            |mut sum, more| {
                more.into_iter().for_each(|(key, change)| add(&mut sum, key, change));
                Ok(sum)
            },
        )?;
        let mut sorted: Vec<(u32, u32, i64)> =
            changes.into_iter().map(|((number, token), change)| (number, self.id(token), change)).collect();
        sorted.sort_unstable();
        Ok(sorted)
    }
}

struct Growth<'e> {
    encoder: &'e PretokenEncoder<'e>,
    first_rank: u32,
    /// For each token the number of the merge that first makes it, or `OLD`.
    numbers: Vec<u32>,
    stop: &'e Stop,
}

impl Growth<'_> {
    fn changes(&self, counts: &Counts, places: Range<usize>) -> Result<Changes> {
        let mut changes = Changes::default();
        let (mut string, mut symbols, mut own) = (String::new(), Vec::new(), Vec::new());
        for place in places {
            self.stop.check()?;
            own.clear();
            self.pretoken_changes(counts.pretoken(place), (&mut string, &mut symbols), &mut own)?;
            let count = i64::try_from(counts.counts()[place]).unwrap_or(i64::MAX);
            own.iter().for_each(|&(key, change)| add(&mut changes, key, count.saturating_mul(change)));
        }
        Ok(changes)
    }

    /// The changes inside one pretoken.
    fn pretoken_changes(
        &self,
        pretoken: &[u8],
        (string, symbols): (&mut String, &mut Vec<u32>),
        changes: &mut Vec<((u32, u32), i64)>,
    ) -> Result<()> {
        let whole = self.encoder.skipped(pretoken).map(|token| (token, self.numbers[token as usize]));
        // From this number on, merges are skipped: the pretoken is one token. An old token is so from the start.
        let end = match whole {
            Some((_, OLD)) => return Ok(()),
            Some((_, number)) => number,
            None => OLD,
        };
        let mut highest = None;
        self.encoder.encode_by_merges(pretoken, string, symbols, |(left, right), merge| {
            highest = highest.max(merge.rank.checked_sub(self.first_rank));
            let Some(number) = highest.filter(|&number| number < end) else { return };
            for (token, change) in [(left, -1), (right, -1), (merge.product, 1)] {
                if self.numbers[token as usize] != OLD {
                    changes.push(((number, token), change));
                }
            }
        })?;
        if let Some((token, number)) = whole {
            let before: Vec<_> = changes.iter().map(|&((_, part), change)| ((number, part), -change)).collect();
            changes.extend(before);
            changes.push(((number, token), 1));
        }
        Ok(())
    }
}

fn add(changes: &mut Changes, key: (u32, u32), change: i64) {
    let sum = changes.entry(key).or_default();
    *sum = sum.saturating_add(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{pair_key, Options, Random};
    use crate::model::Model;

    fn counts_of(words: &[String], random: &mut Random) -> Counts {
        let mut offsets = vec![0];
        let bytes: Vec<u8> = words.concat().into_bytes();
        for word in words {
            offsets.push(offsets.last().copied().unwrap_or(0) + word.len() as u64);
        }
        let counts = words.iter().map(|_| 1 + random.below(9) as u64).collect();
        Counts::from_columns(bytes, &offsets, counts).unwrap()
    }

    /// The merges of a model, in order.
    fn ranked(bpe: &Bpe) -> Vec<(u32, u32)> {
        let mut ranked: Vec<(u32, u64)> = bpe.merges.iter().map(|(key, merge)| (merge.rank, *key)).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, key)| ((key >> 32) as u32, key as u32)).collect()
    }

    /// The new tokens of the merges from `first` on, each with the number of the merge that makes it.
    fn new_tokens(bpe: &Bpe, merges: &[(u32, u32)], first: usize) -> Vec<(u32, u32)> {
        let product = |&(left, right): &(u32, u32)| bpe.merges[&pair_key(left, right)].product;
        let mut known: Vec<u32> = merges[..first].iter().map(product).collect();
        let mut new = Vec::new();
        for (number, made) in (0..).zip(merges[first..].iter().map(product)) {
            if !known.contains(&made) {
                known.push(made);
                new.push((made, number));
            }
        }
        new
    }

    /// A model with the first merges only, without the tokens that only later merges make.
    fn first_merges(bpe: &Bpe, merges: &[(u32, u32)], dropped: &[u32], options: &Options) -> Bpe {
        let kept = bpe.ids().iter().copied().filter(|id| !dropped.contains(id));
        Bpe::new(kept.map(|id| (id, bpe.string(id).to_string())).collect(), merges, options).unwrap()
    }

    #[test]
    fn changes_add_up_to_the_occurrences_for_every_number_of_merges() {
        for seed in 0..80u64 {
            let mut random = Random(seed);
            let options = Options { ignore_merges: seed % 2 == 0, ..Options::default() };
            let bpe = random.byte_level(24, true, &options);
            let counts = counts_of(&random.words(80, 9), &mut random);
            let merges = ranked(&bpe);
            let first = random.below(merges.len());
            let new = new_tokens(&bpe, &merges, first);
            let changes = bpe.growth(&counts, first as u32, &new, &Stop::default()).unwrap();
            for n in 0..=merges.len() - first {
                let dropped: Vec<u32> = new.iter().filter(|(_, at)| *at as usize >= n).map(|(id, _)| *id).collect();
                let smaller = first_merges(&bpe, &merges[..first + n], &dropped, &options);
                let expected = Model::Bpe(smaller).token_counts(&counts, false, false, &Stop::default()).unwrap();
                for (id, _) in &new {
                    let sum: i64 = changes.iter().filter(|c| (c.0 as usize) < n && c.1 == *id).map(|c| c.2).sum();
                    let times = expected.iter().find(|(other, _)| other == id).map_or(0, |(_, times)| *times);
                    assert_eq!(sum, times as i64, "seed {seed}, {n} merges, token {id}");
                }
            }
        }
    }
}
