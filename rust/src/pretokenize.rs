//! Text to pretokens, exactly as the `tokenizers` library does it.
//!
//! A pipeline is everything of a `tokenizer.json` but the model: added tokens, normalizer, pre-tokenizer. It is read
//! by the library itself, so that every normalizer and pre-tokenizer means here what it means there.

use std::str::FromStr;

use tokenizers::{OffsetReferential, OffsetType, PreTokenizer, Tokenizer};

use crate::error::{Error, Result};

/// A stretch of text on its way to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// What BPE gets, in the alphabet of the vocabulary.
    Pretoken(String),
    /// An added token, found in the text and split out of it: its id.
    Added(u32),
}

/// The normalizer, pre-tokenizer and added tokens of a `tokenizer.json`.
pub struct Pipeline {
    tokenizer: Tokenizer,
}

impl Pipeline {
    /// Reads a `tokenizer.json` whose vocabulary holds the added tokens alone and whose merges are empty.
    ///
    /// The library assigns an id of its own to an added token that the vocabulary lacks; with the added tokens in the
    /// vocabulary, pieces carry the ids given there.
    ///
    /// # Errors
    ///
    /// When the library cannot read it.
    pub fn from_json(skeleton: &str) -> Result<Self> {
        match Tokenizer::from_str(skeleton) {
            Ok(tokenizer) => Ok(Self { tokenizer }),
            Err(error) => Err(Error::Pipeline { reason: error.to_string() }),
        }
    }

    /// The pieces of a text, in order. Normalization may drop, add and change characters.
    ///
    /// # Errors
    ///
    /// When the library's normalizer or pre-tokenizer fails.
    pub fn pieces(&self, text: &str) -> Result<Vec<Piece>> {
        let normalizer = self.tokenizer.get_normalizer();
        let mut split = self.tokenizer.get_added_vocabulary().extract_and_normalize(normalizer, text);
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut split).map_err(|error| Error::Pretokenize { reason: error.to_string() })?;
        }
        let splits = split.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        Ok(splits
            .into_iter()
            .flat_map(|(string, _, tokens)| match tokens {
                Some(tokens) => tokens.iter().map(|token| Piece::Added(token.id)).collect(),
                None => vec![Piece::Pretoken(string.to_string())],
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(pre_tokenizer: &str) -> Pipeline {
        let json = format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": {{"type": "NFC"}},
                "added_tokens": [{{"id": 7, "content": "<s>", "single_word": false, "lstrip": false,
                                   "rstrip": false, "normalized": false, "special": true}}],
                "pre_tokenizer": {pre_tokenizer}, "post_processor": null, "decoder": null,
                "model": {{"type": "BPE", "vocab": {{"<s>": 7}}, "merges": []}}}}"#
        );
        Pipeline::from_json(&json).unwrap()
    }

    #[test]
    fn text_is_normalized_split_and_spelled_in_the_alphabet_of_the_vocabulary() {
        let byte_level = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}"#;
        let pieces = pipeline(byte_level).pieces("o\u{303} tema<s>!").unwrap();
        let pretoken = |string: &str| Piece::Pretoken(string.to_string());
        assert_eq!(pieces, [pretoken("Ãµ"), pretoken("Ġtema"), Piece::Added(7), pretoken("!")]);
    }

    #[test]
    fn empty_text_has_no_pieces_that_carry_text() {
        assert!(pipeline("null").pieces("").unwrap().iter().all(|piece| *piece == Piece::Pretoken(String::new())));
    }

    #[test]
    fn a_pipeline_the_library_refuses_is_an_error() {
        assert!(matches!(Pipeline::from_json("{"), Err(Error::Pipeline { .. })));
    }
}
