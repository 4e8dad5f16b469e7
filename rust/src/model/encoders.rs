//! Encoders of counted pretokens, which are given as bytes in sorted order.

use super::Model;
use crate::bpe::{PretokenEncoder, SortedEncoder, WholeCharacters};
use crate::error::{Error, Result};

/// What the encoders of all threads share. Building it takes time.
pub(super) enum Shared<'m> {
    Bpe(Box<PretokenEncoder<'m>>, Option<WholeCharacters>),
    Other(&'m Model),
}

/// Encodes pretokens one after the other.
pub(super) enum Encoder<'s> {
    Bpe(Box<SortedEncoder<'s>>),
    Other(&'s Model, Vec<u32>),
}

impl<'m> Shared<'m> {
    /// For a model; `by_merges` turns merge skipping off.
    pub(super) fn new(model: &'m Model, by_merges: bool) -> Self {
        match model {
            Model::Bpe(bpe) => {
                let encoder = bpe.pretoken_encoder(bpe.ignores_merges() && !by_merges);
                let characters = encoder.whole_characters();
                Self::Bpe(Box::new(encoder), characters)
            }
            other => Self::Other(other),
        }
    }

    pub(super) fn encoder(&self) -> Encoder<'_> {
        match self {
            Self::Bpe(encoder, characters) => Encoder::Bpe(Box::new(SortedEncoder::new(encoder, characters.as_ref()))),
            Self::Other(model) => Encoder::Other(model, Vec::new()),
        }
    }
}

impl Encoder<'_> {
    /// The tokens of a pretoken, as indices.
    pub(super) fn encode(&mut self, pretoken: &[u8]) -> Result<&[u32]> {
        match self {
            Self::Bpe(encoder) => encoder.encode(pretoken),
            Self::Other(model, tokens) => {
                let text = std::str::from_utf8(pretoken).map_err(|_| Error::NotText)?;
                tokens.clear();
                model.split(text, false, &|_| false, tokens)?;
                Ok(tokens)
            }
        }
    }
}
