//! Encodes one pretoken, as `tokenizers::models::bpe::BPE` does, with unknown characters and byte fallback.
//! Does not split text into pretokens.

use rustc_hash::FxHashMap;

use super::alphabet::{byte_of, character_of, Alphabet};
use super::characters::WholeCharacters;
use super::merges::{Merge, Merges};
use super::model::{Bpe, Unknown};
use super::packed::{PackedMerges, NO_RANK};
use crate::error::{Error, Result};

/// The most characters of a pretoken. The heap of merges needs about 40 bytes for each.
const LONGEST: usize = 1 << 24;

impl Bpe {
    /// The ids of the tokens that the model makes of one pretoken.
    ///
    /// # Errors
    ///
    /// When a character is outside the vocabulary and `unk_token` names no token.
    pub fn encode(&self, pretoken: &str) -> Result<Vec<u32>> {
        if self.ignore_merges && !pretoken.is_empty() {
            if let Some(index) = self.index(pretoken) {
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
        require_short(pretoken.len(), || pretoken.chars().count())?;
        let mut symbols = Vec::with_capacity(pretoken.len());
        self.symbols(pretoken, &mut symbols)?;
        self.merge(&mut symbols, |_, _| ());
        Ok(symbols.into_iter().map(|index| self.id(index)).collect())
    }

    /// The starting symbols of a pretoken, before any merge.
    pub(crate) fn symbols(&self, pretoken: &str, symbols: &mut Vec<u32>) -> Result<()> {
        let mut pending: Option<u32> = None;
        for character in pretoken.chars() {
            if let Some(&index) = self.characters.get(&character) {
                symbols.extend(pending.take());
                symbols.push(index);
            } else if self.push_bytes(character, symbols) {
                // subtle: upstream leaves a pending unknown token pending here, so it is placed *after* these bytes
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

    /// An encoder of pretokens that are given as bytes.
    pub(crate) fn pretoken_encoder(&self, skip_merges: bool) -> PretokenEncoder<'_> {
        let tables = self.tables.get_or_init(|| Box::new(EncoderTables::of(self)));
        PretokenEncoder { bpe: self, alphabet: self.alphabet, skip_merges, tables }
    }

    /// The tokens of a string, as indices, without those for which `is_removed` holds; calls `on_merge` with every merge.
    pub(crate) fn encode_without(
        &self,
        string: &str,
        is_removed: &dyn Fn(u32) -> bool,
        mut on_merge: impl FnMut((u32, u32)),
    ) -> Result<Vec<u32>> {
        let (mut symbols, mut spelled) = (Vec::new(), Vec::new());
        self.symbols(string, &mut symbols)?;
        for symbol in symbols {
            // A removed character is spelled in bytes.
            let bytes = self.string(symbol).bytes().map(|byte| self.bytes.get(usize::from(byte)).copied().flatten());
            match bytes.collect::<Option<Vec<u32>>>() {
                Some(bytes) if is_removed(symbol) => spelled.extend(bytes),
                _ => spelled.push(symbol),
            }
        }
        Kept { bpe: self, is_removed }.merge(&mut spelled, |pair, _| on_merge(pair));
        Ok(spelled)
    }
}

/// The merges of a model that make no removed token.
struct Kept<'m> {
    bpe: &'m Bpe,
    is_removed: &'m dyn Fn(u32) -> bool,
}

impl Merges for Kept<'_> {
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        self.bpe.merge_of(left, right).filter(|merge| !(self.is_removed)(merge.product))
    }
}

/// What encoders of pretokens need of a model, made once.
#[derive(Debug)]
pub(super) struct EncoderTables {
    /// Byte-level: the token of each byte that has one.
    symbols: Vec<Option<u32>>,
    /// Byte-level, where merges are skipped: every token by its bytes.
    token_of_bytes: FxHashMap<Box<[u8]>, u32>,
    /// How many bytes each token stands for.
    lengths: Vec<u32>,
    /// The merges; None if there are too many tokens for this table.
    packed: Option<PackedMerges>,
}

impl EncoderTables {
    fn of(bpe: &Bpe) -> Self {
        let (mut symbols, mut token_of_bytes) = (vec![None; 256], FxHashMap::default());
        if bpe.alphabet == Alphabet::ByteLevel {
            symbols = (0..=255).map(|byte: u8| bpe.characters.get(&character_of(byte)).copied()).collect();
            if bpe.ignore_merges {
                let bytes = |string: &str| string.chars().map(byte_of).collect::<Option<Box<[u8]>>>();
                let tokens = bpe.strings().zip(0u32..).filter_map(|(string, index)| Some((bytes(string)?, index)));
                token_of_bytes = tokens.collect();
            }
        }
        let length = |string: &str| u32::try_from(bpe.alphabet.byte_length(string)).unwrap_or(u32::MAX);
        let lengths = bpe.strings().map(length).collect();
        Self { symbols, token_of_bytes, lengths, packed: PackedMerges::new(bpe) }
    }
}

/// Refuses a pretoken of more characters than [`LONGEST`]. There are at most as many characters as bytes.
fn require_short(bytes: usize, characters: impl Fn() -> usize) -> Result<()> {
    if bytes <= LONGEST || characters() <= LONGEST {
        return Ok(());
    }
    Err(Error::LongPretoken { characters: characters(), longest: LONGEST })
}

/// Encodes pretokens that are given as bytes.
pub(crate) struct PretokenEncoder<'b> {
    bpe: &'b Bpe,
    alphabet: Alphabet,
    skip_merges: bool,
    tables: &'b EncoderTables,
}

