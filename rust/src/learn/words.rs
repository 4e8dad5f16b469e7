//! The words that training works on, as one array of slots: every token with links to its neighbours.
//!
//! A token takes as many slots as the base has tokens for its text. The first slot has the token. If there are others,
//! the second and the last have the number of slots, so that both neighbours are found in one step, however long the
//! word is. A slot with `BOUNDARY` ends each word.

use std::ops::Range;

use crate::memory::{prefetch, with_capacity};
use crate::stop::Stop;

/// A slot with this number ends a word.
pub(super) const BOUNDARY: u32 = LINK - 1;
/// The bit of slots that are not the first of their token.
const LINK: u32 = 1 << 31;
/// The bit of counts that do not fit into a slot and are in a table.
const LARGE: u32 = 1 << 31;

/// A token or a link, and the count of the word it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    token: u32,
    count: u32,
}

/// All words, one after the other.
#[derive(Debug, Default)]
pub(super) struct Words {
    slots: Vec<Slot>,
    large_counts: Vec<u64>,
    /// By token: whether it has ever been in a word.
    occurred: Vec<bool>,
}

/// Two neighbouring tokens, where the left one is, and the count of their word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Neighbours {
    pub(super) place: usize,
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) count: u64,
}

/// A pair of neighbours that has been merged, with the tokens around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) count: u64,
    /// The token before the pair and its place.
    pub(super) before: Option<(u32, usize)>,
    pub(super) after: Option<u32>,
}

impl Words {
    /// No words, with room for some slots.
    pub(super) fn with_capacity(slots: usize) -> Self {
        Self { slots: with_capacity(slots), ..Self::default() }
    }

    /// Appends words: all their tokens, `BOUNDARY` after each word, and the counts of the words.
    pub(super) fn append(&mut self, tokens: &[u32], mut counts: impl Iterator<Item = u64>) {
        self.slots.reserve(tokens.len());
        for word in tokens.split_inclusive(|&token| token == BOUNDARY) {
            let count = counts.next().map_or(0, |count| self.narrow(count));
            self.slots.extend(word.iter().map(|&token| Slot { token, count }));
        }
        tokens.iter().filter(|&&token| token != BOUNDARY).for_each(|&token| self.set_occurred(token));
    }

    /// Whether a token has ever been in a word.
    pub(super) fn has_occurred(&self, token: u32) -> bool {
        self.occurred.get(token as usize).copied().unwrap_or(false)
    }

    pub(super) fn set_occurred(&mut self, token: u32) {
        if token as usize >= self.occurred.len() {
            self.occurred.resize(token as usize + 1, false);
        }
        self.occurred[token as usize] = true;
    }

    fn narrow(&mut self, count: u64) -> u32 {
        match u32::try_from(count) {
            Ok(count) if count < LARGE => count,
            _ => {
                self.large_counts.push(count);
                LARGE | (self.large_counts.len() - 1) as u32
            }
        }
    }

    /// The number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// To read the words until that is to end.
    pub(super) fn reader<'w>(&'w self, stop: &'w Stop) -> Reader<'w> {
        Reader { words: self, stop }
    }

    /// Ranges between words, of about the same size.
    pub(super) fn ranges(&self, number: usize) -> Vec<Range<usize>> {
        let mut ranges = Vec::with_capacity(number);
        let mut start = 0;
        for part in 1..=number {
            let rest = self.slots[(self.slots.len() * part / number).max(start)..].iter();
            let end = self.slots.len() - rest.as_slice().len();
            let end = rest.take_while(|slot| slot.token != BOUNDARY).count() + end;
            let end = (end + 1).min(self.slots.len());
            ranges.push(start..end);
            start = end;
        }
        ranges
    }

