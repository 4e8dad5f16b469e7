//! WordPiece: a pretoken is split into the longest tokens from left to right, as `tokenizers` does it. If one part has no
//! token, the whole pretoken is unknown.
//!
//! Removing tokens that a text is not split into changes nothing in it: the longest token is still the longest.

use std::sync::Arc;

use super::trie::{Trie, ROOT};
use crate::bpe::{Tokens, Vocabulary, CONTINUATION};
use crate::error::{Error, Result};

/// A WordPiece model.
#[derive(Debug, Clone)]
pub struct WordPiece {
    vocabulary: Arc<Vocabulary>,
    unknown: String,
    /// The most characters of a pretoken. A longer one is unknown.
    longest: usize,
    trie: Trie,
    /// The node of the tokens that continue a word; None if there are none.
    inside: Option<u32>,
}

impl WordPiece {
    /// The model of a vocabulary.
    #[must_use]
    pub fn new(vocabulary: Arc<Vocabulary>, unknown: String, longest: usize) -> Self {
        let trie = Trie::new(&vocabulary.tokens);
        Self { inside: trie.node(CONTINUATION.as_bytes()), trie, unknown, longest, vocabulary }
    }

    pub(super) fn tokens(&self) -> &Tokens {
        &self.vocabulary.tokens
    }

    /// Adds the tokens of a pretoken, as indices, without those that are removed. `continues`: it is the end of a word.
    pub(super) fn encode(
        &self,
        pretoken: &str,
        continues: bool,
        is_removed: &impl Fn(u32) -> bool,
        tokens: &mut Vec<u32>,
    ) -> Result<()> {
        let before = tokens.len();
        if self.is_too_long(pretoken) || self.split(pretoken, continues, is_removed, tokens).is_none() {
            tokens.truncate(before);
            let unknown = self.tokens().index(&self.unknown);
            tokens.push(unknown.ok_or_else(|| Error::MissingUnknown { token: self.unknown.clone() })?);
        }
        Ok(())
    }

    /// Whether a pretoken is unknown because of its length, whatever the tokens are.
    pub(super) fn is_too_long(&self, pretoken: &str) -> bool {
        pretoken.len() > self.longest && pretoken.chars().count() > self.longest
    }

    /// Whether a token is the unknown one.
    pub(super) fn must_stay(&self, token: u32) -> bool {
        self.tokens().string(token) == self.unknown
    }

    /// Whether a word with a token may be short enough to be split.
    pub(super) fn has_room(&self, string: &str) -> bool {
        let front = usize::from(string.starts_with(CONTINUATION));
        string.strip_prefix(CONTINUATION).unwrap_or(string).chars().count() + front <= self.longest
    }

    pub(super) fn find(&self, string: &str) -> Option<u32> {
        self.trie.find(string)
    }

    /// Adds a token after all others.
    pub(super) fn push(&mut self, string: &str, token: u32) {
        self.trie.insert(string, token);
        self.inside = self.trie.node(CONTINUATION.as_bytes());
    }

    /// Removes a token that was added.
    pub(super) fn pop(&mut self, string: &str) {
        self.trie.remove(string);
    }

    #[cfg(test)]
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Adds the longest tokens from left to right; None if a part has none.
    fn split(
        &self,
        text: &str,
        continues: bool,
        is_removed: &impl Fn(u32) -> bool,
        tokens: &mut Vec<u32>,
    ) -> Option<()> {
        let mut start = 0;
        while start < text.len() {
            let node = if start > 0 || continues { self.inside? } else { ROOT };
            let found = self.trie.prefixes(node, &text.as_bytes()[start..]);
            let (length, token) = found.filter(|(_, token)| !is_removed(*token)).last()?;
            tokens.push(token);
            start += length;
        }
        Some(())
    }

    /// Calls `each` with the characters of a pretoken that is unknown.
    pub(super) fn lost(&self, pretoken: &str, mut each: impl FnMut(&str)) -> Result<()> {
        let mut tokens = Vec::new();
        self.encode(pretoken, false, &|_| false, &mut tokens)?;
        let is_unknown = matches!(tokens[..], [only] if self.tokens().string(only) == self.unknown);
        if is_unknown && pretoken != self.unknown {
            pretoken.char_indices().for_each(|(at, character)| each(&pretoken[at..at + character.len_utf8()]));
        }
        Ok(())
    }
}
