//! Characters outside the vocabulary: which ones there are, which are lost, and where they forbid cutting text.

use rustc_hash::FxHashSet;

use super::alphabet::{character_of, Alphabet};
use super::model::{Bpe, Unknown};
use crate::error::Result;

impl Bpe {
    /// The characters beside which text may be cut where no token spans the cut, in order; None if all characters may.
    ///
    /// A character with a token of its own gives one symbol in its position, whatever its neighbours are. Other
    /// characters may not: they are dropped, so that their neighbours become adjacent; they are fused with unknown
    /// characters further on; an unknown token is placed after the bytes that follow it. All characters may stand beside
    /// a cut if every character is spelled, or if unknown ones become one token each, and no merge has an unknown or byte
    /// token as a part.
    #[must_use]
    pub fn cut_between(&self) -> Option<Vec<char>> {
        let is_independent = match self.unknown {
            Unknown::Dropped => false,
            Unknown::Token(_) => !self.fuse_unknown,
            Unknown::Missing(_) => true, // encoding fails, cut or not
        };
        let merges_placeholders = || {
            let unknown = if let Unknown::Token(token) = self.unknown { Some(token) } else { None };
            let placeholders: FxHashSet<u32> = self.bytes.iter().flatten().copied().chain(unknown).collect();
            self.merges
                .keys()
                .any(|key| [(key >> 32) as u32, *key as u32].iter().any(|token| placeholders.contains(token)))
        };
        if (is_independent || self.spells_every_character()) && !merges_placeholders() {
            return None;
        }
        let mut characters: Vec<char> = self.characters.keys().copied().collect();
        characters.sort_unstable();
        Some(characters)
    }

    /// Whether every character is a token, or has a token for each of its bytes.
    #[must_use]
    pub fn spells_every_character(&self) -> bool {
        let complete = !self.bytes.is_empty() && self.bytes.iter().all(Option::is_some);
        complete || ('\0'..=char::MAX).all(|character| self.spells(character))
    }

    /// Whether a character is a token, or has a token for each of its bytes.
    fn spells(&self, character: char) -> bool {
        let has_token = |byte: u8| self.bytes.get(usize::from(byte)).is_some_and(Option::is_some);
        character.encode_utf8(&mut [0; 4]).bytes().all(has_token) || self.characters.contains_key(&character)
    }

    /// Calls `each` with the characters of a pretoken that the model drops or replaces by the unknown token, as bytes.
    ///
    /// In a byte-level vocabulary, a character is lost if one of its bytes is. Bytes that are not UTF-8 are lost one by
    /// one.
    pub(crate) fn lost(&self, pretoken: &[u8], by_merges: bool, mut each: impl FnMut(&[u8])) -> Result<()> {
        let spells = |text: &[u8]| match self.alphabet {
            Alphabet::ByteLevel => text.iter().all(|&byte| self.spells(character_of(byte))),
            Alphabet::Text => String::from_utf8_lossy(text).chars().all(|character| self.spells(character)),
        };
        if spells(pretoken) {
            return Ok(());
        }
        if self.ignore_merges && !by_merges {
            let mut string = String::new();
            self.alphabet.spell(pretoken, &mut string)?;
            if self.index(&string).is_some() {
                return Ok(());
            }
        }
        for chunk in pretoken.utf8_chunks() {
            let characters = chunk.valid().char_indices();
            let texts = characters.map(|(at, character)| &chunk.valid().as_bytes()[at..at + character.len_utf8()]);
            texts.chain(chunk.invalid().chunks(1)).filter(|text| !spells(text)).for_each(&mut each);
        }
        Ok(())
    }

    /// Whether a token stands for characters outside the vocabulary: the unknown token, or a byte-fallback token.
    pub(crate) fn is_placeholder(&self, index: u32) -> bool {
        matches!(self.unknown, Unknown::Token(unknown) if unknown == index) || self.bytes.contains(&Some(index))
    }
}
