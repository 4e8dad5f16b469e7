//! Text to token ids: splits documents into pretokens and encodes them. A short pretoken is encoded once.

use std::ops::Range;

use rapidfuzz::distance::levenshtein;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::pretokenize::{Pretokenizer, Sink};
use crate::stop::Stop;

/// Bytes of a document that are split at once, if it can be cut.
const PART: usize = 1 << 20;
/// Bytes of memory that a part of a document may need if it cannot be cut.
const PART_MEMORY: usize = 2 << 30;
/// Longer pretokens are rare, and are encoded each time.
const LONGEST_KNOWN: usize = 64;
/// Known pretokens, and their ids, that are kept. When there are more, all are forgotten.
const MOST_KNOWN: usize = 1 << 22;

/// The tokens of documents.
#[derive(Debug, Default)]
pub struct Segmented {
    /// The ids of all documents, one after the other.
    pub ids: Vec<u32>,
    /// The number of tokens of each document.
    pub lengths: Vec<u64>,
    /// Pretokens and added tokens.
    pub pretokens: u64,
    /// Tokens with merge skipping off.
    pub tokens_by_merges: u64,
}

/// Splits documents into tokens, and remembers the tokens of short pretokens.
pub struct Segmenter {
    pretokenizer: Pretokenizer,
    known: Known,
}

impl Segmenter {
    /// A segmenter that splits text by a pipeline.
    #[must_use]
    pub fn new(pretokenizer: Pretokenizer) -> Self {
        Self { pretokenizer, known: Known::default() }
    }

    /// The tokens of documents. All calls must have the same model.
    ///
    /// # Errors
    ///
    /// As [`Pretokenizer::run`] and [`Model::encode`], when a document that cannot be cut needs too much memory, and when
    /// it is stopped.
    pub fn segment(&mut self, model: &Model, documents: &[&str], stop: &Stop) -> Result<Segmented> {
        let Self { pretokenizer, known } = self;
        let mut encoder = Encoder { model, known, done: Segmented::default(), string: String::new(), error: None };
        for document in documents {
            let before = encoder.done.ids.len();
            for part in parts(pretokenizer, document)? {
                stop.check()?;
                pretokenizer.run(&document[part.clone()], part.start == 0, &mut encoder)?;
                encoder.error.take().map_or(Ok(()), Err)?;
            }
            encoder.done.lengths.push((encoder.done.ids.len() - before) as u64);
        }
        Ok(encoder.done)
    }
}

/// Bytes, characters and words of documents. Words are separated by white space, as Python defines it.
#[must_use]
pub fn text_size(documents: &[&str]) -> (usize, usize, usize) {
    let is_space = |character: char| character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}');
    let (mut characters, mut words) = (0, 0);
    for document in documents {
        let mut after_space = true;
        for character in document.chars() {
            let space = is_space(character);
            words += usize::from(after_space && !space);
            characters += 1;
            after_space = space;
        }
    }
    (documents.iter().map(|document| document.len()).sum(), characters, words)
}

/// Documents as numbers: all of them one after the other, and where each begins, and the last one ends.
pub type Documents<'d> = (&'d [u32], &'d [usize]);

/// The token edits from each document to the same one of another segmentation, on all cores. None where the two differ
/// over more than `longest` tokens: the time is proportional to the product of their lengths.
///
/// # Errors
///
/// [`Error::Stopped`].
pub fn edit_distances(
    ours: Documents<'_>,
    theirs: Documents<'_>,
    longest: usize,
    stop: &Stop,
) -> Result<Vec<Option<usize>>> {
    let places = ours.1.par_windows(2).zip(theirs.1.par_windows(2));
    places
        .map(|(mine, other)| {
            stop.check()?;
            let (mine, other) = trimmed(&ours.0[mine[0]..mine[1]], &theirs.0[other[0]..other[1]]);
            let is_measured = mine.len().max(other.len()) <= longest;
            Ok(is_measured.then(|| levenshtein::distance(mine.iter().copied(), other.iter().copied())))
        })
        .collect()
}

/// Two sequences without what both begin with, then without what both end with.
fn trimmed<'s>(left: &'s [u32], right: &'s [u32]) -> (&'s [u32], &'s [u32]) {
    let start = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let (left, right) = (&left[start..], &right[start..]);
    let end = left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count();
    (&left[..left.len() - end], &right[..right.len() - end])
}

