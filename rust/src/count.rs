//! Parallel counting of pretokens. The result does not depend on threads, blocks or their order.
//!
//! Every thread that counts takes a table of its own and puts it back; sums do not care which table an occurrence went
//! to. Tables beyond the memory limit are written to disk as sorted runs, which the end merges: exact, and bounded.

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::pretokenize::{Pretokenizer, Sink};
use crate::rows::{spill_error, write_run, Rows, Sorted};
use crate::table::Table;
use crate::text::{decode, json_field, lines};

/// What a piece of text came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents, those that were begun.
    pub documents: u64,
    /// Bytes of text, in UTF-8.
    pub bytes: u64,
    /// Characters of text.
    pub characters: u64,
    /// Occurrences of pretokens.
    pub pretokens: u64,
    /// Stretches of bytes that were not UTF-8, each replaced by one character.
    pub replaced: u64,
    /// Documents left out because they cannot be read.
    pub skipped: u64,
    /// Whether a text was cut short by the limit of bytes: nothing after it counts.
    pub cut_short: bool,
}

/// A block of a corpus file.
#[derive(Debug, Clone, Copy)]
pub enum Block<'b> {
    /// A document, or a part of one that was cut where [`Pretokenizer::last_cut`] said.
    Text {
        /// The text, which need not be UTF-8.
        bytes: &'b [u8],
        /// Whether it begins a document.
        at_start: bool,
    },
    /// A document a line; empty lines are none.
    Lines(&'b [u8]),
    /// Documents one after the other.
    Documents {
        /// The texts.
        bytes: &'b [u8],
        /// Where each begins, and at last where the last one ends: little-endian 64-bit numbers.
        offsets: &'b [u8],
    },
    /// A JSON object a line.
    JsonLines {
        /// The lines.
        bytes: &'b [u8],
        /// The field that has the text.
        field: &'b str,
        /// Whether to leave out lines that cannot be read, instead of stopping there.
        skip_bad: bool,
    },
}

/// How much more to count.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Documents.
    pub documents: u64,
    /// Bytes of text; the document that goes beyond is cut short between two characters.
    pub bytes: u64,
}

impl Limits {
    /// Everything.
    pub const NONE: Self = Self { documents: u64::MAX, bytes: u64::MAX };
}

/// Counts the pretokens of text.
pub struct Counter {
    pretokenizer: Pretokenizer,
    idle: Mutex<Vec<Shard>>,
    spill: Option<Spill>,
    runs: Mutex<Vec<PathBuf>>,
    runs_begun: AtomicUsize,
}

/// So many runs are merged into one: each is an open file at the end.
const MOST_RUNS: usize = 64;

/// Where and when to write tables to disk.
struct Spill {
    folder: PathBuf,
    bytes_per_table: usize,
}

#[derive(Default)]
struct Shard {
    table: Option<Table>,
    added: FxHashMap<u32, u64>,
}

/// A table and the count of what went into it.
struct Tallying<'a> {
    table: &'a mut Table,
    added: &'a mut FxHashMap<u32, u64>,
    pretokens: u64,
}

impl Sink for Tallying<'_> {
    #[inline(always)]
    fn pretoken(&mut self, bytes: &[u8], at: Range<usize>) {
        self.pretokens += 1;
        self.table.add(bytes, at);
    }

    fn added(&mut self, id: u32) {
        *self.added.entry(id).or_default() += 1;
    }
}

impl Counter {
    /// A counter that keeps everything in memory.
    #[must_use]
    pub fn new(pretokenizer: Pretokenizer) -> Self {
        Self {
            pretokenizer,
            idle: Mutex::default(),
            spill: None,
            runs: Mutex::default(),
            runs_begun: AtomicUsize::new(0),
        }
    }

    /// The same, with tables written to `folder` when one grows beyond `bytes_per_table`.
    #[must_use]
    pub fn spilling(self, folder: PathBuf, bytes_per_table: usize) -> Self {
        Self { spill: Some(Spill { folder, bytes_per_table }), ..self }
    }

    /// The pretokenizer it counts with.
    #[must_use]
    pub fn pretokenizer(&self) -> &Pretokenizer {
        &self.pretokenizer
    }

