//! Blocks of a corpus to documents: the only place that decides what a document is. Does not read files.
//!
//! Counting and every other reader of text use [`Block::documents`], so they agree on each document.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};

use crate::error::{Error, Result};

/// A block of a corpus.
#[derive(Debug, Clone, Copy)]
pub enum Block<'b> {
    /// A document, or a part of one that was cut where [`crate::Pretokenizer::last_cut`] said.
    Text {
        /// The text, which need not be UTF-8.
        bytes: &'b [u8],
        /// Whether it begins a document.
        at_start: bool,
        /// Where each of its pieces that may be held out begins, and at last where the last one ends, as
        /// [`crate::Counter::piece_ends`] says: little-endian 64-bit numbers. Empty if nothing of it may be.
        pieces: &'b [u8],
    },
    /// One document per line. A line ends with `\n` or `\r\n`; lines of white space alone are no documents.
    Lines(&'b [u8]),
    /// Documents one after the other, empty ones included.
    Documents {
        /// The texts.
        bytes: &'b [u8],
        /// Where each begins, and at last where the last one ends: little-endian 64-bit numbers.
        offsets: &'b [u8],
        /// The places, ascending from 0, of documents that are null: little-endian 64-bit numbers.
        nulls: &'b [u8],
    },
    /// One JSON object per line, with the document in one field. Lines of white space alone are left out.
    JsonLines {
        /// The lines.
        bytes: &'b [u8],
        /// The field that has the text.
        field: &'b str,
    },
}

/// A document of a block, or the part of one that the block has.
#[derive(Debug, PartialEq, Eq)]
pub struct Document<'b> {
    /// The text.
    pub text: Cow<'b, str>,
    /// How many parts of it were not UTF-8, or were half a surrogate pair; each is one U+FFFD in the text.
    pub replaced: u64,
}

/// The documents of a block in order, each as text or as the error that says why it cannot be read.
pub type Documents<'b> = Box<dyn Iterator<Item = Result<Document<'b>>> + 'b>;

impl<'b> Block<'b> {
    /// The documents in the block, or the pieces of one.
    ///
    /// # Errors
    ///
    /// When a document lies outside the block.
    pub fn documents(self) -> Result<Documents<'b>> {
        Ok(match self {
            Self::Text { bytes, pieces: &[], .. } => Box::new(std::iter::once(Ok(Document::of_bytes(bytes)))),
            Self::Text { bytes, pieces, .. } => rows(bytes, pieces, &[])?,
            Self::Lines(bytes) => match simdutf8::basic::from_utf8(bytes) {
                Ok(text) => Box::new(text_lines(text).map(|line| Ok(Document { text: line.into(), replaced: 0 }))),
                Err(_) => Box::new(lines(bytes).map(|(_, line)| Ok(Document::of_bytes(line)))),
            },
            Self::Documents { bytes, offsets, nulls } => rows(bytes, offsets, nulls)?,
            Self::JsonLines { bytes, field } => Box::new(lines(bytes).map(move |(line, json)| {
                let (text, replaced) = json_field(json, field).map_err(|reason| Error::BadLine { line, reason })?;
                Ok(Document { text: Cow::Owned(text), replaced })
            })),
        })
    }

    /// Whether the document or piece at a place in the block is the beginning of a document.
    pub(crate) fn at_start(&self, place: usize) -> bool {
        match self {
            Self::Text { at_start, .. } => *at_start && place == 0,
            _ => true,
        }
    }

    /// Whether it is a document or a part of one, not several documents.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text { .. })
    }

    /// Whether its documents, or pieces of them, may be held out.
    pub(crate) fn may_be_held_out(&self) -> bool {
        !matches!(self, Self::Text { pieces: &[], .. })
    }
}

impl<'b> Document<'b> {
    fn of_bytes(bytes: &'b [u8]) -> Self {
        let (text, replaced) = decode(bytes);
        Self { text, replaced }
    }
}

