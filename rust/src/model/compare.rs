//! Compares two models: which counted pretokens they encode to different tokens.

use std::ops::Range;

use rayon::prelude::*;

use super::encoders::Shared;
use super::Model;
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

/// Not the index of a token.
const NONE: u32 = u32::MAX;

impl Model {
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
        let chunks = counts.chunks(1 << 16, u64::MAX);
        let parts: Result<Vec<Vec<usize>>> = chunks.into_par_iter().map(changed_in).collect();
        Ok(parts?.concat())
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
            stops_anywhere(|stop| bpe.growth(&counts, 5, &[(25, 3)], stop)),
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
