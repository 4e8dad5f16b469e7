//! A hash table that counts short byte strings. Keys are never removed, and iteration order is unspecified.
//!
//! Counting is bound by cache misses, not by arithmetic. A slot is 24 bytes with keys of up to 15 bytes inside it, and
//! short keys are looked up in batches, whose slots are all loaded before the first is needed.

use std::hint::black_box;
use std::ops::Range;

/// Keys of at most this many bytes live inside their slot.
const INLINE: usize = 15;
/// Keys looked up together. Current cores keep about 32 loads in flight.
const BATCH: usize = 32;
const LONG: u64 = 0xFF << 56;
/// The bits of the second word that a long key has its length in: one of a terabyte would not fit into memory.
const LONG_LENGTH: u64 = (1 << 40) - 1;
/// The bits of the first and second eight bytes that belong to a key of each length.
const MASKS: [(u64, u64); INLINE + 1] = {
    let mut masks = [(0, 0); INLINE + 1];
    let mut length = 0;
    while length <= INLINE {
        let mask = (1u128 << (8 * length)) - 1;
        masks[length] = (mask as u64, (mask >> 64) as u64);
        length += 1;
    }
    masks
};
const SEEDS: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03, 0x8CB9_2BA7_2F3D_8DD7];

/// A key in two words and its count; free when the count is 0.
///
/// A short key is its bytes, little end first, with its length in the top byte of the second word. A long one has
/// `LONG` there, then 16 bits of its hash and 40 of its length, and in the first word its place in the arena.
/// Plain words, so that a table of free slots is zeroed memory that the system has not yet mapped.
type Slot = [u64; 3];
const COUNT: usize = 2;

/// A key with its count, taken out of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The first 15 bytes, big end first, then the length, or `LONG_MARK` for what is longer.
    pub(crate) order: u128,
    pub(crate) count: u64,
    place: u64,
    length: u64,
}

/// In the last byte, where short keys have their length: beyond any of those.
const LONG_MARK: u128 = 0xFF;

impl Entry {
    /// The bytes of a key of more than 15.
    pub(crate) fn long_key<'a>(&self, arena: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.place as usize;
        (self.order & LONG_MARK == LONG_MARK).then(|| &arena[start..start + self.length as usize])
    }

    /// The bytes of a key of at most 15, and more behind them.
    pub(crate) fn short_key(&self) -> [u8; 16] {
        self.order.to_be_bytes()
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.length as usize
    }
}

fn first_bytes(key: &[u8]) -> u128 {
    let mut first = [0; 16];
    first[..INLINE].copy_from_slice(&key[..INLINE]);
    u128::from_be_bytes(first)
}

/// Byte strings with the number of their occurrences.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    used: usize,
    shift: u32,
    arena: Vec<u8>,
    pending: [(u64, u64); BATCH],
    waiting: usize,
}

impl Table {
    pub(crate) fn new() -> Self {
        let bits = 12;
        Self {
            slots: free_slots(1 << bits),
            used: 0,
            shift: 64 - bits,
            arena: Vec::new(),
            pending: [(0, 0); BATCH],
            waiting: 0,
        }
    }

