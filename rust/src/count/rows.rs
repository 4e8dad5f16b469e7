//! Merges counts in memory and sorted runs on disk into counts in the order of their bytes, to be read once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use super::counts::Counts;
use super::spill::{read_row, spill_error};
use crate::error::{Error, Result};

/// A count, or an error if the sum was beyond `u64`: such sums are `u64::MAX`.
fn checked(count: u64, pretoken: &[u8]) -> Result<u64> {
    if count == u64::MAX {
        return Err(Error::Overflow { pretoken: String::from_utf8_lossy(pretoken).into_owned() });
    }
    Ok(count)
}

/// What was counted, in ascending order, each pretoken once.
pub struct Rows {
    memory: Counts,
    /// How many rows of `memory` are read.
    done: usize,
    runs: Vec<(PathBuf, BufReader<File>)>,
    /// The next row of each source; the last source is memory.
    heap: BinaryHeap<Reverse<(Vec<u8>, usize, u64)>>,
}

impl Rows {
    pub(crate) fn new(memory: Counts, runs: &[PathBuf]) -> Result<Self> {
        let open = |path: &PathBuf| {
            let file = File::open(path).map_err(|error| spill_error(path, &error))?;
            Ok((path.clone(), BufReader::with_capacity(1 << 18, file)))
        };
        let runs: Result<Vec<_>> = runs.iter().map(open).collect();
        let runs = runs?;
        let mut rows = Self { memory, done: 0, runs, heap: BinaryHeap::new() };
        let sources = if rows.runs.is_empty() { 0 } else { rows.runs.len() + 1 };
        for source in 0..sources {
            rows.advance(source, Vec::new())?;
        }
        Ok(rows)
    }

    fn advance(&mut self, source: usize, mut key: Vec<u8>) -> Result<()> {
        let count = match self.runs.get_mut(source) {
            Some((path, run)) => read_row(run, &mut key).map_err(|error| spill_error(path, &error))?,
            None => self.next_in_memory(&mut key),
        };
        if let Some(count) = count {
            self.heap.push(Reverse((key, source, count)));
        }
        Ok(())
    }

    fn next_in_memory(&mut self, key: &mut Vec<u8>) -> Option<u64> {
        let count = *self.memory.counts().get(self.done)?;
        key.clear();
        key.extend_from_slice(self.memory.pretoken(self.done));
        self.done += 1;
        Some(count)
    }

    /// The next key, copied to `key`, and its count.
    pub(crate) fn next(&mut self, key: &mut Vec<u8>) -> Result<Option<u64>> {
        if self.runs.is_empty() {
            return Ok(self.next_in_memory(key));
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

    /// The next rows whose count is at least `min_count`, at most `most` of them; none when all are read. Without a
    /// number, all that are in memory, or some of those on disk.
    ///
    /// # Errors
    ///
    /// When a run cannot be read back from disk, or a count is beyond `u64`.
    pub fn take(&mut self, most: Option<usize>, min_count: u64) -> Result<Counts> {
        /// A multiple of the rows of a row group in a file of counts.
        const SOME: usize = 1 << 20;
        let most = most.unwrap_or(if self.runs.is_empty() { usize::MAX } else { SOME });
        if self.runs.is_empty() && self.done == 0 && most >= self.memory.len() {
            let all = std::mem::take(&mut self.memory);
            return Ok(if min_count > 1 { all.frequent(min_count) } else { all });
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
