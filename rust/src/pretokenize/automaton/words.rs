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
    prefix: &'t str,
    /// The prefix, and what was normalized up to `done` if it is not as in the text.
    buffer: String,
    start: usize,
    done: usize,
}

/// Bytes that are at least normalized together where a character depends on its neighbours: more are often near. Few in
/// tests, whose texts are short.
const STRETCH: usize = if cfg!(test) { 3 } else { 256 };

/// What follows a word in memory: a short pretoken is read together with the bytes after it.
pub(super) const PADDING: &str = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

impl Word<'_> {
    /// Nothing is in it that is not removed.
    fn is_empty(&self, at: usize) -> bool {
        self.done == at && self.buffer.len() == self.prefix.len()
    }

    /// A character at a place becomes an image.
    #[inline]
    fn change(&mut self, at: usize, width: usize, image: &str) {
        self.buffer.push_str(&self.text[self.done..at]);
        self.buffer.push_str(image);
        self.done = at + width;
    }

    /// Emits it with the text up to a place, if there is any.
    #[inline]
    fn end(&mut self, at: usize, emit: &mut impl FnMut(&str, Range<usize>, bool)) {
        if self.prefix.is_empty() && self.start == self.done {
            if self.start < at {
                emit(self.text, self.start..at, false);
            }
            return;
        }
        self.buffer.push_str(&self.text[self.done..at]);
        let length = self.buffer.len();
        if length > self.prefix.len() {
            self.buffer.push_str(PADDING);
            emit(&self.buffer, 0..length, !self.prefix.is_empty());
        }
    }

    /// Another word begins at a place.
    fn clear(&mut self, at: usize) {
        self.buffer.truncate(self.prefix.len());
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

    /// Whether [`CharacterMap::words`] gives the pieces that the next step makes.
    pub(super) fn gives_words(&self) -> bool {
        self.words.is_some()
    }

    /// Calls `emit` with the words of the normalized text, each as a text and the range of bytes in it, and whether it
    /// has the prefix.
    ///
    /// # Panics
    ///
    /// As [`CharacterMap::normalized`].
    pub(super) fn words(&self, text: &str, mut emit: impl FnMut(&str, Range<usize>, bool)) {
        let Some(Words { prefix }) = &self.words else { return };
        let mut word = Word { text, prefix, buffer: prefix.clone(), start: 0, done: 0 };
        // `space`: where to begin again if there is no word, because a character depends on the one before it.
        let (mut at, mut space, bytes, first) = (0, 0, text.as_bytes(), self.block(0));
        let mut near = (0, first); // the block of the last character, and its number
        while at < bytes.len() {
            if bytes[at] < 0x80 && first.kinds[bytes[at] as usize] == Kind::Same {
                at += 1;
                continue;
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
                Kind::Space | Kind::ToSpace => {
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
                Kind::Apart | Kind::Unsure => {
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

    /// Whether the character at a place may depend on the one before it.
    fn may_join(&self, text: &str, at: usize) -> bool {
        let next = text[at..].chars().next();
        next.is_some_and(|next| matches!(self.kind(next), Kind::Removed | Kind::Unsure))
    }

    /// Where a text may be cut some way after a character that depends on its neighbours: after white space.
    fn end_of_words(&self, text: &str, at: usize) -> usize {
        let Some(start) = (at + STRETCH..text.len()).find(|&place| text.is_char_boundary(place)) else {
            return text.len();
        };
        let mut after_space = false;
        for (place, character) in text[start..].char_indices() {
            let kind = self.kind(character);
            if after_space && !matches!(kind, Kind::Removed | Kind::Unsure) {
                return start + place;
            }
            after_space = matches!(kind, Kind::Space | Kind::ToSpace | Kind::Apart);
        }
        text.len()
    }
}
