//! The native core of tokengraft.
//!
//! Plain Rust: only `py` knows Python, and it is compiled only with the feature `python`.
//!
//! # Folders
//!
//! * `bpe`: the merge table, and the encoding of pretokens with it.
//! * `model`: BPE, Unigram and WordPiece behind one interface.
//! * `pretokenize`: text to pretokens.
//! * `count`: blocks of a corpus to pretoken counts.
//! * `segment`: documents to token ids.
//! * `learn`: pretoken counts to new tokens and merges.
//! * `tokenizer_json`: vocabulary and merges from the bytes of a file, and back.
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
//!   If it is not, no input produces it by merges: merges are local, so the same merges that made the token inside
//!   a longer text would have made it from its own string.
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

mod bpe;
mod count;
mod error;
mod guard;
mod learn;
mod memory;
mod model;
mod pretokenize;
#[cfg(feature = "python")]
mod py;
mod segment;
mod stop;
mod tokenizer_json;

pub use bpe::{Alphabet, Bpe, Options, Origin, Structure, Vocabulary};
pub use count::{Block, Copies, Counter, Counts, Document, Documents, HoldOut, Limits, Rows, Tally, Verdict};
pub use error::{Error, Result};
pub use learn::{
    pairs_of, script_properties, Callbacks, Learned, LearnedMerge, LearnedPiece, LearnedPieces, MaxShare, RefusedPair,
    RefusedPiece, ScriptFilter, Task, Texts,
};
pub use model::{Model, Remaining, Summary, Unigram, WordPiece};
pub use pretokenize::{script_names, Cutter, Piece, PieceRules, Pipeline, Pretokenizer, Sink, Spelling, Upstream};
pub use segment::{Segmented, Segmenter};
pub use stop::Stop;
