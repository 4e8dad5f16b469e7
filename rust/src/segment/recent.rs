//! The tokens of pretokens that occurred lately on a thread. Most pretokens of a text are among a few thousand: they are
//! found without a lock, and without looking for them in three places of the memory.

use std::ops::Range;

use crate::count::{short_key, Words, INLINE};

/// Places for pretokens, as a power of two: together they take half of the cache of a core.
const BITS: u32 = 13;
/// Numbers that a place has. Pretokens with more are not kept.
const NUMBERS: usize = 16;

/// Pretokens with their entries of [`super::Known`]. A pretoken takes the place of another one with the same hash.
pub(super) struct Recent {
    keys: Vec<Words>,
    numbers: Vec<[u32; NUMBERS]>,
}

/// A short pretoken.
#[derive(Clone, Copy)]
pub(super) struct Short {
    pub(super) words: Words,
    pub(super) hash: u64,
}

impl Short {
    /// None if the pretoken is long.
    #[inline]
    pub(super) fn new(bytes: &[u8], at: Range<usize>) -> Option<Self> {
        (at.len() <= INLINE).then(|| {
            let (words, hash) = short_key(bytes, at);
            Self { words, hash }
        })
    }

    fn place(self) -> usize {
        (self.hash >> (u64::BITS - BITS)) as usize
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self { keys: vec![[0; 3]; 1 << BITS], numbers: vec![[0; NUMBERS]; 1 << BITS] }
    }
}

impl Recent {
    /// The entry of a pretoken, if it is there.
    #[inline]
    pub(super) fn numbers(&self, short: Short) -> Option<&[u32]> {
        let place = short.place();
        (self.keys[place] == short.words).then(|| &self.numbers[place][..])
    }

    /// Keeps the entry of a pretoken, if it is not too long.
    pub(super) fn put(&mut self, short: Short, entry: &[u32]) {
        let place = short.place();
        if let Some(numbers) = self.numbers[place].get_mut(..entry.len()) {
            numbers.copy_from_slice(entry);
            self.keys[place] = short.words;
        }
    }
}
