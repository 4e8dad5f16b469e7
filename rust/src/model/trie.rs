//! A trie of token strings: finds every token that a text begins with.

use rustc_hash::FxHashMap;

use crate::bpe::Tokens;

/// Not a token.
const NONE: u32 = u32::MAX;
/// The node of the empty string.
pub(super) const ROOT: u32 = 0;

/// The tokens of a vocabulary by their bytes.
#[derive(Debug, Clone)]
pub(super) struct Trie {
    /// The node after a node and a byte.
    next: FxHashMap<(u32, u8), u32>,
    /// The token that ends at each node, if one does.
    tokens: Vec<u32>,
}

impl Trie {
    pub(super) fn new(tokens: &Tokens) -> Self {
        let mut trie = Self { next: FxHashMap::default(), tokens: vec![NONE] };
        for (token, string) in (0..).zip(tokens.strings()) {
            trie.insert(string, token);
        }
        trie.tokens[ROOT as usize] = NONE; // an empty token is in every text
        trie
    }

    pub(super) fn insert(&mut self, string: &str, token: u32) {
        let mut node = ROOT;
        for &byte in string.as_bytes() {
            let new = self.tokens.len() as u32;
            node = *self.next.entry((node, byte)).or_insert(new);
            if node == new {
                self.tokens.push(NONE);
            }
        }
        self.tokens[node as usize] = token;
    }

    pub(super) fn remove(&mut self, string: &str) {
        if let Some(node) = self.node(string.as_bytes()) {
            self.tokens[node as usize] = NONE;
        }
    }

    /// The token of a string that is not empty.
    pub(super) fn find(&self, string: &str) -> Option<u32> {
        self.node(string.as_bytes()).map(|node| self.tokens[node as usize]).filter(|&token| token != NONE)
    }

    /// The node after some bytes, if a token begins with them.
    pub(super) fn node(&self, bytes: &[u8]) -> Option<u32> {
        bytes.iter().try_fold(ROOT, |node, &byte| self.next.get(&(node, byte)).copied())
    }

    /// The tokens after a node that bytes begin with, shortest first: each with its length after the node.
    pub(super) fn prefixes<'t>(&'t self, start: u32, bytes: &'t [u8]) -> impl Iterator<Item = (usize, u32)> + 't {
        let nodes = bytes.iter().scan(start, |node, &byte| {
            *node = *self.next.get(&(*node, byte))?;
            Some(*node)
        });
        (1..).zip(nodes.map(|node| self.tokens[node as usize])).filter(|(_, token)| *token != NONE)
    }
}
