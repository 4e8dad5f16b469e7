//! Unigram: a pretoken is split into the tokens whose scores have the largest sum, as `tokenizers` does it.
//!
//! Removing tokens that a text is not split into changes nothing in it: its best path stays, and no path gets better. One
//! exception is prevented elsewhere: the token with the lowest score decides the score of unknown characters, so it is
//! never removed.

use std::cell::RefCell;
use std::sync::Arc;

use super::trie::{Trie, ROOT};
use crate::bpe::{byte_token, Tokens, Vocabulary};
use crate::error::{Error, Result};

/// How far the library is from a number in a file, at most: some units in the last place.
const MISREAD: f64 = 4.0 * f64::EPSILON;

/// How much less than the lowest score an unknown character scores.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A Unigram model.
#[derive(Debug, Clone)]
pub struct Unigram {
    vocabulary: Arc<Vocabulary>,
    /// The score of every token.
    scores: Vec<f64>,
    unknown: Option<u32>,
    /// The `<0xNN>` token of every byte that has one; empty without byte fallback.
    bytes: Vec<Option<u32>>,
    trie: Trie,
    /// The first token with the lowest score.
    lowest: Option<u32>,
    unknown_score: f64,
}

/// A part of a pretoken: where it begins and ends, and its token; None if its characters are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start: usize,
    end: usize,
    token: Option<u32>,
}

/// The best way to split the text up to a place: its score, and where its last token begins.
#[derive(Debug, Clone, Copy)]
struct Best {
    score: f64,
    start: u32,
    /// The last token; [`UNSET`] if there is no way, [`UNKNOWN`] for an unknown character.
    token: u32,
}

const UNSET: u32 = u32::MAX;
const UNKNOWN: u32 = u32::MAX - 1;

/// Bytes of a pretoken from which on the memory for its paths is given back.
const LONG: usize = 1 << 16;

thread_local! {
    /// The memory for best paths, because pretokens are short and many.
    static PATHS: RefCell<Vec<Best>> = const { RefCell::new(Vec::new()) };
}

impl Unigram {
    /// The model of a vocabulary with the scores of its tokens by ascending id.
    ///
    /// # Errors
    ///
    /// When there is not one score for every token, a score is no number, or no token has the id of the unknown token.
    pub fn new(
        vocabulary: Arc<Vocabulary>,
        scores: Vec<f64>,
        unknown: Option<u32>,
        byte_fallback: bool,
    ) -> Result<Self> {
        let tokens = &vocabulary.tokens;
        if scores.len() != tokens.len() || scores.iter().any(|score| !score.is_finite()) {
            return Err(Error::BadScores);
        }
        let unknown = match unknown {
            None => None,
            Some(id) => Some(tokens.index_of_id(id).ok_or(Error::NoSuchUnknown { id })?),
        };
        let bytes = match byte_fallback {
            true => (0..=255u8).map(|byte| tokens.index(&byte_token(byte))).collect(),
            false => Vec::new(),
        };
        let lowest = (0..).zip(&scores).min_by(|one, other| one.1.total_cmp(other.1));
        let unknown_score = lowest.map_or(f64::INFINITY, |(_, score)| *score) - UNKNOWN_PENALTY;
        let lowest = lowest.map(|(token, _)| token);
        Ok(Self { trie: Trie::new(tokens), scores, unknown, bytes, lowest, unknown_score, vocabulary })
    }

    /// The same, with the scores that the `tokenizers` library reads from a file with the shortest digits of these: for
    /// 17 digits it often reads a neighbour. Where two paths have the same sum, such differences decide between them.
    ///
    /// # Errors
    ///
    /// As [`Unigram::new`].
    pub fn of_file(
        vocabulary: Arc<Vocabulary>,
        scores: &[f64],
        unknown: Option<u32>,
        byte_fallback: bool,
    ) -> Result<Self> {
        Self::new(vocabulary, scores.iter().copied().map(as_read).collect(), unknown, byte_fallback)
    }

