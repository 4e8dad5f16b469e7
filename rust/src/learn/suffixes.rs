//! Finds the texts that contain a string, by the list of all their suffixes, sorted by their first bytes.

use rayon::prelude::*;

use crate::error::Result;
use crate::stop::Stop;

/// Where a suffix begins: the number of its text, and the byte in it.
pub(super) type Place = (u32, u32);

/// The bytes by which suffixes are sorted.
const KEY: usize = 8;
/// Suffixes are put into buckets by their first two bytes, by every thread those of some texts. Then each bucket is
/// sorted.
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
    pub(super) fn new<T: AsRef<str> + Sync>(texts: &[T], numbers: &[u32], stop: &Stop) -> Result<Self> {
        let part = numbers.len().div_ceil(rayon::current_num_threads()).max(1);
        let parts = numbers.par_chunks(part).map(|numbers| Buckets::new(texts, numbers, stop));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let mut places = vec![(0, 0); parts.iter().map(|part| part.suffixes.len()).sum()];
        let (mut buckets, mut rest) = (Vec::new(), &mut places[..]);
        for bucket in 0..BUCKETS {
            let length = parts.iter().map(|part| part.bucket(bucket).len()).sum();
            let (first, others) = rest.split_at_mut(length);
            buckets.push((bucket, first));
            rest = others;
        }
        buckets.into_par_iter().try_for_each_init(Vec::new, |suffixes, (bucket, places)| {
            stop.check()?;
            suffixes.clear();
            parts.iter().for_each(|part| suffixes.extend_from_slice(part.bucket(bucket)));
            suffixes.sort_unstable_by_key(|suffix| suffix.0);
            places.iter_mut().zip(suffixes).for_each(|(place, suffix)| *place = suffix.1);
            Ok(())
        })?;
        Ok(Self { places })
    }

    /// Where a string occurs, in any order.
    pub(super) fn places<T: AsRef<str>>(&self, texts: &[T], string: &str) -> Vec<Place> {
        let suffix = |(text, at): Place| &texts[text as usize].as_ref().as_bytes()[at as usize..];
        let (least, most) = (key(string.as_bytes(), 0), key(string.as_bytes(), u8::MAX));
        let start = self.places.partition_point(|place| key(suffix(*place), 0) < least);
        let length = self.places[start..].partition_point(|place| key(suffix(*place), 0) <= most);
        let mut places = self.places[start..start + length].to_vec();
        if string.len() > KEY || string.contains('\0') {
            places.retain(|place| suffix(*place).starts_with(string.as_bytes()));
        }
        places
    }
}

/// The suffixes of some texts, with their first bytes, in buckets.
struct Buckets {
    suffixes: Vec<(u64, Place)>,
    ends: Vec<usize>,
}

impl Buckets {
    fn new<T: AsRef<str>>(texts: &[T], numbers: &[u32], stop: &Stop) -> Result<Self> {
        let keyed = |number: &u32| {
            let (text, number) = (texts[*number as usize].as_ref(), *number);
            text.char_indices().map(move |(at, _)| (key_at(text.as_bytes(), at), (number, at as u32)))
        };
        let mut ends = vec![0; BUCKETS + 1];
        numbers.iter().flat_map(keyed).for_each(|(key, _)| ends[bucket(key) + 1] += 1);
        for bucket in 0..BUCKETS {
            ends[bucket + 1] += ends[bucket];
        }
        let mut suffixes = vec![(0, (0, 0)); ends[BUCKETS]];
        for number in numbers {
            stop.check()?;
            for suffix in keyed(number) {
                let end = &mut ends[bucket(suffix.0)];
                suffixes[*end] = suffix;
                *end += 1;
            }
        }
        Ok(Self { suffixes, ends })
    }

    fn bucket(&self, bucket: usize) -> &[(u64, Place)] {
        let start = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.suffixes[start..self.ends[bucket]]
    }
}

fn bucket(key: u64) -> usize {
    (key >> 48) as usize
}

/// The key of a suffix of a text.
#[inline]
fn key_at(text: &[u8], at: usize) -> u64 {
    match text.last_chunk::<KEY>() {
        // Nearly every suffix of a word is short, and copying it alone takes longer.
        Some(last) if text.len() - at < KEY => u64::from_be_bytes(*last) << (8 * (KEY - (text.len() - at))),
        _ => key(&text[at..], 0),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_suffix_is_that_of_its_bytes() {
        for length in 0..=20u8 {
            let text: Vec<u8> = (1..=length).collect();
            for at in 0..text.len() {
                assert_eq!(key_at(&text, at), key(&text[at..], 0), "{length} {at}");
            }
        }
    }
}
