//! Finds the matches of an automaton in a text and splits the text at them.

use std::ops::Range;

use memchr::memchr;
use serde::Deserialize;

use super::dfa::{Boundary, Dfa, DEAD};
use super::sets::Classes;
use crate::bpe::character_of;

/// What happens to a match: the names of `tokenizers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// What a matcher reads as a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Character,
    /// A byte, as the character that the byte-level alphabet has for it.
    Byte,
}

/// Bytes from which on a failed attempt is worth a second look.
const LONG: usize = 64;

/// Finds the matches of a pattern.
#[derive(Debug)]
pub(super) struct Matcher {
    pub(super) dfa: Dfa,
    pub(super) unit: Unit,
    /// The class of a byte, if units are bytes.
    pub(super) byte_classes: Box<[u8; 256]>,
    /// Whether a match may begin with a byte, or with a character whose first byte it is.
    starts: Box<[bool; 256]>,
    /// The byte, if there is only one.
    only_start: Option<u8>,
}

/// The text of a piece, by classes of units.
trait Read {
    /// The class of the unit at a place and its width; at the end of the text, the class of the end and 0.
    fn class(&self, at: usize) -> (usize, usize);
}

struct Characters<'t> {
    bytes: &'t [u8],
    classes: &'t [u8],
    end: usize,
}

impl Read for Characters<'_> {
    #[inline(always)]
    fn class(&self, at: usize) -> (usize, usize) {
        if at >= self.bytes.len() {
            return (self.end, 0);
        }
        let (code, width) = code_at(self.bytes, at);
        (self.classes[code] as usize, width)
    }
}

/// The character that begins at a place in UTF-8, as its number, and its width.
#[inline(always)]
pub(super) fn code_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let first = usize::from(bytes[at]);
    let tail = |place: usize| usize::from(bytes.get(at + place).copied().unwrap_or(0) & 0x3F);
    match first {
        ..=0x7F => (first, 1),
        0x80..=0xDF => (((first & 0x1F) << 6) | tail(1), 2),
        0xE0..=0xEF => (((first & 0x0F) << 12) | (tail(1) << 6) | tail(2), 3),
        _ => (((first & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3), 4),
    }
}

struct Bytes<'t> {
    bytes: &'t [u8],
    classes: &'t [u8; 256],
    end: usize,
}

impl Read for Bytes<'_> {
    #[inline(always)]
    fn class(&self, at: usize) -> (usize, usize) {
        self.bytes.get(at).map_or((self.end, 0), |&byte| (self.classes[byte as usize] as usize, 1))
    }
}

impl Matcher {
    pub(super) fn new(dfa: Dfa, unit: Unit, classes: &Classes) -> Self {
        let byte_classes = Box::new(std::array::from_fn(|byte| classes.of[character_of(byte as u8) as usize]));
        let may_start = |class: usize| dfa.read(dfa.start(), class).0 != DEAD;
        let may_begin = |byte: u8| match unit {
            Unit::Byte => may_start(byte_classes[byte as usize] as usize),
            Unit::Character => (0..classes.count).any(|class| may_start(class) && classes.begins_with(class, byte)),
        };
        let starts: Box<[bool; 256]> = Box::new(std::array::from_fn(|byte| may_begin(byte as u8)));
        let mut bytes = (0..=u8::MAX).filter(|&byte| starts[byte as usize]);
        let only_start = bytes.next().filter(|_| bytes.next().is_none());
        Self { dfa, unit, byte_classes, starts, only_start }
    }

    /// Calls `emit` with the range of every match in a part of a text, in order.
    #[inline(always)]
    pub(super) fn matches(&self, text: &str, at: Range<usize>, classes: &Classes, emit: impl FnMut(Range<usize>)) {
        let (bytes, end) = (&text.as_bytes()[..at.end], classes.end());
        match self.unit {
            Unit::Character => self.find(&Characters { bytes, classes: &classes.of, end }, bytes, at.start, emit),
            Unit::Byte => self.find(&Bytes { bytes, classes: &self.byte_classes, end }, bytes, at.start, emit),
        }
    }

    #[inline(always)]
    fn find(&self, text: &impl Read, bytes: &[u8], mut start: usize, mut emit: impl FnMut(Range<usize>)) {
        loop {
            start = self.next_start(bytes, start);
            let (mut at, mut state, mut end) = (start, self.dfa.start(), start);
            loop {
                let (class, width) = text.class(at);
                let (next, matched) = self.dfa.read(state, class);
                if matched {
                    end = at;
                }
                if next == DEAD {
                    break;
                }
                state = next;
                at += width;
            }
            if end > start {
                emit(start..end);
                start = end;
                continue;
            }
            start = if at - start > LONG { self.after_failure(text, start) } else { start + text.class(start).1 };
            if start >= bytes.len() {
                return;
            }
        }
    }

    /// The next place where a match may begin; the end of the text if there is none.
    #[inline(always)]
    fn next_start(&self, bytes: &[u8], mut start: usize) -> usize {
        const TOGETHER: usize = 8;
        let may_start = |byte: &u8| self.starts[*byte as usize];
        if bytes.get(start).is_none_or(may_start) {
            return start;
        }
        if let Some(only) = self.only_start {
            return memchr(only, &bytes[start..]).map_or(bytes.len(), |away| start + away);
        }
        while let Some(some) = bytes.get(start..start + TOGETHER) {
            if some.iter().fold(false, |any, byte| any | may_start(byte)) {
                break;
            }
            start += TOGETHER;
        }
        bytes[start..].iter().position(may_start).map_or(bytes.len(), |away| start + away)
    }