    /// The same, with the scores of 32 bits that a file was written from, if it was and their sums are exact. Two paths
    /// that differ only by how the file was read have equal sums then.
    pub(super) fn with_exact_sums(&self) -> Option<Self> {
        let scores: Vec<f64> = self.scores.iter().map(|score| f64::from(*score as f32)).collect();
        let is_near =
            |(exact, score): (&f64, &f64)| has_exact_sums(*exact) && (exact - score).abs() <= score.abs() * MISREAD;
        if !scores.iter().zip(&self.scores).all(is_near) {
            return None;
        }
        let lowest = self.lowest.map_or(f64::INFINITY, |lowest| scores[lowest as usize]);
        Some(Self { scores, unknown_score: lowest - UNKNOWN_PENALTY, ..self.clone() })
    }

    pub(super) fn tokens(&self) -> &Tokens {
        &self.vocabulary.tokens
    }

    /// Adds the tokens of a pretoken, as indices, without those that are removed. Returns the score of its best path.
    pub(super) fn encode(
        &self,
        pretoken: &str,
        is_removed: &impl Fn(u32) -> bool,
        tokens: &mut Vec<u32>,
    ) -> Result<f64> {
        let before = tokens.len();
        let (score, parts) = self.with_paths(pretoken, is_removed, |paths| {
            let (mut end, mut is_known) = (pretoken.len(), true);
            while end > 0 {
                let last = paths[end];
                is_known = is_known && last.token != UNKNOWN && Some(last.token) != self.unknown;
                tokens.push(last.token);
                end = last.start as usize;
            }
            let parts = (!is_known).then(|| self.parts_of(pretoken, paths, is_removed));
            (paths[pretoken.len()].score, parts)
        })?;
        let Some(parts) = parts else {
            tokens[before..].reverse();
            return Ok(score);
        };
        tokens.truncate(before);
        for part in parts {
            match part.token {
                Some(token) => tokens.push(token),
                None => match self.byte_tokens(&pretoken[part.start..part.end]) {
                    Some(bytes) => tokens.extend(bytes),
                    None => tokens.push(self.unknown.ok_or(Error::UnknownCharacter)?),
                },
            }
        }
        Ok(score)
    }

    /// The byte-fallback tokens of a text, if each of its bytes has one.
    fn byte_tokens(&self, text: &str) -> Option<Vec<u32>> {
        text.bytes().map(|byte| self.bytes.get(usize::from(byte)).copied().flatten()).collect()
    }

    /// Calls `each` with the characters of a pretoken that become the unknown token.
    pub(super) fn lost(&self, pretoken: &str, mut each: impl FnMut(&str)) -> Result<()> {
        for part in self.parts(pretoken, &|_| false)? {
            let text = &pretoken[part.start..part.end];
            if part.token.is_none() && self.byte_tokens(text).is_none() {
                text.char_indices().for_each(|(at, character)| each(&text[at..at + character.len_utf8()]));
            }
        }
        Ok(())
    }

    /// Whether a token is one of those that byte fallback uses.
    pub(super) fn is_byte(&self, token: u32) -> bool {
        self.bytes.contains(&Some(token))
    }

    /// Whether removing a token could change text that is not split into it: the unknown token, those of byte fallback,
    /// the first one with the lowest score, and characters if there is no unknown token.
    pub(super) fn must_stay(&self, token: u32) -> bool {
        let is_lowest = || self.lowest == Some(token);
        let is_character = || self.tokens().string(token).chars().nth(1).is_none();
        self.unknown == Some(token) || self.is_byte(token) || is_lowest() || self.unknown.is_none() && is_character()
    }

    #[cfg(test)]
    pub(super) fn settings(&self) -> (&[f64], Option<u32>, bool) {
        (&self.scores, self.unknown, !self.bytes.is_empty())
    }

    /// The parts of the best path. Of equal scores, the first one found is taken, which is the one whose last token
    /// begins first. Unknown characters beside each other are one part.
    fn parts(&self, text: &str, is_removed: &impl Fn(u32) -> bool) -> Result<Vec<Part>> {
        self.with_paths(text, is_removed, |paths| self.parts_of(text, paths, is_removed))
    }

