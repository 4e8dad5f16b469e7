//! Merges tables in memory and sorted runs on disk into counts in the order of their bytes, to be read once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use rayon::prelude::*;

use super::counts::Counts;
use super::spill::{read_row, spill_error};
use super::table::{Entry, Table};
use crate::error::{Error, Result};

/// The rows of some tables in ascending order, each key once.
pub(crate) struct SortedTables {
    /// The long keys of each table.
    arenas: Vec<Vec<u8>>,
    /// Entries, each with the number of its table.
    entries: Vec<(Entry, u32)>,
    done: usize,
}

impl SortedTables {
    pub(crate) fn new(tables: Vec<Table>) -> Self {
        let mut entries = Vec::with_capacity(tables.iter().map(Table::len).sum());
        let mut arenas = Vec::with_capacity(tables.len());
        for (table, number) in tables.into_iter().zip(0u32..) {
            entries.extend(table.entries().map(|entry| (entry, number)));
            arenas.push(table.into_arena());
        }
        // `order` decides, except for long keys with the same first bytes.
        entries.par_sort_unstable_by(|(a, in_a): &(Entry, u32), (b, in_b)| {
            a.order.cmp(&b.order).then_with(|| {
                let long = |entry: &Entry, number: u32| entry.long_key(&arenas[number as usize]);
                long(a, *in_a).cmp(&long(b, *in_b))
            })
        });
        Self { arenas, entries, done: 0 }
    }

    /// The next key, copied to `key`, and its count in all tables together.
    pub(crate) fn next(&mut self, key: &mut Vec<u8>) -> Option<u64> {
        let (count, done) = self.row(self.done, key)?;
        self.done = done;
        Some(count)
    }

    /// The row whose first entry is at a place: its key, copied to `key`, its count, and the place after it.
    fn row(&self, at: usize, key: &mut Vec<u8>) -> Option<(u64, usize)> {
        let first = self.entries.get(at)?;
        key.clear();
        match self.long_key(first) {
            Some(long) => key.extend_from_slice(long),
            None => key.extend_from_slice(&first.0.short_key()[..first.0.len()]),
        }
        let same = self.entries[at..].iter().take_while(|entry| self.is_same(first, entry));
        let (count, entries) =
            same.fold((0u64, 0), |(sum, entries), (entry, _)| (sum.saturating_add(entry.count), entries + 1));
        Some((count, at + entries))
    }

    /// All rows that are left, collected on all cores.
    fn collect(&mut self, min_count: u64) -> Result<Counts> {
        const PART: usize = 1 << 15;
        let mut starts: Vec<usize> = (self.done..self.entries.len()).step_by(PART).collect();
        for start in &mut starts {
            // Entries of one key stay together.
            while *start > self.done && self.is_same(&self.entries[*start - 1], &self.entries[*start]) {
                *start -= 1;
            }
        }
        starts.push(self.entries.len());
        let collect_part = |range: &[usize]| -> Result<Counts> {
            let mut counts = Counts::default();
            let (mut at, mut key) = (range[0], Vec::new());
            counts.reserve(range[1] - at);
            while at < range[1] {
                let Some((count, next)) = self.row(at, &mut key) else { break };
                if count >= min_count {
                    counts.push(&key, checked(count, &key)?)?;
                }
                at = next;
            }
            Ok(counts)
        };
        let parts: Result<Vec<Counts>> = starts.par_windows(2).map(collect_part).collect();
        let all = Counts::concatenated(&parts?);
        self.done = self.entries.len();
        Ok(all)
    }

    fn long_key(&self, (entry, number): &(Entry, u32)) -> Option<&[u8]> {
        entry.long_key(&self.arenas[*number as usize])
    }

    fn is_same(&self, a: &(Entry, u32), b: &(Entry, u32)) -> bool {
        a.0.order == b.0.order && self.long_key(a) == self.long_key(b)
    }
}

/// A count, or an error if the sum was beyond `u64`: such sums are `u64::MAX`.
fn checked(count: u64, pretoken: &[u8]) -> Result<u64> {
    if count == u64::MAX {
        return Err(Error::Overflow { pretoken: String::from_utf8_lossy(pretoken).into_owned() });
    }
    Ok(count)
}

/// What was counted, in ascending order, each pretoken once.
pub struct Rows {
    memory: SortedTables,
    runs: Vec<BufReader<File>>,
    /// The next row of each source; the last source is memory.
    heap: BinaryHeap<Reverse<(Vec<u8>, usize, u64)>>,
}

impl Rows {
    pub(crate) fn new(memory: SortedTables, runs: &[PathBuf]) -> Result<Self> {
        let open = |path: &PathBuf| File::open(path).map(|file| BufReader::with_capacity(1 << 18, file));
        let runs: io::Result<Vec<_>> = runs.iter().map(open).collect();
        let runs = runs.map_err(|error| spill_error(&error))?;
        let mut rows = Self { memory, runs, heap: BinaryHeap::new() };
        let sources = if rows.runs.is_empty() { 0 } else { rows.runs.len() + 1 };
        for source in 0..sources {
            rows.advance(source, Vec::new())?;
        }
        Ok(rows)
    }

    fn advance(&mut self, source: usize, mut key: Vec<u8>) -> Result<()> {
        let count = match self.runs.get_mut(source) {
            Some(run) => read_row(run, &mut key).map_err(|error| spill_error(&error))?,
            None => self.memory.next(&mut key),
        };
        if let Some(count) = count {
            self.heap.push(Reverse((key, source, count)));
        }
        Ok(())
    }

    /// The next key, copied to `key`, and its count.
    pub(crate) fn next(&mut self, key: &mut Vec<u8>) -> Result<Option<u64>> {
        if self.runs.is_empty() {
            return Ok(self.memory.next(key));
        }
        let mut sum = 0u64;
        while let Some(Reverse((smallest, ..))) = self.heap.peek() {
            if sum > 0 && smallest != key {
                break;
            }
            let Some(Reverse((next_key, source, count))) = self.heap.pop() else { break };
            sum = sum.saturating_add(count);
            key.clone_from(&next_key);
            self.advance(source, next_key)?;
        }
        Ok((sum > 0).then_some(sum))
    }

    /// The next rows whose count is at least `min_count`, at most `most` of them; none when all are read.
    ///
    /// # Errors
    ///
    /// When a run cannot be read back from disk, or a count is beyond `u64`.
    pub fn take(&mut self, most: usize, min_count: u64) -> Result<Counts> {
        if self.runs.is_empty() && most >= self.memory.entries.len() - self.memory.done {
            return self.memory.collect(min_count);
        }
        let mut counts = Counts::default();
        let mut key = Vec::new();
        while counts.len() < most {
            let Some(sum) = self.next(&mut key)? else { break };
            if sum >= min_count {
                counts.push(&key, checked(sum, &key)?)?;
            }
        }
        Ok(counts)
    }
}
