//! The vocabulary and the merges of a tokenizer file, as they are listed there. Does not know the options of the model.

use rayon::prelude::*;

use super::tokens::Tokens;
use crate::error::{Error, Result};

/// Tokens and ranked merges. The parts of every merge are tokens; its product need not be one: [`crate::Bpe`] checks it.
#[derive(Debug, Default)]
pub struct Vocabulary {
    pub(crate) tokens: Tokens,
    /// Pairs of tokens as indices; the place is the rank.
    pub(crate) merges: Vec<(u32, u32)>,
    /// The token that each merge makes, or `NO_PRODUCT`.
    pub(crate) products: Vec<u32>,
}

/// In the place of a product: the strings of a merge, joined, are no token.
pub(crate) const NO_PRODUCT: u32 = u32::MAX;

impl Vocabulary {
    /// Tokens with merges as pairs of indices.
    pub(crate) fn new(tokens: Tokens, merges: Vec<(u32, u32)>) -> Self {
        let product = |joined: &mut String, &(left, right): &(u32, u32)| {
            joined.clear();
            joined.push_str(tokens.string(left));
            joined.push_str(tokens.string(right));
            tokens.index(joined).unwrap_or(NO_PRODUCT)
        };
        let products = merges.par_iter().with_min_len(1 << 12).map_init(String::new, product).collect();
        Self { tokens, merges, products }
    }

    /// Tokens with merges as pairs of ids.
    ///
    /// # Errors
    ///
    /// When a merge names an id that no token has.
    pub(crate) fn from_ids(tokens: Tokens, merges: &[(u32, u32)]) -> Result<Self> {
        let index = |rank: usize, id: u32| tokens.index_of_id(id).ok_or(Error::UnknownId { rank, id });
        let pairs =
            merges.iter().enumerate().map(|(rank, &(left, right))| Ok((index(rank, left)?, index(rank, right)?)));
        let pairs = pairs.collect::<Result<_>>()?;
        Ok(Self::new(tokens, pairs))
    }

    /// The merges as pairs of strings, by rank.
    pub(crate) fn merge_strings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.merges.iter().map(|&(left, right)| (self.tokens.string(left), self.tokens.string(right)))
    }
}
