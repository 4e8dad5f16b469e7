//! The normalizer, pre-tokenizer and added tokens of a `tokenizer.json`, read and run by the `tokenizers` library.
//! The vocabulary it reads holds the added tokens alone: to encode, it is given the merges.

use std::str::FromStr;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use tokenizers::models::bpe::BPE;
use tokenizers::{
    Decoder, DecoderWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType,
    PostProcessorWrapper, PreTokenizer, PreTokenizerWrapper, Tokenizer, TokenizerImpl,
};

use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::model::Model;

/// A part of a text: what the model gets, or an added token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A pretoken, in the alphabet of the vocabulary.
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
        let refuse = |reason: String| Error::Pipeline { reason };
        let read = guarded(|| Tokenizer::from_str(skeleton)).map_err(refuse)?;
        // A position in `skeleton` is not a position in the user's file.
        let tokenizer = read.map_err(|e| refuse(e.to_string().split(" at line ").next().unwrap_or_default().into()))?;
        let pipeline = Self { tokenizer };
        guarded(|| pipeline.check_added_tokens()).map_err(refuse)??;
        Ok(pipeline)
    }

    /// Refuses added tokens that are empty or equal after normalization: the library would find them everywhere, or find
    /// one instead of the other.
    fn check_added_tokens(&self) -> Result<()> {
        let mut contents = FxHashMap::default();
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        for token in added.values().filter(|token| token.normalized) {
            let mut string = NormalizedString::from(token.content.as_str());
            if let Some(normalizer) = self.tokenizer.get_normalizer() {
                normalizer.normalize(&mut string).map_err(|error| Error::Pipeline { reason: error.to_string() })?;
            }
            if string.is_empty() {
                return Err(Error::VanishingAddedToken { token: token.content.clone() });
            }
            if let Some(other) = contents.insert(string.get().to_string(), token.content.clone()) {
                let (first, second) =
                    if other < token.content { (other, token.content.clone()) } else { (token.content.clone(), other) };
                return Err(Error::CollidingAddedTokens { first, second });
            }
        }
        Ok(())
    }

    /// The pieces of a text, in order. Normalization may drop, add and change characters.
    ///
    /// # Errors
    ///
    /// When the library's pre-tokenizer fails, or anything in it panics. The library ignores a failing normalizer.
    pub fn pieces(&self, text: &str) -> Result<Vec<Piece>> {
        guarded(|| self.unguarded_pieces(text)).unwrap_or_else(|reason| Err(Error::Pretokenize { reason }))
    }

    /// The ids of a text, without special tokens.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::pieces`] and [`Model::encode`].
    pub fn encode(&self, model: &Model, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in self.pieces(text)? {
            match piece {
                Piece::Pretoken(string) => ids.extend(model.encode(&string)?),
                Piece::Added(id) => ids.push(id),
            }
        }
        Ok(ids)
    }

    /// The ids of each text. On all cores.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::encode`]: the error of the first text that has one.
    pub fn encode_batch(&self, model: &Model, texts: &[String]) -> Result<Vec<Vec<u32>>> {
        in_order(texts, |text| self.encode(model, text))
    }

    /// The text of some tokens, by the decoder of the `tokenizer.json`; without one, joined by spaces as the library does.
    ///
    /// # Errors
    ///
    /// When the library's decoder fails, or anything in it panics.
    pub fn decode(&self, tokens: Vec<String>) -> Result<String> {
        let Some(decoder) = self.tokenizer.get_decoder() else { return Ok(tokens.join(" ")) };
        let decoded = guarded(|| decoder.decode(tokens).map_err(|error| error.to_string()));
        decoded.and_then(|text| text).map_err(|reason| Error::Decode { reason })
    }

    fn unguarded_pieces(&self, text: &str) -> Result<Vec<Piece>> {
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

/// A tokenizer whose model is known to be BPE.
type BpeTokenizer = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// A tokenizer as the `tokenizers` library itself reads it, without truncation and padding.
pub struct Upstream(Tokenizer);

impl Upstream {
    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// When the library cannot read it.
    pub fn from_json(tokenizer_json: &str) -> Result<Self> {
        let refuse = |reason: String| Error::Pipeline { reason };
        // For a model of any type it makes two copies of all merges first, and takes twice the time and the memory.
        let read = guarded(|| match BpeTokenizer::from_str(tokenizer_json) {
            Ok(tokenizer) => Ok(tokenizer.into()),
            Err(_) => Tokenizer::from_str(tokenizer_json),
        });
        let mut tokenizer = read.map_err(refuse)?.map_err(|error| refuse(error.to_string()))?;
        tokenizer.with_truncation(None).map_err(|error| refuse(error.to_string()))?.with_padding(None);
        Ok(Self(tokenizer))
    }

    /// The ids of each text, without special tokens. On all cores.
    ///
    /// # Errors
    ///
    /// When the library cannot encode a text: the error of the first such text.
    pub fn encode_batch(&self, texts: &[String]) -> Result<Vec<Vec<u32>>> {
        let encode = |text: &String| self.0.encode_fast(text.as_str(), false);
        let failed = |reason: String| Error::Pretokenize { reason };
        in_order(texts, |text| {
            let encoding = guarded(|| encode(text)).map_err(failed)?.map_err(|error| failed(error.to_string()))?;
            Ok(encoding.get_ids().to_vec())
        })
    }
}

/// What a function makes of each text, on all cores; or the error of the first text that has one.
fn in_order<T: Send>(texts: &[String], function: impl Fn(&String) -> Result<T> + Send + Sync) -> Result<Vec<T>> {
    let results: Vec<Result<T>> = texts.par_iter().map(function).collect();
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::byte_of;
    use crate::pretokenize::pretokenizer::tests::{skeleton, BYTE_LEVEL};

    #[test]
    fn text_is_normalized_split_and_spelled_in_the_alphabet_of_the_vocabulary() {
        let pipeline = Pipeline::from_json(&skeleton(r#"{"type": "NFC"}"#, BYTE_LEVEL)).unwrap();
        let pretoken = |string: &str| Piece::Pretoken(string.to_string());
        let pieces = pipeline.pieces("o\u{303} tema<s>!").unwrap();
        assert_eq!(pieces, [pretoken("Ãµ"), pretoken("Ġtema"), Piece::Added(7), pretoken("!")]);
    }

    #[test]
    fn empty_text_has_no_pieces_that_carry_text() {
        let pipeline = Pipeline::from_json(&skeleton("null", "null")).unwrap();
        assert!(pipeline.pieces("").unwrap().iter().all(|piece| *piece == Piece::Pretoken(String::new())));
    }

    #[test]
    fn a_pipeline_the_library_refuses_is_an_error() {
        assert!(matches!(Pipeline::from_json("{"), Err(Error::Pipeline { .. })));
    }

    #[test]
    fn a_file_is_read_as_the_library_reads_it_whatever_its_model() {
        let bpe = r#""vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges": [["a", "b"]]"#;
        let legacy = r#""vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]"#;
        let models = [
            format!(r#"{{"type": "BPE", "unk_token": "a", "ignore_merges": true, {bpe}}}"#),
            format!(r#"{{{legacy}, "fuse_unk": true, "type": "BPE"}}"#),
            format!("{{{bpe}}}"),
            r#"{"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "@",
                "max_input_chars_per_word": 9, "vocab": {"a": 0, "b": 1}}"#
                .into(),
            r#"{"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0], ["b", -2.0]]}"#.into(),
        ];
        let added = r#"{"id": 9, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}"#;
        for model in models {
            let json = format!(
                r#"{{"version": "1.0", "added_tokens": [{added}], "normalizer": {{"type": "NFC"}},
                "pre_tokenizer": {{"type": "Whitespace"}}, "decoder": null, "post_processor": null, "model": {model}}}"#
            );
            let (ours, theirs) = (Upstream::from_json(&json).unwrap().0, Tokenizer::from_str(&json).unwrap());
            let [ours, theirs] = [ours, theirs].map(|tokenizer| tokenizer.to_string(true).unwrap());
            let [ours, theirs] = [ours, theirs].map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
            assert_eq!(ours, theirs);
            let broken = json.replace("\"model\"", "\"modal\"");
            let expected = Tokenizer::from_str(&broken).unwrap_err().to_string();
            assert!(matches!(Upstream::from_json(&broken), Err(Error::Pipeline { reason }) if reason == expected));
        }
    }

    #[test]
    fn the_alphabet_is_that_of_the_library() {
        let pipeline = Pipeline::from_json(&skeleton("null", BYTE_LEVEL)).unwrap();
        for character in '\0'..='\u{7ff}' {
            let text = character.to_string();
            let Piece::Pretoken(spelled) = &pipeline.pieces(&text).unwrap()[0] else { panic!("{text:?}") };
            let bytes: Option<Vec<u8>> = spelled.chars().map(byte_of).collect();
            assert_eq!(bytes.unwrap(), text.as_bytes());
        }
    }
}
