//! Text to pretokens, exactly as the `tokenizers` library does it.
//!
//! A [`Pipeline`] is everything of a `tokenizer.json` but the model: added tokens, normalizer, pre-tokenizer. It is
//! read and run by the library itself, so that every step means here what it means there. A [`Pretokenizer`] gives the
//! same pretokens as bytes, fast where the pipeline is one that it knows.

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizer, Tokenizer};
use unicode_normalization_alignments::{is_nfc_quick, is_nfkc_quick, IsNormalized, UnicodeNormalization};

use crate::added::{AddedToken, Segment, Splitter};
use crate::allowance::Allowance;
use crate::alphabet::byte_of;
use crate::cut::Cutter;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::pieces::SPACE;
use crate::scan::Pattern;

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
        let refuse = |reason: String| Error::Pipeline { reason };
        let read = guarded(|| Tokenizer::from_str(skeleton)).map_err(refuse)?;
        // Where it is in `skeleton` says nothing about the user's file.
        let tokenizer = read.map_err(|e| refuse(e.to_string().split(" at line ").next().unwrap_or_default().into()))?;
        let pipeline = Self { tokenizer };
        guarded(|| pipeline.check_added_tokens()).map_err(refuse)??;
        Ok(pipeline)
    }

    /// Refuses added tokens that the library would find nowhere, everywhere, or one in the other's place.
    fn check_added_tokens(&self) -> Result<()> {
        let mut spelled = FxHashMap::default();
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        for token in added.values().filter(|token| token.normalized) {
            let mut string = NormalizedString::from(token.content.as_str());
            if let Some(normalizer) = self.tokenizer.get_normalizer() {
                normalizer.normalize(&mut string).map_err(|error| Error::Pipeline { reason: error.to_string() })?;
            }
            if string.is_empty() {
                return Err(Error::VanishingAddedToken { token: token.content.clone() });
            }
            if let Some(other) = spelled.insert(string.get().to_string(), token.content.clone()) {
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
    /// When the library's pre-tokenizer fails, or anything in it panics. A failing normalizer it ignores.
    pub fn pieces(&self, text: &str) -> Result<Vec<Piece>> {
        guarded(|| self.unguarded_pieces(text)).unwrap_or_else(|reason| Err(Error::Pretokenize { reason }))
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

/// The ids that the `tokenizers` library itself gives for texts, without special tokens, truncation or padding.
///
/// # Errors
///
/// When the library cannot read the tokenizer or encode a text.
pub fn encode_upstream(tokenizer_json: &str, texts: &[String]) -> Result<Vec<Vec<u32>>> {
    let refuse = |reason: String| Error::Pipeline { reason };
    let read = guarded(|| Tokenizer::from_str(tokenizer_json)).map_err(refuse)?;
    let mut tokenizer = read.map_err(|error| refuse(error.to_string()))?;
    tokenizer.with_truncation(None).map_err(|error| refuse(error.to_string()))?.with_padding(None);
    let encode = |text: &String| tokenizer.encode_fast(text.as_str(), false).map(|found| found.get_ids().to_vec());
    let failed = |reason: String| Error::Pretokenize { reason };
    texts
        .iter()
        .map(|text| guarded(|| encode(text)).map_err(failed)?.map_err(|error| failed(error.to_string())))
        .collect()
}

/// Takes what a [`Pretokenizer`] finds.
pub trait Sink {
    /// A pretoken, as a place in bytes: what it stands for where the vocabulary is byte-level, else its text. Never
    /// empty. The bytes around it come along because reading a fixed number of them is faster than just its own.
    fn pretoken(&mut self, bytes: &[u8], at: Range<usize>);
    /// An added token, by id.
    fn added(&mut self, id: u32);
}

/// How a vocabulary spells pretokens.
#[derive(Debug)]
pub enum Spelling {
    /// Every byte is a character of the byte-level alphabet.
    ByteLevel,
    /// As text. With a cutter, pretokens are cut into pieces that the model treats independently.
    Text(Option<Arc<Cutter>>),
}

/// Gives the pretokens of text, by a fast route where the pipeline is known.
pub struct Pretokenizer {
    pipeline: Pipeline,
    spelling: Spelling,
    route: Route,
    added_ids: Vec<u32>,
    allowance: Allowance,
}

/// Bytes of memory that a byte of a document needs in the `tokenizers` crate, which keeps the place of every character
/// before and after normalization. Measured: 72 for DeepSeek-V3 on Estonian, English and Japanese.
const UPSTREAM_FACTOR: usize = 80;
/// The same on the fast routes, reading and writing included, for a document that is one pretoken. Measured: 9.
const FAST_FACTOR: usize = 10;

enum Route {
    /// Through the `tokenizers` crate: slow, and right for everything.
    Upstream,
    /// A known pattern after no normalization or NFC.
    Scan { added: Splitter, nfc: bool, pattern: Pattern },
    /// Spaces become `▁`, after no normalization or NFKC, and nothing else happens.
    Spaces { added: Splitter, nfkc: bool, prefix: Prefix },
}

/// When a `▁` is put before a stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Never,
    /// Before every stretch.
    Always,
    /// Before every stretch that does not begin with one.
    Missing,
    /// Before the beginning of the document, if that does not begin with one.
    MissingAtStart,
}

impl Pretokenizer {
    /// The pretokenizer of a pipeline as [`Pipeline::from_json`] reads it.
    ///
    /// # Errors
    ///
    /// When the library cannot read the pipeline.
    pub fn new(skeleton: &str, spelling: Spelling) -> Result<Self> {
        let pipeline = Pipeline::from_json(skeleton)?;
        let document: Value =
            serde_json::from_str(skeleton).map_err(|error| Error::Pipeline { reason: error.to_string() })?;
        let tokens: Vec<AddedToken> = serde_json::from_value(document["added_tokens"].clone()).unwrap_or_default();
        let vocab: FxHashMap<String, u32> =
            serde_json::from_value(document["model"]["vocab"].clone()).unwrap_or_default();
        let added_ids = tokens.iter().map(|token| vocab.get(&token.content).copied().unwrap_or_default()).collect();
        let route = Route::recognize(&document, &spelling, tokens)?;
        Ok(Self { pipeline, spelling, route, added_ids, allowance: Allowance::new(usize::MAX, 1) })
    }

    /// The same with so many bytes of memory for the documents that are processed at once. A document that needs more
    /// is refused, unless it is shorter than a megabyte.
    #[must_use]
    pub fn within(self, memory: usize) -> Self {
        let factor = if self.is_fast() { FAST_FACTOR } else { UPSTREAM_FACTOR };
        Self { allowance: Allowance::new(memory, factor), ..self }
    }

    /// The longest document that memory allows, in bytes.
    #[must_use]
    pub fn longest_document(&self) -> usize {
        self.allowance.longest()
    }

    /// The same with the fast routes closed, to compare with.
    #[must_use]
    pub fn through_upstream(self) -> Self {
        Self { route: Route::Upstream, ..self }
    }

    /// Whether the pipeline has a fast route.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        !matches!(self.route, Route::Upstream)
    }

    /// Finds the pretokens of a document, or of a part of one.
    ///
    /// `at_start` says whether the text begins a document. A document may be given in parts if it was cut where
    /// [`Pretokenizer::last_cut`] said.
    ///
    /// # Errors
    ///
    /// When the library's normalizer or pre-tokenizer fails, a byte-level pipeline gives what is not bytes, or the text
    /// needs more memory than is allowed.
    pub fn run(&self, text: &str, at_start: bool, sink: &mut impl Sink) -> Result<()> {
        let _taken = self.allowance.take(text.len())?;
        match &self.route {
            Route::Upstream => self.run_upstream(text, sink),
            Route::Scan { added, nfc, pattern } => {
                added.split(text, &mut |segment| match segment {
                    Segment::Added(place) => sink.added(self.added_ids[place]),
                    Segment::Text(text) => {
                        let text = if *nfc { to_nfc(text) } else { Cow::Borrowed(text) };
                        pattern.scan(&text, |bytes, at| sink.pretoken(bytes, at));
                    }
                });
                Ok(())
            }
            Route::Spaces { added, nfkc, prefix } => {
                let start = text.as_ptr();
                let mut spelled = String::new();
                added.split(text, &mut |segment| match segment {
                    Segment::Added(place) => sink.added(self.added_ids[place]),
                    Segment::Text(text) => {
                        let begins = text.as_ptr() == start;
                        let text = if *nfkc { to_nfkc(text) } else { Cow::Borrowed(text) };
                        spell_spaces(&text, *prefix, at_start && begins, begins, &mut spelled);
                        self.cut(&spelled, sink);
                    }
                });
                Ok(())
            }
        }
    }

    /// The last place where a document may be cut in two, or None where it must be given whole.
    #[must_use]
    pub fn last_cut(&self, text: &str) -> Option<usize> {
        match (&self.route, &self.spelling) {
            (Route::Scan { added, .. }, _) if added.allows_cuts() => Pattern::last_cut(text),
            (Route::Spaces { added, nfkc, .. }, Spelling::Text(Some(cutter))) if added.allows_cuts() => {
                let spaces = text.bytes().enumerate().rev().filter(|(_, byte)| *byte == b' ').map(|(at, _)| at);
                let mut cuts = spaces.filter(|&at| {
                    // After an added token a new stretch begins, which may get a `▁` of its own: no place for a cut.
                    // Nor after what normalization may change.
                    let stays = |left: char| left.is_ascii() || !nfkc;
                    let may_end = |left: char| !left.is_whitespace() && !added.ends_with(left) && stays(left);
                    let before = text[..at].chars().next_back();
                    before.is_some_and(|left| may_end(left) && cutter.cuts(left, SPACE))
                });
                cuts.next()
            }
            _ => None,
        }
    }

    fn cut(&self, text: &str, sink: &mut impl Sink) {
        match &self.spelling {
            Spelling::Text(Some(cutter)) => cutter.cut(text, |bytes, at| sink.pretoken(bytes, at)),
            _ => sink.pretoken(text.as_bytes(), 0..text.len()),
        }
    }

    fn run_upstream(&self, text: &str, sink: &mut impl Sink) -> Result<()> {
        let mut bytes = Vec::new();
        for piece in self.pipeline.pieces(text)? {
            match (piece, &self.spelling) {
                (Piece::Added(id), _) => sink.added(id),
                (Piece::Pretoken(string), _) if string.is_empty() => (),
                (Piece::Pretoken(string), Spelling::Text(_)) => self.cut(&string, sink),
                (Piece::Pretoken(string), Spelling::ByteLevel) => {
                    bytes.clear();
                    for character in string.chars() {
                        bytes.push(byte_of(character).ok_or(Error::NotByteLevel { character })?);
                    }
                    sink.pretoken(&bytes, 0..bytes.len());
                }
            }
        }
        Ok(())
    }
}

impl Route {
    fn recognize(document: &Value, spelling: &Spelling, tokens: Vec<AddedToken>) -> Result<Self> {
        let (normalizer, pre_tokenizer) = (&document["normalizer"], &document["pre_tokenizer"]);
        let normalized_tokens = tokens.iter().any(|token| token.normalized);
        let Some(added) = Splitter::new(tokens)? else { return Ok(Self::Upstream) };
        if matches!(spelling, Spelling::ByteLevel) {
            let nfc = normalizer["type"] == "NFC";
            let plain = normalizer.is_null() || nfc && !normalized_tokens;
            return Ok(match Pattern::recognize(pre_tokenizer) {
                Some(pattern) if plain => Self::Scan { added, nfc, pattern },
                _ => Self::Upstream,
            });
        }
        let (nfkc, normalizer) = without_nfkc(normalizer);
        Ok(match prefix_rule(normalizer, pre_tokenizer) {
            Some(prefix) if !normalized_tokens => Self::Spaces { added, nfkc, prefix },
            _ => Self::Upstream,
        })
    }
}

/// Whether a normalizer begins with NFKC, and what of it follows.
fn without_nfkc(normalizer: &Value) -> (bool, &Value) {
    match normalizer["normalizers"].as_array().map(Vec::as_slice) {
        Some([first, rest]) if first["type"] == "NFKC" => (true, rest),
        Some([first]) if first["type"] == "NFKC" => (true, &Value::Null),
        _ => (false, normalizer),
    }
}

/// The rule of a pipeline that turns spaces into `▁` and does nothing else.
fn prefix_rule(normalizer: &Value, pre_tokenizer: &Value) -> Option<Prefix> {
    let is_space = |step: &Value| {
        step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == SPACE.to_string()
    };
    let is_prefix = |step: &Value| step["type"] == "Prepend" && step["prepend"] == SPACE.to_string();
    // Gemma's pre-tokenizer splits at spaces, of which its normalizer leaves none.
    let splits_at_space = pre_tokenizer["type"] == "Split" && pre_tokenizer["pattern"]["String"] == " ";
    if normalizer.is_null() {
        let plain = pre_tokenizer["type"] == "Metaspace"
            && pre_tokenizer["replacement"] == SPACE.to_string()
            && pre_tokenizer["split"] == false;
        return match pre_tokenizer["prepend_scheme"].as_str() {
            Some("always") if plain => Some(Prefix::Missing),
            Some("first") if plain => Some(Prefix::MissingAtStart),
            Some("never") if plain => Some(Prefix::Never),
            _ => None,
        };
    }
    if !(pre_tokenizer.is_null() || splits_at_space) {
        return None;
    }
    match normalizer["normalizers"].as_array().map(Vec::as_slice) {
        None if is_space(normalizer) => Some(Prefix::Never),
        Some([step]) if is_space(step) => Some(Prefix::Never),
        Some([first, second]) if is_prefix(first) && is_space(second) => Some(Prefix::Always),
        _ => None,
    }
}

/// A stretch of text with `▁` for spaces. `at_start`: it begins the document; `begins`: it begins the part given.
fn spell_spaces(text: &str, prefix: Prefix, at_start: bool, begins: bool, spelled: &mut String) {
    // A stretch that begins a later part of a document goes on with the stretch before the cut.
    let goes_on = begins && !at_start;
    let has_one = text.starts_with([' ', SPACE]);
    let wanted = match prefix {
        Prefix::Never => false,
        Prefix::Always => !goes_on,
        Prefix::Missing => !goes_on && !has_one,
        Prefix::MissingAtStart => at_start && !has_one,
    };
    spelled.clear();
    spelled.reserve(text.len() + text.len() / 2);
    if wanted {
        spelled.push(SPACE);
    }
    for (place, word) in text.split(' ').enumerate() {
        if place > 0 {
            spelled.push(SPACE);
        }
        spelled.push_str(word);
    }
}

fn to_nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || matches!(is_nfc_quick(text.chars()), IsNormalized::Yes) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().map(|(character, _)| character).collect())
    }
}

