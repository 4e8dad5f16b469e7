//! How vocabularies spell the bytes of a pretoken: token string to bytes and back.

use crate::error::{Error, Result};

/// The spelling of a vocabulary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Alphabet {
    /// Every byte is one character: printable Latin-1 stands for itself, the others for characters from U+0100 on.
    #[default]
    ByteLevel,
    /// As text.
    Text,
}

/// Before the tokens of WordPiece that continue a word.
pub(crate) const CONTINUATION: &str = "##";

impl Alphabet {
    /// The string that a vocabulary has for the bytes of a pretoken.
    ///
    /// # Errors
    ///
    /// When the vocabulary spells text and the bytes are not UTF-8.
    pub(crate) fn spell(self, pretoken: &[u8], string: &mut String) -> Result<()> {
        string.clear();
        match self {
            Self::ByteLevel => string.extend(pretoken.iter().map(|&byte| character_of(byte))),
            Self::Text => string.push_str(std::str::from_utf8(pretoken).map_err(|_| Error::NotText)?),
        }
        Ok(())
    }

    /// Adds the bytes that a token stands for when text is decoded.
    ///
    /// A byte-level token with a character outside the alphabet is plain text, as in the decoder of `tokenizers`.
    pub(crate) fn decode(self, string: &str, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        match self {
            Self::ByteLevel => {
                bytes.extend(string.chars().map_while(byte_of));
                if bytes.len() - start < string.chars().count() {
                    bytes.truncate(start);
                    bytes.extend_from_slice(string.as_bytes());
                }
            }
            Self::Text => match byte_of_token(string) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(string.replace('▁', " ").as_bytes()),
            },
        }
    }

    /// How many bytes a token string stands for.
    pub(crate) fn byte_length(self, string: &str) -> usize {
        match self {
            Self::ByteLevel => string.chars().count(),
            Self::Text => string.len(),
        }
    }
}

/// The character of the byte-level alphabet for a byte.
pub(crate) fn character_of(byte: u8) -> char {
    let code = match byte {
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte) - 0x7F,
        0xAD => 0x143,
        _ => u32::from(byte),
    };
    char::from_u32(code).unwrap_or_default()
}

/// The byte that a character of the byte-level alphabet stands for.
pub(crate) fn byte_of(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The byte-fallback token of a byte: `0x41 -> "<0x41>"`.
pub(crate) fn byte_token(byte: u8) -> String {
    format!("<{byte:#04X}>")
}

/// The byte of a byte-fallback token: `"<0x41>" -> 0x41`.
fn byte_of_token(string: &str) -> Option<u8> {
    let digits = string.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'));
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_decoded_to_the_bytes_they_stand_for() {
        let decoded = |alphabet: Alphabet, string: &str| {
            let mut bytes = b"before".to_vec();
            alphabet.decode(string, &mut bytes);
            bytes.split_off(6)
        };
        assert_eq!(decoded(Alphabet::ByteLevel, "Ġõ"), b" \xf5");
        assert_eq!(decoded(Alphabet::ByteLevel, "Ġ漢"), "Ġ漢".as_bytes());
        for (string, bytes) in [("▁õ▁", " õ "), ("<0x41>", "A"), ("<0x4a>", "<0x4a>"), ("<0x41>▁", "<0x41> "), ("", "")]
        {
            assert_eq!(decoded(Alphabet::Text, string), bytes.as_bytes());
        }
        assert!((0..=255).all(|byte| byte_of_token(&byte_token(byte)) == Some(byte)));
        assert!(["<0x+1>", "<0x1>", "<0x001>", "0x41"].iter().all(|string| byte_of_token(string).is_none()));
    }

    #[test]
    fn characters_and_bytes_are_inverse() {
        for byte in 0..=255 {
            assert_eq!(byte_of(character_of(byte)), Some(byte));
        }
        assert_eq!(('\0'..=char::MAX).filter_map(byte_of).count(), 256);
    }
}