    /// All words as one part.
    pub(super) fn whole(&mut self) -> Part<'_> {
        Part { slots: &mut self.slots, start: 0, large_counts: &self.large_counts }
    }

    /// The place where the word of a token begins, if it is at most `steps` tokens before.
    pub(super) fn word_start(&self, place: usize, steps: usize) -> Option<usize> {
        let mut at = place;
        for _ in 0..steps {
            match previous(&self.slots, at) {
                Some(before) => at = before,
                None => return Some(at),
            }
        }
        None
    }
}

/// Reads words. If that is to end, it reads no further: whoever reads looks at `stop` afterwards.
#[derive(Clone, Copy)]
pub(super) struct Reader<'w> {
    words: &'w Words,
    pub(super) stop: &'w Stop,
}

impl Reader<'_> {
    /// The slots that are read between two looks, in a few milliseconds.
    const SLOTS: usize = 1 << 20;
    /// The most neighbours of a block.
    pub(super) const BLOCK: usize = 64;

    /// The number of slots.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Ranges between words, of about the same size.
    pub(super) fn ranges(&self, number: usize) -> Vec<Range<usize>> {
        self.words.ranges(number)
    }

    /// Calls `each` with the neighbours in a range between words, in order.
    #[inline]
    pub(super) fn for_each_pair_in(&self, range: Range<usize>, mut each: impl FnMut(Neighbours)) {
        let slots = &self.words.slots[..range.end];
        let mut place = range.start;
        while place < slots.len() && self.stop.check().is_ok() {
            let end = slots.len().min(place + Self::SLOTS);
            while place < end {
                let Slot { token: left, count } = slots[place];
                let next = next(slots, place);
                let right = slots.get(next).map_or(BOUNDARY, |slot| slot.token);
                if left != BOUNDARY && right != BOUNDARY {
                    each(Neighbours { place, left, right, count: wide(count, &self.words.large_counts) });
                }
                place = next;
            }
        }
    }

    /// Calls `each` with the neighbours in a range between words, in order, some at a time.
    #[inline]
    pub(super) fn for_each_block_in(&self, range: Range<usize>, mut each: impl FnMut(&[Neighbours])) {
        let mut block = [Neighbours::default(); Self::BLOCK];
        let mut length = 0;
        self.for_each_pair_in(range, |pair| {
            block[length] = pair;
            length += 1;
            if length == Self::BLOCK {
                each(&block);
                length = 0;
            }
        });
        each(&block[..length]);
    }
}

/// Some of the words, to be changed. Places are those of the whole.
pub(super) struct Part<'w> {
    slots: &'w mut [Slot],
    start: usize,
    large_counts: &'w [u64],
}

impl<'w> Part<'w> {
    /// The words before a place, which must begin one, and those from it on.
    pub(super) fn split_at(self, place: usize) -> (Self, Self) {
        let (before, after) = self.slots.split_at_mut(place - self.start);
        let large_counts = self.large_counts;
        (Self { slots: before, start: self.start, large_counts }, Self { slots: after, start: place, large_counts })
    }

    /// Starts to load a place that will be needed soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: usize) {
        prefetch(self.slots, place - self.start);
    }

    /// Merges the tokens at a place, if they are these.
    #[inline]
    pub(super) fn merge(&mut self, place: usize, (left, right): (u32, u32), product: u32) -> Option<Merged> {
        let at = place - self.start;
        if self.slots[at].token != left {
            return None;
        }
        let at_right = next(self.slots, at);
        if self.slots[at_right].token != right {
            return None;
        }
        let end = next(self.slots, at_right);
        let before = previous(self.slots, at).map(|at| (self.slots[at].token, self.start + at));
        let after = Some(self.slots[end].token).filter(|&token| token != BOUNDARY);
        let count = wide(self.slots[at].count, self.large_counts);
        let link = LINK | (end - at) as u32;
        self.slots[at].token = product;
        self.slots[at_right].token = LINK; // no longer the first slot of a token
        self.slots[at + 1].token = link;
        self.slots[end - 1].token = link;
        Some(Merged { count, before, after })
    }
}

