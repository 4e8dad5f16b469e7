//! A hash table that counts short byte strings. Keys are never removed. Sorting what it holds is in `sorted.rs`.
//!
//! Counting is bound by cache misses and mispredicted branches, not by arithmetic. A slot is half a cache line with keys
//! of up to 23 bytes inside it, and keys are looked up in batches, whose slots are all loaded before the first is needed.

use crate::memory::{free_slots, prefetch};
use std::ops::Range;

/// Keys of at most this many bytes live inside their slot.
pub(crate) const INLINE: usize = 23;
/// Short keys looked up together. Current cores keep about 32 loads in flight.
const BATCH: usize = 32;
/// Long keys looked up together: each needs two loads, one after the other.
const LONG_BATCH: usize = 16;
/// Longer keys are looked up at once. Copying them costs more than waiting for their slots.
const LONGEST_WAITING: usize = 512;
/// In the top byte of the third word of a long key.
const LONG: u64 = 0xFF << 56;
/// Where the place of a long key ends in the third word: an arena of a terabyte would not fit into memory.
const PLACE_BITS: u32 = 40;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
/// Bytes of the length before a long key in the arena.
const HEADER: usize = size_of::<u64>();
/// Small tables grow by this many doublings at once, so that most keys are moved only a few times.
const FAST_GROWTH: (u32, u32) = (20, 2);
/// When the table grows, keys that occur at least this often are moved first, which puts them where they are found at
/// once.
const FREQUENT: u64 = 8;
const SEEDS: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03, 0x8CB9_2BA7_2F3D_8DD7];

/// Three words that identify a key.
///
/// A short key is its bytes, little end first, with its length plus one in the top byte of the third word, so that no
/// key is 0. A long one is its first 16 bytes, then `LONG`, 16 bits of its hash, and its place in the arena.
pub(crate) type Words = [u64; 3];

/// The words of a key and its count; free when all are 0.
///
/// Plain words, so that a table of free slots is zeroed memory that the system has not yet mapped.
pub(super) type Slot = [u64; 4];
pub(super) const COUNT: usize = 3;

/// The bits of the words that belong to a key of each length, and the word that has the length.
const MASKS: [(Words, u64); INLINE + 1] = {
    let mut masks = [([0; 3], 0); INLINE + 1];
    let mut length = 0;
    while length <= INLINE {
        let mut at = 0;
        while at < length {
            masks[length].0[at / 8] |= 0xFF << (8 * (at % 8));
            at += 1;
        }
        masks[length].1 = (length as u64 + 1) << 56;
        length += 1;
    }
    masks
};

