//! Finds the texts that contain a string, by the list of all their suffixes, sorted by their first bytes.

use rayon::prelude::*;

use crate::error::Result;
use crate::stop::Stop;

/// Where a suffix begins: the number of its text, and the byte in it.
pub(super) type Place = (u32, u32);

/// The bytes by which suffixes are sorted.
const KEY: usize = 8;
/// Suffixes are put into buckets by their first two bytes, and then each bucket is sorted.
const BUCKETS: usize = 1 << 16;

/// All suffixes of some texts that begin at a character, in the order of their first bytes.
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
    pub(super) fn new<T>(texts: &[T], numbers: impl Iterator<Item = u32> + Clone, stop: &Stop) -> Result<Self>
    where
        T: AsRef<str> + Sync,
    {
        let keyed = |number: u32| {
            let text = texts[number as usize].as_ref();
            text.char_indices().map(move |(at, _)| (key(&text.as_bytes()[at..], 0), (number, at as u32)))
        };
        let mut ends = vec![0; BUCKETS + 1];
        numbers.clone().flat_map(keyed).for_each(|(key, _)| ends[bucket(key) + 1] += 1);
        for bucket in 0..BUCKETS {
            ends[bucket + 1] += ends[bucket];
        }
        let mut sorted = vec![(0, (0, 0)); ends[BUCKETS]];
        for number in numbers {
            stop.check()?;
            for suffix in keyed(number) {
                let end = &mut ends[bucket(suffix.0)];
                sorted[*end] = suffix;
                *end += 1;
            }
        }
        let mut buckets: Vec<&mut [(u64, Place)]> =
            sorted.chunk_by_mut(|one, other| bucket(one.0) == bucket(other.0)).collect();
        buckets.par_iter_mut().try_for_each(|bucket| {
            stop.check()?;
            bucket.sort_unstable_by_key(|suffix| suffix.0);
            Ok(())
        })?;
        Ok(Self { places: sorted.into_par_iter().map(|(_, place)| place).collect() })
    }

    /// Where a string occurs, in order.
    pub(super) fn places<T: AsRef<str>>(&self, texts: &[T], string: &str) -> Vec<Place> {
        let suffix = |(text, at): Place| &texts[text as usize].as_ref().as_bytes()[at as usize..];
        let (least, most) = (key(string.as_bytes(), 0), key(string.as_bytes(), u8::MAX));
        let start = self.places.partition_point(|place| key(suffix(*place), 0) < least);
        let length = self.places[start..].partition_point(|place| key(suffix(*place), 0) <= most);
        let mut places = self.places[start..start + length].to_vec();
        if string.len() > KEY || string.contains('\0') {
            places.retain(|place| suffix(*place).starts_with(string.as_bytes()));
        }
        places.sort_unstable();
        places
    }
}

fn bucket(key: u64) -> usize {
    (key >> 48) as usize
}

/// The first bytes as a number; missing ones are `fill`.
fn key(bytes: &[u8], fill: u8) -> u64 {
    if let Some(first) = bytes.first_chunk::<KEY>() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [fill; KEY];
    first[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(first)
}
