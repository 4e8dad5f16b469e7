//! Continued BPE training: learns more merges where a tokenizer's training stopped. Does not choose token ids.
//!
//! Every distinct pretoken is split by the base model, with merge skipping if the model has it. Then the most frequent
//! pair of neighbours becomes a merge, again and again. Of equally frequent pairs, the smaller pair of token strings in
//! code-point order is taken, so that nothing depends on threads, hashing or the order of words.
//!
//! The product of a pair may be a token already, one that the base could not reach. Then the merge is kept and no token
//! is counted. Merges listed for that token may now apply; they are applied at once, as in the encoder.
//!
//! With several languages, the texts stay apart: the next merge is the most frequent pair of the language that is worst
//! off, and it is applied to all of them.

mod balance;
mod changes;
mod frequent;
mod further;
mod learner;
mod model;
mod pairs;
mod pieces;
mod scripts;
mod suffixes;
mod task;
mod text;
mod texts;
mod trial;
mod words;

pub use balance::MaxShare;
pub use pieces::{LearnedPiece, LearnedPieces, RefusedPiece};
pub use scripts::{marks, of_scripts, script_properties, ScriptFilter};
pub use task::{Callbacks, Learned, LearnedMerge, RefusedPair, Task};
pub use texts::{pairs_of, Texts};