    /// Counts one occurrence of the key at a place in some bytes.
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: &[u8], at: Range<usize>) {
        if at.len() > INLINE {
            self.add_long(&bytes[at], 1);
            return;
        }
        // Sixteen bytes at once and a mask: copying just the key would branch on its length, which cannot be predicted.
        let length = at.len();
        self.pending[self.waiting] = match bytes.get(at.start..at.start + 16) {
            Some(around) => {
                let (low, high) = (word64(&around[..8]), word64(&around[8..]));
                (low & MASKS[length].0, (high & MASKS[length].1) | ((length as u64) << 56))
            }
            None => pack(&bytes[at]),
        };
        self.waiting += 1;
        if self.waiting == BATCH {
            self.flush();
        }
    }

    /// Counts many occurrences.
    pub(crate) fn add_many(&mut self, key: &[u8], count: u64) {
        if count == 0 {
        } else if key.len() <= INLINE {
            self.reserve(1);
            let (low, high) = pack(key);
            self.add_short(self.home(hash(low, high)), low, high, count);
        } else {
            self.add_long(key, count);
        }
    }

    /// Counts the keys that are waiting. Until then, counts may be too low.
    pub(crate) fn flush(&mut self) {
        self.reserve(BATCH);
        let waiting = std::mem::take(&mut self.waiting);
        let mut homes = [0; BATCH];
        let mut touched = 0;
        for (home, &(low, high)) in homes.iter_mut().zip(&self.pending[..waiting]) {
            *home = self.home(hash(low, high));
            touched ^= self.slots[*home][COUNT];
        }
        black_box(touched);
        let pending = self.pending;
        for (home, (low, high)) in homes.into_iter().zip(pending).take(waiting) {
            self.add_short(home, low, high, 1);
        }
    }

    /// Every key as a number that orders as keys do, and its count. For long keys the number tells only the first bytes
    /// and the rest is behind the place in the arena, which is given with it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.slots.iter().filter(|slot| slot[COUNT] > 0).map(|&[low, high, count]| {
            if is_long(high) {
                let key = self.long_key(low, high);
                return Entry { order: first_bytes(key) | LONG_MARK, count, place: low, length: key.len() as u64 };
            }
            let order = (u128::from(low.swap_bytes()) << 64) | u128::from((high << 8).swap_bytes()) << 8;
            let length = high >> 56;
            Entry { order: order | u128::from(length), count, place: 0, length }
        })
    }

    /// The bytes of the long keys, for [`Entry::long_key`].
    pub(crate) fn into_arena(self) -> Vec<u8> {
        self.arena
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.arena.capacity()
    }

    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    fn long_key(&self, low: u64, high: u64) -> &[u8] {
        let start = low as usize;
        &self.arena[start..start + (high & LONG_LENGTH) as usize]
    }

    #[inline]
    fn add_short(&mut self, home: usize, low: u64, high: u64, count: u64) {
        let mask = self.slots.len() - 1;
        let mut at = home;
        loop {
            let slot = &mut self.slots[at];
            if slot[0] == low && slot[1] == high && slot[COUNT] > 0 {
                slot[COUNT] = slot[COUNT].saturating_add(count);
                return;
            }
            if slot[COUNT] == 0 {
                *slot = [low, high, count];
                self.used += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn add_long(&mut self, key: &[u8], count: u64) {
        self.reserve(1);
        let hash = hash_long(key);
        let high = long_word(hash, key.len() as u64);
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot[COUNT] == 0 {
                self.slots[at] = [self.arena.len() as u64, high, count];
                self.arena.extend_from_slice(key);
                self.used += 1;
                return;
            }
            if slot[1] == high && self.long_key(slot[0], slot[1]) == key {
                self.slots[at][COUNT] = slot[COUNT].saturating_add(count);
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Grows the table if `more` new keys need it: at most three quarters of the slots are ever in use.
    fn reserve(&mut self, more: usize) {
        if (self.used + more) * 4 <= self.slots.len() * 3 {
            return;
        }
        let wider = free_slots(self.slots.len() * 2);
        let old = std::mem::replace(&mut self.slots, wider);
        self.shift -= 1;
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|slot| slot[COUNT] > 0) {
            let hash =
                if is_long(slot[1]) { hash_long(self.long_key(slot[0], slot[1])) } else { hash(slot[0], slot[1]) };
            let mut at = self.home(hash);
            while self.slots[at][COUNT] > 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

/// Free slots, on huge pages where the system has them: with small pages, address translation costs as much as the slot.
fn free_slots(count: usize) -> Vec<Slot> {
    let slots = vec![Slot::default(); count];
    #[cfg(target_os = "linux")]
    advise_huge_pages(&slots);
    slots
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn advise_huge_pages(slots: &[Slot]) {
    const PAGE: usize = 4096;
    let memory = slots.as_ptr_range();
    let (start, end) = (memory.start as usize, memory.end as usize);
    let start = start.next_multiple_of(PAGE);
    if let Some(length) = end.checked_sub(start).filter(|&length| length >= 512 * PAGE) {
        // SAFETY: the range lies inside a live allocation, and this advice changes how it is backed, never what it
        // holds. A refusal does no harm, so the result is ignored.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    }
}

/// The second word of a long key.
fn long_word(hash: u64, length: u64) -> u64 {
    LONG | ((hash & 0xFFFF) << 40) | (length & LONG_LENGTH)
}

fn is_long(high: u64) -> bool {
    high >= LONG
}

/// A key of at most 15 bytes as two words: bytes past its end are 0, and its length is the top byte.
#[inline(always)]
fn pack(key: &[u8]) -> (u64, u64) {
    let length = key.len();
    let length_byte = (length as u64) << 56;
    match length {
        0 => (0, length_byte),
        1..=3 => {
            let (first, middle, last) = (key[0], key[length / 2], key[length - 1]);
            let low =
                u64::from(first) | u64::from(middle) << (8 * (length / 2)) | u64::from(last) << (8 * (length - 1));
            (low, length_byte)
        }
        4..=7 => {
            let (first, last) = (word32(&key[..4]), word32(&key[length - 4..]));
            (first | last << (8 * (length - 4)), length_byte)
        }
        8 => (word64(key), length_byte),
        _ => {
            let last = word64(&key[length - 8..]);
            (word64(&key[..8]), last >> (8 * (16 - length)) | length_byte)
        }
    }
}

#[inline(always)]
fn word32(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes)))
}

#[inline(always)]
fn word64(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[inline]
fn hash(low: u64, high: u64) -> u64 {
    fold(low ^ SEEDS[0], high ^ SEEDS[1])
}

fn hash_long(key: &[u8]) -> u64 {
    let mut chunks = key.chunks_exact(16);
    let mut state = key.len() as u64 ^ SEEDS[2];
    for chunk in &mut chunks {
        state = fold(word64(&chunk[..8]) ^ state, word64(&chunk[8..]) ^ SEEDS[1]);
    }
    let (low, high) = pack(chunks.remainder());
    fold(low ^ state, high ^ SEEDS[0])
}

/// The halves of the 128-bit product, folded: every bit of the result depends on every bit of both.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn contents(table: &Table) -> BTreeMap<Vec<u8>, u64> {
        let key = |entry: &Entry| match entry.long_key(&table.arena) {
            Some(long) => long.to_vec(),
            None => entry.short_key()[..entry.len()].to_vec(),
        };
        let mut entries: Vec<(Vec<u8>, Entry)> = table.entries().map(|entry| (key(&entry), entry)).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(entries.is_sorted_by_key(|(_, entry)| entry.order), "entries order as their keys do");
        entries.into_iter().map(|(key, entry)| (key, entry.count)).collect()
    }

    #[test]
    fn counts_equal_those_of_a_map_for_keys_of_every_length() {
        let mut table = Table::new();
        let mut expected = BTreeMap::new();
        let mut state = 1u64;
        let mut padded = vec![9];
        for round in 0..60_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = (state >> 33) as usize % 40;
            let key: Vec<u8> = (0..length).map(|at| (state >> (at % 5)) as u8 & 3).collect();
            *expected.entry(key.clone()).or_insert(0) += 2 + (round % 3 == 0) as u64 * 4;
            table.add(&key, 0..key.len());
            padded.truncate(1);
            padded.extend_from_slice(&key);
            padded.extend_from_slice(&[7; 20]);
            table.add(&padded, 1..1 + key.len());
            table.add_many(&key, (round % 3 == 0) as u64 * 4);
        }
        table.flush();
        assert_eq!(contents(&table), expected);
        assert_eq!(table.len(), expected.len());
    }

    #[test]
    fn the_length_of_a_long_key_may_be_beyond_32_bits() {
        for length in [16, u64::from(u32::MAX), u64::from(u32::MAX) + 17, 3 << 32] {
            let word = long_word(u64::MAX, length);
            assert!(is_long(word) && word & LONG_LENGTH == length);
            assert_ne!(word, long_word(1, length));
        }
    }

    #[test]
    fn keys_that_differ_only_in_trailing_zeros_are_different() {
        let mut table = Table::new();
        for length in 0..40 {
            table.add(&vec![0; length], 0..length);
        }
        table.flush();
        assert_eq!(contents(&table).len(), 40);
    }
}
