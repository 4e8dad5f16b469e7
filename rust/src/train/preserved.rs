//! The pairs of text whose segmentation must not change: none of them may be merged.
//!
//! Because none is merged, the segmentation of the text stays as it was, and so do its pairs. They are collected once.

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::encoded::encoded_words;
use crate::bpe::{pair_key, Bpe};
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

/// All pairs of neighbours in the segmentation of the counted pretokens.
pub(super) fn preserved_pairs(bpe: &Bpe, counts: &Counts, stop: &Stop) -> Result<FxHashSet<u64>> {
    let words = encoded_words(bpe, counts, stop)?;
    let reader = words.reader(stop);
    let collect = |range| {
        let mut pairs = FxHashSet::default();
        reader.for_each_pair_in(range, |pair| {
            pairs.insert(pair_key(pair.left, pair.right));
        });
        pairs
    };
    let union = |mut all: FxHashSet<u64>, more: FxHashSet<u64>| {
        all.extend(more);
        all
    };
    let ranges = words.ranges(rayon::current_num_threads());
    let pairs = ranges.into_par_iter().map(collect).reduce(FxHashSet::default, union);
    stop.check()?;
    Ok(pairs)
}

/// The pairs of neighbouring tokens in the segmentation of counted pretokens, by the strings of the tokens.
///
/// # Errors
///
/// As [`super::Learned::new`].
pub fn pairs_of(bpe: &Bpe, counts: &Counts, stop: &Stop) -> Result<Vec<(u32, u32)>> {
    let keys = preserved_pairs(bpe, counts, stop)?;
    let mut pairs: Vec<(u32, u32)> = keys.into_iter().map(|key| ((key >> 32) as u32, key as u32)).collect();
    pairs.sort_unstable_by_key(|&(left, right)| (bpe.string(left), bpe.string(right)));
    Ok(pairs)
}
