//! Reads `model.vocab` and `model.merges` from the bytes of a `tokenizer.json`.
//!
//! The rest of the file is given back as JSON text with an empty vocabulary and no merges. In doubt, there is no result:
//! for a key of the file or the model that is escaped or listed twice, an id that is not a whole number, half of a
//! surrogate pair, a merge that names no token.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::Deserialize;
use serde_json::from_str;
use serde_json::value::RawValue;

use crate::bpe::{TokenList, Tokens, Vocabulary};

/// The parts of a file.
#[derive(Debug)]
pub(crate) struct Read {
    /// The file without the content of its vocabulary and merges.
    pub(crate) rest: Vec<u8>,
    /// Whether merges are listed as `"a b"` rather than as pairs.
    pub(crate) merges_as_text: bool,
    pub(crate) vocabulary: Vocabulary,
}

/// The parts of a `tokenizer.json`; None in doubt.
pub(crate) fn read(raw: &[u8]) -> Option<Read> {
    let text = simdutf8::basic::from_utf8(raw).ok()?;
    let file: Members<&str, &RawValue> = from_str(text).ok()?;
    let model: Members<&str, &RawValue> = from_str(file.only("model")?).ok()?;
    let (vocab, merges) = (model.only("vocab")?, model.only("merges")?);
    let mut list = TokenList::default();
    from_str::<Members<Text<'_>, u32>>(vocab).ok()?.0.iter().for_each(|(string, id)| list.push(&string.0, *id));
    let tokens = list.tokens().ok().filter(|tokens| tokens.len() > 0)?;
    let listed = from_str::<Vec<(Text<'_>, Text<'_>)>>(merges);
    let merges_as_text = listed.is_err();
    let pairs: Option<Vec<(u32, u32)>> = match listed {
        Ok(pairs) => {
            pairs.iter().map(|(left, right)| Some((tokens.index(&left.0)?, tokens.index(&right.0)?))).collect()
        }
        Err(_) => from_str::<Vec<Text<'_>>>(merges).ok()?.iter().map(|text| text_pair(&text.0, &tokens)).collect(),
    };
    let (vocab, merges) = (span(text, vocab), span(text, merges));
    let rest = match vocab.start < merges.start {
        true => [&text[..vocab.start], "{}", &text[vocab.end..merges.start], "[]", &text[merges.end..]],
        false => [&text[..merges.start], "[]", &text[merges.end..vocab.start], "{}", &text[vocab.end..]],
    };
    let rest = rest.concat().into_bytes();
    Some(Read { rest, merges_as_text, vocabulary: Vocabulary::new(tokens, pairs?) })
}

/// A merge as text: two tokens with one space between them. Loaders skip what begins like a comment.
fn text_pair(text: &str, tokens: &Tokens) -> Option<(u32, u32)> {
    let (left, right) = text.split_once(' ')?;
    let is_plain = !right.contains(' ') && !text.starts_with("#version");
    is_plain.then_some((tokens.index(left)?, tokens.index(right)?))
}

/// Where a part of a text is.
fn span(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// A string that is copied only if it has escapes: serde copies those of a list or an object without this attribute.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The members of an object, in order.
struct Members<K, V>(Vec<(K, V)>);

impl<'a> Members<&str, &'a RawValue> {
    /// The text of the value of a key that is listed once.
    fn only(&self, key: &str) -> Option<&'a str> {
        let mut values = self.0.iter().filter(|member| member.0 == key);
        values.next().filter(|_| values.next().is_none()).map(|member| member.1.get())
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Members<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor(PhantomData))
    }
}

struct MembersVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for MembersVisitor<K, V> {
    type Value = Members<K, V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"a": 1, "model": {"type": "BPE", "vocab": {"b": 2, "\u0061": 0, "ab": 7},
        "x": [], "merges": [["a", "b"]]}, "z": "}"}"#;

    #[test]
    fn a_file_is_split_into_its_parts() {
        let parts = read(FILE.as_bytes()).unwrap();
        let tokens = &parts.vocabulary.tokens;
        assert_eq!(tokens.listed().map(|token| tokens.string(token)).collect::<Vec<_>>(), ["b", "a", "ab"]);
        assert_eq!(tokens.ids(), [0, 2, 7]);
        assert_eq!((parts.vocabulary.merges, parts.vocabulary.products), (vec![(0, 1)], vec![2]));
        let rest: serde_json::Value = serde_json::from_slice(&parts.rest).unwrap();
        assert_eq!(rest["model"], serde_json::json!({"type": "BPE", "vocab": {}, "x": [], "merges": []}));
        assert_eq!((&rest["a"], &rest["z"], parts.merges_as_text), (&1.into(), &"}".into(), false));
    }

    #[test]
    fn merges_may_stand_before_the_vocabulary_and_be_text() {
        let file = r#" {"model": {"merges": ["a b" , "ab \u0061"], "vocab": {"a": 0, "b": 1, "ab": 2}}} "#;
        let parts = read(file.as_bytes()).unwrap();
        assert_eq!(parts.vocabulary.merges, [(0, 1), (2, 0)]);
        assert_eq!(parts.vocabulary.products, [2, u32::MAX]);
        assert!(parts.merges_as_text);
        assert_eq!(parts.rest, br#" {"model": {"merges": [], "vocab": {}}} "#);
    }

    #[test]
    fn what_is_in_doubt_is_not_read() {
        let changes = [
            (r#""b": 2"#, r#""b": 2.0"#),
            (r#""b": 2"#, r#""b": 0"#),
            (r#""b": 2"#, r#""a": 2"#),
            (r#""b": 2"#, r#""\ud800": 2"#),
            (r#"["a", "b"]"#, r#"["a", "c"]"#),
            (r#"["a", "b"]"#, r#"["a"]"#),
            (r#"["a", "b"]"#, r#"["a", "b", "a"]"#),
            (r#"["a", "b"]"#, r#"["a", "b"],"#),
            (r#"["a", "b"]"#, r#"["a", "b"], "a b""#),
            (r#"["a", "b"]"#, "null"),
            (r#""x""#, r#""vocab""#),
            (r#""x""#, r#""voc\u0061b""#),
            (r#""a": 1"#, r#""model": 1"#),
            (r#""a": 1"#, r#""\n": 1"#),
            (r#""model""#, r#""modell""#),
            (r#""merges""#, r#""merge""#),
            ("{\"a\"", "[\"a\""),
            (r#""z": "}"}"#, r#""z": "}""#),
            (r#""z": "}"}"#, r#""z": "}"}}"#),
            (r#""x": [],"#, r#""x": [,"#),
            ("\"a\": 1", "\"a\" 1"),
            ("\"a\": 1", "\u{feff}\"a\": 1"),
        ];
        for (part, instead) in changes {
            let file = FILE.replacen(part, instead, 1);
            assert_ne!(file, FILE, "{part}");
            assert!(read(file.as_bytes()).is_none(), "{file}");
        }
        assert!(read(&[FILE.as_bytes(), b"\xff"].concat()).is_none());
    }
}
