//! Blocks of a corpus to pretoken counts, on any number of threads, in bounded memory. Does not read files.

mod allowance;
mod counter;
mod counts;
mod documents;
mod hold_out;
mod rows;
mod sorted;
mod spill;
mod table;
mod tally;

pub use counter::Counter;
pub use counts::Counts;
pub use documents::{Block, Document, Documents};
pub use hold_out::{Copies, HoldOut, Verdict};
pub use rows::Rows;
pub(crate) use table::{short_key, Words, INLINE};
pub use tally::{Limits, Tally};
