//! Pretoken counts as sorted columns: the result of counting, and the input of training and of token counts.

use std::ops::Range;

use rayon::prelude::*;

use super::hold_out::hash;
use crate::bpe::Kept;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// Distinct pretokens in ascending order of their bytes, each with the number of its occurrences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    bytes: Vec<u8>,
    /// Where each pretoken ends in `bytes`; it begins where the one before it ends.
    ends: Vec<u64>,
    counts: Vec<u64>,
    kept: Kept,
}

impl Counts {
    /// Appends a pretoken, which must come after the last in order. The same one again adds to its count.
    ///
    /// # Errors
    ///
    /// When the count grows beyond `u64`.
    pub fn push(&mut self, pretoken: &[u8], count: u64) -> Result<()> {
        let last = self.len().checked_sub(1);
        if let Some(last) = last.filter(|&last| self.pretoken(last) == pretoken) {
            self.counts[last] = self.counts[last].checked_add(count).ok_or_else(|| overflow(pretoken))?;
            return Ok(());
        }
        self.append(pretoken, count);
        Ok(())
    }

    /// Appends a pretoken, which must come after the last in order and not be it.
    pub(super) fn append(&mut self, pretoken: &[u8], count: u64) {
        self.bytes.extend_from_slice(pretoken);
        self.ends.push(self.bytes.len() as u64);
        self.counts.push(count);
    }

    /// Counts out of columns, in any order; the same pretoken twice adds up.
    ///
    /// # Errors
    ///
    /// When the columns do not fit together, or a count grows beyond `u64`.
    pub fn from_columns(bytes: Vec<u8>, offsets: &[u64], counts: Vec<u64>) -> Result<Self> {
        let bad = |reason| Err(Error::BadCounts { reason });
        let Some((&start, ends)) = offsets.split_first() else { return bad("there are no offsets") };
        if ends.len() != counts.len() || start != 0 || ends.last().copied().unwrap_or(0) != bytes.len() as u64 {
            return bad("the columns have different lengths");
        }
        if !offsets.is_sorted() {
            return bad("the offsets do not ascend");
        }
        let given = Self { bytes, ends: ends.to_vec(), counts, kept: Kept::default() };
        if (1..given.len()).all(|place| given.pretoken(place - 1) < given.pretoken(place)) {
            return Ok(given);
        }
        let mut places: Vec<usize> = (0..given.len()).collect();
        places.par_sort_unstable_by_key(|&place| given.pretoken(place));
        let mut sorted = Self::default();
        places.into_iter().try_for_each(|place| sorted.push(given.pretoken(place), given.counts[place]))?;
        Ok(sorted)
    }

    /// The bytes of all pretokens, one after the other, and where each begins, with the end of the last.
    pub fn columns(&self) -> (&[u8], impl Iterator<Item = u64> + '_) {
        (&self.bytes, std::iter::once(0).chain(self.ends.iter().copied()))
    }

