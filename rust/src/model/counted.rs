//! Encodes counted pretokens, each once, on all cores: how often tokens occur, and where two models differ.

use std::ops::Range;

use super::Model;
use crate::bpe::{in_parallel, CountedEncoder, CountedPretokens};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// Not the index of a token.
const NONE: u32 = u32::MAX;
/// The pretokens that are encoded together.
const CHUNK: usize = 1 << 13;

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
        let totals = match self {
            // Every merge counts, so none may be left out.
            Self::Bpe(bpe) if uses => {
                let encoder = bpe.pretoken_encoder(bpe.ignores_merges() && !by_merges);
                self.totals(
                    counts,
                    stop,
                    || (String::new(), Vec::new()),
                    |(string, symbols), place, add| {
                        let on_merge = |(left, right): (u32, u32), _| [left, right].into_iter().for_each(&mut *add);
                        encoder.encode_with(counts.pretoken(place), string, symbols, on_merge)?;
                        symbols.iter().for_each(|&index| add(index));
                        Ok(())
                    },
                )?
            }
            _ => {
                let shared = Shared::new(self, counts, by_merges, stop)?;
                self.totals(
                    counts,
                    stop,
                    || shared.encoder(),
                    |encoder, place, add| {
                        encoder.encode(place)?.iter().for_each(|&index| add(index));
                        Ok(())
                    },
                )?
            }
        };
        Ok(self.tokens().ids().iter().copied().zip(totals).filter(|(_, total)| *total > 0).collect())
    }

    /// How often each token occurs, given a function that calls another one with every token of a pretoken.
    fn totals<S: Send>(
        &self,
        counts: &Counts,
        stop: &Stop,
        new: impl Fn() -> S + Sync,
        each: impl Fn(&mut S, usize, &mut dyn FnMut(u32)) -> Result<()> + Sync,
    ) -> Result<Vec<u64>> {
        let zero = || vec![0u64; self.tokens().len()];
        let add = |total: &mut u64, count: u64| *total = total.saturating_add(count);
        let count_chunk = |(state, totals): &mut (S, Vec<u64>), places: Range<usize>| {
            places.into_iter().try_for_each(|place| {
                stop.check()?;
                let count = counts.counts()[place];
                each(state, place, &mut |index| add(&mut totals[index as usize], count))
            })
        };
        let (_, states) = in_parallel(&counts.chunks(CHUNK, u64::MAX), || (new(), zero()), count_chunk)?;
        Ok(states.into_iter().fold(zero(), |mut sum, (_, more)| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| add(sum, more));
            sum
        }))
    }

    /// The places of the pretokens that another model encodes to other tokens, in order. Tokens are the same if their
    /// strings are; their ids may differ.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`], when a pretoken of a text vocabulary is not UTF-8, and when it is stopped.
    pub fn changed_pretokens(&self, other: &Self, counts: &Counts, stop: &Stop) -> Result<Vec<usize>> {
        let same: Vec<u32> =
            self.tokens().strings().map(|string| other.tokens().index(string).unwrap_or(NONE)).collect();
        let [before, after] = [Shared::new(self, counts, false, stop)?, Shared::new(other, counts, false, stop)?];
        let changed_in = |(encoder, other): &mut (Encoder<'_>, Encoder<'_>), places: Range<usize>| {
            let mut changed = Vec::new();
            for place in places {
                stop.check()?;
                let (before, after) = (encoder.encode(place)?, other.encode(place)?);
                if !before.iter().map(|&token| same[token as usize]).eq(after.iter().copied()) {
                    changed.push(place);
                }
            }
            Ok(changed)
        };
        let chunks = counts.chunks(CHUNK, u64::MAX);
        Ok(in_parallel(&chunks, || (before.encoder(), after.encoder()), changed_in)?.0.concat())
    }
}

/// What the encoders of counted pretokens share on all threads. Building it takes time.
enum Shared<'m> {
    Bpe(Box<CountedPretokens<'m>>),
    Other(&'m Model, &'m Counts),
}

/// Encodes pretokens one after the other.
enum Encoder<'s> {
    Bpe(CountedEncoder<'s>),
    Other(&'s Model, &'s Counts, Vec<u32>),
}

