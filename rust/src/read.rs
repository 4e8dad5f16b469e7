//! Reads a file in parts that end at cuts, into buffers that are used again. Does not decide where to cut.
//!
//! Fresh memory for every part would cost as much as reading: the system has to clear each page of it.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that are kept: as many as are read ahead on a few cores.
const KEPT: usize = 64;

/// Buffers that are not in use.
type Pool = Mutex<Vec<Vec<u8>>>;

/// A part of a file. Its buffer is used again when it is dropped.
#[derive(Debug)]
pub struct Part {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Part {
    /// How many lines end in it.
    #[must_use]
    pub fn newlines(&self) -> usize {
        // Chunks whose count fits a byte, so that the compiler can count many bytes at once.
        let in_chunk = |chunk: &[u8]| chunk.iter().map(|&byte| u8::from(byte == b'\n')).sum::<u8>();
        self.bytes.chunks(255).map(|chunk| usize::from(in_chunk(chunk))).sum()
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < KEPT {
            pool.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Reads a file from its start to its end.
#[derive(Debug)]
pub struct FileReader {
    file: File,
    block: usize,
    /// What was read after the last cut.
    pending: Vec<u8>,
    position: u64,
    pool: Arc<Pool>,
}

impl FileReader {
    /// A reader that reads `block` bytes at a time.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn open(path: &Path, block: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { file, block: block.max(1), pending: Vec::new(), position: 0, pool: Arc::default() })
    }

    /// How many bytes have been read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many bytes have been read after the last cut.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The next part: up to the last cut of the first block that has one, or the rest of the file. A byte order mark at
    /// its start is dropped. None at the end, and where more than `longest` bytes have no cut: then they are pending.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn next(
        &mut self,
        last_cut: impl Fn(&[u8]) -> Option<usize>,
        longest: Option<usize>,
    ) -> io::Result<Option<Part>> {
        loop {
            let before = self.pending.len();
            if !self.read_block()? {
                let rest = std::mem::take(&mut self.pending);
                return Ok((!rest.is_empty()).then(|| self.part(rest)));
            }
            if let Some(cut) = last_cut(&self.pending[before..]).filter(|&cut| cut > 0) {
                let mut rest = self.free_buffer();
                rest.extend_from_slice(&self.pending[before + cut..]);
                self.pending.truncate(before + cut);
                let bytes = std::mem::replace(&mut self.pending, rest);
                return Ok(Some(self.part(bytes)));
            }
            if longest.is_some_and(|longest| self.pending.len() > longest) {
                return Ok(None);
            }
        }
    }

    /// Reads a block behind what is pending; false at the end of the file.
    fn read_block(&mut self) -> io::Result<bool> {
        const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
        self.pending.reserve(self.block);
        let read = (&self.file).take(self.block as u64).read_to_end(&mut self.pending)?;
        if self.position == 0 && self.pending.starts_with(BYTE_ORDER_MARK) {
            self.pending.drain(..BYTE_ORDER_MARK.len());
        }
        self.position += read as u64;
        Ok(read > 0)
    }

    fn part(&self, bytes: Vec<u8>) -> Part {
        Part { bytes, pool: Arc::clone(&self.pool) }
    }

    /// An empty buffer that a part and the rest of a block fit into.
    fn free_buffer(&self) -> Vec<u8> {
        let free = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = free.unwrap_or_else(|| Vec::with_capacity(2 * self.block));
        buffer.clear();
        buffer.shrink_to(4 * self.block); // after a part that was long
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newline(bytes: &[u8]) -> Option<usize> {
        bytes.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1)
    }

    #[test]
    fn newlines_are_counted_in_parts_of_every_length() {
        for length in [0, 1, 254, 255, 256, 510, 511, 1000] {
            let part = Part { bytes: b"\n".repeat(length), pool: Arc::default() };
            assert_eq!(part.newlines(), length);
        }
        assert_eq!(Part { bytes: b"a\nb\r\n\n".to_vec(), pool: Arc::default() }.newlines(), 3);
    }

    fn parts(bytes: &[u8], block: usize, longest: Option<usize>) -> (Vec<Vec<u8>>, FileReader) {
        static FILES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = FILES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tokengraft-read-{}-{number}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let mut reader = FileReader::open(&path, block).unwrap();
        let mut parts = Vec::new();
        while let Some(part) = reader.next(newline, longest).unwrap() {
            parts.push(part.to_vec());
        }
        std::fs::remove_file(path).unwrap();
        (parts, reader)
    }

    #[test]
    fn parts_end_at_cuts_and_are_the_file_together() {
        let text = b"a\nbc\n\nlonger line\nx\n\n\nlast";
        for block in 1..40 {
            let (parts, reader) = parts(text, block, None);
            assert_eq!(parts.concat(), text);
            assert_eq!(reader.position(), text.len() as u64);
            let (last, others) = parts.split_last().unwrap();
            assert!(others.iter().all(|part| part.ends_with(b"\n")) && !last.is_empty());
        }
        assert_eq!(parts(text, 7, None).0, [&b"a\nbc\n\n"[..], b"longer line\nx\n\n", b"\n", b"last"]);
        assert!(parts(b"", 4, None).0.is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_alone() {
        for block in 1..9 {
            let expected = if block < 3 { &b"\xEF\xBB\xBFa\n\xEF\xBB\xBF"[..] } else { b"a\n\xEF\xBB\xBF" };
            assert_eq!(parts(b"\xEF\xBB\xBFa\n\xEF\xBB\xBF", block, None).0.concat(), expected);
        }
    }

    #[test]
    fn more_bytes_without_a_cut_than_allowed_stay_pending() {
        let (first, reader) = parts(b"a\nbbbbbbbbbbbb\nc", 4, Some(6));
        assert_eq!((first.concat(), reader.pending()), (b"a\n".to_vec(), 10));
        let (all, reader) = parts(b"a\nbbbbbbbbbbbb\nc", 4, Some(20));
        assert_eq!((all.concat().len(), reader.pending()), (16, 0));
    }
}