impl<'b> PretokenEncoder<'b> {
    /// The tokens of a pretoken, as indices, in `symbols`; `string` is a buffer to reuse.
    pub(crate) fn encode(&self, pretoken: &[u8], string: &mut String, symbols: &mut Vec<u32>) -> Result<()> {
        self.encode_with(pretoken, string, symbols, |_, _| ())
    }

    /// As [`PretokenEncoder::encode`]; calls `on_merge` with every merge.
    pub(crate) fn encode_with(
        &self,
        pretoken: &[u8],
        string: &mut String,
        symbols: &mut Vec<u32>,
        on_merge: impl FnMut((u32, u32), Merge),
    ) -> Result<()> {
        if let Some(token) = self.skipped(pretoken) {
            symbols.clear();
            symbols.push(token);
            return Ok(());
        }
        self.encode_by_merges(pretoken, string, symbols, on_merge)
    }

    /// Refuses a pretoken whose encoding would need gigabytes.
    pub(super) fn require_short(&self, pretoken: &[u8]) -> Result<()> {
        require_short(pretoken.len(), || match self.alphabet {
            Alphabet::ByteLevel => pretoken.len(),
            Alphabet::Text => pretoken.iter().filter(|&&byte| byte & 0xC0 != 0x80).count(),
        })
    }

    /// The token that a pretoken is, if merges are skipped for it.
    pub(crate) fn skipped(&self, pretoken: &[u8]) -> Option<u32> {
        if !self.skip_merges {
            return None;
        }
        match self.alphabet {
            Alphabet::ByteLevel => self.tables.token_of_bytes.get(pretoken).copied(),
            Alphabet::Text => std::str::from_utf8(pretoken).ok().and_then(|string| self.bpe.index(string)),
        }
    }

    /// As [`PretokenEncoder::encode_with`], with merge skipping off.
    pub(crate) fn encode_by_merges(
        &self,
        pretoken: &[u8],
        string: &mut String,
        symbols: &mut Vec<u32>,
        on_merge: impl FnMut((u32, u32), Merge),
    ) -> Result<()> {
        self.start(pretoken, string, symbols)?;
        self.merge(symbols, on_merge);
        Ok(())
    }

    /// The symbols of a pretoken before any merge.
    pub(super) fn start(&self, pretoken: &[u8], string: &mut String, symbols: &mut Vec<u32>) -> Result<()> {
        self.require_short(pretoken)?;
        symbols.clear();
        if self.alphabet == Alphabet::ByteLevel {
            symbols.extend(pretoken.iter().map_while(|&byte| self.tables.symbols[byte as usize]));
            if symbols.len() == pretoken.len() {
                return Ok(());
            }
            symbols.clear(); // a byte has no token: the general path below handles it
        }
        self.alphabet.spell(pretoken, string)?;
        self.bpe.symbols(string, symbols)
    }

    /// Applies merges until none applies, lowest rank first, leftmost first; calls `on_merge` with each.
    pub(super) fn merge(&self, symbols: &mut Vec<u32>, on_merge: impl FnMut((u32, u32), Merge)) {
        match &self.tables.packed {
            Some(packed) => packed.apply(symbols, on_merge),
            None => self.bpe.merge(symbols, on_merge),
        }
    }