fn to_nfkc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || matches!(is_nfkc_quick(text.chars()), IsNormalized::Yes) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfkc().map(|(character, _)| character).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skeleton(normalizer: &str, pre_tokenizer: &str) -> String {
        format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": {normalizer},
                "added_tokens": [{{"id": 7, "content": "<s>", "single_word": false, "lstrip": false,
                                   "rstrip": false, "normalized": false, "special": true}}],
                "pre_tokenizer": {pre_tokenizer}, "post_processor": null, "decoder": null,
                "model": {{"type": "BPE", "vocab": {{"<s>": 7}}, "merges": []}}}}"#
        )
    }

    const BYTE_LEVEL: &str =
        r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}"#;

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
    fn the_alphabet_is_that_of_the_library() {
        let pipeline = Pipeline::from_json(&skeleton("null", BYTE_LEVEL)).unwrap();
        for character in '\0'..='\u{7ff}' {
            let text = character.to_string();
            let Piece::Pretoken(spelled) = &pipeline.pieces(&text).unwrap()[0] else { panic!("{text:?}") };
            let bytes: Option<Vec<u8>> = spelled.chars().map(byte_of).collect();
            assert_eq!(bytes.unwrap(), text.as_bytes());
        }
    }

    #[derive(Default)]
    struct Found(Vec<String>);

    impl Sink for Found {
        fn pretoken(&mut self, bytes: &[u8], at: Range<usize>) {
            self.0.push(String::from_utf8_lossy(&bytes[at]).into_owned());
        }
        fn added(&mut self, id: u32) {
            self.0.push(format!("#{id}"));
        }
    }

    fn found(pretokenizer: &Pretokenizer, text: &str) -> Vec<String> {
        let mut sink = Found::default();
        pretokenizer.run(text, true, &mut sink).unwrap();
        sink.0
    }

    const SPACES: &str = r#"{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}"#;
    const TEXTS: [&str; 9] =
        ["", " ", "a", " a  b ", "<s>", "<s> a<s>b", "a <s>  <s> b", "o\u{303}\u{323} e\u{301} 각", "▁a ▁ b\n c"];

    #[test]
    fn every_fast_route_equals_the_slow_one() {
        let legacy =
            format!(r#"{{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "▁"}}, {SPACES}]}}"#);
        let metaspace = |scheme: &str| {
            format!(r#"{{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "{scheme}", "split": false}}"#)
        };
        let split =
            r#"{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}"#;
        let text = || Spelling::Text(None);
        let pipelines = [
            (skeleton("null", BYTE_LEVEL), Spelling::ByteLevel),
            (skeleton(r#"{"type": "NFC"}"#, BYTE_LEVEL), Spelling::ByteLevel),
            (skeleton(&legacy, "null"), text()),
            (skeleton(SPACES, split), text()),
            (skeleton("null", &metaspace("always")), text()),
            (skeleton("null", &metaspace("first")), text()),
            (skeleton("null", &metaspace("never")), text()),
        ];
        for (json, spelling) in pipelines {
            let slow = match spelling {
                Spelling::ByteLevel => Spelling::ByteLevel,
                Spelling::Text(_) => text(),
            };
            let fast = Pretokenizer::new(&json, spelling).unwrap();
            let slow = Pretokenizer::new(&json, slow).unwrap().through_upstream();
            assert!(fast.is_fast() && !slow.is_fast());
            for text in TEXTS {
                assert_eq!(found(&fast, text), found(&slow, text), "{text:?} through {json}");
            }
        }
    }

    #[test]
    fn an_unknown_pipeline_goes_through_the_library() {
        let digits = r#"{"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}]}"#;
        assert!(!Pretokenizer::new(&skeleton("null", digits), Spelling::Text(None)).unwrap().is_fast());
    }
}
