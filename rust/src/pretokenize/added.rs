//! Finds added tokens and splits text at them, as the `tokenizers` library does. Tokens that must be whole words are
//! left to the library.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Anchored, Input, Match, MatchKind, StartKind};
use rustc_hash::FxHashSet;
use serde::Deserialize;

use crate::error::{Error, Result};

/// First bytes that the finder searches for many at once.
const FEW: usize = 3;

/// An added token as `tokenizer.json` lists it; the id is looked up elsewhere.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) content: String,
    pub(crate) single_word: bool,
    pub(crate) lstrip: bool,
    pub(crate) rstrip: bool,
    pub(crate) normalized: bool,
}

/// Text between added tokens, or an added token by its index in the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    Text(&'t str),
    Added(usize),
}

/// Finds added tokens: first those that match raw text, then, in what is left, those that match normalized text.
///
/// Made for pipelines whose normalizer does not touch the tokens that match normalized text.
#[derive(Debug)]
pub(crate) struct Splitter {
    tokens: Vec<AddedToken>,
    passes: Vec<Pass>,
}

/// Finds the tokens that match raw text, or those that match normalized text.
#[derive(Debug)]
struct Pass {
    finder: AhoCorasick,
    /// The bytes that tokens begin with, where there are so many that the finder looks at every byte.
    begins: Option<Box<[bool; 256]>>,
    /// The index of each pattern in the list of tokens.
    places: Vec<usize>,
}

impl Pass {
    /// The first match from `start` on, and the longest there.
    fn find(&self, text: &str, start: usize) -> Option<Match> {
        let Some(begins) = &self.begins else { return self.finder.find(Input::new(text).range(start..)) };
        let candidates = (start..text.len()).filter(|&at| begins[text.as_bytes()[at] as usize]);
        candidates
            .map(|at| Input::new(text).range(at..).anchored(Anchored::Yes))
            .find_map(|input| self.finder.find(input))
    }
}

impl Splitter {
    /// A splitter, or None if the library must do it. That is so with `single_word`, which depends on the library's
    /// definition of a word; with an empty token, which it may refuse; with two tokens of one content, where the order
    /// of the library's maps decides; and with white space that one token strips and another begins with, where the
    /// library's search position decides.
    pub(crate) fn new(tokens: Vec<AddedToken>) -> Result<Option<Self>> {
        let contents: FxHashSet<&str> = tokens.iter().map(|token| token.content.as_str()).collect();
        let overlapping = tokens.iter().any(|token| token.rstrip)
            && tokens.iter().any(|token| token.content.starts_with(char::is_whitespace));
        if contents.len() < tokens.len()
            || contents.contains("")
            || overlapping
            || tokens.iter().any(|token| token.single_word)
        {
            return Ok(None);
        }
        let mut passes = Vec::new();
        for normalized in [false, true] {
            let of_pass = |at: &usize| tokens[*at].normalized == normalized;
            let places: Vec<usize> = (0..tokens.len()).filter(of_pass).collect();
            if !places.is_empty() {
                let mut begins = Box::new([false; 256]);
                places.iter().for_each(|&at| begins[tokens[at].content.as_bytes()[0] as usize] = true);
                let is_few = begins.iter().filter(|begins| **begins).count() <= FEW;
                let finder = AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .start_kind(StartKind::Both)
                    // Made in half the time, and slower, where it is asked at few places.
                    .kind((!is_few).then_some(AhoCorasickKind::NoncontiguousNFA))
                    .build(places.iter().map(|&at| &tokens[at].content))
                    .map_err(|error| Error::Pipeline { reason: error.to_string() })?;
                passes.push(Pass { finder, begins: (!is_few).then_some(begins), places });
            }
        }
        Ok(Some(Self { tokens, passes }))
    }

    /// Whether text may be cut between something that is not white space and a space or newline after it: no token
    /// spans such a place, and none strips white space to its right.
    pub(crate) fn allows_cuts(&self) -> bool {
        self.tokens.iter().all(|token| {
            let spans = token.content.char_indices().any(|(at, character)| {
                matches!(character, ' ' | '\n') && !token.content[..at].ends_with(char::is_whitespace) && at > 0
            });
            !spans && !token.rstrip
        })
    }

    /// Whether some token ends with a character.
    pub(crate) fn ends_with(&self, last: char) -> bool {
        self.tokens.iter().any(|token| token.content.ends_with(last))
    }

    /// Calls `emit` with every segment of the text, in order; none is empty text.
    pub(crate) fn split<'t>(&self, text: &'t str, emit: &mut impl FnMut(Segment<'t>)) {
        self.split_pass(0, text, emit);
    }

    fn split_pass<'t>(&self, pass: usize, text: &'t str, emit: &mut impl FnMut(Segment<'t>)) {
        let Some(found) = self.passes.get(pass) else {
            if !text.is_empty() {
                emit(Segment::Text(text));
            }
            return;
        };
        let (mut done, mut from) = (0, 0);
        while let Some(matched) = found.find(text, from) {
            let place = found.places[matched.pattern().as_usize()];
            from = matched.end();
            let token = &self.tokens[place];
            let (mut start, mut end) = (matched.start(), matched.end());
            if token.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                self.split_pass(pass + 1, &text[done..start], emit);
            }
            emit(Segment::Added(place));
            done = end;
        }
        self.split_pass(pass + 1, &text[done.min(text.len())..], emit);
    }
}