    /// Counts a block of a corpus file.
    ///
    /// # Errors
    ///
    /// When a text cannot be read or pretokenized; what was counted before it stays counted.
    pub fn count_block(&self, block: Block<'_>, limits: Limits) -> Result<Tally> {
        let (replaced, skipped) = (Cell::new(0), Cell::new(0));
        let decoded = |bytes| {
            let (text, more) = decode(bytes);
            replaced.set(replaced.get() + more);
            Ok(text)
        };
        let tally = match block {
            Block::Text { bytes, at_start } => self.count([decoded(bytes)], at_start, limits),
            Block::Lines(bytes) => self.count(lines(bytes).map(|(_, line)| decoded(line)), true, limits),
            Block::Documents { bytes, offsets } => {
                let documents = documents(bytes, offsets)?;
                self.count(documents.into_iter().map(decoded), true, limits)
            }
            Block::JsonLines { bytes, field, skip_bad } => {
                let objects = lines(bytes).filter(|(_, line)| !line.trim_ascii().is_empty());
                let texts = objects.filter_map(|(line, json)| match json_field(json, field) {
                    Ok((text, more)) => {
                        replaced.set(replaced.get() + more);
                        Some(Ok(text))
                    }
                    Err(_) if skip_bad => {
                        skipped.set(skipped.get() + 1);
                        None
                    }
                    Err(reason) => Some(Err(Error::BadLine { line, reason })),
                });
                self.count(texts, true, limits)
            }
        }?;
        Ok(Tally { replaced: replaced.get(), skipped: skipped.get(), ..tally })
    }

    /// Where to cut a block of a document whose rest is still to come, or None where the rest must be waited for.
    #[must_use]
    pub fn last_cut(&self, block: &[u8]) -> Option<usize> {
        const NEAR_THE_END: usize = 1 << 16;
        let near = block.len().saturating_sub(NEAR_THE_END);
        // The tail almost always has a place; the whole block is looked at only where it has none.
        [near, 0].into_iter().find_map(|from| {
            let mut at = from;
            let mut last = None;
            for chunk in block[from..].utf8_chunks() {
                last = self.pretokenizer.last_cut(chunk.valid()).map(|cut| at + cut).or(last);
                at += chunk.valid().len() + chunk.invalid().len();
            }
            last
        })
    }

    /// Counts texts: whole documents, or one part of a document of which `at_start` says whether it is the first.
    ///
    /// # Errors
    ///
    /// When a text cannot be pretokenized; what was counted before it stays counted.
    pub fn count<T: AsRef<str>>(
        &self,
        texts: impl IntoIterator<Item = Result<T>>,
        at_start: bool,
        limits: Limits,
    ) -> Result<Tally> {
        let mut shard = lock(&self.idle).pop().unwrap_or_default();
        let mut tally = Tally::default();
        let result = (|| {
            let table = shard.table.get_or_insert_with(Table::new);
            let mut sink = Tallying { table, added: &mut shard.added, pretokens: 0 };
            for text in texts {
                if tally.documents >= limits.documents || tally.bytes >= limits.bytes || tally.cut_short {
                    break;
                }
                let whole = text?;
                let text = within(whole.as_ref(), limits.bytes - tally.bytes);
                tally.cut_short = text.len() < whole.as_ref().len();
                self.pretokenizer.run(text, at_start, &mut sink)?;
                tally.documents += u64::from(at_start);
                tally.bytes += text.len() as u64;
                tally.characters += count_characters(text);
            }
            tally.pretokens = sink.pretokens;
            sink.table.flush();
            self.spill_if_large(&mut shard)
        })();
        lock(&self.idle).push(shard);
        result.map(|()| tally)
    }

