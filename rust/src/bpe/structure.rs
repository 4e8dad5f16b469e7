//! The merge tree: the last merge that applies when each token's own string is encoded. Does not know added tokens.
//!
//! A token may be listed as the product of several merges (Llama-3: 280,147 merges for 128,000 tokens). Only the one
//! that applies when the token encodes itself matters for pruning and for reachability.

use rayon::prelude::*;

use super::merges::Merges;
use super::model::Bpe;

/// How a token is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A starting symbol: one character, or a byte-fallback token.
    Atomic,
    /// The last merge when the token encodes itself: the ids of its two parts.
    Merged(u32, u32),
    /// No merge makes it: it is found as a whole, by a model without merges.
    Whole,
    /// Its own string does not encode to it (the Self-Tokenization Test fails).
    Unreachable,
}

/// The origin of every token, by ascending id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// The ids of the tokens, ascending.
    pub ids: Vec<u32>,
    /// The origin of each of them.
    pub origins: Vec<Origin>,
}

impl Structure {
    /// The structure of a model, computed on all cores. Added tokens are treated as ordinary ones.
    #[must_use]
    pub fn of(bpe: &Bpe) -> Self {
        let indices = 0..bpe.len() as u32;
        Self {
            ids: indices.clone().map(|index| bpe.id(index)).collect(),
            origins: indices.into_par_iter().map(|index| origin(bpe, index)).collect(),
        }
    }
}

fn origin(bpe: &Bpe, index: u32) -> Origin {
    if bpe.is_atomic(index) {
        return Origin::Atomic;
    }
    let mut symbols = Vec::new();
    if bpe.symbols(bpe.string(index), &mut symbols).is_err() {
        return Origin::Unreachable;
    }
    let mut last = None;
    bpe.merge(&mut symbols, |pair, _| last = Some(pair));
    match (symbols.as_slice(), last) {
        ([only], Some((left, right))) if *only == index => Origin::Merged(bpe.id(left), bpe.id(right)),
        _ => Origin::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::Options;

    fn structure(strings: &[&str], merges: &[(u32, u32)], options: &Options) -> Structure {
        let tokens = strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect();
        Structure::of(&Bpe::new(tokens, merges, options).unwrap())
    }

    #[test]
    fn the_merge_that_applies_is_the_origin_and_not_the_first_listed() {
        // `abc` is listed as a+bc and as ab+c; b+c is never listed, so only the second can apply.
        let result = structure(&["a", "b", "c", "ab", "bc", "abc"], &[(0, 1), (0, 4), (3, 2)], &Options::default());
        assert_eq!(result.origins[5], Origin::Merged(3, 2));
        assert_eq!(result.origins[4], Origin::Unreachable);
        assert_eq!(result.origins[0], Origin::Atomic);
    }

    #[test]
    fn a_token_whose_parts_are_merged_away_is_unreachable_with_merge_skipping_too() {
        let skipping = Options { ignore_merges: true, ..Options::default() };
        let result = structure(&["a", "b", "c", "bc", "ab", "abc"], &[(1, 2), (0, 1), (4, 2)], &skipping);
        assert_eq!(result.origins[5], Origin::Unreachable);
        assert_eq!(result.origins[4], Origin::Merged(0, 1));
    }

    #[test]
    fn byte_tokens_are_atomic_where_byte_fallback_is_on_and_only_there() {
        let fallback = Options { byte_fallback: true, ..Options::default() };
        assert_eq!(structure(&["<0x41>"], &[], &fallback).origins, [Origin::Atomic]);
        assert_eq!(structure(&["<0x41>"], &[], &Options::default()).origins, [Origin::Unreachable]);
    }
}
