//! Tables to counts in the order of their bytes, on all cores.
//!
//! Every table is sorted where it is: its slots are moved together, and their words turned so that they order as their
//! keys do. Then ranges of keys are merged, each on any core.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::counts::Counts;
use super::table::{is_long, long_key, number_of, numbered, Slot, Table, COUNT};
use crate::error::{Error, Result};
use crate::stop::Stop;

/// About how many slots of a table are merged together.
const PART: usize = 1 << 14;
/// Long keys have the number of their table in 16 bits.
const MAX_TABLES: usize = 1 << 16;

/// The counts of some tables, added up.
///
/// # Errors
///
/// When a count is beyond `u64`, and when it is stopped.
pub(super) fn sorted_counts(tables: Vec<Table>, stop: &Stop) -> Result<Counts> {
    let parts = Sorted::new(at_most(MAX_TABLES, tables), stop)?.merged(stop)?;
    Ok(Counts::concatenated(parts))
}

/// The same counts in fewer tables.
fn at_most(most: usize, mut tables: Vec<Table>) -> Vec<Table> {
    let others = tables.split_off(tables.len().min(most));
    for other in others {
        let (mut slots, arena) = other.into_parts();
        move_together(&mut slots, 0);
        for slot in slots {
            let mut short = [0; 24];
            tables[0].add_many(key_of(&slot, std::slice::from_ref(&arena), &mut short), slot[COUNT]);
        }
    }
    tables
}

/// Slots in the order of their keys, with the words as [`turned`] gives them.
struct Sorted {
    tables: Vec<Vec<Slot>>,
    arenas: Vec<Vec<u8>>,
}

impl Sorted {
    fn new(tables: Vec<Table>, stop: &Stop) -> Result<Self> {
        let (tables, arenas): (Vec<_>, Vec<_>) = tables.into_iter().map(Table::into_parts).unzip();
        let mut sorted = Self { tables, arenas };
        let arenas = &sorted.arenas;
        sorted.tables.par_iter_mut().zip(0..=u16::MAX).try_for_each(|(slots, number)| -> Result<()> {
            stop.check()?;
            move_together(slots, number);
            slots.par_sort_unstable_by(|a, b| order(a, b, arenas));
            Ok(())
        })?;
        Ok(sorted)
    }

    fn merged(self, stop: &Stop) -> Result<Vec<Counts>> {
        let bounds = self.bounds();
        let merge = |pair: &[Vec<usize>]| stop.check().and_then(|()| self.merge(&pair[0], &pair[1]));
        bounds.par_windows(2).map(merge).collect()
    }

    /// Where to divide the tables: places in each, so that equal keys lie between the same two of them.
    fn bounds(&self) -> Vec<Vec<usize>> {
        let largest = self.tables.iter().max_by_key(|table| table.len());
        let dividers = largest.into_iter().flat_map(|table| table.iter().skip(PART).step_by(PART));
        let inside = dividers.map(|divider| {
            let place = |table: &Vec<Slot>| table.partition_point(|slot| order(slot, divider, &self.arenas).is_lt());
            self.tables.iter().map(place).collect()
        });
        let start = vec![0; self.tables.len()];
        let end = self.tables.iter().map(Vec::len).collect();
        std::iter::once(start).chain(inside).chain([end]).collect()
    }

    fn merge(&self, from: &[usize], to: &[usize]) -> Result<Counts> {
        let ranges = || self.tables.iter().zip(from.iter().zip(to)).map(|(table, (&from, &to))| &table[from..to]);
        let mut filled = ranges().filter(|range| !range.is_empty());
        match (filled.next(), filled.next()) {
            (Some(only), None) => self.collect(only),
            _ => {
                let mut slots: Vec<Slot> = ranges().flatten().copied().collect();
                slots.sort_by(|a, b| order(a, b, &self.arenas)); // merges sorted runs
                self.collect(&slots)
            }
        }
    }

    /// Slots in order as counts, equal keys added up.
    fn collect(&self, slots: &[Slot]) -> Result<Counts> {
        let mut counts = Counts::default();
        counts.reserve(slots.len());
        for same in slots.chunk_by(|a, b| order(a, b, &self.arenas).is_eq()) {
            let count = same.iter().fold(0, |sum: u64, slot| sum.saturating_add(slot[COUNT]));
            let mut short = [0; 24];
            let key = key_of(&same[0], &self.arenas, &mut short);
            if count == u64::MAX {
                return Err(Error::Overflow { pretoken: String::from_utf8_lossy(key).into_owned() });
            }
            counts.append(key, count);
        }
        Ok(counts)
    }
}

