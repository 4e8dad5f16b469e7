//! Text to token ids: splits documents into pretokens and encodes them. A short pretoken is encoded once.

mod recent;

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rapidfuzz::distance::levenshtein;
use rayon::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use self::recent::{Recent, Short};
use crate::bpe::{in_parallel, PretokenEncoder};
use crate::count::{Words, INLINE};
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
/// Numbers of known pretokens that are kept. When there are more, all are forgotten.
const MOST_KNOWN: usize = 1 << 23;
/// Bytes of documents that one thread splits at a time.
const GROUP: usize = 1 << 18;
/// Parts of what is known.
const SHARDS: usize = 64;
/// Words of 64 bits that [`edits`] may have in its table. Longer sequences are compared by the library.
const MOST_WORDS: usize = 1 << 21;

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

/// Splits documents into the tokens of one model or several, on all cores, and remembers the tokens of short pretokens.
pub struct Segmenter {
    pretokenizer: Pretokenizer,
    models: Vec<Arc<Model>>,
    /// By the hash of the pretoken, so that threads seldom wait for each other.
    known: Vec<Mutex<Known>>,
    /// Those of threads that do not segment at the moment.
    recent: Mutex<Vec<Recent>>,
}

impl Segmenter {
    /// A segmenter that splits text by a pipeline, which must be that of all models.
    #[must_use]
    pub fn new(pretokenizer: Pretokenizer, models: Vec<Arc<Model>>) -> Self {
        let known = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { pretokenizer, models, known, recent: Mutex::default() }
    }

    /// The tokens of documents with each model.
    ///
    /// # Errors
    ///
    /// As [`Pretokenizer::run`] and [`Model::encode`], when a document that cannot be cut needs too much memory, and when
    /// it is stopped.
    pub fn segment(&self, documents: &[&str], stop: &Stop) -> Result<Vec<Segmented>> {
        let groups = groups(documents);
        let idle = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let take = || idle().pop().unwrap_or_default();
        let segment = |recent: &mut Recent, group: Range<usize>| {
            Ok(self.segment_group(&documents[group], recent, stop)) // the first error is that of the first group
        };
        let (parts, recent) = in_parallel(&groups, take, segment)?;
        idle().extend(recent);
        let mut done: Vec<Segmented> = self.models.iter().map(|_| Segmented::default()).collect();
        for part in parts {
            for (all, more) in done.iter_mut().zip(part?) {
                all.ids.extend_from_slice(&more.ids);
                all.lengths.extend_from_slice(&more.lengths);
                all.pretokens += more.pretokens;
                all.tokens_by_merges += more.tokens_by_merges;
            }
        }
        Ok(done)
    }

    fn segment_group(&self, documents: &[&str], recent: &mut Recent, stop: &Stop) -> Result<Vec<Segmented>> {
        let encoders = self.models.iter().map(|model| ModelEncoder::new(model)).collect();
        let done = self.models.iter().map(|_| Segmented::default()).collect();
        let mut all = Encoder {
            encoders,
            known: &self.known,
            recent,
            done,
            joined: Vec::new(),
            string: String::new(),
            symbols: Vec::new(),
            error: None,
        };
        for document in documents {
            let before: Vec<usize> = all.done.iter().map(|done| done.ids.len()).collect();
            for part in parts(&self.pretokenizer, document)? {
                stop.check()?;
                self.pretokenizer.run(&document[part.clone()], part.start == 0, &mut all)?;
                all.error.take().map_or(Ok(()), Err)?;
            }
            for (done, before) in all.done.iter_mut().zip(before) {
                done.lengths.push((done.ids.len() - before) as u64);
            }
        }
        Ok(all.done)
    }
}

/// Consecutive documents of about [`GROUP`] bytes together.
fn groups(documents: &[&str]) -> Vec<Range<usize>> {
    let (mut groups, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (place, document) in documents.iter().enumerate() {
        bytes += document.len() + 1;
        if bytes >= GROUP || place + 1 == documents.len() {
            groups.push(start..place + 1);
            (start, bytes) = (place + 1, 0);
        }
    }
    groups
}

/// Bytes, characters and words of documents. Words are separated by white space, as Python defines it.
#[must_use]
pub fn text_size(documents: &[&str]) -> (usize, usize, usize) {
    let is_space = |character: char| character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}');
    let size_of = |document: &&str| {
        let (mut characters, mut words, mut after_space) = (0, 0, true);
        for character in document.chars() {
            let space = is_space(character);
            words += usize::from(after_space && !space);
            characters += 1;
            after_space = space;
        }
        (document.len(), characters, words)
    };
    let add =
        |one: (usize, usize, usize), other: (usize, usize, usize)| (one.0 + other.0, one.1 + other.1, one.2 + other.2);
    documents.par_iter().with_min_len(64).map(size_of).reduce(Default::default, add)
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
            Ok(is_measured.then(|| edits(mine, other)))
        })
        .collect()
}

