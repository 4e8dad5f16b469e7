//! A merge table, and the encoding of one pretoken with it.
//!
//! Does what `tokenizers::models::bpe::BPE` does to one pretoken, unknown characters and byte fallback included.
//! Does not normalize, pre-tokenize or look for added tokens: see [`crate::Pipeline`].
//! No dropout, no subword prefix or suffix: such models are refused before they get here.

use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::alphabet::{byte_of, byte_token, character_of, Alphabet};
use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::merges::{pair_key, Merge, Merges};

/// How a model treats what its merges do not decide.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A pretoken that is a token becomes that token, whatever the merges say.
    pub ignore_merges: bool,
    /// A character outside the vocabulary becomes its UTF-8 bytes as `<0xNN>` tokens.
    pub byte_fallback: bool,
    /// The token for what is left; without one, such characters are dropped.
    pub unk_token: Option<String>,
    /// Neighbouring unknown characters become one unknown token.
    pub fuse_unk: bool,
}

/// A BPE model: tokens, ranked merges, and the rules for characters outside the vocabulary.
///
/// Inside, tokens are *indices*: places in the list of tokens ordered by id. Ids may have holes and be as large
/// as `u32` allows, and a table sized by the largest id would let a 100-byte file ask for gigabytes.
#[derive(Debug)]
pub struct Bpe {
    ids: Vec<u32>,
    strings: Vec<String>,
    index_of: FxHashMap<String, u32>,
    characters: FxHashMap<char, u32>,
    merges: FxHashMap<u64, Merge>,
    /// The `<0xNN>` token of every byte that has one; empty without byte fallback.
    bytes: Vec<Option<u32>>,
    unknown: Unknown,
    fuse_unknown: bool,
    ignore_merges: bool,
}

#[derive(Debug)]
enum Unknown {
    Dropped,
    Token(u32),
    Missing(String),
}

impl Bpe {
    /// A model from tokens with their ids and merges as pairs of ids in rank order.
    ///
    /// # Errors
    ///
    /// When two tokens share an id or a string, a pair is listed twice, a merge names an unknown id, or its product
    /// is not a token. A model that passes can encode any text.
    pub fn new(mut tokens: Vec<(u32, String)>, merges: &[(u32, u32)], options: &Options) -> Result<Self> {
        tokens.sort_unstable();
        for pair in tokens.windows(2) {
            if let [(id, first), (other, second)] = pair {
                if id == other {
                    return Err(Error::DuplicateId { id: *id, first: first.clone(), second: second.clone() });
                }
            }
        }
        let (ids, strings): (Vec<u32>, Vec<String>) = tokens.into_iter().unzip();
        let mut index_of = FxHashMap::with_capacity_and_hasher(strings.len(), Default::default());
        let mut characters = FxHashMap::default();
        for (index, string) in (0u32..).zip(&strings) {
            if index_of.insert(string.clone(), index).is_some() {
                return Err(Error::DuplicateToken { token: string.clone() });
            }
            if let Some(character) = only_character(string) {
                characters.insert(character, index);
            }
        }
        let unknown = match &options.unk_token {
            None => Unknown::Dropped,
            Some(token) => match index_of.get(token) {
                Some(&index) => Unknown::Token(index),
                None => Unknown::Missing(token.clone()),
            },
        };
        let bytes = match options.byte_fallback {
            true => (0..=255u8).map(|byte| index_of.get(&byte_token(byte)).copied()).collect(),
            false => Vec::new(),
        };
        let merges = merge_table(&ids, &strings, &index_of, merges)?;
        Ok(Self {
            ids,
            strings,
            index_of,
            characters,
            merges,
            bytes,
            unknown,
            fuse_unknown: options.fuse_unk,
            ignore_merges: options.ignore_merges,
        })
    }

    /// The ids of the tokens that the model makes of one pretoken.
    ///
    /// # Errors
    ///
    /// When a character is outside the vocabulary and `unk_token` names no token.
    pub fn encode(&self, pretoken: &str) -> Result<Vec<u32>> {
        if self.ignore_merges && !pretoken.is_empty() {
            if let Some(&index) = self.index_of.get(pretoken) {
                return Ok(vec![self.id(index)]);
            }
        }
        self.encode_by_merges(pretoken)
    }

    /// As [`Bpe::encode`], with merge skipping (`ignore_merges`) off.
    ///
    /// # Errors
    ///
    /// As [`Bpe::encode`].
    pub fn encode_by_merges(&self, pretoken: &str) -> Result<Vec<u32>> {
        let mut symbols = Vec::with_capacity(pretoken.len());
        self.symbols(pretoken, &mut symbols)?;
        self.merge(&mut symbols, |_, _| ());
        Ok(symbols.into_iter().map(|index| self.id(index)).collect())
    }

