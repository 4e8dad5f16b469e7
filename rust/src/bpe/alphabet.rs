//! How vocabularies spell the bytes of a pretoken: token string to bytes and back.

use crate::error::{Error, Result};

/// The spelling of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// Every byte is one character: printable Latin-1 stands for itself, the others for characters from U+0100 on.
    ByteLevel,
    /// As text.
    Text,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_and_bytes_are_inverse() {
        for byte in 0..=255 {
            assert_eq!(byte_of(character_of(byte)), Some(byte));
        }
        assert_eq!(('\0'..=char::MAX).filter_map(byte_of).count(), 256);
    }
}
