//! The texts of a training, and what the base makes of them, on all cores.

use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::balance::{n_tokens, Balance, MaxShare, Measure};
use super::words::{Words, BOUNDARY};
use crate::bpe::{in_parallel, pair_key, Bpe, CountedEncoder};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// The texts of a training.
#[derive(Debug, Clone, Copy, Default)]
pub struct Texts<'t> {
    /// The text of each language. Of languages that are equally well off, the first is worst off.
    pub languages: &'t [&'t Counts],
    /// The same sentences in every language, by which the languages are compared, and in the language of reference.
    pub parallel: Option<(&'t [&'t Counts], &'t Counts)>,
    /// The largest share of merges that one language may get.
    pub max_share: MaxShare,
    /// Text whose segmentation must not change.
    pub preserved: Option<&'t Counts>,
}

/// The texts as tokens of the base.
pub(super) struct EncodedTexts {
    /// Those of the languages, then the parallel ones.
    pub(super) words: Vec<Words>,
    pub(super) n_languages: usize,
    pub(super) balance: Balance,
    /// The pairs of the preserved text.
    pub(super) preserved: FxHashSet<u64>,
}

impl EncodedTexts {
    pub(super) fn new(bpe: &Bpe, texts: &Texts<'_>, stop: &Stop) -> Result<Self> {
        let preserved = match texts.preserved {
            Some(counts) => preserved_pairs(bpe, counts, stop)?,
            None => FxHashSet::default(),
        };
        let n_languages = texts.languages.len();
        let several = n_languages > 1; // one language is not compared with others
        let (parallel, reference) = texts.parallel.filter(|_| several).unzip();
        let (mut words, mut tokens) = (Vec::new(), Vec::new());
        for counts in texts.languages.iter().chain(parallel.unwrap_or_default()) {
            let encoded = encoded_words(bpe, counts, stop)?;
            tokens.push(if several { n_tokens(counts, encoded.reader(stop))? } else { 0 });
            words.push(encoded);
        }
        let reference = match reference {
            Some(counts) => Some(n_tokens(counts, encoded_words(bpe, counts, stop)?.reader(stop))?),
            None => None,
        };
        let first = if parallel.is_some() { n_languages } else { 0 };
        let measures = (first..first + n_languages).map(|text| Measure {
            text,
            tokens: tokens[text],
            against: reference.unwrap_or(tokens[text]),
        });
        let balance = Balance::new(if several { measures.collect() } else { Vec::new() }, texts.max_share);
        Ok(Self { words, n_languages, balance, preserved })
    }
}

/// The tokens of some words, each word followed by `BOUNDARY`; their indices among the pretokens; and the number of
/// their pairs in the text.
type Encoded = (Vec<u32>, Vec<usize>, u128);

/// The words of counted pretokens. Pretokens of one token have no pair and are left out.
fn encoded_words(bpe: &Bpe, counts: &Counts, stop: &Stop) -> Result<Words> {
    const PRETOKENS: usize = 1 << 14;
    const BYTES: u64 = 1 << 20;
    const CHUNKS: usize = 32;
    narrow(bpe.len(), "tokens")?;
    let shared = bpe.counted(counts, bpe.ignores_merges(), stop)?;
    let encode = |encoder: &mut CountedEncoder<'_>, places: Range<usize>| {
        stop.check()?;
        encode_range(encoder, counts, places)
    };
    // Room that is not used costs nothing, and growing in the middle of the work would.
    let mut words = Words::with_capacity(counts.columns().0.len() / 2 + counts.len());
    let mut pairs = 0;
    let mut append = |encoded: Vec<Encoded>| {
        for (tokens, places, more) in encoded {
            words.append(&tokens, places.iter().map(|&place| counts.counts()[place]));
            pairs += more;
        }
    };
    // One group is encoded while the one before it is appended.
    let mut encoded = Vec::new();
    for group in counts.chunks(PRETOKENS, BYTES).chunks(CHUNKS) {
        let before = std::mem::take(&mut encoded);
        let encode_group = || in_parallel(group, || shared.encoder(), encode);
        encoded = rayon::join(encode_group, || append(before)).0?.0;
    }
    append(encoded);
    // No sum of counts is larger, so none overflows.
    u64::try_from(pairs).map_err(|_| Error::TooFrequent)?;
    Ok(words)
}

fn encode_range(encoder: &mut CountedEncoder<'_>, counts: &Counts, places: Range<usize>) -> Result<Encoded> {
    let (mut tokens, mut words, mut pairs) = (Vec::new(), Vec::new(), 0);
    for place in places {
        let word = encoder.encode(place)?;
        if word.len() > 1 {
            narrow(word.len(), "tokens in a pretoken")?;
            tokens.extend_from_slice(word);
            tokens.push(BOUNDARY);
            words.push(place);
            pairs += word.len() as u128 * u128::from(counts.counts()[place]);
        }
    }
    Ok((tokens, words, pairs))
}

/// Checks that a number fits into the bits that words have for it.
fn narrow(number: usize, what: &'static str) -> Result<()> {
    if number < BOUNDARY as usize {
        return Ok(());
    }
    Err(Error::TooMany { number: number as u64, what })
}

/// All pairs of neighbours in the segmentation of text that must not change. None of them may be merged, so the
/// segmentation stays as it was, and so do its pairs: they are collected once.
fn preserved_pairs(bpe: &Bpe, counts: &Counts, stop: &Stop) -> Result<FxHashSet<u64>> {
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
