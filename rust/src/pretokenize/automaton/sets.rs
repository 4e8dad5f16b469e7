//! Sets of characters, and the classes of characters that the patterns of a pipeline do not tell apart.
//!
//! What is in `\p{L}` or `\s` is decided by the regular-expression engine of the `tokenizers` crate, what punctuation is
//! by the crate itself: both are asked, or tables are used that were written from them.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::whitespace::Whitespace;
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::utils::SysRegex;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use crate::guard::guarded;
use crate::pretokenize::unicode::{category, CODES, WHITE_SPACE};

/// A set of characters, as runs of code points, each by its first and last: in order, apart from each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Set(Vec<(u32, u32)>);

impl Set {
    pub(super) fn new(mut runs: Vec<(u32, u32)>) -> Self {
        runs.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(runs.len());
        for (first, last) in runs {
            match joined.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    pub(super) fn of(character: char) -> Self {
        Self(vec![(character as u32, character as u32)])
    }

    pub(super) fn range(first: char, last: char) -> Self {
        Self(vec![(first as u32, last as u32)])
    }

    /// The characters that satisfy a predicate.
    pub(super) fn by(predicate: impl Fn(char) -> bool) -> Self {
        Self::new(('\0'..=char::MAX).filter(|&c| predicate(c)).map(|c| (c as u32, c as u32)).collect())
    }

    pub(super) fn union(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        Self::new(self.0)
    }

    pub(super) fn all(sets: Vec<Self>) -> Self {
        Self::new(sets.into_iter().flat_map(|set| set.0).collect())
    }

    pub(super) fn complement(&self) -> Self {
        let starts = [0].into_iter().chain(self.0.iter().map(|run| run.1 + 1));
        let ends = self.0.iter().map(|run| run.0).chain([CODES]);
        Self(starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| (start, end - 1)).collect())
    }

    pub(super) fn characters(&self) -> impl Iterator<Item = char> + '_ {
        self.0.iter().flat_map(|&(first, last)| (first..=last).filter_map(char::from_u32))
    }

    pub(super) fn is_ascii(&self) -> bool {
        self.0.iter().all(|run| run.1 < 0x80)
    }

    /// `\s`
    pub(super) fn white_space() -> Self {
        Self(WHITE_SPACE.to_vec())
    }

    /// `\p{name}`
    pub(super) fn property(name: &str) -> Option<Self> {
        category(name).map(Self::new).or_else(|| Self::by_engine(&format!(r"\p{{{name}}}")))
    }

    /// The characters that a pattern for one character matches, by the engine itself. None if it refuses the pattern.
    pub(super) fn by_engine(pattern: &str) -> Option<Self> {
        static ASKED: Mutex<BTreeMap<String, Option<Set>>> = Mutex::new(BTreeMap::new());
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        // The engine needs about 30 ms to look at every character.
        asked.entry(pattern.to_string()).or_insert_with_key(|pattern| Self::ask_engine(pattern)).clone()
    }

    fn ask_engine(pattern: &str) -> Option<Self> {
        let find = || {
            let text = every_character();
            let regex = SysRegex::new(&format!("(?:{pattern})+")).ok()?;
            let at = |place: usize| text[place..].chars().next().map_or(CODES, u32::from);
            let last = |end: usize| text[..end].chars().next_back().map_or(CODES, u32::from);
            Some(Self::new(regex.find_iter(text).map(|(start, end)| (at(start), last(end))).collect()))
        };
        guarded(find).ok().flatten()
    }

    /// What the crate's `Punctuation` splits at.
    pub(super) fn punctuation() -> Option<Self> {
        static PUNCTUATION: OnceLock<Option<Set>> = OnceLock::new();
        let remove = Punctuation::new(SplitDelimiterBehavior::Removed);
        PUNCTUATION.get_or_init(|| Some(Self::kept_by(&remove, |_| true)?.complement())).clone()
    }

    /// `\w` of the other engine in the crate, which its `Whitespace` uses; and `\s` of the same.
    pub(super) fn words_and_spaces() -> Option<(Self, Self)> {
        static SETS: OnceLock<Option<(Set, Set)>> = OnceLock::new();
        let is_word = |run: &str| pieces(&Whitespace, &format!("a{run}")).is_some_and(|pieces| pieces.len() == 1);
        let find = || {
            let visible = Self::kept_by(&Whitespace, |_| true)?;
            Some((Self::kept_by(&Whitespace, is_word)?, visible.complement()))
        };
        SETS.get_or_init(find).clone()
    }

    /// The characters in the pieces of a pre-tokenizer that are wanted, of a text of every character.
    fn kept_by(step: &impl PreTokenizer, wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let characters: Vec<char> = every_character().chars().collect();
        let mut runs = Vec::new();
        // Blocks, because the crate needs about a hundred bytes for each.
        for block in characters.chunks(1 << 14) {
            for piece in pieces(step, &block.iter().collect::<String>())?.iter().filter(|piece| wanted(piece)) {
                runs.extend(piece.chars().map(|character| (u32::from(character), u32::from(character))));
            }
        }
        Some(Self::new(runs))
    }
}

fn every_character() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| ('\0'..=char::MAX).collect())
}

fn pieces(step: &impl PreTokenizer, text: &str) -> Option<Vec<String>> {
    let mut split = PreTokenizedString::from(text);
    step.pre_tokenize(&mut split).ok()?;
    let pieces = split.get_splits(OffsetReferential::Original, OffsetType::Byte);
    Some(pieces.into_iter().map(|(piece, ..)| piece.to_string()).collect())
}

