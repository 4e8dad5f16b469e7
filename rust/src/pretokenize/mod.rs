//! Text to pretokens, exactly as the `tokenizers` library does it. Does not encode.
//!
//! Every pipeline can run through the library. Common pipelines are recognized and run by faster code with the same
//! result.

mod added;
mod automaton;
mod cut;
mod describe;
mod normalize;
mod pieces;
mod pipeline;
mod pretokenizer;
mod route;
mod scan;
mod unicode;

pub use cut::Cutter;
pub use describe::describe;
pub(crate) use pieces::main_script;
pub use pieces::{script_names, PieceRules};
pub use pipeline::{Piece, Pipeline, Upstream};
pub use pretokenizer::{Pretokenizer, Sink, Spelling};
pub(crate) use unicode::category;
