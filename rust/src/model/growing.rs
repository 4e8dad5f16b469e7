//! A Unigram or WordPiece model that new tokens are added to, one after the other.

use super::unigram::as_read;
use super::Model;
use crate::bpe::CONTINUATION;
use crate::error::{Error, Result};

/// How far the score of a new token stays from the scores at which its text would be split in another way. SentencePiece
/// adds scores in 32 bits, and must find the same path.
const MARGIN: f64 = 1e-3;
/// A multiple of this, by the hash of its text, is added to the score of a new token. Tokens of one frequency would
/// otherwise make paths with equal sums, of which libraries choose by how they round.
const STEP: f64 = 1.0 / 16384.0;

/// The longest word of a Unigram model that is learned from, in bytes: the default of SentencePiece's
/// `max_sentence_length`.
const LONGEST_WORD: usize = 4192;

/// A copy of a model, with new tokens after those of the base. Scores that were written with 32 bits have these again, so
/// that sums are exact: how a part of a word is split does not depend on what is before it. Of two paths with the same
/// sum, the model itself may take the other one.
#[derive(Debug)]
pub(crate) struct Growing {
    model: Model,
    /// Whether it has scores of 32 bits, and not those that are read from a file.
    is_exact: bool,
    /// The strings of the new tokens.
    new: Vec<String>,
}

impl Growing {
    pub(crate) fn new(model: &Model) -> Result<Self> {
        let mut copy = Self::as_given(model)?;
        if let Model::Unigram(unigram) = &copy.model {
            if let Some(exact) = unigram.with_exact_sums() {
                (copy.model, copy.is_exact) = (Model::Unigram(exact), true);
            }
        }
        Ok(copy)
    }

    /// The same, with the scores of the model.
    pub(crate) fn as_given(model: &Model) -> Result<Self> {
        let copy = match model {
            Model::Bpe(_) => return Err(Error::NotForMerges),
            Model::Unigram(unigram) => Model::Unigram(unigram.clone()),
            Model::WordPiece(pieces) => Model::WordPiece(pieces.clone()),
        };
        Ok(Self { model: copy, is_exact: false, new: Vec::new() })
    }

    /// The number of tokens, new ones included.
    pub(crate) fn len(&self) -> usize {
        self.model.tokens().len() + self.new.len()
    }

    pub(crate) fn string(&self, token: u32) -> &str {
        match (token as usize).checked_sub(self.model.tokens().len()) {
            Some(new) => &self.new[new],
            None => self.model.tokens().string(token),
        }
    }

