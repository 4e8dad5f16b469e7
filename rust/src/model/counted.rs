//! Encodes counted pretokens, each once, on all cores: how often tokens occur, and where two models differ.

use std::ops::Range;

use rayon::prelude::*;

use super::Model;
use crate::bpe::{PretokenEncoder, SortedEncoder, WholeCharacters};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// Not the index of a token.
const NONE: u32 = u32::MAX;
/// The pretokens that are encoded together.
const CHUNK: usize = 1 << 16;

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
        let chunks = counts.chunks(CHUNK, u64::MAX);
        let add = |mut sum: Vec<u64>, more: Vec<u64>| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            Ok(sum)
        };
        let zero = || vec![0; self.tokens().len()];
        let totals = chunks.into_par_iter().map(count_chunk).try_reduce(zero, add)?;
        Ok(self.tokens().ids().iter().copied().zip(totals).filter(|(_, total)| *total > 0).collect())
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
        let shared = [self, other].map(|model| Shared::new(model, false));
        let changed_in = |places: Range<usize>| -> Result<Vec<usize>> {
            let [mut before, mut after] = [shared[0].encoder(), shared[1].encoder()];
            let mut changed = Vec::new();
            for place in places {
                stop.check()?;
                let pretoken = counts.pretoken(place);
                let (before, after) = (before.encode(pretoken)?, after.encode(pretoken)?);
                if !before.iter().map(|&token| same[token as usize]).eq(after.iter().copied()) {
                    changed.push(place);
                }
            }
            Ok(changed)
        };
        let chunks = counts.chunks(CHUNK, u64::MAX);
        let parts: Result<Vec<Vec<usize>>> = chunks.into_par_iter().map(changed_in).collect();
        Ok(parts?.concat())
    }
}

/// What the encoders of pretokens, which are given as bytes in sorted order, share on all threads. Building it takes
/// time.
enum Shared<'m> {
    Bpe(Box<PretokenEncoder<'m>>, Option<WholeCharacters>),
    Other(&'m Model),
}

/// Encodes pretokens one after the other.
enum Encoder<'s> {
    Bpe(Box<SortedEncoder<'s>>),
    Other(&'s Model, Vec<u32>),
}

impl<'m> Shared<'m> {
    /// For a model; `by_merges` turns merge skipping off.
    fn new(model: &'m Model, by_merges: bool) -> Self {
        match model {
            Model::Bpe(bpe) => {
                let encoder = bpe.pretoken_encoder(bpe.ignores_merges() && !by_merges);
                let characters = encoder.whole_characters();
                Self::Bpe(Box::new(encoder), characters)
            }
            other => Self::Other(other),
        }
    }

    fn encoder(&self) -> Encoder<'_> {
        match self {
            Self::Bpe(encoder, characters) => Encoder::Bpe(Box::new(SortedEncoder::new(encoder, characters.as_ref()))),
            Self::Other(model) => Encoder::Other(model, Vec::new()),
        }
    }
}

impl Encoder<'_> {
    /// The tokens of a pretoken, as indices.
    fn encode(&mut self, pretoken: &[u8]) -> Result<&[u32]> {
        match self {
            Self::Bpe(encoder) => encoder.encode(pretoken),
            Self::Other(model, tokens) => {
                let text = std::str::from_utf8(pretoken).map_err(|_| Error::NotText)?;
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
    fn all_that_encodes_counted_pretokens_looks_once_for_each_of_them() {
        let mut random = Random(4);
        let model = Model::Bpe(random.byte_level(20, true, &Options::default()));
        let bpe = model.bpe().unwrap();
        let mut counts = Counts::default();
        random.words(200, 6).iter().for_each(|word| counts.push(word.as_bytes(), 1).unwrap());
        let looks = [
            stops_anywhere(|stop| model.changed_pretokens(&model, &counts, stop)),
            stops_anywhere(|stop| model.token_counts(&counts, false, true, stop)),
            stops_anywhere(|stop| model.lost_counts(&counts, false, stop)),
            stops_anywhere(|stop| bpe.growth(&counts, 5, &[0, 1, 2, 3], &[(25, 3)], stop)),
        ];
        assert_eq!(looks, [counts.len(); 4]);
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
