//! Finds the texts that contain a string, by the sorted list of all their suffixes.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::Result;
use crate::stop::Stop;

/// Where a suffix begins: the number of its text, and the byte in it.
type Place = (u32, u32);

/// All suffixes of some texts that begin at a character, in order.
#[derive(Debug, Default)]
pub(super) struct Suffixes {
    places: Vec<Place>,
}

impl Suffixes {
    /// The suffixes of the texts with some numbers.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Stopped`].
    pub(super) fn new<T>(texts: &[T], numbers: impl Iterator<Item = u32>, stop: &Stop) -> Result<Self>
    where
        T: AsRef<str> + Sync,
    {
        let starts = |number: u32| {
            let text = texts[number as usize].as_ref();
            text.char_indices().map(move |(at, _)| (number, at as u32))
        };
        let mut places: Vec<Place> = numbers.flat_map(starts).collect();
        // In groups, between which the caller may stop the work.
        let first = |place: &Place| suffix(texts, *place).chunks(2).next();
        places.par_sort_unstable_by(|one, other| first(one).cmp(&first(other)));
        let groups = places.par_chunk_by_mut(|one, other| first(one) == first(other));
        groups.try_for_each(|group| -> Result<()> {
            stop.check()?;
            group.sort_unstable_by(|one, other| suffix(texts, *one).cmp(suffix(texts, *other)).then(one.cmp(other)));
            Ok(())
        })?;
        Ok(Self { places })
    }

    /// The suffixes that begin with a string: a range of the list.
    pub(super) fn range<T: AsRef<str>>(&self, texts: &[T], string: &str) -> Range<usize> {
        let start = self.places.partition_point(|place| suffix(texts, *place) < string.as_bytes());
        let is_in = |place: &Place| suffix(texts, *place).starts_with(string.as_bytes());
        start..start + self.places[start..].partition_point(is_in)
    }

    /// The texts of a range, one for each suffix.
    pub(super) fn texts(&self, range: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        self.places[range].iter().map(|(text, _)| *text)
    }
}

fn suffix<T: AsRef<str>>(texts: &[T], (text, at): Place) -> &[u8] {
    &texts[text as usize].as_ref().as_bytes()[at as usize..]
}
