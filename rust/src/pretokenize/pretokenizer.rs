//! Pretokens of text as bytes, by a fast route where the pipeline is known, else through the library.
//! What is done with pretokens is up to the [`Sink`].

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::added::{AddedToken, Segment};
use super::automaton::Start;
use super::cut::Cutter;
use super::normalize::{normalized, spell_spaces, Form};
use super::pieces::SPACE;
use super::pipeline::{Piece, Pipeline};
use super::route::Route;
use super::scan::Pattern;
use crate::bpe::byte_of;
use crate::error::{Error, Result};
use crate::guard::{guarded, is_guarded};

/// Receives the pretokens and added tokens of a [`Pretokenizer`].
pub trait Sink {
    /// A pretoken, as a range of bytes: its bytes if the vocabulary is byte-level, else its text. Never empty. The
    /// surrounding bytes are passed because reading a fixed number of them is faster than reading only the range.
    fn pretoken(&mut self, bytes: &[u8], at: Range<usize>);
    /// A pretoken that consists of a prefix and a range of bytes.
    fn prefixed(&mut self, prefix: &str, bytes: &[u8], at: Range<usize>) {
        let joined = [prefix.as_bytes(), &bytes[at]].concat();
        self.pretoken(&joined, 0..joined.len());
    }
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

/// What decides the route, of a `tokenizer.json` whose vocabulary holds the added tokens alone.
#[derive(Deserialize)]
struct Skeleton {
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    vocab: FxHashMap<String, u32>,
}

/// Gives the pretokens of text, by a fast route where the pipeline is known.
pub struct Pretokenizer {
    spelling: Spelling,
    route: Route,
    added_ids: Vec<u32>,
}

/// Bytes of memory that a byte of a document needs in the `tokenizers` crate, which keeps the place of every character
/// before and after normalization. Measured: 72 for DeepSeek-V3 on Estonian, English and Japanese.
const UPSTREAM_FACTOR: usize = 80;
/// The same on the fast routes, reading and writing included, for a document that is one pretoken. Measured: 9, and 26
/// where the document has only spaces and each becomes `▁`, which has three bytes.
const FAST_FACTOR: usize = 10;

impl Pretokenizer {
    /// The pretokenizer of a pipeline as [`Pipeline::from_json`] reads it.
    ///
    /// # Errors
    ///
    /// When the pipeline has no fast route and the library cannot read it.
    pub fn new(skeleton: &str, spelling: Spelling) -> Result<Self> {
        let Ok(read) = serde_json::from_str::<Skeleton>(skeleton) else {
            return Self::through_upstream(skeleton, spelling); // the library says what is wrong
        };
        let id_of = |token: &AddedToken| read.model.vocab.get(&token.content).copied().unwrap_or_default();
        let added_ids = read.added_tokens.iter().map(id_of).collect();
        match Route::recognize(&read.normalizer, &read.pre_tokenizer, &spelling, read.added_tokens)? {
            Some(route) => Ok(Self { spelling, route, added_ids }),
            None => Self::through_upstream(skeleton, spelling),
        }
    }

    /// The same through the library, whatever the pipeline.
    ///
    /// # Errors
    ///
    /// When the library cannot read the pipeline.
    pub fn through_upstream(skeleton: &str, spelling: Spelling) -> Result<Self> {
        let route = Route::Upstream(Box::new(Pipeline::from_json(skeleton)?));
        Ok(Self { spelling, route, added_ids: Vec::new() })
    }

    /// Bytes of memory that a byte of a document needs while it is processed.
    #[must_use]
    pub fn memory_factor(&self) -> usize {
        match &self.route {
            Route::Upstream(_) => UPSTREAM_FACTOR,
            Route::Scan { .. } => FAST_FACTOR,
            Route::Spaces { .. } => FAST_FACTOR * SPACE.len_utf8(),
            Route::Automata { automata, .. } => (FAST_FACTOR * automata.growth()).min(UPSTREAM_FACTOR),
        }
    }