    /// How often each token comes out of counted pretokens, by ascending id; those that never do are left out.
    ///
    /// With `uses`, every use of a token in a merge counts too.
    ///
    /// # Errors
    ///
    /// As [`Bpe::encode`], and when a pretoken of a text vocabulary is not UTF-8.
    pub fn token_counts(
        &self,
        counts: &Counts,
        spelling: Alphabet,
        by_merges: bool,
        uses: bool,
    ) -> Result<Vec<(u32, u64)>> {
        let spelled = self.spelled(spelling, self.ignore_merges && !by_merges);
        let part = |places: Range<usize>| -> Result<Vec<u64>> {
            let mut totals = vec![0u64; self.ids.len()];
            let (mut string, mut symbols) = (String::new(), Vec::new());
            for place in places {
                let count = counts.counts()[place];
                let mut add = |index: u32| totals[index as usize] = totals[index as usize].saturating_add(count);
                let used = |(left, right): (u32, u32), _| {
                    if uses {
                        add(left);
                        add(right);
                    }
                };
                spelled.encode_telling(counts.pretoken(place), &mut string, &mut symbols, used)?;
                symbols.iter().for_each(|&index| add(index));
            }
            Ok(totals)
        };
        const CHUNK: usize = 1 << 16;
        let chunks: Vec<Range<usize>> =
            (0..counts.len()).step_by(CHUNK).map(|at| at..counts.len().min(at + CHUNK)).collect();
        let add = |mut sum: Vec<u64>, more: Vec<u64>| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            Ok(sum)
        };
        let zero = || vec![0; self.ids.len()];
        let totals = chunks.into_par_iter().map(part).try_reduce(zero, add)?;
        Ok(self.ids.iter().copied().zip(totals).filter(|(_, total)| *total > 0).collect())
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn id(&self, index: u32) -> u32 {
        self.ids[index as usize]
    }

    pub(crate) fn string(&self, index: u32) -> &str {
        &self.strings[index as usize]
    }

    /// The strings that merges may make or that are one token already: neither added tokens nor the `<0xNN>` of byte
    /// fallback, unless a merge makes them.
    pub(crate) fn spelled_strings<'a>(&'a self, added: &'a FxHashSet<String>) -> impl Iterator<Item = &'a str> {
        let products: FxHashSet<u32> = self.merges.values().map(|merge| merge.product).collect();
        let bytes: FxHashSet<u32> = self.bytes.iter().flatten().copied().collect();
        let is_made = move |string: &String, index: u32| {
            products.contains(&index) || !added.contains(string) && !bytes.contains(&index)
        };
        let all = self.strings.iter().zip(0u32..);
        all.filter(move |(string, index)| is_made(string, *index)).map(|(string, _)| string.as_str())
    }

    /// The characters between which text may be cut where no token spans the cut, in order; None where all may.
    ///
    /// A character with a token of its own gives one symbol, in its place, whatever stands around it. Others may not:
    /// they vanish, so that their neighbours meet; they fuse with unknown characters further on; an unknown token moves
    /// past the bytes that follow it. This matters unless every character is spelled, or unknown ones become one token
    /// each; and always where a merge has an unknown or byte token as a part, which no pair of characters shows.
    #[must_use]
    pub fn cut_between(&self) -> Option<Vec<char>> {
        let stands_alone = match self.unknown {
            Unknown::Dropped => false,
            Unknown::Token(_) => !self.fuse_unknown,
            Unknown::Missing(_) => true, // encoding fails, cut or not
        };
        let merges_them = || {
            self.merges.keys().any(|key| self.is_placeholder((key >> 32) as u32) || self.is_placeholder(*key as u32))
        };
        if (stands_alone || self.spells_every_character()) && !merges_them() {
            return None;
        }
        let mut characters: Vec<char> = self.characters.keys().copied().collect();
        characters.sort_unstable();
        Some(characters)
    }

    /// Whether every character is a token, or has a token for each of its bytes.
    #[must_use]
    pub fn spells_every_character(&self) -> bool {
        let complete = !self.bytes.is_empty() && self.bytes.iter().all(Option::is_some);
        complete || ('\0'..=char::MAX).all(|character| self.spells(character))
    }

    /// Whether a character is a token, or has a token for each of its bytes.
    fn spells(&self, character: char) -> bool {
        let has_token = |byte: u8| self.bytes.get(usize::from(byte)).is_some_and(Option::is_some);
        character.encode_utf8(&mut [0; 4]).bytes().all(has_token) || self.characters.contains_key(&character)
    }

