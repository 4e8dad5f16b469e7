//! Finds the texts that contain a string, by the list of all their suffixes, sorted by their first bytes.

use rayon::prelude::*;

use crate::error::Result;
use crate::stop::Stop;

/// Where a suffix begins: the number of its text, and the byte in it.
pub(super) type Place = (u32, u32);

/// The bytes by which suffixes are sorted.
const KEY: usize = 8;
/// Suffixes that are sorted between two looks at the stop.
const CHUNK: usize = 1 << 20;

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
    pub(super) fn new<T>(texts: &[T], numbers: impl Iterator<Item = u32>, stop: &Stop) -> Result<Self>
    where
        T: AsRef<str> + Sync,
    {
        let keyed = |number: u32| {
            let text = texts[number as usize].as_ref();
            text.char_indices().map(move |(at, _)| (key(&text.as_bytes()[at..], 0), (number, at as u32)))
        };
        let mut keyed: Vec<(u64, Place)> = numbers.flat_map(keyed).collect();
        keyed.par_chunks_mut(CHUNK).try_for_each(|chunk| {
            stop.check()?;
            chunk.sort_unstable();
            Ok(())
        })?;
        keyed.par_sort(); // merges the sorted chunks
        Ok(Self { places: keyed.into_par_iter().map(|(_, place)| place).collect() })
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

/// The first bytes as a number; missing ones are `fill`.
fn key(bytes: &[u8], fill: u8) -> u64 {
    let mut first = [fill; KEY];
    let length = bytes.len().min(KEY);
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}