/// Moves the slots in use to the front and drops the others.
fn move_together(slots: &mut Vec<Slot>, number: u16) {
    let mut used = 0;
    for at in 0..slots.len() {
        let slot = slots[at];
        if slot[COUNT] > 0 {
            slots[used] = turned(numbered(slot, number));
            used += 1;
        }
    }
    slots.truncate(used);
}

/// The words of a slot with the big end first; and back.
fn turned([first, second, third, count]: Slot) -> Slot {
    [first.swap_bytes(), second.swap_bytes(), third.swap_bytes(), count]
}

/// The order of the keys of two slots.
#[inline]
fn order(a: &Slot, b: &Slot, arenas: &[Vec<u8>]) -> Ordering {
    let first = |slot: &Slot| u128::from(slot[0]) << 64 | u128::from(slot[1]);
    first(a).cmp(&first(b)).then_with(|| {
        if turned_is_long(a) || turned_is_long(b) {
            let (mut short_a, mut short_b) = ([0; 24], [0; 24]);
            key_of(a, arenas, &mut short_a).cmp(key_of(b, arenas, &mut short_b))
        } else {
            // The length, in the last byte, decides where one key is the other and zeros.
            a[2].cmp(&b[2])
        }
    })
}

fn turned_is_long(slot: &Slot) -> bool {
    slot[2] as u8 == u8::MAX
}

/// The key of a slot, copied to `short` if it is one.
fn key_of<'a>(slot: &Slot, arenas: &'a [Vec<u8>], short: &'a mut [u8; 24]) -> &'a [u8] {
    let slot = turned(*slot);
    if is_long(&slot) {
        return long_key(&slot, &arenas[usize::from(number_of(&slot))]);
    }
    for (bytes, word) in short.chunks_exact_mut(8).zip(slot) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    &short[..usize::from(short[23]) - 1]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::stop::tests::stops_anywhere;

    /// Random keys: some share their first bytes with others, some end in zeros, some are long.
    fn filled(seed: u64, keys: usize, expected: &mut BTreeMap<Vec<u8>, u64>) -> Table {
        let mut table = Table::new();
        let mut state = seed;
        let mut number = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..keys {
            let mut key = vec![b'p'; number(30)];
            key.extend((0..number(10)).map(|_| [0, 1, 255][number(3)]));
            table.add_many(&key, 1 + number(3) as u64);
        }
        let slots = table.len();
        let counts = sorted_counts(vec![table], &Stop::default()).unwrap();
        assert_eq!(counts.len(), slots);
        let mut again = Table::new();
        for (key, count) in counts.iter() {
            *expected.entry(key.to_vec()).or_default() += count;
            again.add_many(key, count);
        }
        again
    }

    #[test]
    fn the_counts_of_any_number_of_tables_are_in_order_and_added_up() {
        for (n_tables, keys) in [(0, 0), (1, 0), (1, 9), (2, 60_000), (3, 300), (5, 20_000)] {
            let mut expected = BTreeMap::new();
            let tables = (0..n_tables).map(|seed| filled(seed, keys, &mut expected)).collect();
            let counts = sorted_counts(tables, &Stop::default()).unwrap();
            assert!(counts.iter().eq(expected.iter().map(|(key, count)| (&key[..], *count))), "{n_tables} tables");
        }
    }

    #[test]
    fn more_tables_than_numbers_are_put_together() {
        let mut expected = BTreeMap::new();
        let tables = (0..5).map(|seed| filled(seed, 500, &mut expected)).collect();
        let fewer = at_most(2, tables);
        assert_eq!(fewer.len(), 2);
        let counts = sorted_counts(fewer, &Stop::default()).unwrap();
        assert!(counts.iter().eq(expected.iter().map(|(key, count)| (&key[..], *count))));
    }

    #[test]
    fn sorting_and_merging_can_be_stopped() {
        let looks = stops_anywhere(|stop| {
            let tables = (0..3).map(|seed| filled(seed, 20_000, &mut BTreeMap::new())).collect();
            sorted_counts(tables, stop)
        });
        assert!(looks > 3, "{looks} looks");
    }

    #[test]
    fn a_sum_beyond_64_bits_is_an_error() {
        let table = |count| {
            let mut table = Table::new();
            table.add_many(b"a", count);
            table
        };
        assert!(sorted_counts(vec![table(u64::MAX - 2), table(1)], &Stop::default()).is_ok());
        let beyond = sorted_counts(vec![table(u64::MAX - 1), table(1)], &Stop::default());
        assert_eq!(beyond, Err(Error::Overflow { pretoken: "a".into() }));
    }
}
