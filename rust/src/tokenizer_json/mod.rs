//! The vocabulary and the merges of a `tokenizer.json`: read from its bytes and written in its layout.
//!
//! Reads only what is beyond doubt, and says nothing about the rest: Python reads such a file again and words the error.

mod hash;
mod read;
mod write;

#[cfg(feature = "python")]
pub(crate) use hash::hashed_parts;
#[cfg(feature = "python")]
pub(crate) use read::{read, Read};
#[cfg(feature = "python")]
pub(crate) use write::Layout;
