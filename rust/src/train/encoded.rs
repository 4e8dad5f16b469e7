//! Encodes distinct pretokens with the base, on all cores: the words that training starts from.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::words::{Words, BOUNDARY};
use crate::bpe::{Bpe, SortedEncoder};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// The tokens of some words, each word followed by `BOUNDARY`; their indices among the pretokens; and the number of
/// their pairs in the text.
type Encoded = (Vec<u32>, Vec<usize>, u128);

/// The words of counted pretokens. Pretokens of one token have no pair and are left out.
pub(super) fn encoded_words(bpe: &Bpe, counts: &Counts, stop: &Stop) -> Result<Words> {
    const PRETOKENS: usize = 1 << 14;
    const BYTES: u64 = 1 << 20;
    const CHUNKS: usize = 32;
    narrow(bpe.len(), "tokens")?;
    let encoder = bpe.pretoken_encoder(bpe.ignores_merges());
    let characters = encoder.whole_characters();
    let idle: Mutex<Vec<SortedEncoder<'_>>> = Mutex::default();
    let encode = |places: &Range<usize>| {
        stop.check()?;
        let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut sorted = taken.unwrap_or_else(|| SortedEncoder::new(&encoder, characters.as_ref()));
        let encoded = encode_range(&mut sorted, counts, places.clone());
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(sorted);
        encoded
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
        let encode_group = || group.par_iter().map(encode).collect::<Result<Vec<_>>>();
        encoded = rayon::join(encode_group, || append(before)).0?;
    }
    append(encoded);
    // No sum of counts is larger, so none overflows.
    u64::try_from(pairs).map_err(|_| Error::TooFrequent)?;
    Ok(words)
}

fn encode_range(encoder: &mut SortedEncoder<'_>, counts: &Counts, places: Range<usize>) -> Result<Encoded> {
    let (mut tokens, mut words, mut pairs) = (Vec::new(), Vec::new(), 0);
    for place in places {
        let word = encoder.encode(counts.pretoken(place))?;
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
