//! Parallel counting of pretokens. The result does not depend on threads, blocks or their order.
//!
//! Every thread takes a table of its own and returns it after each block. A table beyond the memory limit is written
//! to disk as a sorted run (`spill.rs`), and all runs and tables are merged at the end (`rows.rs`).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::allowance::Allowance;
use super::documents::{Block, Document, Documents};
use super::hold_out::{Copies, HoldOut, Verdict};
use super::rows::Rows;
use super::sorted::sorted_counts;
use super::spill::Spill;
use super::table::Table;
use super::tally::{count_characters, truncated, Limits, Tally};
use crate::error::Result;
use crate::pretokenize::{Pretokenizer, Sink};
use crate::stop::Stop;

/// Counts the pretokens of text.
pub struct Counter {
    pretokenizer: Pretokenizer,
    hold_out: Option<HoldOut>,
    shards: Mutex<Vec<Shard>>,
    spill: Option<Spill>,
    allowance: Allowance,
}

#[derive(Default)]
struct Shard {
    table: Option<Table>,
    added: FxHashMap<u32, u64>,
}

/// Adds pretokens to a table and counts them.
struct TableSink<'a> {
    table: &'a mut Table,
    added: &'a mut FxHashMap<u32, u64>,
    pretokens: u64,
}

impl Sink for TableSink<'_> {
    #[inline(always)]
    fn pretoken(&mut self, bytes: &[u8], at: Range<usize>) {
        self.pretokens += 1;
        self.table.add(bytes, at);
    }

    #[inline(always)]
    fn prefixed(&mut self, prefix: &str, bytes: &[u8], at: Range<usize>) {
        self.pretokens += 1;
        self.table.add_after(prefix.as_bytes(), bytes, at);
    }

    fn added(&mut self, id: u32) {
        *self.added.entry(id).or_default() += 1;
    }
}

/// A block, and how to count it.
struct BlockTask<'b> {
    block: Block<'b>,
    limits: Limits,
    skip_bad: bool,
}

impl Counter {
    /// A counter that keeps everything in memory.
    #[must_use]
    pub fn new(pretokenizer: Pretokenizer) -> Self {
        Self {
            pretokenizer,
            hold_out: None,
            shards: Mutex::default(),
            spill: None,
            allowance: Allowance::new(usize::MAX, 1),
        }
    }

    /// The same, with tables written to `folder` when one grows beyond `bytes_per_table`.
    #[must_use]
    pub fn spilling(self, folder: PathBuf, bytes_per_table: usize) -> Self {
        Self { spill: Some(Spill::new(folder, bytes_per_table)), ..self }
    }

    /// The same, with a limit in bytes on the memory for documents that are processed at once. A document that needs
    /// more is refused, unless it is shorter than two megabytes.
    #[must_use]
    pub fn within(self, memory: usize) -> Self {
        let allowance = Allowance::new(memory, self.pretokenizer.memory_factor());
        Self { allowance, ..self }
    }

    /// The longest document that memory allows, in bytes.
    #[must_use]
    pub fn longest_document(&self) -> usize {
        self.allowance.longest()
    }

    /// The same, with some documents, or pieces of long ones, held out and not counted.
    #[must_use]
    pub fn holding_out(self, hold_out: HoldOut) -> Self {
        Self { hold_out: Some(hold_out), ..self }
    }

    /// What the counter of the whole corpus has to merge, if this one is that of a part: see [`HoldOut::share`].
    #[must_use]
    pub fn hold_out_share(&self) -> Vec<(String, Copies)> {
        self.hold_out.as_ref().map(HoldOut::share).unwrap_or_default()
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
        let mut shard = lock(&self.shards).pop().unwrap_or_default();
        let result = self.count_documents(documents, &mut shard, &BlockTask { block, limits, skip_bad });
        let result = result.and_then(|tally| self.spill_if_large(&mut shard).map(|()| tally));
        lock(&self.shards).push(shard);
        result
    }