impl<'m> Shared<'m> {
    /// For a model; `by_merges` turns merge skipping off.
    fn new(model: &'m Model, counts: &'m Counts, by_merges: bool, stop: &Stop) -> Result<Self> {
        Ok(match model {
            Model::Bpe(bpe) => Self::Bpe(Box::new(bpe.counted(counts, bpe.ignores_merges() && !by_merges, stop)?)),
            other => Self::Other(other, counts),
        })
    }

    fn encoder(&self) -> Encoder<'_> {
        match self {
            Self::Bpe(shared) => Encoder::Bpe(shared.encoder()),
            Self::Other(model, counts) => Encoder::Other(model, counts, Vec::new()),
        }
    }
}

impl Encoder<'_> {
    /// The tokens of the pretoken at a place, as indices.
    fn encode(&mut self, place: usize) -> Result<&[u32]> {
        match self {
            Self::Bpe(encoder) => encoder.encode(place),
            Self::Other(model, counts, tokens) => {
                let text = std::str::from_utf8(counts.pretoken(place)).map_err(|_| Error::NotText)?;
                tokens.clear();
                model.split(text, false, &|_| false, tokens)?;
                Ok(tokens)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Bpe, Options, Random};
    use crate::stop::tests::stops_anywhere;

    #[test]
    fn all_that_encodes_or_reads_counted_pretokens_looks_at_each_of_them() {
        let mut random = Random(4);
        let model = Model::Bpe(random.byte_level(20, true, &Options::default()));
        let bpe = model.bpe().unwrap();
        let mut counts = Counts::default();
        random.words(200, 6).iter().for_each(|word| counts.push(word.as_bytes(), 1).unwrap());
        // A copy has no kept tokens: each pretoken is encoded, then its tokens are read by one model, or by two.
        let looks = [
            stops_anywhere(|stop| model.changed_pretokens(&model, &counts.clone(), stop)),
            stops_anywhere(|stop| model.token_counts(&counts.clone(), false, false, stop)),
            stops_anywhere(|stop| model.token_counts(&counts.clone(), false, true, stop)),
            stops_anywhere(|stop| model.lost_counts(&counts.clone(), false, stop)),
            stops_anywhere(|stop| bpe.growth(&counts.clone(), 5, &[0, 1, 2, 3], &[(25, 3)], stop)),
        ];
        assert_eq!(looks.map(|looks| looks / counts.len()), [2, 2, 1, 1, 2]);
        assert!(looks.iter().all(|looks| looks % counts.len() == 0), "{looks:?}");
    }

    #[test]
    fn changed_pretokens_are_those_with_other_strings() {
        let mut random = Random(11);
        let mut total = 0;
        for round in 0..100 {
            let options = Options { ignore_merges: round % 2 == 0, ..Options::default() };
            let (one, other) = (random.byte_level(20, true, &options), random.byte_level(30, true, &options));
            let mut counts = Counts::default();
            random.words(200, 6).iter().for_each(|word| counts.push(word.as_bytes(), 1).unwrap());
            let strings = |bpe: &Bpe, pretoken: &[u8]| -> Vec<String> {
                let encoder = bpe.pretoken_encoder(bpe.ignores_merges());
                let (mut string, mut tokens) = (String::new(), Vec::new());
                encoder.encode(pretoken, &mut string, &mut tokens).unwrap();
                tokens.iter().map(|&token| bpe.string(token).to_string()).collect()
            };
            let is_changed = |&place: &usize| {
                let pretoken = counts.pretoken(place);
                strings(&one, pretoken) != strings(&other, pretoken)
            };
            let expected: Vec<usize> = (0..counts.len()).filter(is_changed).collect();
            total += expected.len();
            let (one, other) = (Model::Bpe(one), Model::Bpe(other));
            assert_eq!(one.changed_pretokens(&other, &counts, &Stop::default()).unwrap(), expected);
            assert!(one.changed_pretokens(&one, &counts, &Stop::default()).unwrap().is_empty());
        }
        assert!(total > 100, "{total} changed");
    }
}