    /// The parts of a text, given the best way to split it up to each of its bytes.
    fn parts_of(&self, text: &str, paths: &[Best], is_removed: &impl Fn(u32) -> bool) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let Best { start, token, .. } = paths[end];
            let start = start as usize;
            // The text of the unknown token itself is unknown text too.
            let token = Some(token).filter(|token| *token != UNKNOWN && Some(*token) != self.unknown);
            match parts.last_mut() {
                Some(after) if token.is_none() && after.token.is_none() => after.start = start,
                _ => parts.push(Part { start, end, token }),
            }
            end = start;
        }
        parts.reverse();
        for part in parts.iter_mut().filter(|part| part.token.is_none()) {
            // Unknown characters may make a token together, as the library looks them up.
            part.token = self.trie.find(&text[part.start..part.end]).filter(|token| !is_removed(*token));
        }
        parts
    }

    /// Calls a function with the best way to split the text up to each of its bytes; only those where a character ends
    /// are set.
    fn with_paths<T>(
        &self,
        text: &str,
        is_removed: &impl Fn(u32) -> bool,
        function: impl FnOnce(&[Best]) -> T,
    ) -> Result<T> {
        PATHS.with_borrow_mut(|best| {
            best.clear();
            best.resize(text.len() + 1, Best { score: 0.0, start: 0, token: UNSET });
            let bytes = text.as_bytes();
            let mut start = 0;
            while start < bytes.len() {
                let (score, width) = (best[start].score, width_of(bytes[start]));
                let mut has_token = false;
                for (length, token) in self.trie.prefixes(ROOT, &bytes[start..]) {
                    if is_removed(token) {
                        continue;
                    }
                    has_token = has_token || length == width;
                    let score = score + self.scores[token as usize];
                    let end = &mut best[start + length];
                    if end.token == UNSET || score > end.score {
                        *end = Best { score, start: start as u32, token };
                    }
                }
                let (end, score) = (&mut best[start + width], score + self.unknown_score);
                if !has_token && (end.token == UNSET || score > end.score) {
                    self.unknown.ok_or(Error::UnknownCharacter)?;
                    *end = Best { score, start: start as u32, token: UNKNOWN };
                }
                start += width;
            }
            let result = function(best);
            if best.len() > LONG {
                *best = Vec::new();
            }
            Ok(result)
        })
    }

    /// The score of the best path of a text.
    pub(super) fn score(&self, text: &str) -> Result<f64> {
        self.with_paths(text, &|_| false, |paths| paths[text.len()].score)
    }

    /// The score of a token.
    pub(super) fn score_of(&self, token: u32) -> f64 {
        self.scores[token as usize]
    }

    /// The lowest score, on which that of unknown characters depends.
    pub(super) fn lowest_score(&self) -> f64 {
        self.lowest.map_or(0.0, |token| self.scores[token as usize])
    }

    /// Whether a token stands for unknown text, or for a byte of it.
    pub(super) fn is_unknown(&self, token: u32) -> bool {
        self.unknown == Some(token) || self.is_byte(token)
    }

    pub(super) fn find(&self, string: &str) -> Option<u32> {
        self.trie.find(string)
    }

    /// Adds a token after all others; its score is not below the lowest.
    pub(super) fn push(&mut self, string: &str, score: f64) {
        self.trie.insert(string, self.scores.len() as u32);
        self.scores.push(score);
    }

    /// Removes the token that was added last.
    pub(super) fn pop(&mut self, string: &str) {
        self.trie.remove(string);
        self.scores.pop();
    }
}

/// The number that the `tokenizers` library reads from the shortest digits of a score. No number if there are none.
pub(super) fn as_read(score: f64) -> f64 {
    let digits = serde_json::to_string(&score).unwrap_or_default();
    serde_json::from_str(&digits).unwrap_or(f64::NAN)
}

/// Whether sums of such scores are exact, as many as the longest word may have: multiples of 2^-32 that are not large.
pub(crate) fn has_exact_sums(score: f64) -> bool {
    (score * 2f64.powi(32)).fract() == 0.0 && score.abs() < 256.0
}

/// The bytes of the character that begins with a byte.
fn width_of(first: u8) -> usize {
    match first {
        ..=0xBF => 1,
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0.. => 4,
    }
}
