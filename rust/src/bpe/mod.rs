//! Byte-pair encoding of pretokens: the merge table, encoding, and what both say about tokens.
//!
//! Does not normalize, pre-tokenize or look for added tokens: see [`crate::Pipeline`].

mod alphabet;
mod characters;
mod compare;
mod encode;
mod growth;
mod merges;
mod model;
mod neighbours;
mod packed;
#[cfg(test)]
mod random;
mod sorted;
mod structure;
mod summary;
mod token_counts;
mod tokens;
mod unknown;
mod vocabulary;

#[cfg(test)]
pub(crate) use alphabet::byte_token;
pub use alphabet::Alphabet;
pub(crate) use alphabet::{byte_of, character_of};
pub(crate) use merges::{pair_key, Merge, Merges};
pub use model::{Bpe, Options};
#[cfg(test)]
pub(crate) use random::Random;
pub(crate) use sorted::SortedEncoder;
pub use structure::{Origin, Structure};
pub use summary::Summary;
pub(crate) use tokens::{TokenList, Tokens};
pub use vocabulary::Vocabulary;
