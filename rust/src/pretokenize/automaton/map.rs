//! Normalizers that turn each character into some text: lower case, decomposition, stripped accents, the cleaning of
//! BERT, and the compiled maps of SentencePiece. What becomes of a character is asked of the crate, once for a block of
//! characters when a text has one of them. Where the neighbours of a character matter, the crate normalizes that stretch.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

use super::split::code_at;
use super::words::Words;

/// Characters of a block.
pub(super) const BLOCK: usize = 256;
const BLOCKS: usize = 0x11_0000 / BLOCK;

/// Characters of every kind that never joins a neighbour of these kinds in a grapheme: letters, Hangul syllables, emoji,
/// consonants of Indic scripts, control characters; and a regional indicator and a line feed, which join their like.
const SEPARATE: &str = "a가각😀क\0\n\u{1F1E6}";

/// Normalizers that are applied one after the other.
pub(super) struct CharacterMap {
    steps: Vec<Step>,
    blocks: Vec<OnceLock<Box<Block>>>,
    /// The next step removes white space.
    pub(super) words: Option<Words>,
}

struct Step {
    normalizer: NormalizerWrapper,
    /// It looks at graphemes.
    graphemes: bool,
    /// It decomposes characters, and orders combining marks by their class.
    decomposes: bool,
}

/// What becomes of the characters of a block, by their last byte.
pub(super) struct Block {
    pub(super) kinds: [Kind; BLOCK],
    /// A bit for each quarter, set if all its characters stay as they are. In UTF-8, characters of two bytes with the same
    /// first byte are a quarter.
    pub(super) same: u8,
    /// What becomes of those that change: places in `text`.
    images: [(u16, u16); BLOCK],
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Same,
    Changed,
    Removed,
    /// White space that separates words.
    Space,
    /// It changes, to such white space.
    ToSpace,
    /// It changes, to text that ends with such white space.
    Apart,
    /// It depends on the neighbours.
    Unsure,
}

impl std::fmt::Debug for CharacterMap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "CharacterMap({} steps)", self.steps.len())
    }
}

impl Block {
    pub(super) fn image(&self, code: usize) -> &str {
        let (start, end) = self.images[code % BLOCK];
        &self.text[usize::from(start)..usize::from(end)]
    }
}

impl CharacterMap {
    /// No normalizer.
    pub(super) fn new() -> Self {
        Self { steps: Vec::new(), blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect(), words: None }
    }

    /// Whether a step of a `tokenizer.json` is such a normalizer.
    pub(super) fn knows(step: &Value) -> bool {
        let known = ["BertNormalizer", "Lowercase", "NFD", "NFKD", "Nmt", "Precompiled", "StripAccents"];
        step["type"].as_str().is_some_and(|name| known.contains(&name))
    }

    /// Adds a normalizer. None if the crate cannot read it.
    pub(super) fn push(&mut self, step: &Value) -> Option<()> {
        let strips = || step["strip_accents"].as_bool().or(step["lowercase"].as_bool()).unwrap_or(true);
        let decomposes = match step["type"].as_str()? {
            "NFD" | "NFKD" => true,
            "BertNormalizer" => strips(),
            _ => false,
        };
        let normalizer = serde_json::from_value(step.clone()).ok()?;
        self.steps.push(Step { normalizer, graphemes: step["type"] == "Precompiled", decomposes });
        Some(())
    }

    /// The normalized text: borrowed if nothing changes.
    ///
    /// # Panics
    ///
    /// Where the crate does, as it does with a damaged compiled map.
    pub(super) fn normalized<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (mut changed, mut done) = (String::new(), 0);
        // The last character that was not removed, and the length of what was written before it.
        let (mut previous, mut written) = (0, 0);
        let (mut at, bytes, first) = (0, text.as_bytes(), self.block(0));
        let mut near = (0, first); // the block of the last character, and its number
        while at < bytes.len() {
            if bytes[at] < 0x80 && first.kinds[bytes[at] as usize] == Kind::Same {
                previous = at;
                at += 1;
                continue;
            }
            let (code, width) = code_at(bytes, at);
            if near.0 != code / BLOCK {
                near = (code / BLOCK, self.block(code / BLOCK));
            }
            let block = near.1;
            let end = at + width;
            match block.kinds[code % BLOCK] {
                Kind::Same | Kind::Space => previous = at,
                kind @ (Kind::Changed | Kind::ToSpace | Kind::Apart | Kind::Removed) => {
                    changed.reserve(text.len() - done);
                    if done <= previous {
                        written = changed.len() + previous - done;
                    }
                    changed.push_str(&text[done..at]);
                    if kind != Kind::Removed {
                        (previous, written) = (at, changed.len());
                    }
                    changed.push_str(block.image(code));
                    done = end;
                }
                Kind::Unsure => {
                    if previous < done {
                        changed.truncate(written);
                    } else {
                        changed.push_str(&text[done..previous]);
                    }
                    done = self.end_of_stretch(text, at);
                    changed.push_str(&self.by_crate(0, &text[previous..done]));
                    (at, previous, written) = (done, done, changed.len());
                    continue;
                }
            }
            at = end;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        changed.push_str(&text[done..]);
        Cow::Owned(changed)
    }