    /// Counts one after the other, each of which must come after the one before it in order.
    pub(super) fn concatenated(parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.into_iter().next().unwrap_or_default();
        }
        let (n_bytes, n_rows) = (parts.iter().map(|part| part.bytes.len()).sum(), parts.iter().map(Self::len).sum());
        let kept = Kept::default();
        let mut all = Self { bytes: vec![0; n_bytes], ends: vec![0; n_rows], counts: vec![0; n_rows], kept };
        let (mut bytes, mut ends, mut counts) = (&mut all.bytes[..], &mut all.ends[..], &mut all.counts[..]);
        let (mut start, mut places) = (0, Vec::with_capacity(parts.len()));
        for part in &parts {
            let place;
            (place, bytes) = bytes.split_at_mut(part.bytes.len());
            let (ends_place, more_ends) = ends.split_at_mut(part.len());
            let (counts_place, more_counts) = counts.split_at_mut(part.len());
            places.push((part, start, place, ends_place, counts_place));
            (ends, counts) = (more_ends, more_counts);
            start += part.bytes.len() as u64;
        }
        places.into_par_iter().for_each(|(part, start, bytes, ends, counts)| {
            bytes.copy_from_slice(&part.bytes);
            ends.iter_mut().zip(&part.ends).for_each(|(to, end)| *to = start + end);
            counts.copy_from_slice(&part.counts);
        });
        all
    }

    /// Reserves memory for more pretokens.
    pub(super) fn reserve(&mut self, more: usize) {
        self.ends.reserve(more);
        self.counts.reserve(more);
        self.bytes.reserve(more * 12);
    }

    /// All places in ranges of at most `most` pretokens, and of little more than `bytes` bytes.
    pub(crate) fn chunks(&self, most: usize, bytes: u64) -> Vec<Range<usize>> {
        let (mut chunks, mut start, mut begin) = (Vec::new(), 0, 0);
        for (place, &end) in self.ends.iter().enumerate() {
            if place + 1 - start >= most || end - begin >= bytes || place + 1 == self.len() {
                chunks.push(start..place + 1);
                (start, begin) = (place + 1, end);
            }
        }
        chunks
    }

    /// The counts in `n` parts, each pretoken in the one that its hash says. The same for all counts and platforms, so
    /// that the parts of several counts can be added up one by one.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`].
    pub fn split(&self, n: usize, stop: &Stop) -> Result<Vec<Self>> {
        let mut parts = vec![Self::default(); n.max(1)];
        for (pretoken, count) in self.iter() {
            stop.check()?;
            let part = hash(pretoken) % parts.len() as u64;
            parts[part as usize].append(pretoken, count);
        }
        Ok(parts)
    }

    /// Number of distinct pretokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The pretoken at a place.
    #[must_use]
    pub fn pretoken(&self, place: usize) -> &[u8] {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[start as usize..self.ends[place] as usize]
    }

    /// The counts, in the order of the pretokens.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The tokens of the pretokens, once a model has encoded them.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Pretokens with their counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        (0..self.len()).map(|place| (self.pretoken(place), self.counts[place]))
    }

    /// The occurrences of all pretokens.
    #[must_use]
    pub fn total(&self) -> u128 {
        self.counts.iter().map(|&count| u128::from(count)).sum()
    }

    /// The counts of both, added up.
    ///
    /// # Errors
    ///
    /// When a count grows beyond `u64`, and when it is stopped.
    pub fn plus(&self, other: &Self, stop: &Stop) -> Result<Self> {
        let mut sum = Self::default();
        let (mut left, mut right) = (self.iter().peekable(), other.iter().peekable());
        loop {
            stop.check()?;
            let first = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.0 <= b.0 => left.next(),
                (Some(_), None) => left.next(),
                (_, Some(_)) => right.next(),
                (None, None) => return Ok(sum),
            };
            if let Some((pretoken, count)) = first {
                sum.push(pretoken, count)?;
            }
        }
    }

    /// Every count times `numerator / denominator`, rounded to the nearest whole number, halves up. Pretokens whose
    /// count becomes 0 are left out.
    ///
    /// # Errors
    ///
    /// When a count grows beyond `u64`, and when it is stopped.
    pub fn scaled(&self, numerator: u64, denominator: u64, stop: &Stop) -> Result<Self> {
        let mut scaled = Self::default();
        let (numerator, denominator) = (u128::from(numerator), u128::from(denominator.max(1)));
        for (pretoken, count) in self.iter() {
            stop.check()?;
            let count = (u128::from(count) * numerator + denominator / 2) / denominator;
            match u64::try_from(count) {
                Ok(0) => (),
                Ok(count) => scaled.push(pretoken, count)?,
                Err(_) => return Err(overflow(pretoken)),
            }
        }
        Ok(scaled)
    }

    /// The pretokens at some places, which must be in order.
    #[must_use]
    pub fn at(&self, places: &[usize]) -> Self {
        let mut chosen = Self::default();
        places.iter().for_each(|&place| chosen.append(self.pretoken(place), self.counts[place]));
        chosen
    }

    /// The pretokens that occur at least `min_count` times.
    #[must_use]
    pub fn frequent(&self, min_count: u64) -> Self {
        let mut frequent = Self::default();
        let rows = self.iter().filter(|(_, count)| *count >= min_count);
        rows.for_each(|(pretoken, count)| frequent.append(pretoken, count));
        frequent
    }

    /// How often each character occurs in pretokens that are text, by code point; with `first`, at the front of one.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`].
    pub fn characters(&self, first: bool, stop: &Stop) -> Result<Vec<(char, u64)>> {
        let mut totals = vec![0u64; 0x11_0000];
        for (pretoken, count) in self.iter() {
            stop.check()?;
            let most = if first { 1 } else { usize::MAX };
            for character in String::from_utf8_lossy(pretoken).chars().take(most) {
                let total = &mut totals[character as usize];
                *total = total.saturating_add(count);
            }
        }
        let counted = (0u32..).zip(totals).filter(|(_, total)| *total > 0);
        Ok(counted.filter_map(|(code, total)| Some((char::from_u32(code)?, total))).collect())
    }

    /// The places of the `most` largest counts, largest first, equal ones in the order of their bytes.
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.len()).collect();
        let key = |&place: &usize| (std::cmp::Reverse(self.counts[place]), place);
        if most < places.len() {
            places.select_nth_unstable_by_key(most, key);
            places.truncate(most);
        }
        places.sort_unstable_by_key(key);
        places
    }
}

