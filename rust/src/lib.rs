//! The native core of tokengraft.
//!
//! Plain Rust: only `py` knows Python, and it is compiled in with the feature `python` alone.
//!
//! # Words
//!
//! * A **token** is a string with an id. The string identifies it: two tokens may stand for the same bytes.
//! * A **merge** is a pair of tokens whose strings, joined, make a third token, its *product*.
//! * The **rank** of a merge is its place in the list of merges: the lowest applicable rank is applied first,
//!   leftmost first. A rank is not an id.
//! * A **pretoken** is what the pre-tokenizer hands to BPE. Merges never cross from one pretoken to the next.
//! * A token is **atomic** when it is a starting symbol: one character, or a byte-fallback token `<0xNN>`.
//! * A token is **reachable** when its own string, encoded by merges alone, gives back that one token.
//!   If it is not, no input whatever produces it by merges: merges are local, so wherever the token came out,
//!   the same merges would have made it from its string alone.
//!
//! # Example
//!
//! ```
//! use tokengraft_core::{Bpe, Options};
//!
//! let tokens = ["a", "b", "c", "ab", "abc", "bc"];
//! let tokens = tokens.iter().zip(0..).map(|(string, id)| (id, string.to_string())).collect();
//! // a+b -> ab, ab+c -> abc; `bc` has a merge that never wins in "abc"
//! let bpe = Bpe::new(tokens, &[(0, 1), (3, 2), (1, 2)], &Options::default())?;
//! assert_eq!(bpe.encode("abcbc")?, [4, 5]);
//! # Ok::<(), tokengraft_core::Error>(())
//! ```

mod added;
mod allowance;
mod alphabet;
mod bpe;
mod count;
mod counts;
mod cut;
mod error;
mod guard;
mod hold_out;
mod merges;
mod pieces;
mod pretokenize;
#[cfg(feature = "python")]
mod py;
mod rows;
mod scan;
mod structure;
mod table;
mod text;
mod train;
mod unicode;
mod unicode_runs;

pub use alphabet::Alphabet;
pub use bpe::{Bpe, Options};
pub use count::{Counter, Limits, Tally};
pub use counts::Counts;
pub use cut::Cutter;
pub use error::{Error, Result};
pub use hold_out::{HoldOut, Verdict};
pub use pieces::{script_names, PieceRules};
pub use pretokenize::{encode_upstream, Piece, Pipeline, Pretokenizer, Sink, Spelling};
pub use rows::Rows;
pub use structure::{Origin, Structure};
pub use text::{Block, Document, Documents};
pub use train::{Judge, Learned, LearnedMerge, Task};