/// Byte strings with the number of their occurrences.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    used: usize,
    shift: u32,
    /// Long keys, each after its length.
    arena: Vec<u8>,
    pending: [(u64, Words); BATCH],
    waiting: usize,
    /// Long keys that are waiting, one after the other; and the hash and end of each.
    long_bytes: Vec<u8>,
    long_keys: Vec<(u64, usize)>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let bits = 12;
        Self {
            slots: free_slots(1 << bits),
            used: 0,
            shift: 64 - bits,
            arena: Vec::new(),
            pending: [(0, [0; 3]); BATCH],
            waiting: 0,
            long_bytes: Vec::new(),
            long_keys: Vec::with_capacity(LONG_BATCH),
        }
    }

    /// Counts one occurrence of the key at a place in some bytes.
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: &[u8], at: Range<usize>) {
        if at.len() > INLINE {
            self.add_long_later(&[], &bytes[at]);
            return;
        }
        let (words, hash) = short_key(bytes, at);
        self.add_later(words, hash);
    }

    /// Counts one occurrence of the key that consists of a prefix and a range of some bytes.
    #[inline(always)]
    pub(crate) fn add_after(&mut self, prefix: &[u8], bytes: &[u8], at: Range<usize>) {
        if prefix.is_empty() {
            return self.add(bytes, at);
        }
        let length = prefix.len() + at.len();
        if length > INLINE || prefix.len() >= size_of::<u64>() {
            self.add_long_later(prefix, &bytes[at]);
            return;
        }
        let ([first, second, third], _) = short_key(bytes, at);
        let bits = 8 * prefix.len() as u32;
        let moved = |word: u64, before: u64| word << bits | before >> (u64::BITS - bits);
        let start = prefix.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let third = third & !LONG; // without the length
        let words = [first << bits | start, moved(second, first), moved(third, second) | MASKS[length].1];
        self.add_later(words, hash(words));
    }

    #[inline(always)]
    fn add_later(&mut self, words: Words, hash: u64) {
        self.prefetch(hash);
        self.pending[self.waiting] = (hash, words);
        self.waiting += 1;
        if self.waiting == BATCH {
            self.flush_short();
        }
    }

    /// Counts many occurrences.
    pub(crate) fn add_many(&mut self, key: &[u8], count: u64) {
        if count == 0 {
            return;
        }
        self.reserve(1);
        if key.len() <= INLINE {
            let words = pack(key);
            self.add_short(hash(words), words, count);
        } else {
            self.add_long(hash_long(key), key, count);
        }
    }

    /// Counts the keys that are waiting. Until then, counts may be too low.
    pub(crate) fn flush(&mut self) {
        self.flush_short();
        self.flush_long();
    }

    /// Number of distinct keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.arena.capacity()
    }

    /// The slots, free ones included, and the bytes of long keys, for [`long_key`].
    pub(super) fn into_parts(self) -> (Vec<Slot>, Vec<u8>) {
        (self.slots, self.arena)
    }

    fn flush_short(&mut self) {
        self.reserve(BATCH);
        let waiting = std::mem::take(&mut self.waiting);
        let pending = self.pending;
        for &(hash, words) in &pending[..waiting] {
            self.add_short(hash, words, 1);
        }
    }

    #[inline(never)]
    fn add_long_later(&mut self, prefix: &[u8], rest: &[u8]) {
        let length = prefix.len() + rest.len();
        if length <= INLINE || length > LONGEST_WAITING {
            match prefix.is_empty() {
                true => self.add_many(rest, 1),
                false => self.add_many(&[prefix, rest].concat(), 1),
            }
            return;
        }
        let start = self.long_bytes.len();
        self.long_bytes.extend_from_slice(prefix);
        self.long_bytes.extend_from_slice(rest);
        let hash = hash_long(&self.long_bytes[start..]);
        self.prefetch(hash);
        self.long_keys.push((hash, self.long_bytes.len()));
        if self.long_keys.len() == LONG_BATCH {
            self.flush_long();
        }
    }

    fn flush_long(&mut self) {
        self.reserve(LONG_BATCH);
        for &(hash, _) in &self.long_keys {
            let slot = &self.slots[self.home(hash)];
            if is_long(slot) {
                prefetch(&self.arena, place_of(slot));
            }
        }
        let (keys, bytes) = (std::mem::take(&mut self.long_keys), std::mem::take(&mut self.long_bytes));
        let mut start = 0;
        for &(hash, end) in &keys {
            self.add_long(hash, &bytes[start..end], 1);
            start = end;
        }
        (self.long_keys, self.long_bytes) = (keys, bytes);
        self.long_keys.clear();
        self.long_bytes.clear();
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, self.home(hash));
    }

    #[inline(always)]
    fn add_short(&mut self, hash: u64, words: Words, count: u64) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let slot = &mut self.slots[at];
            if (slot[0] ^ words[0]) | (slot[1] ^ words[1]) | (slot[2] ^ words[2]) == 0 {
                slot[COUNT] = slot[COUNT].saturating_add(count);
                return;
            }
            if slot[COUNT] == 0 {
                *slot = [words[0], words[1], words[2], count];
                self.used += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn add_long(&mut self, hash: u64, key: &[u8], count: u64) {
        let first = [word64(&key[..8]), word64(&key[8..16])];
        let mark = LONG | (hash & 0xFFFF) << PLACE_BITS;
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot[COUNT] == 0 {
                self.slots[at] = [first[0], first[1], mark | self.arena.len() as u64, count];
                self.arena.extend_from_slice(&(key.len() as u64).to_le_bytes());
                self.arena.extend_from_slice(key);
                self.used += 1;
                return;
            }
            if slot[..2] == first && slot[2] & !PLACE == mark && long_key(&slot, &self.arena) == key {
                self.slots[at][COUNT] = slot[COUNT].saturating_add(count);
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Grows the table if `more` new keys need it: at most three quarters of the slots are ever in use.
    #[inline(always)]
    fn reserve(&mut self, more: usize) {
        if (self.used + more) * 4 > self.slots.len() * 3 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let doublings = if 64 - self.shift < FAST_GROWTH.0 { FAST_GROWTH.1 } else { 1 };
        let wider = free_slots(self.slots.len() << doublings);
        let old = std::mem::replace(&mut self.slots, wider);
        self.shift -= doublings;
        self.move_in(old.iter().filter(|slot| slot[COUNT] >= FREQUENT));
        self.move_in(old.iter().filter(|slot| (1..FREQUENT).contains(&slot[COUNT])));
    }

    /// Places slots of another table whose keys are not in this one.
    fn move_in<'s>(&mut self, mut slots: impl Iterator<Item = &'s Slot>) {
        let mask = self.slots.len() - 1;
        let mut batch: Vec<&Slot> = Vec::with_capacity(BATCH);
        let mut hashes = [0; BATCH];
        loop {
            batch.clear();
            batch.extend(slots.by_ref().take(BATCH));
            if batch.is_empty() {
                return;
            }
            batch.iter().filter(|slot| is_long(slot)).for_each(|slot| prefetch(&self.arena, place_of(slot)));
            for (hash, slot) in hashes.iter_mut().zip(&batch) {
                *hash = hash_of(slot, &self.arena);
                self.prefetch(*hash);
            }
            for (hash, slot) in hashes.iter().zip(&batch) {
                let mut at = self.home(*hash);
                while self.slots[at][COUNT] > 0 {
                    at = (at + 1) & mask;
                }
                self.slots[at] = **slot;
            }
        }
    }
}

/// Whether a slot has a long key.
pub(super) fn is_long(slot: &Slot) -> bool {
    slot[2] >= LONG
}

fn place_of(slot: &Slot) -> usize {
    (slot[2] & PLACE) as usize
}

/// The bytes of the long key of a slot.
pub(super) fn long_key<'a>(slot: &Slot, arena: &'a [u8]) -> &'a [u8] {
    let key = &arena[place_of(slot)..];
    &key[HEADER..HEADER + word64(&key[..HEADER]) as usize]
}