fn overflow(pretoken: &[u8]) -> Error {
    Error::Overflow { pretoken: String::from_utf8_lossy(pretoken).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::tests::stops_anywhere;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        let mut counts = Counts::default();
        for (pretoken, count) in pairs {
            counts.push(pretoken.as_bytes(), *count).unwrap();
        }
        counts
    }

    #[test]
    fn columns_may_come_in_any_order_and_must_fit() {
        let build = |bytes: &str, offsets: &[u64], counts: &[u64]| {
            Counts::from_columns(bytes.as_bytes().to_vec(), offsets, counts.to_vec())
        };
        assert_eq!(build("baab", &[0, 1, 2, 4], &[1, 2, 3]).unwrap(), counts(&[("a", 2), ("ab", 3), ("b", 1)]));
        assert_eq!(build("aba", &[0, 1, 2, 3], &[1, 2, 3]).unwrap(), counts(&[("a", 4), ("b", 2)]));
        assert_eq!(build("", &[0], &[]).unwrap(), Counts::default());
        for (bytes, offsets, values) in
            [("a", &[][..], &[][..]), ("ab", &[0, 1], &[1]), ("ab", &[1, 2], &[1]), ("ab", &[0, 3, 2], &[1, 1])]
        {
            assert!(matches!(build(bytes, offsets, values), Err(Error::BadCounts { .. })));
        }
    }

    #[test]
    fn chunks_cover_every_place_and_end_where_they_are_full() {
        let all = counts(&[("a", 1), ("b", 1), ("cccc", 1), ("d", 1), ("e", 1), ("f", 1)]);
        assert_eq!(all.chunks(3, 4), [0..3, 3..6]);
        assert_eq!(all.chunks(2, 4), [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(all.chunks(9, u64::MAX), vec![0..6; 1]);
        assert!(Counts::default().chunks(3, 4).is_empty());
    }

    #[test]
    fn sums_are_in_order_and_add_up() {
        let (a, b) = (counts(&[("", 1), ("a", 2), ("c", 3)]), counts(&[("a", 5), ("b", 1), ("d", 1)]));
        let sum = counts(&[("", 1), ("a", 7), ("b", 1), ("c", 3), ("d", 1)]);
        assert_eq!(a.plus(&b, &Stop::default()).unwrap(), sum);
        assert_eq!(b.plus(&a, &Stop::default()).unwrap(), sum);
        assert_eq!(sum.total(), 13);
    }

    #[test]
    fn scaling_rounds_halves_up_and_drops_counts_of_zero() {
        let scaled = counts(&[("a", 1), ("b", 2), ("c", 3), ("d", 5)]).scaled(1, 4, &Stop::default()).unwrap();
        assert_eq!(scaled, counts(&[("b", 1), ("c", 1), ("d", 1)]));
    }

    #[test]
    fn all_that_goes_through_the_rows_can_be_stopped_at_each_of_them() {
        let all = counts(&[("a", 1), ("b", 2), ("c", 3), ("d", 5)]);
        let looks = [
            stops_anywhere(|stop| all.scaled(1, 2, stop)),
            stops_anywhere(|stop| all.split(2, stop)),
            stops_anywhere(|stop| all.characters(false, stop)),
            stops_anywhere(|stop| all.plus(&all, stop)),
        ];
        assert_eq!(looks, [4, 4, 4, 9]); // the sum looks once more at its end
    }

    #[test]
    fn a_count_beyond_64_bits_is_an_error() {
        let most = counts(&[("a", u64::MAX)]);
        assert!(matches!(most.plus(&most, &Stop::default()), Err(Error::Overflow { .. })));
        assert!(matches!(most.scaled(2, 1, &Stop::default()), Err(Error::Overflow { .. })));
    }

    #[test]
    fn the_top_is_ordered_by_count_then_bytes() {
        let all = counts(&[("a", 1), ("b", 9), ("c", 9), ("d", 2)]);
        assert_eq!(all.top(3), [1, 2, 3]);
        assert_eq!(all.top(99), [1, 2, 3, 0]);
        assert_eq!(all.top(0), [0; 0]);
    }
}