    /// Adds counts made elsewhere.
    ///
    /// # Errors
    ///
    /// When a table cannot be written to disk.
    pub fn add<'t>(&self, counts: impl IntoIterator<Item = (&'t [u8], u64)>) -> Result<()> {
        let mut shard = lock(&self.idle).pop().unwrap_or_default();
        let table = shard.table.get_or_insert_with(Table::new);
        for (pretoken, count) in counts {
            table.add_many(pretoken, count);
        }
        let result = self.spill_if_large(&mut shard);
        lock(&self.idle).push(shard);
        result
    }

    /// The occurrences of added tokens by id, ascending.
    #[must_use]
    pub fn added(&self) -> Vec<(u32, u64)> {
        let mut sum: FxHashMap<u32, u64> = FxHashMap::default();
        for shard in lock(&self.idle).iter() {
            for (id, count) in &shard.added {
                *sum.entry(*id).or_default() += count;
            }
        }
        let mut added: Vec<_> = sum.into_iter().collect();
        added.sort_unstable();
        added
    }

    /// All that was counted, in order, as rows to be read once. The counter is empty afterwards.
    ///
    /// # Errors
    ///
    /// When a run cannot be read back from disk.
    pub fn finish(&self) -> Result<Rows> {
        let tables = lock(&self.idle).drain(..).filter_map(|shard| shard.table).collect();
        let runs = std::mem::take(&mut *lock(&self.runs));
        Rows::new(Sorted::new(tables), &runs)
    }

    fn spill_if_large(&self, shard: &mut Shard) -> Result<()> {
        let Some(spill) = &self.spill else { return Ok(()) };
        if shard.table.as_ref().is_none_or(|table| table.memory() <= spill.bytes_per_table) {
            return Ok(());
        }
        let mut sorted = Sorted::new(shard.table.take().into_iter().collect());
        let path = self.new_run(spill);
        write_run(&path, |key| Ok(sorted.next(key)))?;
        let mut runs = lock(&self.runs);
        runs.push(path);
        if runs.len() >= MOST_RUNS {
            let merged = self.new_run(spill);
            let mut rows = Rows::new(Sorted::new(Vec::new()), &runs)?;
            write_run(&merged, |key| rows.next(key))?;
            runs.drain(..).try_for_each(std::fs::remove_file).map_err(|error| spill_error(&error))?;
            runs.push(merged);
        }
        Ok(())
    }

    /// A path for a run, never given before.
    fn new_run(&self, spill: &Spill) -> PathBuf {
        spill.folder.join(format!("run-{}", self.runs_begun.fetch_add(1, Ordering::Relaxed)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while it held the lock has not left half a shard behind: shards are moved whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn documents<'b>(bytes: &'b [u8], offsets: &[u8]) -> Result<Vec<&'b [u8]>> {
    let offset = |word: &[u8]| word.try_into().map_or(usize::MAX, |word| u64::from_le_bytes(word) as usize);
    let offsets: Vec<usize> = offsets.chunks_exact(8).map(offset).collect();
    let document = |pair: &[usize]| bytes.get(pair[0]..pair[1]);
    let documents: Option<Vec<_>> = offsets.windows(2).map(document).collect();
    documents.ok_or(Error::BadCounts { reason: "a document lies outside its block" })
}

/// As much of a text as fits into so many bytes.
fn within(text: &str, bytes: u64) -> &str {
    let most = usize::try_from(bytes).unwrap_or(usize::MAX).min(text.len());
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

fn count_characters(text: &str) -> u64 {
    // Chunks whose count fits a byte, so that the compiler can count many bytes at once.
    let starts = |chunk: &[u8]| chunk.iter().map(|&byte| u8::from(byte & 0xC0 != 0x80)).sum::<u8>();
    text.as_bytes().chunks(255).map(|chunk| u64::from(starts(chunk))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::pretokenize::Spelling;

    fn counter() -> Counter {
        let skeleton = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [], "post_processor": null, "decoder": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": {}, "merges": []}}"#;
        Counter::new(Pretokenizer::new(skeleton, Spelling::ByteLevel).unwrap())
    }

    fn documents() -> Vec<String> {
        (0..400usize).map(|n| format!("w{} {} {}", n % 7, "x".repeat(n % 40), "long".repeat(n % 9))).collect()
    }

    fn counted(counter: &Counter, blocks: usize, rows: usize, min_count: u64) -> Counts {
        let documents = documents();
        for block in documents.chunks(documents.len().div_ceil(blocks)) {
            counter.count(block.iter().map(Ok), true, Limits::NONE).unwrap();
        }
        let mut read = counter.finish().unwrap();
        let mut all = Counts::default();
        loop {
            let next = read.take(rows, min_count).unwrap();
            if next.is_empty() {
                return all;
            }
            all = all.plus(&next).unwrap();
        }
    }

    #[test]
    fn the_result_does_not_depend_on_blocks_threads_or_spilling() {
        let expected = counted(&counter(), 1, usize::MAX, 1);
        assert!(expected.iter().any(|(pretoken, _)| pretoken.len() > 15));
        assert!((1..expected.len()).all(|place| expected.pretoken(place - 1) < expected.pretoken(place)));
        assert_eq!(counted(&counter(), 13, 3, 1), expected);
        let folder = std::env::temp_dir().join(format!("tokengraft-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let spilling = counter().spilling(folder.clone(), 0);
        assert_eq!(counted(&spilling, 13, 5, 1), expected);
        let frequent = counted(&counter().spilling(folder.clone(), 0), 13, 5, 60);
        assert_eq!(frequent, counted(&counter(), 1, 2, 60));
        std::fs::remove_dir_all(folder).unwrap();

        let together = counter();
        let documents = documents();
        std::thread::scope(|scope| {
            for part in documents.chunks(40) {
                scope.spawn(|| together.count(part.iter().map(Ok), true, Limits::NONE).unwrap());
            }
        });
        assert_eq!(together.finish().unwrap().take(usize::MAX, 1).unwrap(), expected);
    }

    #[test]
    fn tallies_count_documents_bytes_characters_and_pretokens() {
        let count = |texts: &[&str], at_start, documents, bytes| {
            counter().count(texts.iter().map(Ok), at_start, Limits { documents, bytes }).unwrap()
        };
        let all = Tally { documents: 2, bytes: 5, characters: 4, pretokens: 3, ..Tally::default() };
        assert_eq!(count(&["õ a", "b"], true, 9, 9), all);
        assert_eq!(count(&["b"], false, 9, 9).documents, 0);
        assert_eq!(count(&["a", "b", "c"], true, 2, 9).bytes, 2);
        let short = Tally { documents: 1, bytes: 1, characters: 1, pretokens: 1, cut_short: true, ..Tally::default() };
        assert_eq!(count(&["aõ", "b"], true, 9, 2), short);
    }

    #[test]
    fn a_document_in_parts_counts_as_the_whole() {
        let text = "one two, three\u{301} four  five\n\nsix \u{e4}\u{e4} seven".repeat(3);
        let (whole, parts) = (counter(), counter());
        whole.count_block(Block::Text { bytes: text.as_bytes(), at_start: true }, Limits::NONE).unwrap();
        let mut rest = text.as_bytes();
        while let Some(cut) = parts.last_cut(&rest[..rest.len().min(24)]).filter(|&cut| cut > 0) {
            parts.count_block(Block::Text { bytes: &rest[..cut], at_start: false }, Limits::NONE).unwrap();
            rest = &rest[cut..];
        }
        assert!(rest.len() < text.len() / 2);
        parts.count_block(Block::Text { bytes: rest, at_start: false }, Limits::NONE).unwrap();
        let all = |counter: &Counter| counter.finish().unwrap().take(usize::MAX, 1).unwrap();
        assert_eq!(all(&parts), all(&whole));
    }

    #[test]
    fn blocks_of_every_form_have_the_same_documents() {
        let offsets: Vec<u8> = [0u64, 2, 4].iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let blocks = [
            Block::Lines(b"a1\r\n\nb2\n"),
            Block::Documents { bytes: b"a1b2", offsets: &offsets },
            Block::JsonLines { bytes: b"{\"t\": \"a1\"}\n{\"t\": \"b2\"}\nbad", field: "t", skip_bad: true },
        ];
        for block in blocks {
            let tally = counter().count_block(block, Limits::NONE).unwrap();
            assert_eq!((tally.documents, tally.bytes, tally.pretokens), (2, 4, 4), "{block:?}");
        }
        let bad = Block::JsonLines { bytes: b"{\"t\": \"a\"}\n\nbad", field: "t", skip_bad: false };
        assert!(matches!(counter().count_block(bad, Limits::NONE), Err(Error::BadLine { line: 3, .. })));
        let outside = Block::Documents { bytes: b"a", offsets: &offsets };
        assert!(matches!(counter().count_block(outside, Limits::NONE), Err(Error::BadCounts { .. })));
    }
}
