//! Encodes counted pretokens, on all cores. Their tokens by the first model are kept, for models that are made from it:
//! a vocabulary that is adapted encodes the same counts again and again, as it was, without some tokens, with new ones.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;

use super::characters::WholeCharacters;
use super::derived::{Derived, Rules};
use super::encode::PretokenEncoder;
use super::model::Bpe;
use super::sorted::SortedEncoder;
use super::vocabulary::Vocabulary;
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

/// The most bytes of pretokens whose tokens are kept. Their tokens need at most four times as many.
const MOST_BYTES: usize = 1 << 24;
/// The pretokens that are encoded together.
const CHUNK: usize = 1 << 12;

/// The tokens of all pretokens of counts.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) rules: Rules,
    tokens: Vec<u32>,
    /// Where the tokens of each pretoken end.
    ends: Vec<u32>,
}

impl Encoded {
    #[inline]
    pub(super) fn tokens_of(&self, place: usize) -> &[u32] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start as usize..self.ends[place] as usize]
    }
}

/// A place in counts for their tokens. Copies of the counts have none, and it does not make them different.
#[derive(Debug, Default)]
pub(crate) struct Kept(OnceLock<Encoded>);

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Kept {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Kept {}

/// What encoders of counted pretokens share on all threads.
pub(crate) struct CountedPretokens<'m> {
    counts: &'m Counts,
    encoder: PretokenEncoder<'m>,
    characters: OnceLock<Option<WholeCharacters>>,
    pub(super) derived: Option<Derived<'m>>,
}

impl Bpe {
    /// Prepares to encode counted pretokens. The first call for small counts encodes all of them.
    ///
    /// # Errors
    ///
    /// As [`Bpe::encode`], and when it is stopped.
    pub(crate) fn counted<'m>(
        &'m self,
        counts: &'m Counts,
        skip_merges: bool,
        stop: &Stop,
    ) -> Result<CountedPretokens<'m>> {
        let (encoder, characters) = (self.pretoken_encoder(skip_merges), OnceLock::new());
        let mut counted = CountedPretokens { counts, encoder, characters, derived: None };
        if counts.columns().0.len() <= MOST_BYTES && !counts.is_empty() {
            let kept = &counts.kept().0;
            if kept.get().is_none() {
                let encoded = counted.encode_all(stop)?;
                let _ = kept.set(encoded); // another thread may have been faster: its tokens are as good
            }
            counted.derived = kept.get().and_then(|encoded| Derived::new(encoded, self, skip_merges));
        }
        Ok(counted)
    }
}

impl<'m> CountedPretokens<'m> {
    fn encode_all(&self, stop: &Stop) -> Result<Encoded> {
        let chunks = self.counts.chunks(CHUNK, u64::MAX);
        let encode = |encoder: &mut CountedEncoder<'_>, places: Range<usize>| {
            let (mut tokens, mut lengths) = (Vec::new(), Vec::with_capacity(places.len()));
            for place in places {
                stop.check()?;
                let more = encoder.encode(place)?;
                tokens.extend_from_slice(more);
                lengths.push(more.len() as u32);
            }
            Ok((tokens, lengths))
        };
        let (parts, _) = in_parallel(&chunks, || self.encoder(), encode)?;
        let (mut tokens, mut ends, mut end) = (Vec::new(), Vec::with_capacity(self.counts.len()), 0);
        tokens.reserve_exact(parts.iter().map(|(tokens, _)| tokens.len()).sum());
        for (more, lengths) in parts {
            tokens.extend(more);
            for length in lengths {
                end += length;
                ends.push(end);
            }
        }
        let bpe = self.encoder.bpe();
        let rules = Rules::of(bpe, self.encoder.skips_merges());
        Ok(Encoded { vocabulary: Arc::clone(bpe.vocabulary()), rules, tokens, ends })
    }

    /// An encoder for one thread.
    pub(crate) fn encoder(&self) -> CountedEncoder<'_> {
        CountedEncoder { shared: self, sorted: None, tokens: Vec::new() }
    }

    /// The tokens of a pretoken after all merges below a rank, if they are known without encoding it.
    pub(super) fn tokens_below(&self, rank: u32, place: usize, tokens: &mut Vec<u32>) -> bool {
        self.derived.as_ref().is_some_and(|derived| derived.new_from == rank && derived.start(place, tokens))
    }

    pub(super) fn pretoken_encoder(&self) -> &PretokenEncoder<'m> {
        &self.encoder
    }
}

/// Encodes pretokens of counts, one after the other. Ascending places are fast.
pub(crate) struct CountedEncoder<'s> {
    shared: &'s CountedPretokens<'s>,
    sorted: Option<Box<SortedEncoder<'s>>>,
    tokens: Vec<u32>,
}

impl<'s> CountedEncoder<'s> {
    /// The tokens of the pretoken at a place, as indices.
    ///
    /// # Errors
    ///
    /// As [`PretokenEncoder::encode`].
    pub(crate) fn encode(&mut self, place: usize) -> Result<&[u32]> {
        let pretoken = self.shared.counts.pretoken(place);
        if let Some(derived) = &self.shared.derived {
            if derived.encode(place, pretoken, &self.shared.encoder, &mut self.tokens) {
                return Ok(&self.tokens);
            }
        }
        let CountedPretokens { encoder, characters, .. } = self.shared;
        let sorted = self.sorted.get_or_insert_with(|| {
            let characters = characters.get_or_init(|| encoder.whole_characters());
            Box::new(SortedEncoder::new(encoder, characters.as_ref()))
        });
        sorted.encode(pretoken)
    }
}

/// Calls `each` for all chunks, on all cores, with a state. Returns what it gave, in order, and the states: one for each
/// thread.
pub(crate) fn in_parallel<S: Send, T: Send>(
    chunks: &[Range<usize>],
    new: impl Fn() -> S + Sync,
    each: impl Fn(&mut S, Range<usize>) -> Result<T> + Sync,
) -> Result<(Vec<T>, Vec<S>)> {
    let idle: Mutex<Vec<S>> = Mutex::default();
    let take = || idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let run = |chunk: &Range<usize>| {
        let mut state = take().unwrap_or_else(&new);
        let given = each(&mut state, chunk.clone());
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(state);
        given
    };
    let given = chunks.par_iter().map(run).collect::<Result<Vec<T>>>()?;
    Ok((given, idle.into_inner().unwrap_or_else(PoisonError::into_inner)))
}