    /// The merge of two neighbours, if they have one.
    pub(super) fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        match &self.tables.packed {
            Some(packed) => packed.merge_of(left, right),
            None => self.bpe.merge_of(left, right),
        }
    }

    /// The rank of the merge of two neighbours, or `NO_RANK`.
    #[inline]
    pub(super) fn rank(&self, left: u32, right: u32) -> u32 {
        match &self.tables.packed {
            Some(packed) => packed.rank(left, right),
            None => self.bpe.merge_of(left, right).map_or(NO_RANK, |merge| merge.rank),
        }
    }

    /// Whether every character, or every byte of a byte-level vocabulary, has a token of its own.
    pub(super) fn spells(&self, text: &[u8]) -> bool {
        let has_token = |character: char| self.bpe.characters.contains_key(&character);
        match self.alphabet {
            Alphabet::ByteLevel => text.iter().all(|&byte| self.tables.symbols[byte as usize].is_some()),
            Alphabet::Text => std::str::from_utf8(text).is_ok_and(|text| text.chars().all(has_token)),
        }
    }

    /// Byte-level: the token of a byte.
    #[inline]
    pub(super) fn byte(&self, byte: u8) -> Option<u32> {
        self.tables.symbols[usize::from(byte)]
    }

    /// Byte-level: the characters that encoding can start from.
    pub(crate) fn whole_characters(&self) -> Option<WholeCharacters> {
        (self.alphabet == Alphabet::ByteLevel).then(|| WholeCharacters::new(self))
    }

    /// How many bytes of a pretoken a token stands for.
    #[inline]
    pub(super) fn byte_length(&self, token: u32) -> usize {
        self.tables.lengths[token as usize] as usize
    }

    /// Whether pretokens that are tokens skip the merges.
    pub(super) fn skips_merges(&self) -> bool {
        self.skip_merges
    }

    pub(crate) fn bpe(&self) -> &'b Bpe {
        self.bpe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::Options;

    fn tokens(strings: &[&str]) -> Vec<(u32, String)> {
        strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect()
    }

    /// Merges that compete for the same characters.
    fn competing_merges() -> Bpe {
        let strings = ["a", "b", "ab", "aa", "aab", "ba", "abab"];
        let merges = [(0, 1), (0, 0), (3, 1), (1, 0), (0, 2), (2, 2)];
        Bpe::new(tokens(&strings), &merges, &Options::default()).unwrap()
    }

    #[test]
    fn lowest_rank_wins_then_the_leftmost() {
        assert_eq!(competing_merges().encode("aab").unwrap(), [4]); // a+b first, then a+ab
        assert_eq!(competing_merges().encode("aaa").unwrap(), [3, 0]);
    }

    #[test]
    fn scan_and_heap_agree_on_every_word_over_two_letters() {
        let bpe = competing_merges();
        for length in 0..12u32 {
            for bits in 0..1u32 << length {
                let word: String = (0..length).map(|at| if bits >> at & 1 == 0 { 'a' } else { 'b' }).collect();
                let (mut by_scan, mut by_heap) = (Vec::new(), Vec::new());
                let (mut scan_merges, mut heap_merges) = (Vec::new(), Vec::new());
                bpe.symbols(&word, &mut by_scan).unwrap();
                bpe.symbols(&word, &mut by_heap).unwrap();
                bpe.merge_by_scan(&mut by_scan, |pair, _| scan_merges.push(pair));
                bpe.merge_by_heap(&mut by_heap, |pair, _| heap_merges.push(pair));
                assert_eq!((by_scan, scan_merges), (by_heap, heap_merges), "{word}");
            }
        }
    }

    #[test]
    fn a_long_pretoken_is_encoded_without_quadratic_time() {
        let word = "ab".repeat(200_000);
        assert_eq!(competing_merges().encode(&word).unwrap().len(), 100_000);
    }

    #[test]
    fn merge_skipping_returns_a_token_that_merges_do_not_make() {
        let strings = ["a", "b", "c", "bc", "abc", "ab"];
        let merges = [(1, 2), (0, 1), (5, 2)]; // b+c applies before a+b, so `abc` never forms
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
    fn without_unknown_token_an_unknown_character_is_dropped() {
        assert_eq!(competing_merges().encode("aXb").unwrap(), [2]);
    }

    #[test]
    fn an_unknown_token_outside_the_vocabulary_is_an_error_only_when_it_is_needed() {
        let options = Options { unk_token: Some("<unk>".into()), ..Options::default() };
        let bpe = Bpe::new(tokens(&["a"]), &[], &options).unwrap();
        assert_eq!(bpe.encode("aa").unwrap(), [0, 0]);
        assert_eq!(bpe.encode("b"), Err(Error::MissingUnknown { token: "<unk>".into() }));
    }
}
