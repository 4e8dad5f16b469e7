//! Runs most pipelines without the `tokenizers` crate, with the same pretokens: normalizers that replace or prepend
//! text or compose characters, and any sequence of splits at patterns, digits, punctuation, white space and bytes.
//!
//! A pattern becomes an automaton over classes of characters. Which characters are in a class is decided by the regular-
//! expression engine of the crate, so the two agree for every character. The tests compare them for patterns of real
//! tokenizers and for random ones.

mod describe;
mod dfa;
mod map;
mod recognize;
mod sets;
mod split;
mod steps;
mod syntax;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use steps::{Automata, Start};