    /// Tells `each` the characters of a pretoken that the model drops or replaces by the unknown token, as bytes.
    ///
    /// Where the vocabulary is byte-level, a character is lost with any of its bytes; bytes that are no text are lost
    /// one by one.
    pub(crate) fn lost(
        &self,
        pretoken: &[u8],
        alphabet: Alphabet,
        by_merges: bool,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        let spells = |text: &[u8]| match alphabet {
            Alphabet::ByteLevel => text.iter().all(|&byte| self.spells(character_of(byte))),
            Alphabet::Text => String::from_utf8_lossy(text).chars().all(|character| self.spells(character)),
        };
        if spells(pretoken) {
            return Ok(());
        }
        if self.ignore_merges && !by_merges {
            let mut string = String::new();
            alphabet.spell(pretoken, &mut string)?;
            if self.index(&string).is_some() {
                return Ok(());
            }
        }
        for chunk in pretoken.utf8_chunks() {
            let characters = chunk.valid().char_indices();
            let texts = characters.map(|(at, character)| &chunk.valid().as_bytes()[at..at + character.len_utf8()]);
            texts.chain(chunk.invalid().chunks(1)).filter(|text| !spells(text)).for_each(&mut each);
        }
        Ok(())
    }

    /// How often counted pretokens have each character that the model drops or replaces by the unknown token.
    ///
    /// # Errors
    ///
    /// When a pretoken of a text vocabulary is not UTF-8.
    pub fn lost_counts(&self, counts: &Counts, alphabet: Alphabet, by_merges: bool) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut totals: FxHashMap<Vec<u8>, u64> = FxHashMap::default();
        for (pretoken, count) in counts.iter() {
            self.lost(pretoken, alphabet, by_merges, |text| {
                let total = totals.entry(text.to_vec()).or_default();
                *total = total.saturating_add(count);
            })?;
        }
        let mut totals: Vec<_> = totals.into_iter().collect();
        totals.sort_unstable();
        Ok(totals)
    }

    /// Whether the model drops characters that it does not spell, without a trace.
    #[must_use]
    pub fn drops_unknown(&self) -> bool {
        matches!(self.unknown, Unknown::Dropped)
    }

    /// Whether a token stands for what the vocabulary lacks: the unknown token, or a byte-fallback token.
    pub(crate) fn is_placeholder(&self, index: u32) -> bool {
        matches!(self.unknown, Unknown::Token(unknown) if unknown == index) || self.bytes.contains(&Some(index))
    }

    /// One character, or a `<0xNN>` that byte fallback uses: what encoding starts from.
    pub(crate) fn is_atomic(&self, index: u32) -> bool {
        only_character(self.string(index)).is_some() || self.bytes.contains(&Some(index))
    }

    /// The starting symbols of a pretoken, before any merge.
    pub(crate) fn symbols(&self, pretoken: &str, symbols: &mut Vec<u32>) -> Result<()> {
        let mut pending: Option<u32> = None;
        for character in pretoken.chars() {
            if let Some(&index) = self.characters.get(&character) {
                symbols.extend(pending.take());
                symbols.push(index);
            } else if self.push_bytes(character, symbols) {
                // subtle: upstream leaves a pending unknown token pending here, so it comes out *after* these bytes
            } else if let Some(unknown) = self.unknown()? {
                if let (Some(previous), false) = (pending, self.fuse_unknown) {
                    symbols.push(previous);
                }
                pending = Some(unknown);
            }
        }
        symbols.extend(pending);
        Ok(())
    }

    /// Pushes the byte tokens of a character, if byte fallback is on and has one for each of its bytes.
    fn push_bytes(&self, character: char, symbols: &mut Vec<u32>) -> bool {
        if self.bytes.is_empty() {
            return false;
        }
        let start = symbols.len();
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            match self.bytes[byte as usize] {
                Some(index) => symbols.push(index),
                None => {
                    symbols.truncate(start);
                    return false;
                }
            }
        }
        true
    }

    fn unknown(&self) -> Result<Option<u32>> {
        match &self.unknown {
            Unknown::Dropped => Ok(None),
            Unknown::Token(index) => Ok(Some(*index)),
            Unknown::Missing(token) => Err(Error::MissingUnknown { token: token.clone() }),
        }
    }

    /// What encoding pretokens given as bytes needs; made once for many encoders.
    pub(crate) fn spelled(&self, alphabet: Alphabet, skips: bool) -> Spelled<'_> {
        let mut spelled = Spelled { bpe: self, alphabet, skips, symbols: vec![None; 256], whole: FxHashMap::default() };
        if alphabet == Alphabet::ByteLevel {
            let character = |byte: u8| self.characters.get(&character_of(byte)).copied();
            spelled.symbols = (0..=255).map(character).collect();
            if skips {
                let bytes = |string: &String| string.chars().map(byte_of).collect::<Option<Vec<u8>>>();
                let whole = self.strings.iter().zip(0u32..).filter_map(|(string, index)| Some((bytes(string)?, index)));
                spelled.whole = whole.collect();
            }
        }
        spelled
    }

    pub(crate) fn index(&self, string: &str) -> Option<u32> {
        self.index_of.get(string).copied()
    }

    pub(crate) fn ignores_merges(&self) -> bool {
        self.ignore_merges
    }

    pub(crate) fn merge_count(&self) -> usize {
        self.merges.len()
    }
}

