//! What the string of a token is split into once it and others are removed. Unigram and WordPiece.

use std::sync::Arc;

use rayon::prelude::*;

use super::Model;
use crate::bpe::CONTINUATION;
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
    /// As [`Model::encode`], and when the model has merges.
    pub fn remove(&mut self, id: u32) -> Result<Vec<u32>> {
        let Some(token) = self.model.tokens().index_of_id(id) else { return Ok(Vec::new()) };
        self.removed[token as usize] = true;
        self.model.split_without(token, &|other| self.removed[other as usize])
    }
}

impl Model {
    /// Every token with the ids that its string is split into without it, by ascending id. What is lost has the unknown
    /// token.
    ///
    /// # Errors
    ///
    /// As [`Remaining::remove`].
    pub fn parts(&self) -> Result<Vec<(u32, Vec<u32>)>> {
        let part = |token: u32| {
            let ids = self.split_without(token, &|other| other == token)?;
            Ok((self.tokens().ids()[token as usize], ids))
        };
        (0..self.tokens().len() as u32).into_par_iter().map(part).collect()
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

    fn split_without(&self, token: u32, is_removed: &impl Fn(u32) -> bool) -> Result<Vec<u32>> {
        self.split_string(self.tokens().string(token), is_removed)
    }

    fn split_string(&self, string: &str, is_removed: &impl Fn(u32) -> bool) -> Result<Vec<u32>> {
        let inside = string.strip_prefix(CONTINUATION).filter(|_| matches!(self, Self::WordPiece(_)));
        let mut tokens = Vec::new();
        self.split(inside.unwrap_or(string), inside.is_some(), is_removed, &mut tokens)?;
        Ok(self.ids_of(tokens))
    }
}
