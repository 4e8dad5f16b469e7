//! The parts of `Tokenizer.content_hash` that grow with the vocabulary.

use rayon::prelude::*;

use super::write::escape;
use crate::bpe::Vocabulary;

/// All strings in order, as a JSON array in ASCII; and merges as places in it, each as two little-endian 64-bit numbers.
///
/// `more` has strings that are tokens too and are not in the vocabulary.
pub(crate) fn hashed_parts(vocabulary: &Vocabulary, more: &[String]) -> (String, Vec<u8>) {
    let tokens = &vocabulary.tokens;
    let all: Vec<&str> = tokens.strings().chain(more.iter().map(String::as_str)).collect();
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    order.par_sort_unstable_by_key(|&token| all[token as usize]);
    let mut places = vec![0u64; all.len()];
    for (place, &token) in (0..).zip(&order) {
        places[token as usize] = place;
    }
    let mut json = String::from("[");
    for (place, &token) in order.iter().enumerate() {
        json.push_str(if place > 0 { ", \"" } else { "\"" });
        escape(&mut json, all[token as usize], true);
        json.push('"');
    }
    json.push(']');
    let parts = vocabulary.merges.par_iter().with_min_len(1 << 12).flat_map_iter(|&(left, right)| [left, right]);
    let parts: Vec<[u8; 8]> = parts.map(|token| places[token as usize].to_le_bytes()).collect();
    (json, parts.into_flattened())
}