    /// Where to look next after a long attempt at `start` that found nothing.
    ///
    /// An attempt at one of the next places finds nothing either if it soon is in the state in which the failed one was
    /// at the same place. Without this, `\s+$` takes quadratic time on white space that does not end its line.
    #[cold]
    fn after_failure(&self, text: &impl Read, mut start: usize) -> usize {
        let (mut at, mut state, mut since) = (start, self.dfa.start(), start);
        let mut longest = (state, start..start);
        while state != DEAD {
            let (class, width) = text.class(at);
            let next = self.dfa.read(state, class).0;
            if next != state {
                if at - since > longest.1.len() {
                    longest = (state, since..at);
                }
                since = at + width;
            }
            (state, at) = (next, at + width);
        }
        loop {
            let width = text.class(start).1;
            start += width;
            let (class, width) = text.class(start);
            let fails = self.dfa.read(self.dfa.start(), class).0 == longest.0;
            if width == 0 || !fails || !(longest.1.start..=longest.1.end).contains(&(start + width)) {
                return start;
            }
        }
    }

    /// Calls `emit` with the pieces of a part of a text, in order. None is empty.
    #[inline(always)]
    pub(super) fn split(
        &self,
        rule: Rule,
        text: &str,
        at: Range<usize>,
        classes: &Classes,
        mut emit: impl FnMut(Range<usize>),
    ) {
        let mut joiner = Joiner { rule, pending: None };
        let mut done = at.start;
        if rule.behavior == Behavior::Isolated {
            self.matches(text, at.clone(), classes, |found| {
                if done < found.start {
                    emit(done..found.start);
                }
                done = found.end;
                emit(found);
            });
            if done < at.end {
                emit(done..at.end);
            }
            return;
        }
        self.matches(text, at.clone(), classes, |found| {
            if done < found.start {
                joiner.add(done..found.start, false, &mut emit);
            }
            done = found.end;
            joiner.add(found, true, &mut emit);
        });
        if done < at.end {
            joiner.add(done..at.end, false, &mut emit);
        }
        if let Some((piece, _)) = joiner.pending {
            emit(piece);
        }
    }

    /// What is known about the place between two characters. None if a match may span it, or look across it.
    pub(super) fn boundary(&self, left: char, right: char, classes: &Classes) -> Option<Boundary> {
        let mut buffer = [0; 4];
        let (left, right) = match self.unit {
            Unit::Character => (classes.of[left as usize], classes.of[right as usize]),
            Unit::Byte => {
                let last = left.encode_utf8(&mut buffer).as_bytes().last().copied().unwrap_or_default();
                let first = right.encode_utf8(&mut buffer).as_bytes()[0];
                (self.byte_classes[last as usize], self.byte_classes[first as usize])
            }
        };
        self.dfa.boundary(left as usize, right as usize)
    }
}

/// How text is split at matches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) behavior: Behavior,
    /// What does not match counts as a match, and the other way round.
    pub(super) invert: bool,
}

impl Rule {
    /// Whether two neighbours are one piece: a part of the text that is a match or not, and the next.
    fn joins(self, left: bool, right: bool) -> bool {
        match self.behavior {
            Behavior::Removed | Behavior::Isolated => false,
            Behavior::MergedWithPrevious => !left && right,
            Behavior::MergedWithNext => left && !right,
            Behavior::Contiguous => left == right,
        }
    }

    /// Whether a piece certainly ends at a boundary.
    pub(super) fn separates(self, boundary: Boundary) -> bool {
        let Boundary { ends, never_ends, begins, never_begins } = boundary;
        let left = [(true, !never_ends), (false, !ends)];
        let right = [(true, !never_begins), (false, !begins)];
        let possible = |sides: [(bool, bool); 2]| sides.into_iter().filter(|side| side.1).map(|side| side.0);
        let is_separate = |left: bool, right: bool| !self.joins(left ^ self.invert, right ^ self.invert);
        // Two parts that do not match are one part, if no match ends or begins between them.
        possible(left).all(|left| possible(right).all(|right| (left || right) && is_separate(left, right)))
    }
}

/// Puts the parts of a text together that are one piece.
struct Joiner {
    rule: Rule,
    pending: Option<(Range<usize>, bool)>,
}

impl Joiner {
    #[inline(always)]
    fn add(&mut self, part: Range<usize>, is_match: bool, emit: &mut impl FnMut(Range<usize>)) {
        let is_match = is_match ^ self.rule.invert;
        if self.rule.behavior == Behavior::Removed {
            if !is_match {
                emit(part);
            }
            return;
        }
        match self.pending.take() {
            Some((before, was_match)) if self.rule.joins(was_match, is_match) => {
                self.pending = Some((before.start..part.end, is_match));
            }
            before => {
                if let Some((before, _)) = before {
                    emit(before);
                }
                self.pending = Some((part, is_match));
            }
        }
    }
}
