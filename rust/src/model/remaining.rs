//! What the string of a token is split into once it and others are removed.

use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::Model;
use crate::bpe::{Origin, CONTINUATION};
use crate::error::Result;

/// A model and the tokens that are removed from it, by index.
#[derive(Debug)]
pub struct Remaining {
    model: Arc<Model>,
    removed: Vec<bool>,
}

impl Remaining {
    /// The model with all of its tokens.
    #[must_use]
    pub fn new(model: Arc<Model>) -> Self {
        Self { removed: vec![false; model.tokens().len()], model }
    }

    /// Removes a token, by its id, and gives the ids that its string is then split into.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`].
    pub fn remove(&mut self, id: u32) -> Result<Vec<u32>> {
        self.mark(id);
        self.split(id)
    }

    /// Removes a token, by its id.
    pub(super) fn mark(&mut self, id: u32) {
        self.model.tokens().index_of_id(id).into_iter().for_each(|token| self.removed[token as usize] = true);
    }

    /// The ids that the string of a token is split into.
    pub(super) fn split(&self, id: u32) -> Result<Vec<u32>> {
        let Some(token) = self.model.tokens().index_of_id(id) else { return Ok(Vec::new()) };
        self.model.split_string(self.model.tokens().string(token), &|other| self.removed[other as usize])
    }

    /// The ids of the tokens that the string of a token is split into, each once for every time that it is in the result
    /// or is merged into another.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`], and when the model has no merges.
    pub fn uses(&self, id: u32) -> Result<Vec<u32>> {
        let (bpe, mut uses) = (self.model.bpe()?, Vec::new());
        let Some(token) = self.model.tokens().index_of_id(id) else { return Ok(uses) };
        let is_removed = |other: u32| self.removed[other as usize];
        let tokens = bpe.encode_without(bpe.string(token), &is_removed, |(left, right)| uses.extend([left, right]))?;
        uses.extend(tokens);
        Ok(self.model.ids_of(uses))
    }
}

impl Model {
    /// Every token with the ids that its string is split into without it, by ascending id. What is lost has the unknown
    /// token.
    ///
    /// With merges, these are the two parts of a token that merges make, and the tokens that they make of the string of
    /// any other that is not atomic and not `apart`.
    ///
    /// # Errors
    ///
    /// As [`Remaining::remove`].
    pub fn parts(&self, apart: &FxHashSet<u32>) -> Result<Vec<(u32, Vec<u32>)>> {
        let origins = self.origins();
        let part = |token: u32| {
            let id = self.tokens().ids()[token as usize];
            let ids = match (self, origins[token as usize]) {
                (Self::Bpe(_), Origin::Merged(left, right)) => vec![left, right],
                (Self::Bpe(_), origin) if origin == Origin::Atomic || apart.contains(&id) => return None,
                _ => match self.split_string(self.tokens().string(token), &|other| other == token) {
                    Ok(ids) => ids,
                    Err(error) => return Some(Err(error)),
                },
            };
            Some(Ok((id, ids)))
        };
        (0..self.tokens().len() as u32).into_par_iter().filter_map(part).collect()
    }

    /// The ids that the string of a token of another vocabulary is split into.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`].
    pub fn encode_token(&self, string: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bpe(bpe) => bpe.encode(string),
            _ => self.split_string(string, &|_| false),
        }
    }

    fn split_string(&self, string: &str, is_removed: &impl Fn(u32) -> bool) -> Result<Vec<u32>> {
        if let Self::Bpe(bpe) = self {
            return Ok(self.ids_of(bpe.encode_without(string, is_removed, |_| ())?));
        }
        let inside = string.strip_prefix(CONTINUATION).filter(|_| matches!(self, Self::WordPiece(_)));
        let mut tokens = Vec::new();
        self.split(inside.unwrap_or(string), inside.is_some(), is_removed, &mut tokens)?;
        Ok(self.ids_of(tokens))
    }
}