/// The same slot with a number instead of the bits of the hash, if its key is long.
pub(super) fn numbered(mut slot: Slot, number: u16) -> Slot {
    if is_long(&slot) {
        slot[2] = LONG | u64::from(number) << PLACE_BITS | slot[2] & PLACE;
    }
    slot
}

/// The number that [`numbered`] gave a slot with a long key.
pub(super) fn number_of(slot: &Slot) -> u16 {
    (slot[2] >> PLACE_BITS) as u16
}

fn hash_of(slot: &Slot, arena: &[u8]) -> u64 {
    if is_long(slot) {
        hash_long(long_key(slot, arena))
    } else {
        hash([slot[0], slot[1], slot[2]])
    }
}

/// The words of a key of at most [`INLINE`] bytes at a place in some bytes, and their hash.
#[inline(always)]
pub(crate) fn short_key(bytes: &[u8], at: Range<usize>) -> (Words, u64) {
    // 24 bytes at once and a mask: copying just the key would branch on its length, which cannot be predicted.
    let words = match bytes.get(at.start..at.start + 24) {
        Some(around) => {
            let (mask, length_word) = &MASKS[at.len()];
            let word = |place: usize| word64(&around[8 * place..8 * place + 8]) & mask[place];
            [word(0), word(1), word(2) | length_word]
        }
        None => pack(&bytes[at]),
    };
    (words, hash(words))
}

/// A key of at most 23 bytes as words: bytes past its end are 0.
#[inline(never)]
fn pack(key: &[u8]) -> Words {
    let mut bytes = [0; 24];
    bytes[..key.len()].copy_from_slice(key);
    [word64(&bytes[..8]), word64(&bytes[8..16]), word64(&bytes[16..]) | MASKS[key.len()].1]
}