/// The first byte of a code point in UTF-8. It never falls from one code point to the next.
fn lead(code: u32) -> usize {
    let byte = match code {
        0..0x80 => code,
        0x80..0x800 => 0xC0 | code >> 6,
        0x800..0x1_0000 => 0xE0 | code >> 12,
        _ => 0xF0 | code >> 18,
    };
    byte as usize
}

/// The distinct sets of a pipeline, by number.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sets: Vec<Set>,
    numbers: FxHashMap<Set, usize>,
}

impl Sets {
    pub(super) fn number(&mut self, set: Set) -> usize {
        let next = self.sets.len();
        let number = *self.numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
    }

    pub(super) fn get(&self, number: usize) -> &Set {
        &self.sets[number]
    }
}

/// Classes of characters: two characters are in one class if every set has both or neither.
#[derive(Debug)]
pub(super) struct Classes {
    /// The class of every code point, by code point.
    pub(super) of: Vec<u8>,
    /// How many classes there are. The number after the last stands for the end of the text.
    pub(super) count: usize,
    /// Whether a set has a class, by set and class.
    has: Vec<Vec<bool>>,
    /// Whether a character of a class begins with a byte, by class and byte.
    leads: Vec<Vec<bool>>,
}

impl Classes {
    /// The classes of some sets, or None if there are more than a byte can number.
    pub(super) fn new(sets: &Sets) -> Option<Self> {
        let mut events: Vec<(u32, usize)> = Vec::new();
        for (number, set) in sets.sets.iter().enumerate() {
            events.extend(set.0.iter().flat_map(|&(first, last)| [(first, number), (last + 1, number)]));
        }
        events.sort_unstable();
        let mut of = vec![0; CODES as usize];
        let mut classes: FxHashMap<Vec<bool>, u8> = FxHashMap::default();
        let (mut has, mut leads) = (vec![Vec::new(); sets.sets.len()], Vec::new());
        let mut signature = vec![false; sets.sets.len()];
        let mut events = events.into_iter().peekable();
        let mut start = 0;
        while start < CODES {
            while let Some((_, number)) = events.next_if(|event| event.0 == start) {
                signature[number] ^= true;
            }
            let class = match classes.get(&signature) {
                Some(&class) => class,
                None => {
                    let class = u8::try_from(classes.len()).ok().filter(|class| *class < u8::MAX)?;
                    has.iter_mut().zip(&signature).for_each(|(classes, has)| classes.push(*has));
                    leads.push(vec![false; 256]);
                    classes.insert(signature.clone(), class);
                    class
                }
            };
            let end = events.peek().map_or(CODES, |event| event.0);
            of[start as usize..end as usize].fill(class);
            leads[class as usize][lead(start)..=lead(end - 1)].fill(true);
            start = end;
        }
        Some(Self { of, count: classes.len(), has, leads })
    }

    /// Whether some character of a class begins with a byte in UTF-8.
    pub(super) fn begins_with(&self, class: usize, byte: u8) -> bool {
        // A run of code points from ASCII on spans the bytes that only continue a character.
        !matches!(byte, 0x80..=0xBF) && self.leads[class][byte as usize]
    }

    /// The number that stands for the end of the text.
    pub(super) fn end(&self) -> usize {
        self.count
    }

    /// Whether a set has a class; no set has the end.
    pub(super) fn has(&self, set: usize, class: usize) -> bool {
        class < self.count && self.has[set][class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_the_characters_that_the_engine_and_the_crate_give_them() {
        assert_eq!(Some(Set::white_space()), Set::by_engine(r"\s"));
        assert!(Set::property("L") == Set::by_engine(r"\p{L}"));
        assert_eq!(Set::white_space().complement(), Set::by_engine(r"\S").unwrap().union(Set(vec![(0xD800, 0xDFFF)])));
        assert_eq!(Set::by_engine(r"\p{NoSuchName}"), None);
        assert_eq!(Set::default().complement().complement(), Set::default());
        let punctuation = Set::punctuation().unwrap();
        assert!(['!', '$', '。', '—'].iter().all(|c| punctuation.characters().any(|p| p == *c)));
        let (words, spaces) = Set::words_and_spaces().unwrap();
        assert_eq!(
            spaces.characters().collect::<String>(),
            Set::by(char::is_whitespace).characters().collect::<String>()
        );
        assert!(words.characters().any(|c| c == '_') && !words.characters().any(|c| c == '-'));
    }

    #[test]
    fn characters_are_of_one_class_if_no_set_tells_them_apart() {
        let mut sets = Sets::default();
        for set in [Set::white_space(), Set::of(' '), Set::property("L").unwrap(), Set::default()] {
            sets.number(set);
        }
        assert_eq!(sets.number(Set::of(' ')), 1);
        let classes = Classes::new(&sets).unwrap();
        assert_eq!(classes.count, 4);
        let class = |character: char| classes.of[character as usize];
        assert!(class('a') == class('猫') && class('\t') == class('\n') && class(' ') != class('\n'));
        for (first, character) in [(0x20, ' '), (0xE3, '\u{3000}'), (0xE7, '猫'), (0xF0, '🙂')] {
            assert!(classes.begins_with(class(character) as usize, first));
        }
        assert!(!classes.begins_with(class(' ') as usize, 0xE3) && !classes.begins_with(class('a') as usize, 0x20));
        assert!(classes.has(0, class(' ') as usize) && !classes.has(2, class('1') as usize) && !classes.has(0, 4));
    }
}