impl Merges for Bpe {
    #[inline]
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        self.merges.get(&pair_key(left, right)).copied()
    }
}

/// A model, and how pretokens given as bytes are spelled in it.
pub(crate) struct Spelled<'b> {
    bpe: &'b Bpe,
    alphabet: Alphabet,
    skips: bool,
    /// Byte-level: the token of each byte that has one.
    symbols: Vec<Option<u32>>,
    /// Byte-level, where merges are skipped: every token by its bytes.
    whole: FxHashMap<Vec<u8>, u32>,
}

impl Spelled<'_> {
    /// The tokens of a pretoken, as indices, in `symbols`; `string` is rank_space to work in.
    pub(crate) fn encode(&self, pretoken: &[u8], string: &mut String, symbols: &mut Vec<u32>) -> Result<()> {
        self.encode_telling(pretoken, string, symbols, |_, _| ())
    }

    /// As [`Spelled::encode`]; tells `used` of every merge.
    pub(crate) fn encode_telling(
        &self,
        pretoken: &[u8],
        string: &mut String,
        symbols: &mut Vec<u32>,
        used: impl FnMut((u32, u32), Merge),
    ) -> Result<()> {
        symbols.clear();
        if let Some(&index) = self.whole.get(pretoken) {
            symbols.push(index);
            return Ok(());
        }
        if self.alphabet == Alphabet::ByteLevel {
            symbols.extend(pretoken.iter().map_while(|&byte| self.symbols[byte as usize]));
            if symbols.len() == pretoken.len() {
                self.bpe.merge(symbols, used);
                return Ok(());
            }
            symbols.clear(); // a byte has no token: the long way, which knows what becomes of it
        }
        self.alphabet.spell(pretoken, string)?;
        match self.bpe.index(string).filter(|_| self.skips) {
            Some(index) => symbols.push(index),
            None => {
                self.bpe.symbols(string, symbols)?;
                self.bpe.merge(symbols, used);
            }
        }
        Ok(())
    }
}

fn only_character(string: &str) -> Option<char> {
    let mut characters = string.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Some(character),
        _ => None,
    }
}

