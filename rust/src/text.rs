//! Blocks of corpus files to texts: decoding, lines, and one field of JSON lines.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};

/// Text of bytes, each stretch that is not UTF-8 replaced by U+FFFD, and how many were.
pub(crate) fn decode(bytes: &[u8]) -> (Cow<'_, str>, u64) {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), 0),
        Err(_) => {
            let replaced = bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
            (String::from_utf8_lossy(bytes), replaced as u64)
        }
    }
}

/// The lines of a block, without their ends, counted from 1; empty ones left out.
pub(crate) fn lines(block: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = block.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

/// The string in a field of the JSON object on a line, or what is wrong; and how many characters were replaced.
///
/// Half surrogate pairs, which web corpora are full of and JSON does not allow, become U+FFFD as bytes that are not
/// UTF-8 do.
pub(crate) fn json_field(line: &[u8], field: &str) -> Result<(String, u64), String> {
    let (line, mut replaced) = decode(line);
    let parse = |line: &str| {
        let mut reader = serde_json::Deserializer::from_str(line);
        let text = Field(field).deserialize(&mut reader)?;
        reader.end().map(|()| text)
    };
    let text = parse(&line).or_else(|error| {
        let (mended, halves) = without_half_surrogates(&line);
        replaced += halves;
        if halves > 0 {
            parse(&mended)
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
    let mut mended = String::with_capacity(json.len());
    let (mut rest, mut halves) = (json, 0);
    while let Some(at) = rest.find('\\') {
        mended.push_str(&rest[..at]);
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
            mended.push_str("\\ufffd");
            halves += 1;
            rest = &rest[6..];
        } else {
            let length = (length..=rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
            mended.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    mended.push_str(rest);
    (mended, halves)
}

/// Reads one field of an object and passes over the others.
struct Field<'f>(&'f str);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = String;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<String, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = String;

    fn expecting(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(form, "an object with a string in `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        found.ok_or_else(|| serde::de::Error::custom(format!("the object has no field `{}`", self.0)))
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
    fn lines_lose_their_ends_and_empty_ones_are_left_out() {
        let found: Vec<_> = lines(b"a\r\n\n b \nc").collect();
        assert_eq!(found, [(1, &b"a"[..]), (3, b" b "), (4, b"c")]);
    }

    #[test]
    fn one_field_is_read_wherever_it_stands() {
        let line = r#"{"n": [1, {"text": "no"}], "text": "a\n\u00f5\ud83d\ude42", "z": null}"#;
        assert_eq!(json_field(line.as_bytes(), "text"), Ok(("a\nõ🙂".into(), 0)));
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_counted() {
        let line = r#"{"text": "a\ud83d \ude42 \\ud83d \ud83d\ude42õ"}"#;
        assert_eq!(json_field(line.as_bytes(), "text"), Ok(("a\u{fffd} \u{fffd} \\ud83d 🙂õ".into(), 2)));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let problem = |line: &str| json_field(line.as_bytes(), "text").unwrap_err();
        assert_eq!(problem(r#"{"other": "x"}"#), "the object has no field `text`");
        assert!(problem(r#"{"text": 5}"#).contains("expected a string"), "{}", problem(r#"{"text": 5}"#));
        assert!(problem(r#"{"text": "x"#).starts_with("not a JSON object: EOF"));
        assert!(problem(r#"{"text": "x"} y"#).contains("trailing characters"));
        assert!(problem("[1]").contains("an object with a string in `text`"));
        assert!(problem(&"[".repeat(100_000)).contains("an object"));
    }
}