    /// Where to cut a block of a document whose rest is not read yet, or None if it must not be cut.
    #[must_use]
    pub fn last_cut(&self, block: &[u8]) -> Option<usize> {
        const NEAR_THE_END: usize = 1 << 16;
        let near = block.len().saturating_sub(NEAR_THE_END);
        // The tail almost always has one; only otherwise the whole block is searched.
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

    /// Where the pieces end that a hold-out cuts a document into, except the last one: more of the document may follow.
    ///
    /// A piece ends at the last cut of the longest text that it may have. If that has none, the double is tried, and so
    /// on. So the pieces do not depend on how much of the document is given at once.
    #[must_use]
    pub fn piece_ends(&self, text: &[u8]) -> Vec<usize> {
        let Some(longest) = self.hold_out.as_ref().map(HoldOut::piece_bytes) else { return Vec::new() };
        let (mut ends, mut start, mut size) = (Vec::new(), 0, longest);
        while size < text.len() - start {
            match self.last_cut(&text[start..start + size]).filter(|&cut| cut > 0) {
                Some(cut) => {
                    start += cut;
                    ends.push(start);
                    size = longest;
                }
                None => size *= 2,
            }
        }
        ends
    }

    fn count_documents(&self, documents: Documents<'_>, shard: &mut Shard, task: &BlockTask<'_>) -> Result<Tally> {
        let table = shard.table.get_or_insert_with(Table::new);
        let mut sink = TableSink { table, added: &mut shard.added, pretokens: 0 };
        let mut tally = Tally::default();
        for (place, document) in documents.enumerate() {
            let at_start = task.block.at_start(place);
            if tally.reaches(task.limits, at_start) {
                break;
            }
            match self.count_document(document, at_start, &mut sink, &mut tally, task) {
                Err(error) if task.skip_bad && error.is_bad_document() => tally.skipped += 1,
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
        at_start: bool,
        sink: &mut TableSink<'_>,
        tally: &mut Tally,
        task: &BlockTask<'_>,
    ) -> Result<()> {
        let Document { text: whole, replaced } = document?;
        let text = truncated(&whole, task.limits.bytes - tally.read_bytes);
        tally.cut_short = text.len() < whole.len();
        tally.replaced += replaced;
        tally.read_documents += u64::from(at_start);
        tally.read_bytes += text.len() as u64;
        let Some(hold_out) = self.hold_out.as_ref().filter(|_| task.block.may_be_held_out()) else {
            return self.count_text(text, at_start, sink, tally);
        };
        // A block of text has the ends of its pieces.
        let ends = if task.block.is_text() { Vec::new() } else { self.piece_ends(text.as_bytes()) };
        let mut start = 0;
        for end in ends.into_iter().chain([text.len()]) {
            let (piece, at_start) = (&text[start..end], at_start && start == 0);
            // A piece that was cut short is not the piece of the document.
            let verdict = match tally.cut_short && end == text.len() {
                true => Verdict::Count,
                false => hold_out.offer(piece, Copies::one(at_start)),
            };
            match verdict {
                Verdict::Count => self.count_text(piece, at_start, sink, tally)?,
                Verdict::Held(evicted) => self.count_copies(&evicted, sink, tally)?,
            }
            start = end;
        }
        Ok(())
    }

    fn count_copies(&self, texts: &[(Box<str>, Copies)], sink: &mut TableSink<'_>, tally: &mut Tally) -> Result<()> {
        for (text, copies) in texts {
            (0..copies.at_start).try_for_each(|_| self.count_text(text, true, sink, tally))?;
            (0..copies.inside).try_for_each(|_| self.count_text(text, false, sink, tally))?;
        }
        Ok(())
    }

    /// Takes texts that were held out of parts of the corpus (see [`HoldOut::share`]), and counts those that are
    /// not held out of the whole.
    ///
    /// # Errors
    ///
    /// When a text cannot be pretokenized, or a table cannot be written to disk.
    pub fn merge_hold_out(&self, share: &[(String, Copies)]) -> Result<Tally> {
        let mut shard = lock(&self.shards).pop().unwrap_or_default();
        let result = self.count_share(share, &mut shard);
        let result = result.and_then(|tally| self.spill_if_large(&mut shard).map(|()| tally));
        lock(&self.shards).push(shard);
        result
    }

    fn count_share(&self, share: &[(String, Copies)], shard: &mut Shard) -> Result<Tally> {
        let table = shard.table.get_or_insert_with(Table::new);
        let mut sink = TableSink { table, added: &mut shard.added, pretokens: 0 };
        let mut tally = Tally::default();
        for (text, copies) in share {
            match self.hold_out.as_ref().map_or(Verdict::Count, |hold_out| hold_out.offer(text, *copies)) {
                Verdict::Count => self.count_copies(&[(text.as_str().into(), *copies)], &mut sink, &mut tally)?,
                Verdict::Held(evicted) => self.count_copies(&evicted, &mut sink, &mut tally)?,
            }
        }
        tally.pretokens = sink.pretokens;
        sink.table.flush();
        Ok(tally)
    }

    fn count_text(&self, text: &str, at_start: bool, sink: &mut TableSink<'_>, tally: &mut Tally) -> Result<()> {
        let _reservation = self.allowance.reserve(text.len())?;
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
        let mut shard = lock(&self.shards).pop().unwrap_or_default();
        let table = shard.table.get_or_insert_with(Table::new);
        for (pretoken, count) in counts {
            table.add_many(pretoken, count);
        }
        let result = self.spill_if_large(&mut shard);
        lock(&self.shards).push(shard);
        result
    }

    /// The occurrences of added tokens by id, ascending.
    #[must_use]
    pub fn added(&self) -> Vec<(u32, u64)> {
        let mut sum: FxHashMap<u32, u64> = FxHashMap::default();
        for shard in lock(&self.shards).iter() {
            for (id, count) in &shard.added {
                *sum.entry(*id).or_default() += count;
            }
        }
        let mut added: Vec<_> = sum.into_iter().collect();
        added.sort_unstable();
        added
    }

    /// The counts in the order of their bytes, as rows to be read once. The counter is empty afterwards.
    ///
    /// # Errors
    ///
    /// When a run cannot be read back from disk, and when it is stopped.
    pub fn finish(&self, stop: &Stop) -> Result<Rows> {
        let tables = lock(&self.shards).drain(..).filter_map(|shard| shard.table).collect();
        let runs = self.spill.as_ref().map(Spill::take_runs).unwrap_or_default();
        Rows::new(sorted_counts(tables, stop)?, &runs)
    }

    fn spill_if_large(&self, shard: &mut Shard) -> Result<()> {
        self.spill.as_ref().map_or(Ok(()), |spill| spill.write_if_large(&mut shard.table))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while it held the lock has left no incomplete shard: shards are moved as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counts;
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
        Block::Text { bytes, at_start: false, pieces: &[] }
    }

    fn counted(counter: &Counter, blocks: usize, rows: usize, min_count: u64) -> Counts {
        let documents = documents();
        for block in documents.chunks(documents.len().div_ceil(blocks)) {
            count(counter, block, Limits::NONE);
        }
        let mut read = counter.finish(&Stop::default()).unwrap();
        let mut all = Counts::default();
        loop {
            let next = read.take(Some(rows), min_count).unwrap();
            if next.is_empty() {
                return all;
            }
            all = all.plus(&next, &Stop::default()).unwrap();
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
        assert_eq!(together.finish(&Stop::default()).unwrap().take(Some(usize::MAX), 1).unwrap(), expected);
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
    fn held_out_documents_are_read_and_not_counted() {
        let counter = counter().holding_out(HoldOut::new(1, 80));
        let tally = count(&counter, &["b", "a", "b", " "], Limits::NONE);
        assert_eq!((tally.read_documents, tally.read_bytes), (4, 4));
        assert_eq!((tally.documents, tally.bytes, tally.pretokens), (1, 1, 1));
        assert_eq!(counter.hold_out.as_ref().unwrap().texts().len(), 2);
        let short = count(&counter, &["c d"], Limits { documents: 9, bytes: 1 });
        assert_eq!((short.cut_short, short.bytes), (true, 1));
        assert_eq!(counter.count_block(part(b"e"), Limits::NONE, false).unwrap().bytes, 1);
    }

    #[test]
    fn a_document_that_is_no_longer_held_out_is_counted_with_its_copies() {
        let counter = counter().holding_out(HoldOut::new(1, 8));
        let texts: Vec<_> = (0..60u32).map(|n| char::from_u32('a' as u32 + n % 20).unwrap().to_string()).collect();
        let tally = count(&counter, &texts, Limits::NONE);
        assert_eq!(counter.hold_out.as_ref().unwrap().texts().len(), 8);
        assert_eq!((tally.read_documents, tally.documents, tally.pretokens), (60, 36, 36));
        let counts = counter.finish(&Stop::default()).unwrap().take(Some(usize::MAX), 1).unwrap();
        assert!(counts.len() == 12 && counts.iter().all(|(_, count)| count == 3));
    }

    #[test]
    fn a_document_in_parts_counts_as_the_whole() {
        let text = "one two, three\u{301} four  five\n\nsix \u{e4}\u{e4} seven".repeat(3);
        let (whole, parts) = (counter(), counter());
        let block = Block::Text { bytes: text.as_bytes(), at_start: true, pieces: &[] };
        whole.count_block(block, Limits::NONE, false).unwrap();
        let mut rest = text.as_bytes();
        while let Some(cut) = parts.last_cut(&rest[..rest.len().min(24)]).filter(|&cut| cut > 0) {
            parts.count_block(part(&rest[..cut]), Limits::NONE, false).unwrap();
            rest = &rest[cut..];
        }
        assert!(rest.len() < text.len() / 2);
        parts.count_block(part(rest), Limits::NONE, false).unwrap();
        let all = |counter: &Counter| counter.finish(&Stop::default()).unwrap().take(Some(usize::MAX), 1).unwrap();
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