#[inline(always)]
fn wide(count: u32, large_counts: &[u64]) -> u64 {
    if count < LARGE {
        u64::from(count)
    } else {
        large_counts[(count & !LARGE) as usize]
    }
}

/// Where the token after the one at `at` begins.
#[inline(always)]
fn next(slots: &[Slot], at: usize) -> usize {
    match slots.get(at + 1) {
        Some(&Slot { token, .. }) if token >= LINK => at + (token & !LINK) as usize,
        _ => at + 1,
    }
}

/// Where the token before the one at `at` begins, if it is of the same word.
#[inline(always)]
fn previous(slots: &[Slot], at: usize) -> Option<usize> {
    match slots[at.checked_sub(1)?].token {
        BOUNDARY => None,
        token if token >= LINK => Some(at - (token & !LINK) as usize),
        _ => Some(at - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[(&[u32], u64)]) -> Words {
        let mut all = Words::default();
        let tokens: Vec<u32> = words.iter().flat_map(|(word, _)| [word, &[BOUNDARY][..]].concat()).collect();
        all.append(&tokens, words.iter().map(|(_, count)| *count));
        all
    }

    fn pairs(words: &Words) -> Vec<(u32, u32, u64)> {
        let mut pairs = Vec::new();
        words
            .reader(&Stop::default())
            .for_each_pair_in(0..words.len(), |pair| pairs.push((pair.left, pair.right, pair.count)));
        pairs
    }

    #[test]
    fn merging_links_the_neighbours_of_tokens_of_any_length() {
        let mut words = words(&[(&[1, 2, 3, 4, 5, 6], 7), (&[8, 9], 1 << 40)]);
        let mut part = words.whole();
        assert_eq!(part.merge(1, (2, 3), 23), Some(Merged { count: 7, before: Some((1, 0)), after: Some(4) }));
        assert_eq!(part.merge(1, (2, 3), 23), None); // merged away
        assert_eq!(part.merge(2, (3, 4), 34), None);
        assert_eq!(part.merge(3, (4, 5), 45), Some(Merged { count: 7, before: Some((23, 1)), after: Some(6) }));
        assert_eq!(part.merge(1, (23, 45), 2345), Some(Merged { count: 7, before: Some((1, 0)), after: Some(6) }));
        assert_eq!(part.merge(3, (45, 6), 456), None);
        assert_eq!(part.merge(1, (2345, 6), 26), Some(Merged { count: 7, before: Some((1, 0)), after: None }));
        assert_eq!(part.merge(7, (8, 9), 89), Some(Merged { count: 1 << 40, before: None, after: None }));
        assert_eq!(pairs(&words), [(1, 26, 7)]);
    }

    #[test]
    fn counts_of_any_size_are_kept() {
        let large = [u64::from(LARGE) - 1, u64::from(LARGE), u64::from(u32::MAX), u64::MAX];
        let all = words(&large.map(|count| (&[1, 2][..], count)));
        assert_eq!(pairs(&all).into_iter().map(|pair| pair.2).collect::<Vec<_>>(), large);
    }

    #[test]
    fn ranges_are_between_words_and_cover_all() {
        let (long, never) = ([5; 40], Stop::default());
        let all = words(&[(&[1, 2], 1), (&long, 1), (&[3, 4], 1), (&[6, 7], 1)]);
        for number in 1..9 {
            let ranges = all.ranges(number);
            assert_eq!((ranges.len(), ranges[0].start, ranges[number - 1].end), (number, 0, all.len()));
            let mut parts = Vec::new();
            for (range, next) in ranges.iter().zip(ranges[1..].iter().map(|range| range.start).chain([all.len()])) {
                assert_eq!(range.end, next);
                let reader = all.reader(&never);
                reader.for_each_pair_in(range.clone(), |pair| parts.push((pair.left, pair.right, pair.count)));
            }
            assert_eq!(parts, pairs(&all));
        }
        assert_eq!(Words::default().ranges(2), [0..0, 0..0]);
    }
}
