//! Parallel counting of pretokens. The result does not depend on threads, blocks or their order.
//!
//! Every thread that counts takes a table of its own and puts it back; sums do not care which table an occurrence went
//! to. Tables beyond the memory limit are written to disk as sorted runs, which the end merges: exact, and bounded.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::hold_out::{HoldOut, Verdict};
use crate::pretokenize::{Pretokenizer, Sink};
use crate::rows::{spill_error, write_run, Rows, Sorted};
use crate::table::Table;
use crate::text::{Block, Document, Documents};

/// What was counted of a block, and what was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents counted, those that were begun. Documents that were held out before are among them if they are no
    /// longer.
    pub documents: u64,
    /// Bytes of text counted, in UTF-8.
    pub bytes: u64,
    /// Characters of text counted.
    pub characters: u64,
    /// Occurrences of pretokens.
    pub pretokens: u64,
    /// Stretches of bytes read that were not UTF-8, each replaced by one character.
    pub replaced: u64,
    /// Documents left out because they cannot be read.
    pub skipped: u64,
    /// Documents read, those that are held out included.
    pub read_documents: u64,
    /// Bytes of text read, those of documents that are held out included.
    pub read_bytes: u64,
    /// Whether a text was cut short by the limit of bytes: nothing after it counts.
    pub cut_short: bool,
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
    hold_out: Option<HoldOut>,
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

/// How to count a block.
struct Counting<'b> {
    block: Block<'b>,
    limits: Limits,
    skip_bad: bool,
}

impl Tally {
    /// Whether nothing more is to be read.
    fn reaches(&self, limits: Limits) -> bool {
        self.read_documents >= limits.documents || self.read_bytes >= limits.bytes || self.cut_short
    }
}