    /// The characters that two neighbours end and begin with after normalization, if neither depends on the other.
    pub(super) fn across(&self, left: char, right: char) -> Option<(char, char)> {
        let image = |character: char| match self.kind(character) {
            Kind::Same | Kind::Space => Some(character.to_string()),
            Kind::Changed | Kind::ToSpace | Kind::Apart => {
                Some(self.block(character as usize / BLOCK).image(character as usize).to_string())
            }
            Kind::Removed | Kind::Unsure => None,
        };
        image(left)?.chars().next_back().zip(image(right)?.chars().next())
    }

    /// Where the stretch of text ends that must be normalized together, given its first character that depends on its
    /// neighbours: after the next one that does not.
    fn end_of_stretch(&self, text: &str, at: usize) -> usize {
        let mut end = None;
        for (place, character) in text[at..].char_indices() {
            match self.kind(character) {
                Kind::Unsure => end = None,
                Kind::Removed => {}
                _ if end.is_some() => break,
                _ => end = Some(at + place + character.len_utf8()),
            }
        }
        end.unwrap_or(text.len())
    }

    /// Whether a character stays what it is.
    pub(super) fn keeps(&self, character: char) -> bool {
        matches!(self.kind(character), Kind::Same | Kind::Space)
    }

    /// Whether what stands before a character surely does not depend on it.
    pub(super) fn begins_apart(&self, character: char) -> bool {
        !matches!(self.kind(character), Kind::Removed | Kind::Unsure)
    }

    pub(super) fn kind(&self, character: char) -> Kind {
        self.block(character as usize / BLOCK).kinds[character as usize % BLOCK]
    }

    #[inline]
    pub(super) fn block(&self, number: usize) -> &Block {
        self.blocks[number].get_or_init(|| Box::new(self.compute(number)))
    }

    fn compute(&self, number: usize) -> Block {
        let mut block = Block { kinds: [Kind::Same; BLOCK], same: 0, images: [(0, 0); BLOCK], text: String::new() };
        for at in 0..BLOCK {
            let Some(character) = char::from_u32((number * BLOCK + at) as u32) else { continue };
            let start = block.text.len();
            let image = self.by_crate(0, character.encode_utf8(&mut [0; 4]));
            let is_same = image.chars().eq([character]);
            let fits = is_same || start + image.len() <= usize::from(u16::MAX);
            let kind = match self.words.as_ref().map_or(Kind::Changed, |words| words.kind(&image)) {
                _ if self.is_unsure(character) || !fits => Kind::Unsure, // right for every character, and slower
                _ if image.is_empty() => Kind::Removed,
                Kind::Changed if is_same => Kind::Same,
                Kind::ToSpace if is_same => Kind::Space,
                kind => kind,
            };
            block.kinds[at] = kind;
            if matches!(kind, Kind::Changed | Kind::ToSpace | Kind::Apart) {
                block.text.push_str(&image);
                block.images[at] = (start as u16, block.text.len() as u16);
            }
        }
        let quarters = block.kinds.chunks(BLOCK / 4).map(|kinds| kinds.iter().all(|kind| *kind == Kind::Same));
        block.same = quarters.rev().fold(0, |bits, is_same| bits << 1 | u8::from(is_same));
        block
    }

    /// Whether the neighbours of a character may decide what becomes of it, or of them.
    fn is_unsure(&self, character: char) -> bool {
        let mut text = character.to_string();
        for (number, step) in self.steps.iter().enumerate() {
            let joins = || {
                let with = |character: char| SEPARATE.chars().flat_map(|other| [other, character]).collect::<String>();
                text.chars().any(|character| with(character).graphemes(true).count() < 2 * SEPARATE.chars().count())
            };
            // A mark that is removed in the end may stand anywhere.
            let is_kept = |mark: char| !self.by_crate(number, mark.encode_utf8(&mut [0; 4])).is_empty();
            let has_mark = || text.nfkd().any(|(part, _)| canonical_combining_class(part) > 0 && is_kept(part));
            if step.graphemes && joins() || step.decomposes && has_mark() {
                return true;
            }
            text = self.applied(step, &text);
        }
        false
    }

    /// The text after the normalizers from one on.
    fn by_crate(&self, first: usize, text: &str) -> String {
        self.steps[first..].iter().fold(text.to_string(), |text, step| self.applied(step, &text))
    }

    fn applied(&self, step: &Step, text: &str) -> String {
        let mut normalized = NormalizedString::from(text);
        // The crate ignores a normalizer that fails, too.
        let _ = step.normalizer.normalize(&mut normalized);
        normalized.get().to_string()
    }
}