/// The edits from one sequence to the other: the bit-parallel algorithm of Hyyrö (2003). Tokens of the shorter one are
/// numbered, so that the bits of each are found without a hash for every word.
fn edits(left: &[u32], right: &[u32]) -> usize {
    let (short, long) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    let n_words = short.len().div_ceil(64);
    let mut rows: FxHashMap<u32, usize> = FxHashMap::default();
    for &token in short {
        let next = rows.len() + 1;
        rows.entry(token).or_insert(next);
    }
    if short.is_empty() {
        return long.len();
    }
    if (rows.len() + 1) * n_words > MOST_WORDS {
        return levenshtein::distance(left.iter().copied(), right.iter().copied());
    }
    // Row 0 is for tokens that the shorter one lacks.
    let mut table = vec![0u64; (rows.len() + 1) * n_words];
    for (at, token) in short.iter().enumerate() {
        table[rows[token] * n_words + at / 64] |= 1 << (at % 64);
    }
    let (mut above, mut below) = (vec![u64::MAX; n_words], vec![0u64; n_words]);
    let (last, mut distance) = (1u64 << ((short.len() - 1) % 64), short.len());
    for token in long {
        let row = rows.get(token).copied().unwrap_or(0) * n_words;
        let (mut up_carry, mut down_carry, mut ends) = (1, 0, (0, 0));
        for ((&equal, above), below) in table[row..row + n_words].iter().zip(&mut above).zip(&mut below) {
            let (plus, minus) = (*above, *below);
            let matches = equal | down_carry;
            let diagonal = ((matches & plus).wrapping_add(plus) ^ plus) | matches | minus;
            let (up, down) = (minus | !(diagonal | plus), diagonal & plus);
            let (shifted_up, shifted_down) = (up << 1 | up_carry, down << 1 | down_carry);
            (up_carry, down_carry, ends) = (up >> 63, down >> 63, (up, down));
            (*above, *below) = (shifted_down | !(diagonal | shifted_up), shifted_up & diagonal);
        }
        distance = distance + usize::from(ends.0 & last != 0) - usize::from(ends.1 & last != 0);
    }
    distance
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

/// The tokens of pretokens that occurred before, with each model.
#[derive(Default)]
struct Known {
    /// Where the entry of a pretoken begins in `numbers`: for each model the number of its tokens, the number by merges
    /// alone, and their ids.
    short: FxHashMap<Words, usize>,
    long: FxHashMap<Box<[u8]>, usize>,
    numbers: Vec<u32>,
}

/// Encodes pretokens with one model.
enum ModelEncoder<'m> {
    Bpe(PretokenEncoder<'m>),
    Other(&'m Model),
}

impl<'m> ModelEncoder<'m> {
    fn new(model: &'m Model) -> Self {
        match model {
            Model::Bpe(bpe) => Self::Bpe(bpe.pretoken_encoder(bpe.ignores_merges())),
            other => Self::Other(other),
        }
    }

    /// Adds the ids of a pretoken, and gives their number by merges alone.
    fn encode(
        &self,
        pretoken: &[u8],
        (string, symbols): (&mut String, &mut Vec<u32>),
        ids: &mut Vec<u32>,
    ) -> Result<usize> {
        match self {
            Self::Bpe(encoder) => {
                let whole = encoder.skipped(pretoken);
                encoder.encode_by_merges(pretoken, string, symbols, |_, _| ())?;
                match whole {
                    Some(token) => ids.push(encoder.bpe().id(token)),
                    None => ids.extend(symbols.iter().map(|&token| encoder.bpe().id(token))),
                }
                Ok(symbols.len())
            }
            Self::Other(model) => {
                model.alphabet().spell(pretoken, string)?;
                let found = model.encode(string)?;
                ids.extend_from_slice(&found);
                Ok(found.len())
            }
        }
    }
}

/// Receives pretokens, and appends their tokens with each model.
struct Encoder<'s> {
    encoders: Vec<ModelEncoder<'s>>,
    known: &'s [Mutex<Known>],
    recent: &'s mut Recent,
    done: Vec<Segmented>,
    /// A pretoken with its prefix.
    joined: Vec<u8>,
    string: String,
    symbols: Vec<u32>,
    error: Option<Error>,
}

impl Encoder<'_> {
    fn encode(&mut self, bytes: &[u8], at: Range<usize>) -> Result<()> {
        let short = Short::new(bytes, at.clone());
        if let Some(numbers) = short.and_then(|short| self.recent.numbers(short)) {
            append(&mut self.done, numbers);
            return Ok(());
        }
        self.encode_known(&bytes[at], short)
    }

    /// Encodes a pretoken if it is not known.
    fn encode_known(&mut self, pretoken: &[u8], short: Option<Short>) -> Result<()> {
        let hash = short.map_or_else(|| FxBuildHasher.hash_one(pretoken), |short| short.hash);
        let mut known = self.known[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let place = match short {
            Some(short) => known.short.get(&short.words),
            None => known.long.get(pretoken),
        };
        if let Some(&place) = place {
            let numbers = &known.numbers[place..];
            let length = append(&mut self.done, numbers);
            short.into_iter().for_each(|short| self.recent.put(short, &numbers[..length]));
            return Ok(());
        }
        if known.numbers.len() > MOST_KNOWN / SHARDS {
            *known = Known::default();
        }
        let place = known.numbers.len();
        for encoder in &self.encoders {
            let start = known.numbers.len();
            known.numbers.extend([0, 0]);
            let buffers = (&mut self.string, &mut self.symbols);
            let by_merges = encoder.encode(pretoken, buffers, &mut known.numbers)?;
            (known.numbers[start], known.numbers[start + 1]) =
                ((known.numbers.len() - start - 2) as u32, by_merges as u32);
        }
        append(&mut self.done, &known.numbers[place..]);
        match short {
            Some(short) => drop(known.short.insert(short.words, place)),
            None if pretoken.len() <= LONGEST_KNOWN => drop(known.long.insert(pretoken.into(), place)),
            None => known.numbers.truncate(place),
        }
        Ok(())
    }
}

/// Appends the tokens of an entry of [`Known`], and gives the length of the entry.
fn append(all: &mut [Segmented], numbers: &[u32]) -> usize {
    let mut after = numbers;
    for done in all {
        let [count, by_merges, rest @ ..] = after else { break };
        let (ids, others) = rest.split_at(*count as usize);
        done.ids.extend_from_slice(ids);
        done.tokens_by_merges += u64::from(*by_merges);
        after = others;
    }
    numbers.len() - after.len()
}

impl Sink for Encoder<'_> {
    fn pretoken(&mut self, bytes: &[u8], at: Range<usize>) {
        self.done.iter_mut().for_each(|done| done.pretokens += 1);
        if self.error.is_none() {
            self.error = self.encode(bytes, at).err();
        }
    }

    fn prefixed(&mut self, prefix: &str, bytes: &[u8], at: Range<usize>) {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.extend_from_slice(prefix.as_bytes());
        joined.extend_from_slice(&bytes[at]);
        let length = joined.len();
        joined.extend([0; INLINE + 1]);
        self.pretoken(&joined, 0..length);
        self.joined = joined;
    }

    fn added(&mut self, id: u32) {
        for done in &mut self.done {
            done.pretokens += 1;
            done.tokens_by_merges += 1;
            done.ids.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random};
    use crate::pretokenize::Spelling;
    use crate::stop::tests::stops_anywhere;

    #[test]
    fn edits_are_those_of_the_library() {
        let mut random = Random(7);
        for most in [3, 70, 200, 700] {
            for _ in 0..200 {
                let mut sequence = |kinds: usize| -> Vec<u32> {
                    (0..random.below(most)).map(|_| random.below(kinds) as u32).collect()
                };
                for kinds in [2, 9, 400] {
                    let (left, right) = (sequence(kinds), sequence(kinds));
                    let expected = levenshtein::distance(left.iter().copied(), right.iter().copied());
                    assert_eq!(edits(&left, &right), expected, "{left:?} {right:?}");
                }
            }
        }
    }

    #[test]
    fn segmenting_and_comparing_can_be_stopped_at_each_document() {
        let model = Arc::new(Model::Bpe(Random(1).byte_level(9, true, &Options::default())));
        let skeleton = r#"{"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel",
            "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}"#;
        let looks = stops_anywhere(|stop| {
            let pretokenizer = Pretokenizer::new(skeleton, Spelling::ByteLevel)?;
            Segmenter::new(pretokenizer, vec![Arc::clone(&model)]).segment(&["ab", "b c", "", "aab"], stop)
        });
        assert_eq!(looks, 4);
        let documents = (&[1, 2, 3][..], &[0, 1, 2, 3][..]);
        assert_eq!(stops_anywhere(|stop| edit_distances(documents, documents, 9, stop)), 3);
    }
}