    /// The text that a token stands for in a word: without the mark of those that continue one.
    pub(crate) fn text<'s>(&self, string: &'s str) -> &'s str {
        match self.model {
            Model::WordPiece(_) => string.strip_prefix(CONTINUATION).unwrap_or(string),
            _ => string,
        }
    }

    /// The string of the token that two neighbours would make.
    pub(crate) fn joined(&self, left: u32, right: u32) -> String {
        [self.string(left), self.text(self.string(right))].concat()
    }

    pub(crate) fn contains(&self, string: &str) -> bool {
        match &self.model {
            Model::Unigram(unigram) => unigram.find(string).is_some(),
            Model::WordPiece(pieces) => pieces.find(string).is_some(),
            Model::Bpe(_) => false,
        }
    }

    /// Whether a token stands for unknown text, or for a byte of it.
    pub(crate) fn is_unknown(&self, token: u32) -> bool {
        match &self.model {
            Model::Unigram(unigram) => unigram.is_unknown(token),
            Model::WordPiece(pieces) => (token as usize) < pieces.tokens().len() && pieces.must_stay(token),
            Model::Bpe(_) => false,
        }
    }

    /// Whether a word is too long to learn from: WordPiece makes it unknown, whatever the tokens are, and the trainer of
    /// SentencePiece leaves it out of a Unigram model. The time for a long word grows with the square of its length.
    pub(crate) fn is_too_long(&self, word: &str) -> bool {
        match &self.model {
            Model::WordPiece(pieces) => pieces.is_too_long(word),
            _ => word.len() > LONGEST_WORD,
        }
    }

    /// The tokens of a pretoken.
    pub(crate) fn split(&self, pretoken: &str) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.split_into(pretoken, &mut tokens)?;
        Ok(tokens)
    }

    /// Writes the tokens of a pretoken, and returns its score; 0 without scores.
    pub(crate) fn split_into(&self, pretoken: &str, tokens: &mut Vec<u32>) -> Result<f64> {
        tokens.clear();
        self.model.split(pretoken, false, &|_| false, tokens)
    }

    pub(crate) fn push(&mut self, string: &str, score: f64) -> u32 {
        let token = self.len() as u32;
        match &mut self.model {
            Model::Unigram(unigram) => unigram.push(string, if self.is_exact { score } else { as_read(score) }),
            Model::WordPiece(pieces) => pieces.push(string, token),
            Model::Bpe(_) => {}
        }
        self.new.push(string.to_string());
        token
    }

    /// Removes the token that was added last.
    pub(crate) fn pop(&mut self) {
        if let Some(string) = self.new.pop() {
            match &mut self.model {
                Model::Unigram(unigram) => unigram.pop(&string),
                Model::WordPiece(pieces) => pieces.pop(&string),
                Model::Bpe(_) => {}
            }
        }
    }

    /// The score of a token; None for a model without scores.
    pub(crate) fn score(&self, token: u32) -> Option<f64> {
        match &self.model {
            Model::Unigram(unigram) => Some(unigram.score_of(token)),
            _ => None,
        }
    }

    /// The least and the largest score at which the text of a new token becomes the token, and the texts of the tokens
    /// that contain it once still become those. Unknown characters are scored by the lowest score, so it is not below
    /// that. Any score will do in a model without scores. None if words with the token are too long for it.
    pub(crate) fn limits(&self, string: &str, containing: &[u32]) -> Result<Option<(f64, f64)>> {
        let unigram = match &self.model {
            Model::Unigram(unigram) => unigram,
            Model::WordPiece(pieces) => return Ok(pieces.has_room(string).then_some((0.0, 0.0))),
            Model::Bpe(_) => return Ok(None),
        };
        let least = (unigram.score(string)? + MARGIN).max(unigram.lowest_score()) + apart(string);
        let mut most = f64::INFINITY;
        for &token in containing {
            let whole = self.string(token);
            for at in occurrences(whole, string) {
                let around = unigram.score(&whole[..at])? + unigram.score(&whole[at + string.len()..])?;
                most = most.min(unigram.score_of(token) - around - MARGIN);
            }
        }
        Ok((least <= most).then_some((least, most)))
    }

    /// The score for a new token, as near to an estimate as its limits allow. It has 32 bits. None if that is no number.
    pub(crate) fn score_within(&self, string: &str, estimate: f64, (least, most): (f64, f64)) -> Option<f64> {
        let Model::Unigram(unigram) = &self.model else { return Some(0.0) };
        let rounded = (estimate + apart(string)).max(least).min(most) as f32;
        let is_low = f64::from(rounded) < unigram.lowest_score();
        Some(f64::from(if is_low { next_up(rounded) } else { rounded })).filter(|score| score.is_finite())
    }
}

/// Where a string occurs in a text.
pub(crate) fn occurrences<'t>(text: &'t str, string: &'t str) -> impl Iterator<Item = usize> + 't {
    text.char_indices().map(|(at, _)| at).filter(move |at| text[*at..].starts_with(string))
}

/// What is added to the score of a new token, so that scores differ.
fn apart(string: &str) -> f64 {
    STEP * f64::from(string.bytes().fold(0u16, |sum, byte| sum.wrapping_mul(31) ^ u16::from(byte)) % 1024)
}

/// The next larger number in 32 bits.
fn next_up(number: f32) -> f32 {
    if number < 0.0 {
        f32::from_bits(number.to_bits() - 1)
    } else {
        f32::from_bits(number.abs().to_bits() + 1)
    }
}