fn rows<'b>(bytes: &'b [u8], offsets: &[u8], nulls: &[u8]) -> Result<Documents<'b>> {
    let offsets: Vec<usize> = words(offsets).map(|word| usize::try_from(word).unwrap_or(usize::MAX)).collect();
    let row = |pair: &[usize]| bytes.get(pair[0]..pair[1]);
    let rows: Option<Vec<_>> = offsets.windows(2).map(row).collect();
    let rows = rows.ok_or(Error::BadCounts { reason: "a document lies outside its block" })?;
    let mut nulls = words(nulls).collect::<Vec<_>>().into_iter().peekable();
    Ok(Box::new((0..).zip(rows).map(move |(place, row)| match nulls.next_if_eq(&place) {
        Some(_) => Err(Error::BadRow { row: place + 1, reason: "the text is null" }),
        None => Ok(Document::of_bytes(row)),
    })))
}

/// Little-endian 64-bit numbers.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(u64::MAX, u64::from_le_bytes))
}

/// Text of bytes, each part that is not UTF-8 replaced by U+FFFD, and how many were replaced.
fn decode(bytes: &[u8]) -> (Cow<'_, str>, u64) {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), 0),
        Err(_) => {
            let replaced = bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
            (String::from_utf8_lossy(bytes), replaced as u64)
        }
    }
}

