//! Writes vocabulary and merges as JSON, byte for byte as Python's `json` would in the same layout.

use crate::bpe::Vocabulary;

/// The layout of a JSON file.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// One level of indentation; None for one line.
    pub(crate) indent: Option<String>,
    /// A space after `:`, and without an indent also after `,`.
    pub(crate) spaced: bool,
    /// Escape everything beyond ASCII.
    pub(crate) ascii_only: bool,
}

/// The level of indentation of `model.vocab` and `model.merges`.
const LEVEL: usize = 2;

impl Layout {
    /// The object of a vocabulary, in the order of the file.
    pub(crate) fn vocab(&self, vocabulary: &Vocabulary) -> String {
        let tokens = &vocabulary.tokens;
        let mut out = String::new();
        let items = tokens.listed().map(|token| (tokens.string(token), tokens.ids()[token as usize]));
        self.list(&mut out, b"{}", LEVEL, items, |out, (string, id)| {
            self.string(out, [string]);
            out.push_str(if self.spaced { ": " } else { ":" });
            out.push_str(&id.to_string());
        });
        out
    }

    /// The array of merges; as text if asked for and if all can be read back from it.
    pub(crate) fn merges(&self, vocabulary: &Vocabulary, as_text: bool) -> String {
        let mut out = String::new();
        let merges = vocabulary.merge_strings();
        if as_text && have_text_form(vocabulary) {
            self.list(&mut out, b"[]", LEVEL, merges, |out, (left, right)| self.string(out, [left, " ", right]));
        } else {
            self.list(&mut out, b"[]", LEVEL, merges, |out, (left, right)| {
                self.list(out, b"[]", LEVEL + 1, [left, right].into_iter(), |out, part| self.string(out, [part]));
            });
        }
        out
    }

    fn list<T>(
        &self,
        out: &mut String,
        brackets: &[u8; 2],
        level: usize,
        items: impl Iterator<Item = T>,
        write: impl Fn(&mut String, T),
    ) {
        let mut is_empty = true;
        out.push(brackets[0].into());
        for item in items {
            if !is_empty {
                out.push_str(if self.indent.is_none() && self.spaced { ", " } else { "," });
            }
            self.new_line(out, level + 1);
            write(out, item);
            is_empty = false;
        }
        if !is_empty {
            self.new_line(out, level);
        }
        out.push(brackets[1].into());
    }

    fn new_line(&self, out: &mut String, level: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..level).for_each(|_| out.push_str(indent));
        }
    }

    /// A string, given in parts.
    fn string<const N: usize>(&self, out: &mut String, parts: [&str; N]) {
        out.push('"');
        parts.iter().for_each(|part| escape(out, part, self.ascii_only));
        out.push('"');
    }
}

/// Adds the content of a JSON string, escaped as Python's `json` does.
pub(super) fn escape(out: &mut String, string: &str, ascii_only: bool) {
    let needs_escape = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\') || ascii_only && *byte >= 0x7F;
    if !string.as_bytes().iter().any(needs_escape) {
        return out.push_str(string);
    }
    for character in string.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            _ if character < ' ' || ascii_only && character >= '\u{7f}' => {
                out.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
            }
            _ => out.push(character),
        }
    }
}

/// Whether loaders read all merges back from `"left right"`: no other space, and none taken for a comment.
fn have_text_form(vocabulary: &Vocabulary) -> bool {
    let is_plain = |string: &str| !string.contains(' ');
    vocabulary.merge_strings().all(|(left, right)| is_plain(left) && is_plain(right) && !left.starts_with("#version"))
}
