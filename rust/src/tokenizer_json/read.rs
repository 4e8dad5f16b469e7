//! Reads `model.vocab` and `model.merges` in one pass over the bytes of a `tokenizer.json`.
//!
//! The rest of the file is not read here. It is given back as JSON text with an empty vocabulary and no merges, and the
//! file is valid where that text is. In doubt, there is no result: for a key that is escaped or listed twice, an id that
//! is not a whole number, half of a surrogate pair, a merge that names no token.

use std::ops::Range;

use super::scan::Scanner;
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
    let (vocab, merges) = model_spans(text)?;
    let tokens = read_vocab(&mut Scanner::new(text, vocab.start))?;
    let (merges_as_text, pairs) = read_merges(&mut Scanner::new(text, merges.start), &tokens)?;
    let rest = match vocab.start < merges.start {
        true => [&text[..vocab.start], "{}", &text[vocab.end..merges.start], "[]", &text[merges.end..]],
        false => [&text[..merges.start], "[]", &text[merges.end..vocab.start], "{}", &text[vocab.end..]],
    };
    Some(Read { rest: rest.concat().into_bytes(), merges_as_text, vocabulary: Vocabulary::new(tokens, pairs) })
}

/// Where the values of `model.vocab` and `model.merges` are.
fn model_spans(text: &str) -> Option<(Range<usize>, Range<usize>)> {
    let (mut scanner, mut model) = (Scanner::new(text, 0), None);
    members(&mut scanner, |scanner, key| {
        if key != "model" {
            return scanner.skip_value();
        }
        let (mut vocab, mut merges) = (None, None);
        members(scanner, |scanner, key| {
            scanner.next()?;
            let start = scanner.at;
            scanner.skip_value()?;
            match key {
                "vocab" => once(&mut vocab, start..scanner.at),
                "merges" => once(&mut merges, start..scanner.at),
                _ => Some(()),
            }
        })?;
        once(&mut model, (vocab?, merges?))
    })?;
    model.filter(|_| scanner.is_at_end())
}

/// Calls `member` at the value of each member of an object, with its key. None for a key with escapes.
fn members<'a>(
    scanner: &mut Scanner<'a>,
    mut member: impl FnMut(&mut Scanner<'a>, &'a str) -> Option<()>,
) -> Option<()> {
    scanner.take(b'{')?;
    scanner.elements(b'}', |scanner| {
        let (key, has_escapes) = scanner.raw_string()?;
        scanner.take(b':')?;
        member(scanner, key).filter(|()| !has_escapes)
    })
}

/// Sets a value; None if it was set before.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn read_vocab(scanner: &mut Scanner) -> Option<Tokens> {
    let mut list = TokenList::default();
    scanner.take(b'{')?;
    scanner.elements(b'}', |scanner| {
        list.push_string(|text| scanner.push_string(text))?;
        scanner.take(b':')?;
        list.push_id(scanner.number()?);
        Some(())
    })?;
    list.tokens().ok().filter(|tokens| tokens.len() > 0)
}

/// Whether merges are listed as text, and the pairs.
fn read_merges(scanner: &mut Scanner, tokens: &Tokens) -> Option<(bool, Vec<(u32, u32)>)> {
    let (mut pairs, mut buffer) = (Vec::new(), String::new());
    scanner.take(b'[')?;
    let as_text = scanner.next()? == b'"';
    scanner.elements(b']', |scanner| {
        let pair = match as_text {
            true => text_pair(scanner.string(&mut buffer)?, tokens),
            false => listed_pair(scanner, tokens, &mut buffer),
        };
        pairs.push(pair?);
        Some(())
    })?;
    Some((as_text, pairs))
}

/// A merge as text: two tokens with one space between them. Loaders skip what begins like a comment.
fn text_pair(text: &str, tokens: &Tokens) -> Option<(u32, u32)> {
    let (left, right) = text.split_once(' ')?;
    let is_plain = !right.contains(' ') && !text.starts_with("#version");
    is_plain.then_some((tokens.index(left)?, tokens.index(right)?))
}

fn listed_pair(scanner: &mut Scanner, tokens: &Tokens, buffer: &mut String) -> Option<(u32, u32)> {
    scanner.take(b'[')?;
    let left = tokens.index(scanner.string(buffer)?)?;
    scanner.take(b',')?;
    let right = tokens.index(scanner.string(buffer)?)?;
    scanner.take(b']')?;
    Some((left, right))
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