impl Counter {
    /// A counter that keeps everything in memory.
    #[must_use]
    pub fn new(pretokenizer: Pretokenizer) -> Self {
        Self {
            pretokenizer,
            hold_out: None,
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

    /// The same, with some documents held out and not counted.
    #[must_use]
    pub fn holding_out(self, hold_out: HoldOut) -> Self {
        Self { hold_out: Some(hold_out), ..self }
    }

    /// The documents that are held out, in the order of their hash.
    #[must_use]
    pub fn held_out(&self) -> Vec<String> {
        self.hold_out.as_ref().map(HoldOut::documents).unwrap_or_default()
    }

    /// The pretokenizer it counts with.
    #[must_use]
    pub fn pretokenizer(&self) -> &Pretokenizer {
        &self.pretokenizer
    }

    /// Counts a block of a corpus. With `skip_bad`, documents that cannot be read are left out.
    ///
    /// # Errors
    ///
    /// When a text cannot be read or pretokenized; what was counted before it stays counted.
    pub fn count_block(&self, block: Block<'_>, limits: Limits, skip_bad: bool) -> Result<Tally> {
        let documents = block.documents()?;
        let mut shard = lock(&self.idle).pop().unwrap_or_default();
        let result = self.count_documents(documents, &mut shard, &Counting { block, limits, skip_bad });
        let result = result.and_then(|tally| self.spill_if_large(&mut shard).map(|()| tally));
        lock(&self.idle).push(shard);
        result
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

    fn count_documents(&self, documents: Documents<'_>, shard: &mut Shard, counting: &Counting<'_>) -> Result<Tally> {
        let table = shard.table.get_or_insert_with(Table::new);
        let mut sink = Tallying { table, added: &mut shard.added, pretokens: 0 };
        let mut tally = Tally::default();
        for document in documents {
            if tally.reaches(counting.limits) {
                break;
            }
            match self.count_document(document, &mut sink, &mut tally, counting) {
                Err(error) if counting.skip_bad && error.is_bad_document() => tally.skipped += 1,
                result => result?,
            }
        }
        tally.pretokens = sink.pretokens;
        sink.table.flush();
        Ok(tally)
    }

    fn count_document(
        &self,
        document: Result<Document<'_>>,
        sink: &mut Tallying<'_>,
        tally: &mut Tally,
        counting: &Counting<'_>,
    ) -> Result<()> {
        let Document { text: whole, replaced } = document?;
        let text = within(&whole, counting.limits.bytes - tally.read_bytes);
        let at_start = counting.block.at_start();
        tally.cut_short = text.len() < whole.len();
        tally.replaced += replaced;
        tally.read_documents += u64::from(at_start);
        tally.read_bytes += text.len() as u64;
        let hold_out = self.hold_out.as_ref().filter(|_| counting.block.is_whole() && !tally.cut_short);
        match hold_out.map_or(Verdict::Count, |hold_out| hold_out.offer(text)) {
            Verdict::Count => self.count_text(text, at_start, sink, tally),
            Verdict::Held(evicted) => {
                let copies = evicted.iter().flat_map(|(text, copies)| (0..*copies).map(move |_| text));
                copies.into_iter().try_for_each(|text| self.count_text(text, true, sink, tally))
            }
        }
    }

    fn count_text(&self, text: &str, at_start: bool, sink: &mut Tallying<'_>, tally: &mut Tally) -> Result<()> {
        self.pretokenizer.run(text, at_start, sink)?;
        tally.documents += u64::from(at_start);
        tally.bytes += text.len() as u64;
        tally.characters += count_characters(text);
        Ok(())
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
    use crate::error::Error;
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

    fn count<T: AsRef<str>>(counter: &Counter, texts: &[T], limits: Limits) -> Tally {
        let bytes: String = texts.iter().map(AsRef::as_ref).collect();
        let ends = texts.iter().scan(0, |end, text| {
            *end += text.as_ref().len() as u64;
            Some(*end)
        });
        let offsets: Vec<u8> = std::iter::once(0).chain(ends).flat_map(u64::to_le_bytes).collect();
        let block = Block::Documents { bytes: bytes.as_bytes(), offsets: &offsets, nulls: &[] };
        counter.count_block(block, limits, false).unwrap()
    }

    fn part(bytes: &[u8]) -> Block<'_> {
        Block::Text { bytes, at_start: false, whole: false }
    }

    fn counted(counter: &Counter, blocks: usize, rows: usize, min_count: u64) -> Counts {
        let documents = documents();
        for block in documents.chunks(documents.len().div_ceil(blocks)) {
            count(counter, block, Limits::NONE);
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
                scope.spawn(|| count(&together, part, Limits::NONE));
            }
        });
        assert_eq!(together.finish().unwrap().take(usize::MAX, 1).unwrap(), expected);
    }

    #[test]
    fn tallies_count_documents_bytes_characters_and_pretokens() {
        let count = |texts: &[&str], documents, bytes| count(&counter(), texts, Limits { documents, bytes });
        let read = |documents, bytes| Tally {
            documents,
            bytes,
            read_documents: documents,
            read_bytes: bytes,
            ..Tally::default()
        };
        assert_eq!(count(&["õ a", "b"], 9, 9), Tally { characters: 4, pretokens: 3, ..read(2, 5) });
        assert_eq!(count(&["a", "b", "c"], 2, 9).bytes, 2);
        let short = Tally { characters: 1, pretokens: 1, cut_short: true, ..read(1, 1) };
        assert_eq!(count(&["aõ", "b"], 9, 2), short);
        assert_eq!(counter().count_block(part(b"b"), Limits::NONE, false).unwrap().documents, 0);
    }

    #[test]
    fn what_is_held_out_is_read_and_not_counted() {
        let counter = counter().holding_out(HoldOut::new(1, 80));
        let tally = count(&counter, &["b", "a", "b", " "], Limits::NONE);
        assert_eq!((tally.read_documents, tally.read_bytes), (4, 4));
        assert_eq!((tally.documents, tally.bytes, tally.pretokens), (1, 1, 1));
        assert_eq!(counter.held_out().len(), 2);
        let short = count(&counter, &["c d"], Limits { documents: 9, bytes: 1 });
        assert_eq!((short.cut_short, short.bytes), (true, 1));
        assert_eq!(counter.count_block(part(b"e"), Limits::NONE, false).unwrap().bytes, 1);
    }

    #[test]
    fn a_document_that_is_no_longer_held_out_is_counted_with_its_copies() {
        let counter = counter().holding_out(HoldOut::new(1, 8));
        let texts: Vec<_> = (0..60u32).map(|n| char::from_u32('a' as u32 + n % 20).unwrap().to_string()).collect();
        let tally = count(&counter, &texts, Limits::NONE);
        assert_eq!(counter.held_out().len(), 8);
        assert_eq!((tally.read_documents, tally.documents, tally.pretokens), (60, 36, 36));
        let counts = counter.finish().unwrap().take(usize::MAX, 1).unwrap();
        assert!(counts.len() == 12 && counts.iter().all(|(_, count)| count == 3));
    }

    #[test]
    fn a_document_in_parts_counts_as_the_whole() {
        let text = "one two, three\u{301} four  five\n\nsix \u{e4}\u{e4} seven".repeat(3);
        let (whole, parts) = (counter(), counter());
        let block = Block::Text { bytes: text.as_bytes(), at_start: true, whole: true };
        whole.count_block(block, Limits::NONE, false).unwrap();
        let mut rest = text.as_bytes();
        while let Some(cut) = parts.last_cut(&rest[..rest.len().min(24)]).filter(|&cut| cut > 0) {
            parts.count_block(part(&rest[..cut]), Limits::NONE, false).unwrap();
            rest = &rest[cut..];
        }
        assert!(rest.len() < text.len() / 2);
        parts.count_block(part(rest), Limits::NONE, false).unwrap();
        let all = |counter: &Counter| counter.finish().unwrap().take(usize::MAX, 1).unwrap();
        assert_eq!(all(&parts), all(&whole));
    }

    #[test]
    fn bad_documents_are_skipped_where_asked_and_errors_otherwise() {
        let bad = Block::JsonLines { bytes: b"{\"t\": \"a\"}\n\nbad\n{\"t\": \"b\"}", field: "t" };
        assert!(matches!(counter().count_block(bad, Limits::NONE, false), Err(Error::BadLine { line: 3, .. })));
        let tally = counter().count_block(bad, Limits::NONE, true).unwrap();
        assert_eq!((tally.documents, tally.skipped), (2, 1));
        let limits = Limits { documents: 1, ..Limits::NONE };
        assert_eq!(counter().count_block(bad, limits, false).unwrap().documents, 1);
    }
}