fn merge_table(
    ids: &[u32],
    strings: &[String],
    index_of: &FxHashMap<String, u32>,
    merges: &[(u32, u32)],
) -> Result<FxHashMap<u64, Merge>> {
    let index = |rank: usize, id: u32| {
        ids.binary_search(&id).map(|index| index as u32).map_err(|_| Error::UnknownId { rank, id })
    };
    let mut table = FxHashMap::with_capacity_and_hasher(merges.len(), Default::default());
    let mut joined = String::new();
    for (rank, &(left, right)) in merges.iter().enumerate() {
        let pair = (index(rank, left)?, index(rank, right)?);
        let (left, right) = (&strings[pair.0 as usize], &strings[pair.1 as usize]);
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let Some(&product) = index_of.get(&joined) else {
            return Err(Error::MissingProduct { rank, left: left.clone(), right: right.clone() });
        };
        if let Some(earlier) = table.insert(pair_key(pair.0, pair.1), Merge { rank: rank as u32, product }) {
            return Err(Error::DuplicateMerge {
                left: left.clone(),
                right: right.clone(),
                first: earlier.rank as usize,
                second: rank,
            });
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(strings: &[&str]) -> Vec<(u32, String)> {
        strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect()
    }

    /// `a b ab aa aab ...`: merges that compete for the same characters.
    fn contested() -> Bpe {
        let strings = ["a", "b", "ab", "aa", "aab", "ba", "abab"];
        let merges = [(0, 1), (0, 0), (3, 1), (1, 0), (0, 2), (2, 2)];
        Bpe::new(tokens(&strings), &merges, &Options::default()).unwrap()
    }

    #[test]
    fn lowest_rank_wins_then_the_leftmost() {
        assert_eq!(contested().encode("aab").unwrap(), [4]); // a+b first, then a+ab
        assert_eq!(contested().encode("aaa").unwrap(), [3, 0]);
    }

    #[test]
    fn scan_and_heap_agree_on_every_word_over_two_letters() {
        let bpe = contested();
        for length in 0..12u32 {
            for bits in 0..1u32 << length {
                let word: String = (0..length).map(|at| if bits >> at & 1 == 0 { 'a' } else { 'b' }).collect();
                let (mut by_scan, mut by_heap) = (Vec::new(), Vec::new());
                let (mut scan_used, mut heap_used) = (Vec::new(), Vec::new());
                bpe.symbols(&word, &mut by_scan).unwrap();
                bpe.symbols(&word, &mut by_heap).unwrap();
                bpe.merge_by_scan(&mut by_scan, |pair, _| scan_used.push(pair));
                bpe.merge_by_heap(&mut by_heap, |pair, _| heap_used.push(pair));
                assert_eq!((by_scan, scan_used), (by_heap, heap_used), "{word}");
            }
        }
    }

    #[test]
    fn a_long_pretoken_takes_time_in_proportion() {
        let word = "ab".repeat(200_000);
        assert_eq!(contested().encode(&word).unwrap().len(), 100_000);
    }

    #[test]
    fn merge_skipping_returns_a_token_that_merges_do_not_make() {
        let strings = ["a", "b", "c", "bc", "abc", "ab"];
        let merges = [(1, 2), (0, 1), (5, 2)]; // b+c fires before a+b, so `abc` never forms
        let skipping = Options { ignore_merges: true, ..Options::default() };
        let bpe = Bpe::new(tokens(&strings), &merges, &skipping).unwrap();
        assert_eq!(bpe.encode("abc").unwrap(), [4]);
        assert_eq!(bpe.encode_by_merges("abc").unwrap(), [0, 3]);
    }

    #[test]
    fn byte_fallback_spells_what_the_vocabulary_lacks() {
        let strings = ["a", "<0xC3>", "<0xB5>", "<unk>"];
        let options =
            Options { byte_fallback: true, unk_token: Some("<unk>".into()), fuse_unk: true, ..Options::default() };
        let bpe = Bpe::new(tokens(&strings), &[], &options).unwrap();
        assert_eq!(bpe.encode("aõ").unwrap(), [0, 1, 2]);
        assert_eq!(bpe.encode("a€€a").unwrap(), [0, 3, 0]); // no byte token for €: one fused unknown
    }

    #[test]
    fn without_unknown_token_a_strange_character_is_dropped() {
        assert_eq!(contested().encode("aXb").unwrap(), [2]);
    }

    #[test]
    fn an_unknown_token_outside_the_vocabulary_is_an_error_only_when_it_is_needed() {
        let options = Options { unk_token: Some("<unk>".into()), ..Options::default() };
        let bpe = Bpe::new(tokens(&["a"]), &[], &options).unwrap();
        assert_eq!(bpe.encode("aa").unwrap(), [0, 0]);
        assert_eq!(bpe.encode("b"), Err(Error::MissingUnknown { token: "<unk>".into() }));
    }

    #[test]
    fn the_largest_id_costs_no_memory() {
        let bpe = Bpe::new(vec![(u32::MAX, "a".into())], &[], &Options::default()).unwrap();
        assert_eq!(bpe.encode("a").unwrap(), [u32::MAX]);
    }

    #[test]
    fn every_broken_table_is_refused() {
        let new = |tokens: Vec<(u32, String)>, merges: &[(u32, u32)]| {
            Bpe::new(tokens, merges, &Options::default()).unwrap_err()
        };
        let twice = vec![(1, "a".to_string()), (1, "b".to_string())];
        assert!(matches!(new(twice, &[]), Error::DuplicateId { id: 1, .. }));
        let same = vec![(1, "a".to_string()), (2, "a".to_string())];
        assert!(matches!(new(same, &[]), Error::DuplicateToken { .. }));
        let ab = || tokens(&["a", "b", "ab"]);
        assert!(matches!(new(ab(), &[(0, 7)]), Error::UnknownId { rank: 0, id: 7 }));
        assert!(matches!(new(ab(), &[(0, 1), (1, 0)]), Error::MissingProduct { rank: 1, .. }));
        assert!(matches!(new(ab(), &[(0, 1), (0, 1)]), Error::DuplicateMerge { first: 0, second: 1, .. }));
    }
}
