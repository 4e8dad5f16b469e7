//! Encodes pretokens in sorted order: what a pretoken shares with the one before it is not encoded again.
//!
//! Exact by one property of BPE. Tokens are the encoding of their text if and only if every two neighbours are the
//! encoding of theirs: of several merges that apply, one of the lowest rank is taken, so the first merge across a
//! boundary would also be taken if only the two tokens around that boundary were encoded. So the tokens of a common
//! prefix can be kept, the rest is encoded by itself, and one check of the two tokens where they meet decides.

use super::characters::WholeCharacters;
use super::encode::PretokenEncoder;
use super::neighbours::Neighbours;
use crate::error::Result;

/// Encodes pretokens one after the other. Any order is correct; sorted ones are fast.
pub(crate) struct SortedEncoder<'e> {
    encoder: &'e PretokenEncoder<'e>,
    /// The pretoken before, as far as its tokens can be kept.
    previous: Vec<u8>,
    /// Its tokens by merges alone, each with the end of its bytes.
    tokens: Vec<(u32, usize)>,
    result: Vec<u32>,
    rest: Vec<u32>,
    string: String,
    neighbours: Neighbours<'e>,
    characters: Option<&'e WholeCharacters>,
    rests: RestCache,
}

impl<'e> SortedEncoder<'e> {
    pub(crate) fn new(encoder: &'e PretokenEncoder<'e>, characters: Option<&'e WholeCharacters>) -> Self {
        Self {
            encoder,
            previous: Vec::new(),
            tokens: Vec::new(),
            result: Vec::new(),
            rest: Vec::new(),
            string: String::new(),
            neighbours: Neighbours::new(encoder),
            characters,
            rests: RestCache::new(),
        }
    }

    /// The tokens of a pretoken, as indices.
    ///
    /// # Errors
    ///
    /// As [`PretokenEncoder::encode`].
    pub(crate) fn encode(&mut self, pretoken: &[u8]) -> Result<&[u32]> {
        self.encoder.require_short(pretoken)?;
        let shared = common_prefix(&self.previous, pretoken);
        if !self.encoder.spells(&pretoken[floor_boundary(pretoken, shared)..]) {
            self.previous.clear();
            self.tokens.clear();
            self.encoder.encode(pretoken, &mut self.string, &mut self.result)?;
            return Ok(&self.result);
        }
        self.join(pretoken, shared)?;
        self.previous.clear();
        self.previous.extend_from_slice(pretoken);
        self.result.clear();
        match self.encoder.skipped(pretoken).filter(|_| self.tokens.len() != 1) {
            Some(token) => self.result.push(token),
            None => self.result.extend(self.tokens.iter().map(|(token, _)| *token)),
        }
        Ok(&self.result)
    }

    /// Sets `tokens` to those of a pretoken whose first `shared` bytes are those of the one before.
    fn join(&mut self, pretoken: &[u8], shared: usize) -> Result<()> {
        /// After so many boundaries that do not hold, everything is encoded.
        const TRIES: usize = 3;
        let mut kept = self.tokens.partition_point(|(_, end)| *end <= shared);
        for _ in 0..TRIES {
            let start = kept.checked_sub(1).map_or(0, |last| self.tokens[last].1);
            self.encode_rest(&pretoken[start..])?;
            let meet = kept.checked_sub(1).map(|last| self.tokens[last].0).zip(self.rest.first().copied());
            if meet.is_none_or(|(left, right)| self.neighbours.hold(left, right)) {
                self.replace_tokens(kept, start);
                return Ok(());
            }
            kept -= 1;
        }
        self.encode_rest(pretoken)?;
        self.replace_tokens(0, 0);
        Ok(())
    }

    fn replace_tokens(&mut self, kept: usize, mut end: usize) {
        self.tokens.truncate(kept);
        for &token in &self.rest {
            end += self.encoder.byte_length(token);
            self.tokens.push((token, end));
        }
    }

    /// Sets `rest` to the encoding of these bytes, starting from whole characters; returns false if it did not.
    fn start_from_characters(&mut self, bytes: &[u8]) -> bool {
        let Some(text) = self.characters.as_ref().zip(std::str::from_utf8(bytes).ok()) else { return false };
        let (characters, text) = text;
        self.rest.clear();
        for (at, character) in text.char_indices() {
            let end = at + character.len_utf8();
            let before = at.checked_sub(1).map(|at| bytes[at]);
            match characters.token(character, before, bytes.get(end).copied()) {
                Some(token) => self.rest.push(token),
                None => self.rest.extend(bytes[at..end].iter().filter_map(|&byte| self.encoder.byte(byte))),
            }
        }
        self.encoder.merge(&mut self.rest, |_, _| ());
        true
    }

    /// Sets `rest` to the encoding of these bytes by merges alone.
    fn encode_rest(&mut self, bytes: &[u8]) -> Result<()> {
        if self.rests.get(bytes, &mut self.rest) {
            return Ok(());
        }
        if !self.start_from_characters(bytes) {
            self.encoder.encode_by_merges(bytes, &mut self.string, &mut self.rest, |_, _| ())?;
        }
        self.rests.insert(bytes, &self.rest);
        Ok(())
    }
}

/// How many bytes two texts have in common at the start.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

/// The last start of a character at or before a place.
fn floor_boundary(bytes: &[u8], at: usize) -> usize {
    (0..=at).rev().find(|&at| bytes.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)).unwrap_or(0)
}

