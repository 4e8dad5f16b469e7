//! Byte-pair encoding of pretokens: the merge table, encoding, and what both say about tokens.
//!
//! Does not normalize, pre-tokenize or look for added tokens: see [`crate::Pipeline`].

mod alphabet;
mod encode;
mod merges;
mod model;
mod structure;
mod token_counts;
mod unknown;

#[cfg(test)]
pub(crate) use alphabet::byte_token;
pub use alphabet::Alphabet;
pub(crate) use alphabet::{byte_of, character_of};
pub(crate) use merges::{pair_key, Merge, Merges};
pub use model::{Bpe, Options};
pub use structure::{Origin, Structure};
