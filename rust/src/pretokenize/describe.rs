//! A pipeline as plain data, for programs that run it without this library, such as a page in a browser.

use serde_json::{json, Value};

use super::added::{AddedToken, Splitter};
use super::automaton::Automata;
use super::route::has_no_steps;
use crate::error::{Error, Result};

/// The pipeline of a skeleton (see [`super::Pipeline::from_json`]) as JSON: its steps as automata. If it has no exact
/// description, the JSON has a `reason` instead.
///
/// # Errors
///
/// When the skeleton is not JSON.
pub fn describe(skeleton: &str, byte_level: bool) -> Result<String> {
    let document: Value =
        serde_json::from_str(skeleton).map_err(|error| Error::Pipeline { reason: error.to_string() })?;
    let tokens: Vec<AddedToken> = serde_json::from_value(document["added_tokens"].clone()).unwrap_or_default();
    let (normalizer, pre_tokenizer) = (&document["normalizer"], &document["pre_tokenizer"]);
    let normalized_tokens = tokens.iter().any(|token| token.normalized);
    let description = if Splitter::new(tokens)?.is_none() {
        json!({"reason": "an added token must be a whole word, or overlaps another one"})
    } else if normalized_tokens && !has_no_steps(normalizer) {
        json!({"reason": "an added token is searched for in normalized text"})
    } else {
        match Automata::recognize(normalizer, pre_tokenizer, byte_level).and_then(|automata| automata.describe()) {
            Some(description) => description,
            None => json!({"reason": "a step of the normalizer or pre-tokenizer has no exact translation"}),
        }
    };
    Ok(description.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenize::pretokenizer::tests::{skeleton, BYTE_LEVEL};

    #[test]
    fn a_pipeline_is_described_or_has_a_reason() {
        let described = describe(&skeleton("null", BYTE_LEVEL), true).unwrap();
        assert!(described.contains(r#""type":"split""#) && !described.contains("reason"));
        let nfc = describe(&skeleton(r#"{"type": "NFC"}"#, BYTE_LEVEL), true).unwrap();
        assert!(nfc.contains("compositions"));
        let behind = r#"{"type": "Split", "pattern": {"Regex": "(?<=a) "}, "behavior": "Isolated", "invert": false}"#;
        assert!(describe(&skeleton("null", behind), false).unwrap().contains("no exact translation"));
        let word = skeleton("null", BYTE_LEVEL).replace(r#""single_word": false"#, r#""single_word": true"#);
        assert!(describe(&word, true).unwrap().contains("whole word"));
        let normalized =
            skeleton(r#"{"type": "NFC"}"#, BYTE_LEVEL).replace(r#""normalized": false"#, r#""normalized": true"#);
        assert!(describe(&normalized, true).unwrap().contains("in normalized text"));
        assert!(describe("{", true).is_err());
    }
}