#[inline(always)]
fn word64(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[inline(always)]
fn hash(words: Words) -> u64 {
    fold(words[0] ^ SEEDS[0], words[1] ^ SEEDS[1] ^ words[2].wrapping_mul(SEEDS[2]))
}

fn hash_long(key: &[u8]) -> u64 {
    let mut chunks = key.chunks_exact(16);
    let mut state = key.len() as u64 ^ SEEDS[2];
    for chunk in &mut chunks {
        state = fold(word64(&chunk[..8]) ^ state, word64(&chunk[8..]) ^ SEEDS[1]);
    }
    // The last 16 bytes, some of them for the second time: no branch on how many are left.
    let last = &key[key.len() - 16..];
    fold(word64(&last[..8]) ^ state, word64(&last[8..]) ^ SEEDS[0])
}

/// The halves of the 128-bit product, folded: every bit of the result depends on every bit of both.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::count::sorted::sorted_counts;
    use crate::stop::Stop;

    fn contents(mut table: Table) -> BTreeMap<Vec<u8>, u64> {
        table.flush();
        sorted_counts(vec![table], &Stop::default()).unwrap().iter().map(|(key, count)| (key.to_vec(), count)).collect()
    }

    #[test]
    fn counts_equal_those_of_a_map_for_keys_of_every_length() {
        let mut table = Table::new();
        let mut expected = BTreeMap::new();
        let mut state = 1u64;
        let mut padded = vec![9];
        for round in 0..60_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = if round % 50 == 0 { 600 } else { (state >> 33) as usize % 40 };
            let key: Vec<u8> = (0..length).map(|at| (state >> (at % 5)) as u8 & 3).collect();
            *expected.entry(key.clone()).or_insert(0) += 2 + (round % 3 == 0) as u64 * 4;
            table.add(&key, 0..key.len());
            padded.truncate(1);
            padded.extend_from_slice(&key);
            padded.extend_from_slice(&[7; 30]);
            table.add(&padded, 1..1 + key.len());
            table.add_many(&key, (round % 3 == 0) as u64 * 4);
        }
        table.flush();
        assert_eq!(table.len(), expected.len());
        assert_eq!(contents(table), expected);
    }

    #[test]
    fn a_prefix_and_the_rest_are_the_key_that_they_are_together() {
        let text: Vec<u8> = (1..=255).cycle().take(1_000).collect();
        let (mut table, mut expected) = (Table::new(), BTreeMap::new());
        for prefix in ["", "x", "▁", "▁▁", "▁▁x", "▁▁xy", "a long prefix that is no word"] {
            for length in (0..40).chain([505, 512, 513, 600]) {
                for start in [0, 7, 1_000 - length] {
                    let at = start..(start + length).min(text.len());
                    *expected.entry([prefix.as_bytes(), &text[at.clone()]].concat()).or_insert(0) += 1;
                    table.add_after(prefix.as_bytes(), &text, at);
                }
            }
        }
        assert_eq!(contents(table), expected);
    }

    #[test]
    fn frequent_and_rare_keys_stay_when_the_table_grows() {
        let mut table = Table::new();
        let key = |n: u64| format!("{n}{}", if n % 7 == 0 { "-a key with more than 23 bytes" } else { "" });
        for n in 0..40_000 {
            (0..1 + n % 11).for_each(|_| table.add(key(n).as_bytes(), 0..key(n).len()));
        }
        let expected = (0..40_000).map(|n| (key(n).into_bytes(), 1 + n % 11)).collect();
        assert_eq!(contents(table), expected);
    }

    #[test]
    fn keys_that_differ_only_in_trailing_zeros_are_different() {
        let mut table = Table::new();
        for length in 0..60 {
            table.add(&vec![0; length], 0..length);
        }
        assert_eq!(contents(table).len(), 60);
    }

    #[test]
    fn a_long_key_with_a_number_has_the_same_place_up_to_a_terabyte() {
        for place in [0, u64::from(u32::MAX) + 17, PLACE] {
            let slot = [1, 2, LONG | 0xABCD << PLACE_BITS | place, 5];
            let numbered = numbered(slot, u16::MAX);
            assert!(is_long(&numbered) && number_of(&numbered) == u16::MAX && place_of(&numbered) as u64 == place);
        }
        let short = [1, 2, MASKS[INLINE].1, 5];
        assert_eq!(numbered(short, 7), short);
    }
}