/// The lines of a block, without their ends, counted from 1; those of ASCII white space alone are left out.
fn lines(block: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = block.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (1..).zip(lines).filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// The same lines of a block that is text: it is checked once, not line by line.
fn text_lines(block: &str) -> impl Iterator<Item = &str> {
    let lines = block.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    lines.filter(|line| !line.as_bytes().trim_ascii().is_empty())
}

/// The string in a field of the JSON object on a line, or what is wrong; and how many characters were replaced.
///
/// Half surrogate pairs, which are common in web corpora and not allowed in JSON, become U+FFFD as bytes that are not
/// UTF-8 do.
fn json_field(line: &[u8], field: &str) -> std::result::Result<(String, u64), String> {
    let (line, mut replaced) = decode(line);
    let parse = |line: &str| {
        let mut reader = serde_json::Deserializer::from_str(line);
        let text = Field(field).deserialize(&mut reader)?;
        reader.end().map(|()| text)
    };
    let text = parse(&line).or_else(|error| {
        let (repaired, halves) = without_half_surrogates(&line);
        replaced += halves;
        if halves > 0 {
            parse(&repaired)
        } else {
            Err(error)
        }
    });
    match text {
        Ok(text) => Ok((text, replaced)),
        Err(error) if error.is_data() => Err(error.to_string().split(" at line").next().unwrap_or_default().into()),
        Err(error) => Err(format!("not a JSON object: {error}").replace(" at line 1 column", " at character")),
    }
}

/// A JSON text with `\ud800` and the like, where it is no half of a pair, written as `\ufffd`; and how many there were.
fn without_half_surrogates(json: &str) -> (String, u64) {
    let mut repaired = String::with_capacity(json.len());
    let (mut rest, mut halves) = (json, 0);
    while let Some(at) = rest.find('\\') {
        repaired.push_str(&rest[..at]);
        rest = &rest[at..];
        let unit = |from: usize| {
            let digits = rest.get(from..from + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok()
        };
        let length = match (unit(0), unit(6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => 0,
            (Some(_), _) => 6,
            (None, _) => rest.len().min(2),
        };
        if length == 0 {
            repaired.push_str("\\ufffd");
            halves += 1;
            rest = &rest[6..];
        } else {
            let length = (length..=rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
            repaired.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    repaired.push_str(rest);
    (repaired, halves)
}

/// Reads one field of an object and skips the others.
struct Field<'f>(&'f str);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = String;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> std::result::Result<String, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = String;

    fn expecting(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(form, "an object with a string in `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<String, A::Error> {
        let mut text = None;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == self.0 {
                text = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        text.ok_or_else(|| serde::de::Error::custom(format!("the object has no field `{}`", self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_utf8_is_replaced_and_counted() {
        assert_eq!(decode(b"a\xffb\xc3"), (Cow::Borrowed("a\u{fffd}b\u{fffd}"), 2));
        assert_eq!(decode("õ".as_bytes()).1, 0);
    }

    #[test]
    fn lines_lose_their_ends_and_blank_ones_are_left_out() {
        let documents: Vec<_> = lines(b"a\r\n\n b \n \t\r\nc\rd").collect();
        assert_eq!(documents, [(1, &b"a"[..]), (3, b" b "), (5, b"c\rd")]);
    }

    #[test]
    fn lines_of_text_are_those_of_bytes() {
        let pieces = ["a", "õ", " ", "\t", "\r", "\n", "\n", "\u{a0}", "\u{85}", "\u{2028}", "\x0c", "\x0b"];
        let mut state = 11u64;
        for _ in 0..20_000 {
            let text: String = (0..12)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    pieces[(state >> 33) as usize % pieces.len()]
                })
                .collect();
            let expected: Vec<&[u8]> = lines(text.as_bytes()).map(|(_, line)| line).collect();
            assert_eq!(text_lines(&text).map(str::as_bytes).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    fn texts(block: Block<'_>) -> Vec<Result<String>> {
        block.documents().unwrap().map(|result| result.map(|document| document.text.into_owned())).collect()
    }

    fn numbers<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn blocks_of_every_form_have_the_same_documents() {
        let expected = [Ok("a 1".into()), Ok("b\u{fffd}".into())];
        let offsets = numbers([0, 3, 5]);
        let json = b"\r\n{\"t\": \"a 1\"}\r\n \n{\"t\": \"b\xff\"}";
        assert_eq!(texts(Block::Lines(b"a 1\r\n \r\nb\xff\n")), expected);
        assert_eq!(texts(Block::Documents { bytes: b"a 1b\xff", offsets: &offsets, nulls: &[] }), expected);
        assert_eq!(texts(Block::JsonLines { bytes: json, field: "t" }), expected);
        let text = Block::Text { bytes: b"a\r\n\xff", at_start: true, pieces: &[] };
        assert_eq!(texts(text), [Ok("a\r\n\u{fffd}".into())]);
    }

    #[test]
    fn a_bad_document_is_an_error_with_its_place_and_those_after_it_are_read() {
        let bad = texts(Block::JsonLines { bytes: b"\n{\"t\": null}\n{\"t\": \"a\"}", field: "t" });
        assert!(matches!(bad[..], [Err(Error::BadLine { line: 2, .. }), Ok(_)]), "{bad:?}");
        let (offsets, nulls) = (numbers([0, 0, 0, 1]), numbers([1]));
        let bad = texts(Block::Documents { bytes: b"a", offsets: &offsets, nulls: &nulls });
        assert!(matches!(bad[..], [Ok(_), Err(Error::BadRow { row: 2, .. }), Ok(_)]), "{bad:?}");
        let outside = Block::Documents { bytes: b"a", offsets: &numbers([0, 2]), nulls: &[] };
        assert!(matches!(outside.documents().map(|_| ()), Err(Error::BadCounts { .. })));
    }

    #[test]
    fn one_field_is_read_at_any_position() {
        let line = r#"{"n": [1, {"text": "no"}], "text": "a\n\u00f5\ud83d\ude42", "z": null}"#;
        assert_eq!(json_field(line.as_bytes(), "text"), Ok(("a\nõ🙂".into(), 0)));
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_counted() {
        let line = r#"{"text": "a\ud83d \ude42 \\ud83d \ud83d\ude42õ"}"#;
        assert_eq!(json_field(line.as_bytes(), "text"), Ok(("a\u{fffd} \u{fffd} \\ud83d 🙂õ".into(), 2)));
    }

    #[test]
    fn the_error_says_what_is_wrong_with_a_line() {
        let problem = |line: &str| json_field(line.as_bytes(), "text").unwrap_err();
        assert_eq!(problem(r#"{"other": "x"}"#), "the object has no field `text`");
        assert!(problem(r#"{"text": 5}"#).contains("expected a string"), "{}", problem(r#"{"text": 5}"#));
        assert!(problem(r#"{"text": "x"#).starts_with("not a JSON object: EOF"));
        assert!(problem(r#"{"text": "x"} y"#).contains("trailing characters"));
        assert!(problem("[1]").contains("an object with a string in `text`"));
        assert!(problem(&"[".repeat(100_000)).contains("an object"));
    }
}
