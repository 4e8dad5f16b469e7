//! Walks through JSON text. Every function gives None where the text is not what it expects.
//!
//! Strings are read strictly. Other values can only be skipped: their bytes are not judged.

/// A place in JSON text.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    pub(super) at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is not white space, without taking it.
    pub(super) fn next(&mut self) -> Option<u8> {
        self.skip_space();
        self.peek()
    }

    /// Whether only white space is left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.next().is_none()
    }

    /// Takes one byte, after white space.
    pub(super) fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.at += 1)
    }

    /// Calls `element` at each element of an object or array whose opening bracket was taken; takes the closing one.
    pub(super) fn elements(&mut self, close: u8, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.take(close).is_some() {
            return Some(());
        }
        loop {
            element(self)?;
            match self.next()? {
                b',' => self.at += 1,
                byte if byte == close => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// The text between two quotes, and whether it has escapes.
    pub(super) fn raw_string(&mut self) -> Option<(&'a str, bool)> {
        self.take(b'"')?;
        let (start, bytes) = (self.at, self.text.as_bytes());
        let mut has_escapes = false;
        loop {
            match bytes.get(self.at)? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                }
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
        let raw = self.text.get(start..self.at)?;
        self.at += 1;
        Some((raw, has_escapes))
    }

    /// A string; `buffer` holds it where it has escapes.
    pub(super) fn string<'s>(&mut self, buffer: &'s mut String) -> Option<&'s str>
    where
        'a: 's,
    {
        let (raw, has_escapes) = self.raw_string()?;
        if !has_escapes {
            return Some(raw);
        }
        buffer.clear();
        unescape(raw, buffer)?;
        Some(buffer)
    }

    /// Adds a string to a text.
    pub(super) fn push_string(&mut self, text: &mut String) -> Option<()> {
        match self.raw_string()? {
            (raw, false) => text.push_str(raw),
            (raw, true) => unescape(raw, text)?,
        }
        Some(())
    }

    /// A whole number from 0 to 2^32 - 1, written as digits alone.
    pub(super) fn number(&mut self) -> Option<u32> {
        self.skip_space();
        let digits = self.text.as_bytes().get(self.at..)?;
        let length = digits.iter().take(11).take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 || length > 1 && digits[0] == b'0' || matches!(digits.get(length), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.at += length;
        self.text.get(self.at - length..self.at)?.parse().ok()
    }

    /// Goes beyond a value of any kind.
    pub(super) fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.next()? {
                b'"' => {
                    self.raw_string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => self.skip_scalar()?,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn skip_scalar(&mut self) -> Option<()> {
        let is_scalar = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = self.text.as_bytes().get(self.at..)?.iter().take_while(|byte| is_scalar(byte)).count();
        self.at += length;
        (length > 0).then_some(())
    }
}

/// Adds the text that a string with escapes stands for.
fn unescape(raw: &str, text: &mut String) -> Option<()> {
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        text.push(match escape {
            b'"' | b'\\' | b'/' => escape.into(),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => unicode_escape(&mut rest)?,
            _ => return None,
        });
    }
    text.push_str(rest);
    Some(())
}

/// The character of an escape, whose `\u` was taken; None for half of a surrogate pair.
fn unicode_escape(rest: &mut &str) -> Option<char> {
    let first = hex(rest)?;
    if !(0xD800..0xDC00).contains(&first) {
        return char::from_u32(first);
    }
    *rest = rest.strip_prefix("\\u")?;
    let second = hex(rest)?;
    let is_low = (0xDC00..0xE000).contains(&second);
    char::from_u32(0x10000 + ((first - 0xD800) << 10) + second.wrapping_sub(0xDC00)).filter(|_| is_low)
}

fn hex(rest: &mut &str) -> Option<u32> {
    let (digits, after) = rest.split_at_checked(4)?;
    *rest = after;
    // `from_str_radix` also takes a sign.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Option<String> {
        let mut scanner = Scanner::new(text, 0);
        let string = scanner.string(&mut String::new()).map(str::to_string);
        string.filter(|_| scanner.is_at_end())
    }

    /// Texts that are near the edge between what is JSON and what is not.
    const STRINGS: &[&str] = &[
        r#""""#,
        r#""a b""#,
        r#""\n\t\r\b\f\/\\\"""#,
        r#""\u0041""#,
        r#""\ud83d\ude00""#,
        r#""\ud83d""#,
        r#""\ude00""#,
        r#""\ud83d\u0041""#,
        r#""\ud83d\n""#,
        r#""\u+041""#,
        r#""\u004""#,
        r#""\u00é1""#,
        r#""\x""#,
        r#""\é""#,
        r#"""\""#,
        r#""a"#,
        "\"\n\"",
        "\"\u{7f}é😀\"",
        r#""\"#,
        r#""\u"#,
        "",
        r#" "a" "#,
        r#""\uD83D\uDE00""#,
        r#""\u0000""#,
        "\"\u{1f}\"",
    ];

    #[test]
    fn strings_are_those_of_serde_json() {
        for text in STRINGS {
            assert_eq!(string(text), serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn numbers_are_ids_written_as_digits_alone() {
        let number = |text| Scanner::new(text, 0).number();
        for (text, id) in [("0", 0), ("7,", 7), ("4294967295}", u32::MAX), (" 12 ", 12)] {
            assert_eq!(number(text), Some(id), "{text}");
        }
        for text in
            ["4294967296", "99999999999999999999", "-1", "-0", "01", "1.0", "1e3", "1E3", "", "a", "\"1\"", "null"]
        {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn a_value_is_skipped_to_its_end() {
        for value in
            ["1", "-1.5e+3", "null", r#""a\"}""#, "{}", "[]", r#"{"a": [1, {"b": "]"}], "c": null}"#, "[[], [{}]]"]
        {
            let text = format!(" {value} ,");
            let mut scanner = Scanner::new(&text, 0);
            scanner.skip_value().unwrap();
            assert_eq!(scanner.at, value.len() + 1, "{value}");
        }
        for broken in ["", "{", "[1", "}", ",", ":", "\"a", "{\"a"] {
            assert_eq!(Scanner::new(broken, 0).skip_value(), None, "{broken}");
        }
    }
}