    /// What computes the pretokens.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self.route {
            Route::Scan { .. } | Route::Spaces { .. } => "hand-written scanner",
            Route::Automata { .. } => "automata",
            Route::Upstream(_) => "tokenizers crate",
        }
    }

    /// Whether the pipeline has a fast route.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        !matches!(self.route, Route::Upstream(_))
    }

    /// Passes the pretokens of a document, or of a part of one, to `sink`.
    ///
    /// `at_start` says whether the text begins a document. A document may be given in parts if it was cut where
    /// [`Pretokenizer::last_cut`] said.
    ///
    /// # Errors
    ///
    /// When the library's normalizer or pre-tokenizer fails, or a byte-level pipeline gives a character that stands for
    /// no byte.
    pub fn run(&self, text: &str, at_start: bool, sink: &mut impl Sink) -> Result<()> {
        match &self.route {
            Route::Upstream(pipeline) => self.run_upstream(pipeline, text, sink),
            Route::Scan { added, nfc, pattern } => {
                added.split(text, &mut |segment| match segment {
                    Segment::Added(place) => sink.added(self.added_ids[place]),
                    Segment::Text(text) => {
                        let text = if *nfc { normalized(text, Form::Nfc) } else { Cow::Borrowed(text) };
                        pattern.scan(&text, |bytes, at| sink.pretoken(bytes, at));
                    }
                });
                Ok(())
            }
            Route::Spaces { added, nfkc, prefix } => {
                let start = text.as_ptr();
                let mut spelled = Vec::new();
                added.split(text, &mut |segment| match segment {
                    Segment::Added(place) => sink.added(self.added_ids[place]),
                    Segment::Text(text) => {
                        let begins = text.as_ptr() == start;
                        let text = if *nfkc { normalized(text, Form::Nfkc) } else { Cow::Borrowed(text) };
                        spell_spaces(&text, *prefix, at_start && begins, begins, &mut spelled);
                        if let Ok(text) = simdutf8::basic::from_utf8(&spelled) {
                            self.cut(text, sink); // always: it is text with `▁` for spaces
                        }
                    }
                });
                Ok(())
            }
            Route::Automata { automata, .. } if automata.may_panic() && !is_guarded() => {
                guarded(|| self.run(text, at_start, sink)).unwrap_or_else(|reason| Err(Error::Pretokenize { reason }))
            }
            Route::Automata { added, automata } => {
                let (first, mut joined) = (text.as_ptr(), String::new());
                added.split(text, &mut |segment| match segment {
                    Segment::Added(place) => sink.added(self.added_ids[place]),
                    Segment::Text(text) => {
                        let start = match text.as_ptr() == first {
                            true if at_start => Start::Document,
                            true => Start::Cut,
                            false => Start::Added,
                        };
                        automata.run(text, start, &mut |prefix, text, at| match &self.spelling {
                            Spelling::Text(Some(_)) if prefix.is_empty() => self.cut(&text[at], sink),
                            Spelling::Text(Some(_)) => {
                                joined.clear();
                                joined.extend([prefix, &text[at]]);
                                self.cut(&joined, sink);
                            }
                            _ if prefix.is_empty() => sink.pretoken(text.as_bytes(), at),
                            _ => sink.prefixed(prefix, text.as_bytes(), at),
                        });
                    }
                });
                Ok(())
            }
        }
    }

    /// The last place where a document may be cut in two, or None if it must be given whole.
    #[must_use]
    pub fn last_cut(&self, text: &str) -> Option<usize> {
        match (&self.route, &self.spelling) {
            (Route::Scan { added, .. }, _) if added.allows_cuts() => Pattern::last_cut(text),
            (Route::Spaces { added, nfkc, .. }, Spelling::Text(Some(cutter))) if added.allows_cuts() => {
                let spaces = text.bytes().enumerate().rev().filter(|(_, byte)| *byte == b' ').map(|(at, _)| at);
                let mut cuts = spaces.filter(|&at| {
                    // No cut after an added token: the text after it may get a `▁` of its own. No cut after a character
                    // that normalization may change.
                    let is_unchanged = |left: char| left.is_ascii() || !nfkc;
                    let may_end = |left: char| !left.is_whitespace() && !added.ends_with(left) && is_unchanged(left);
                    let before = text[..at].chars().next_back();
                    before.is_some_and(|left| may_end(left) && cutter.cuts(left, SPACE))
                });
                cuts.next()
            }
            (Route::Automata { added, automata }, spelling) if added.allows_cuts() => {
                let inside = |left, right| match spelling {
                    Spelling::Text(Some(cutter)) => cutter.cuts(left, right),
                    _ => false,
                };
                let may_end = |left: char| !(left.is_whitespace() || automata.changes_start() && added.ends_with(left));
                let spaces = text.bytes().enumerate().rev().filter(|(_, byte)| matches!(byte, b' ' | b'\n'));
                spaces.map(|(at, byte)| (at, char::from(byte))).find_map(|(at, right)| {
                    let left = text[..at].chars().next_back().filter(|&left| may_end(left))?;
                    let stays = automata.stays_before(right, text[at + 1..].chars().next());
                    (stays && automata.may_cut(left, right, inside)).then_some(at)
                })
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

    fn run_upstream(&self, pipeline: &Pipeline, text: &str, sink: &mut impl Sink) -> Result<()> {
        let mut bytes = Vec::new();
        for piece in pipeline.pieces(text)? {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::pretokenize) fn skeleton(normalizer: &str, pre_tokenizer: &str) -> String {
        format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": {normalizer},
                "added_tokens": [{{"id": 7, "content": "<s>", "single_word": false, "lstrip": false,
                                   "rstrip": false, "normalized": false, "special": true}}],
                "pre_tokenizer": {pre_tokenizer}, "post_processor": null, "decoder": null,
                "model": {{"type": "BPE", "vocab": {{"<s>": 7}}, "merges": []}}}}"#
        )
    }

    pub(in crate::pretokenize) const BYTE_LEVEL: &str =
        r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}"#;

    #[derive(Default)]
    struct Collected(Vec<String>);

    impl Sink for Collected {
        fn pretoken(&mut self, bytes: &[u8], at: Range<usize>) {
            self.0.push(String::from_utf8_lossy(&bytes[at]).into_owned());
        }
        fn added(&mut self, id: u32) {
            self.0.push(format!("#{id}"));
        }
    }

    fn pretokens(pretokenizer: &Pretokenizer, text: &str) -> Vec<String> {
        let mut sink = Collected::default();
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
            let slow = Pretokenizer::through_upstream(&json, slow).unwrap();
            assert!(fast.is_fast() && !slow.is_fast());
            for text in TEXTS {
                assert_eq!(pretokens(&fast, text), pretokens(&slow, text), "{text:?} through {json}");
            }
        }
    }

    #[test]
    fn an_unrecognized_pipeline_runs_through_the_library() {
        let behind = r#"{"type": "Split", "pattern": {"Regex": "(?<=a) "}, "behavior": "Isolated", "invert": false}"#;
        let unknown = Pretokenizer::new(&skeleton("null", behind), Spelling::Text(None)).unwrap();
        assert_eq!((unknown.engine(), unknown.is_fast(), unknown.memory_factor()), ("tokenizers crate", false, 80));
        assert_eq!(unknown.last_cut("a b a b"), None);
    }

    /// A pipeline for the automata: words with the space before them, and added tokens that strip white space.
    fn with_added_tokens(normalizer: &str) -> String {
        let split =
            r#"{"type": "Split", "pattern": {"Regex": " ?[^ \\n]+| +|\\n"}, "behavior": "Isolated", "invert": false}"#;
        let bytes = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}"#;
        let steps = format!(r#"{{"type": "Sequence", "pretokenizers": [{split}, {bytes}]}}"#);
        let token = |content: &str, lstrip: bool, normalized: bool| {
            format!(
                r#"{{"id": 8, "content": "{content}", "single_word": false, "lstrip": {lstrip}, "rstrip": false,
                    "normalized": {normalized}, "special": false}}, {{"id": 7,"#
            )
        };
        let normalized = normalizer == "null";
        skeleton(normalizer, &steps)
            .replacen(r#"{"id": 7,"#, &token("<l>", true, normalized), 1)
            .replace(r#"{"<s>": 7}"#, r#"{"<s>": 7, "<l>": 8}"#)
    }

    #[test]
    fn automata_find_added_tokens_and_cut_between_them_as_the_library() {
        let strip = r#"{"type": "Strip", "strip_left": true, "strip_right": true}"#;
        for normalizer in ["null", r#"{"type": "NFC"}"#, r#"{"type": "Prepend", "prepend": " x"}"#, strip] {
            let json = with_added_tokens(normalizer);
            let fast = Pretokenizer::new(&json, Spelling::ByteLevel).unwrap();
            let slow = Pretokenizer::through_upstream(&json, Spelling::ByteLevel).unwrap();
            assert_eq!((fast.engine(), fast.memory_factor()), ("automata", 10), "{json}");
            let (words, mut state, mut cuts) = (["a", " ", "<s>", "  <l>", "\n", "o\u{303}", " b", "<", "s>"], 7u64, 0);
            for _ in 0..20_000 {
                let mut text = String::new();
                for _ in 0..12 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    text.push_str(words[(state >> 33) as usize % words.len()]);
                }
                let whole = pretokens(&slow, &text);
                assert_eq!(pretokens(&fast, &text), whole, "{text:?} through {json}");
                if let Some(cut) = fast.last_cut(&text).filter(|&cut| cut > 0) {
                    let mut parts = Collected::default();
                    fast.run(&text[..cut], true, &mut parts).unwrap();
                    fast.run(&text[cut..], false, &mut parts).unwrap();
                    assert_eq!(parts.0, whole, "{text:?} cut at {cut} through {json}");
                    cuts += 1;
                }
            }
            assert!(cuts > 5_000, "{cuts}");
        }
    }
}
