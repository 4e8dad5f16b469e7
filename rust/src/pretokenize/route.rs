//! Recognizes pipelines that need not go through the library. A pipeline that differs in any setting is not recognized.

use serde_json::Value;

use super::added::{AddedToken, Splitter};
use super::automaton::Automata;
use super::normalize::Prefix;
use super::pieces::SPACE;
use super::pipeline::Pipeline;
use super::pretokenizer::Spelling;
use super::scan::Pattern;
use crate::error::Result;

/// How the pretokens of a pipeline are computed.
pub(super) enum Route {
    /// Through the `tokenizers` crate: slow, and correct for every pipeline.
    Upstream(Box<Pipeline>),
    /// A known pattern after no normalization or NFC.
    Scan { added: Splitter, nfc: bool, pattern: Pattern },
    /// Spaces become `▁`, after no normalization or NFKC, with no other step.
    Spaces { added: Splitter, nfkc: bool, prefix: Prefix },
    /// Any other steps that automata can run.
    Automata { added: Splitter, automata: Box<Automata> },
}

impl Route {
    /// The fast route of a pipeline, if it has one.
    pub(super) fn recognize(
        normalizer: &Value,
        pre_tokenizer: &Value,
        spelling: &Spelling,
        tokens: Vec<AddedToken>,
    ) -> Result<Option<Self>> {
        let normalized_tokens = tokens.iter().any(|token| token.normalized);
        let Some(added) = Splitter::new(tokens)? else { return Ok(None) };
        if normalized_tokens && !has_no_steps(normalizer) {
            return Ok(None);
        }
        let byte_level = matches!(spelling, Spelling::ByteLevel);
        if byte_level {
            let nfc = normalizer["type"] == "NFC";
            if let Some(pattern) = Pattern::recognize(pre_tokenizer).filter(|_| nfc || has_no_steps(normalizer)) {
                return Ok(Some(Self::Scan { added, nfc, pattern }));
            }
        } else {
            let (nfkc, normalizer) = without_nfkc(normalizer);
            if let Some(prefix) = prefix_rule(normalizer, pre_tokenizer) {
                return Ok(Some(Self::Spaces { added, nfkc, prefix }));
            }
        }
        let automata = Automata::recognize(normalizer, pre_tokenizer, byte_level);
        Ok(automata.map(|automata| Self::Automata { added, automata: Box::new(automata) }))
    }
}

/// Whether a normalizer changes nothing.
pub(super) fn has_no_steps(normalizer: &Value) -> bool {
    normalizer.is_null() || normalizer["normalizers"].as_array().is_some_and(Vec::is_empty)
}

/// Whether a normalizer begins with NFKC, and its other steps.
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
    // Gemma's pre-tokenizer splits at spaces, but its normalizer has replaced them all.
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