/// The parts of a document, cut where no pretoken spans; each of about [`PART`] bytes, if there are cuts.
fn parts(pretokenizer: &Pretokenizer, document: &str) -> Result<Vec<Range<usize>>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let longest = PART_MEMORY / pretokenizer.memory_factor();
    while document.len() - start > PART {
        // The window grows where there is no cut, so that a long pretoken is searched a few times only.
        let cut = std::iter::successors(Some(PART), |size| Some(size * 2)).find_map(|size| {
            let end = boundary(document, start.saturating_add(size));
            let cut = pretokenizer.last_cut(&document[start..end]).filter(|&cut| cut > 0);
            if cut.is_none() && end == document.len() {
                return Some(end);
            }
            cut.map(|cut| start + cut)
        });
        let end = cut.unwrap_or(document.len());
        parts.push(start..end);
        start = end;
    }
    if start < document.len() || document.is_empty() {
        parts.push(start..document.len());
    }
    match parts.iter().map(|part| part.len()).max() {
        Some(bytes) if bytes > longest => Err(Error::LongPart { bytes, longest }),
        _ => Ok(parts),
    }
}

/// The last boundary of a character at or before a byte.
fn boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The tokens of pretokens that occurred before.
#[derive(Default)]
struct Known {
    places: FxHashMap<Box<[u8]>, (Range<usize>, u64)>,
    ids: Vec<u32>,
}

/// Receives pretokens, and appends their tokens.
struct Encoder<'s> {
    model: &'s Model,
    known: &'s mut Known,
    done: Segmented,
    string: String,
    error: Option<Error>,
}

impl Encoder<'_> {
    fn encode(&mut self, pretoken: &[u8]) -> Result<()> {
        if let Some((place, by_merges)) = self.known.places.get(pretoken) {
            self.done.ids.extend_from_slice(&self.known.ids[place.clone()]);
            self.done.tokens_by_merges += by_merges;
            return Ok(());
        }
        self.model.alphabet().spell(pretoken, &mut self.string)?;
        let ids = self.model.encode(&self.string)?;
        let by_merges = match self.model.skips_merges() {
            true => self.model.encode_by_merges(&self.string)?.len(),
            false => ids.len(),
        } as u64;
        self.done.ids.extend_from_slice(&ids);
        self.done.tokens_by_merges += by_merges;
        if pretoken.len() <= LONGEST_KNOWN {
            self.remember(pretoken, &ids, by_merges);
        }
        Ok(())
    }

    fn remember(&mut self, pretoken: &[u8], ids: &[u32], by_merges: u64) {
        // A pretoken of characters outside the vocabulary may have no id.
        if self.known.ids.len().max(self.known.places.len()) > MOST_KNOWN {
            *self.known = Known::default();
        }
        let start = self.known.ids.len();
        self.known.ids.extend_from_slice(ids);
        self.known.places.insert(pretoken.into(), (start..self.known.ids.len(), by_merges));
    }
}

impl Sink for Encoder<'_> {
    fn pretoken(&mut self, bytes: &[u8], at: Range<usize>) {
        self.done.pretokens += 1;
        if self.error.is_none() {
            self.error = self.encode(&bytes[at]).err();
        }
    }

    fn added(&mut self, id: u32) {
        self.done.pretokens += 1;
        self.done.tokens_by_merges += 1;
        self.done.ids.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random};
    use crate::pretokenize::Spelling;
    use crate::stop::tests::stops_anywhere;

    #[test]
    fn segmenting_and_comparing_can_be_stopped_at_each_document() {
        let model = Model::Bpe(Random(1).byte_level(9, true, &Options::default()));
        let skeleton = r#"{"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel",
            "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}"#;
        let looks = stops_anywhere(|stop| {
            let pretokenizer = Pretokenizer::new(skeleton, Spelling::ByteLevel)?;
            Segmenter::new(pretokenizer).segment(&model, &["ab", "b c", "", "aab"], stop)
        });
        assert_eq!(looks, 4);
        let documents = (&[1, 2, 3][..], &[0, 1, 2, 3][..]);
        assert_eq!(stops_anywhere(|stop| edit_distances(documents, documents, 9, stop)), 3);
    }
}