/// Remembers the encoding of short byte strings: one entry for each hash, the newest stays.
struct RestCache(Vec<Rest>);

#[derive(Clone, Copy, Default)]
struct Rest {
    /// The bytes, then zeros, then their number; 0 if the entry is empty.
    key: u128,
    tokens: [u32; Rest::TOKENS],
    len: u32,
}

impl Rest {
    const TOKENS: usize = 7;
    const BYTES: usize = 15;

    fn key(bytes: &[u8]) -> Option<u128> {
        if bytes.is_empty() || bytes.len() > Self::BYTES {
            return None;
        }
        let mut key = [0; 16];
        key[..bytes.len()].copy_from_slice(bytes);
        key[15] = bytes.len() as u8;
        Some(u128::from_le_bytes(key))
    }
}

impl RestCache {
    const BITS: u32 = 16;

    fn new() -> Self {
        Self(vec![Rest::default(); 1 << Self::BITS])
    }

    fn place(key: u128) -> usize {
        place(key as u64 ^ ((key >> 64) as u64).rotate_left(25), Self::BITS)
    }

    fn get(&self, bytes: &[u8], tokens: &mut Vec<u32>) -> bool {
        let Some(key) = Rest::key(bytes) else { return false };
        let rest = &self.0[Self::place(key)];
        if rest.key != key {
            return false;
        }
        tokens.clear();
        tokens.extend_from_slice(&rest.tokens[..rest.len as usize]);
        true
    }

    fn insert(&mut self, bytes: &[u8], tokens: &[u32]) {
        let Some(key) = Rest::key(bytes).filter(|_| tokens.len() <= Rest::TOKENS) else { return };
        let mut rest = Rest { key, len: tokens.len() as u32, ..Rest::default() };
        rest.tokens[..tokens.len()].copy_from_slice(tokens);
        self.0[Self::place(key)] = rest;
    }
}

/// The place of a key in a table of 2^bits entries.
#[inline]
pub(super) fn place(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Bpe, Options, Random};

    fn assert_same(bpe: &Bpe, words: &[String]) {
        for skip_merges in [false, true] {
            let encoder = bpe.pretoken_encoder(skip_merges);
            let characters = encoder.whole_characters();
            let mut sorted = SortedEncoder::new(&encoder, characters.as_ref());
            let (mut string, mut expected) = (String::new(), Vec::new());
            for word in words {
                encoder.encode(word.as_bytes(), &mut string, &mut expected).unwrap();
                assert_eq!(sorted.encode(word.as_bytes()).unwrap(), expected, "{word:?}");
            }
        }
    }

    #[test]
    fn sorted_encoding_is_encoding() {
        let mut random = Random(3);
        for round in 0..400 {
            let bpe = random.byte_level(10 + round % 60, round % 3 > 0, &Options::default());
            let words = random.words(300, 1 + round % 30);
            assert_same(&bpe, &words);
            let unsorted: Vec<String> = words.iter().rev().cloned().collect();
            assert_same(&bpe, &unsorted);
        }
    }

    #[test]
    fn characters_and_bytes_outside_the_vocabulary_are_encoded_as_ever() {
        let mut random = Random(4);
        let unknown = Options { unk_token: Some("a".into()), fuse_unk: true, ..Options::default() };
        for round in 0..200 {
            let options = if round % 2 == 0 { Options::default() } else { unknown.clone() };
            let words = random.words(200, 8); // with characters that the text model lacks
            assert_same(&random.text(30, &options), &words);
            let tokens = [(0, "a".to_string()), (1, "b".into()), (2, "Ã".into()), (3, "ab".into()), (4, "Ãa".into())];
            let some_bytes = Bpe::new(tokens.to_vec(), &[(0, 1), (2, 0)], &options).unwrap();
            assert_same(&some_bytes, &words);
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_encoded_byte_by_byte() {
        let mut random = Random(5);
        for _ in 0..100 {
            let bpe = random.byte_level(40, true, &Options::default());
            let encoder = bpe.pretoken_encoder(false);
            let characters = encoder.whole_characters();
            let mut sorted = SortedEncoder::new(&encoder, characters.as_ref());
            let (mut string, mut expected) = (String::new(), Vec::new());
            for _ in 0..200 {
                let mut bytes = random.word(6).into_bytes();
                bytes.remove(random.below(bytes.len()));
                encoder.encode(&bytes, &mut string, &mut expected).unwrap();
                assert_eq!(sorted.encode(&bytes).unwrap(), expected);
            }
        }
    }

    #[test]
    fn some_characters_are_taken_whole_and_some_depend_on_their_neighbours() {
        let mut random = Random(6);
        let (mut whole, mut between, mut never) = (0, 0, 0);
        for _ in 0..300 {
            let bpe = random.byte_level(60, true, &Options::default());
            let encoder = bpe.pretoken_encoder(false);
            let Some(characters) = encoder.whole_characters() else { continue };
            for character in ['é', 'è', '€', '₭'] {
                let alone = characters.token(character, None, None).is_some();
                let beside = (0..=255).all(|byte| characters.token(character, Some(byte), Some(byte)).is_some());
                match (alone, beside) {
                    (true, true) => whole += 1,
                    (true, false) => between += 1,
                    _ => never += 1,
                }
            }
        }
        assert!(whole > 20 && between > 20 && never > 20, "{whole} {between} {never}");
    }
}
