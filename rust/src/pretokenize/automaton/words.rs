//! Normalizes text and splits it into words in one pass, where the step after a [`CharacterMap`] removes white space.

use std::ops::Range;

use super::map::{CharacterMap, Kind, BLOCK};
use super::split::code_at;

/// The words of a normalized text: what white space separates.
pub(super) struct Words {
    /// What the steps after the split put before each word; empty for nothing. A word that contains it is left to them.
    prefix: String,
}

/// A word that has begun.
struct Word<'t> {
    text: &'t str,
    /// What was normalized up to `done`, if it is not as in the text.
    buffer: String,
    start: usize,
    done: usize,
}

/// Bytes that are at least normalized together where a character depends on its neighbours: more are often near. Few in
/// tests, whose texts are short.
const STRETCH: usize = if cfg!(test) { 3 } else { 256 };

/// Bytes that a word which changes has room for at once.
const ROOM: usize = 64;

/// What follows a word in memory: a short pretoken is read together with the bytes after it.
pub(super) const PADDING: &str = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

impl Word<'_> {
    /// Nothing is in it that is not removed.
    fn is_empty(&self, at: usize) -> bool {
        self.done == at && self.buffer.is_empty()
    }

    /// A character at a place becomes an image.
    #[inline]
    fn change(&mut self, at: usize, width: usize, image: &str) {
        self.buffer.reserve(ROOM);
        self.buffer.push_str(&self.text[self.done..at]);
        self.buffer.push_str(image);
        self.done = at + width;
    }

    /// Emits it with the text up to a place, if there is any.
    #[inline]
    fn end(&mut self, at: usize, emit: &mut impl FnMut(&str, Range<usize>, bool)) {
        if self.start == self.done {
            if self.start < at {
                emit(self.text, self.start..at, true);
            }
            return;
        }
        self.buffer.push_str(&self.text[self.done..at]);
        let length = self.buffer.len();
        if length > 0 {
            self.buffer.push_str(PADDING);
            emit(&self.buffer, 0..length, true);
        }
    }

    /// Another word begins at a place.
    fn clear(&mut self, at: usize) {
        self.buffer.clear();
        (self.start, self.done) = (at, at);
    }
}

impl Words {
    /// The kind of a character that becomes some text.
    pub(super) fn kind(&self, image: &str) -> Kind {
        if !self.prefix.is_empty() && image.contains(&self.prefix) {
            return Kind::Unsure;
        }
        match image.chars().next_back().is_some_and(char::is_whitespace) {
            true if image.trim().is_empty() => Kind::ToSpace,
            true => Kind::Apart,
            false if image.contains(char::is_whitespace) => Kind::Unsure,
            false => Kind::Changed,
        }
    }
}

impl CharacterMap {
    /// The next step removes white space. Call it before any text is normalized.
    pub(super) fn separate_words(&mut self) {
        self.words = Some(Words { prefix: String::new() });
    }

    /// The two steps after that put a prefix before each word, and split before every prefix.
    pub(super) fn put_before_words(&mut self, prefix: &str) {
        if let Some(words) = &mut self.words {
            words.prefix = prefix.into();
        }
    }

    /// What the steps after the next one put before each word; None if [`CharacterMap::words`] cannot be called.
    pub(super) fn before_words(&self) -> Option<&str> {
        self.words.as_ref().map(|words| words.prefix.as_str())
    }

    /// Calls `emit` with the words of the normalized text, each as a text and the range of bytes in it, and whether it
    /// is a whole word, which gets the prefix if there is one. Otherwise the next step decides.
    ///
    /// # Panics
    ///
    /// As [`CharacterMap::normalized`].
    pub(super) fn words(&self, text: &str, mut emit: impl FnMut(&str, Range<usize>, bool)) {
        let mut word = Word { text, buffer: String::new(), start: 0, done: 0 };
        // `space`: where to begin again if there is no word, because a character depends on the one before it.
        let (mut at, mut space, bytes, first) = (0, 0, text.as_bytes(), self.block(0));
        let mut near = (0, first); // the block of the last character, and its number
        while at < bytes.len() {
            let byte = bytes[at];
            if byte < 0x80 {
                if first.kinds[usize::from(byte)] == Kind::Same {
                    at += 1;
                    continue;
                }
            } else if byte < 0xE0 {
                // The first one of two bytes.
                let number = usize::from(byte & 0x1F) / 4;
                if near.0 != number {
                    near = (number, self.block(number));
                }
                if near.1.same >> (byte % 4) & 1 == 1 {
                    at += 2;
                    continue;
                }
            }
            let (code, width) = code_at(bytes, at);
            if near.0 != code / BLOCK {
                near = (code / BLOCK, self.block(code / BLOCK));
            }
            match near.1.kinds[code % BLOCK] {
                Kind::Same => at += width,
                Kind::Changed | Kind::Removed => {
                    word.change(at, width, near.1.image(code));
                    at += width;
                }
                Kind::Space | Kind::ToSpace if !self.may_join(text, at + width) => {
                    word.end(at, &mut emit);
                    (space, at) = (at, at + width);
                    word.clear(at);
                }
                Kind::Apart if !self.may_join(text, at + width) => {
                    let mut parts = near.1.image(code).split(char::is_whitespace);
                    word.change(at, width, parts.next().unwrap_or_default());
                    at += width;
                    for part in parts {
                        word.end(at, &mut emit);
                        word.clear(at);
                        if !part.is_empty() {
                            word.start -= width; // it is not as in the text
                            word.buffer.push_str(part);
                        }
                    }
                    space = at;
                }
                Kind::Space | Kind::ToSpace | Kind::Apart | Kind::Unsure => {
                    let start = if word.is_empty(at) { space } else { word.start };
                    at = self.end_of_words(text, at);
                    space = at;
                    word.clear(at);
                    let normalized = self.normalized(&text[start..at]);
                    for some in normalized.split(char::is_whitespace).filter(|some| !some.is_empty()) {
                        let start = some.as_ptr() as usize - normalized.as_ptr() as usize;
                        emit(&normalized, start..start + some.len(), false);
                    }
                }
            }
        }
        word.end(at, &mut emit);
    }

    /// Whether the character at a place may depend on the one before it, or that one on it.
    fn may_join(&self, text: &str, at: usize) -> bool {
        text[at..].chars().next().is_some_and(|next| !self.begins_apart(next))
    }

    /// Where a text may be cut some way after a character that depends on its neighbours: after white space.
    fn end_of_words(&self, text: &str, at: usize) -> usize {
        let Some(start) = (at + STRETCH..text.len()).find(|&place| text.is_char_boundary(place)) else {
            return text.len();
        };
        let mut after_space = false;
        for (place, character) in text[start..].char_indices() {
            let kind = self.kind(character);
            if after_space && self.begins_apart(character) {
                return start + place;
            }
            after_space = matches!(kind, Kind::Space | Kind::ToSpace | Kind::Apart);
        }
        text.len()
    }
}
