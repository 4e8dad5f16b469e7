//! Byte-pair encoding of pretokens: the merge table, encoding, and what both say about tokens.
//!
//! Does not normalize, pre-tokenize or look for added tokens: see [`crate::Pipeline`].

mod alphabet;
mod characters;
mod derived;
mod encode;
mod encoded;
mod growth;
mod merges;
mod model;
mod neighbours;
mod packed;
#[cfg(test)]
mod random;
mod sorted;
mod structure;
mod tokens;
mod unknown;
mod vocabulary;

pub use alphabet::Alphabet;
pub(crate) use alphabet::{byte_of, byte_token, character_of, CONTINUATION};
pub(crate) use encode::PretokenEncoder;
pub(crate) use encoded::{in_parallel, CountedEncoder, CountedPretokens, Kept};
pub(crate) use merges::{pair_key, Merge, Merges};
pub use model::{Bpe, Options};
#[cfg(test)]
pub(crate) use random::Random;
pub use structure::{Origin, Structure};
pub(crate) use tokens::{numbered, TokenList, Tokens};
pub use vocabulary::Vocabulary;
