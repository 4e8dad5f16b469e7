//! The parts of a Parquet file, in order: row groups, and at the end the metadata that says where each is.

use std::ops::Range;

use rayon::prelude::*;

use super::delta::{write_numbers, write_strings};
use super::snappy::compress;
use super::thrift::Struct;
use crate::count::Counts;
use crate::error::{Error, Result};

const MAGIC: &[u8] = b"PAR1";
/// Row groups never cross a multiple of this, so that rows may be given in parts of as many.
const PART: usize = 1 << 20;
const GROUP_ROWS: usize = 1 << 17;
const GROUP_BYTES: u64 = 64 << 20;
const PAGE_ROWS: usize = 1 << 15;
const PAGE_BYTES: u64 = 1 << 20;
/// The longest pretoken. The sizes of a page must fit into 31 bits.
const LONGEST: usize = 1 << 30;

// Numbers of the Parquet format.
const INT64: i32 = 2;
const BYTE_ARRAY: i32 = 6;
const REQUIRED: i32 = 0;
const UINT_64: i32 = 14;
const DATA_PAGE: i32 = 0;
const RLE: i32 = 3;
const DELTA_BINARY_PACKED: i32 = 5;
const DELTA_BYTE_ARRAY: i32 = 7;
const SNAPPY: i32 = 1;

/// A column of the file.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    kind: i32,
    encoding: i32,
    write: fn(&mut Vec<u8>, &Counts, Range<usize>),
}

const COLUMNS: [Column; 2] = [
    Column {
        name: "pretoken",
        kind: BYTE_ARRAY,
        encoding: DELTA_BYTE_ARRAY,
        write: |page, counts, rows| write_strings(page, rows.map(|row| counts.pretoken(row))),
    },
    Column {
        name: "count",
        kind: INT64,
        encoding: DELTA_BINARY_PACKED,
        write: |page, counts, rows| write_numbers(page, counts.counts()[rows].iter().copied()),
    },
];

/// The pages of a column in a row group.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    uncompressed: u64,
}

/// Sizes of what was written of a row group.
#[derive(Debug)]
struct Group {
    rows: u64,
    /// Compressed and uncompressed bytes of each column.
    sizes: Vec<(u64, u64)>,
}

/// Gives the bytes of a Parquet file of counts, part by part.
#[derive(Debug, Default)]
pub struct ParquetEncoder {
    is_begun: bool,
    groups: Vec<Group>,
}

impl ParquetEncoder {
    /// The bytes of the next rows, in pieces to be written one after the other. All calls but the last must have a
    /// multiple of 2^20 rows; then the bytes of the file do not depend on the number of calls.
    ///
    /// # Errors
    ///
    /// When a pretoken is too long for the format.
    pub fn rows(&mut self, counts: &Counts) -> Result<Vec<Vec<u8>>> {
        let longest = counts.iter().map(|(pretoken, _)| pretoken.len()).max().unwrap_or(0);
        if longest > LONGEST {
            return Err(Error::LongPretoken { bytes: longest as u64, longest: LONGEST as u64 });
        }
        let ranges = counts.chunks(PART, u64::MAX).into_iter();
        let ranges: Vec<_> = ranges.flat_map(|part| counts.chunks_of(part, GROUP_ROWS, GROUP_BYTES)).collect();
        let column = |rows: &Range<usize>, column: Column| Chunk::new(counts, rows.clone(), column);
        let tasks: Vec<_> = ranges.iter().flat_map(|rows| COLUMNS.map(|column| (rows, column))).collect();
        let chunks: Vec<Chunk> = tasks.into_par_iter().map(|(rows, kind)| column(rows, kind)).collect();
        let mut bytes = vec![self.begin()];
        for (rows, chunks) in ranges.iter().zip(chunks.chunks(COLUMNS.len())) {
            let sizes = chunks.iter().map(|chunk| (chunk.bytes.len() as u64, chunk.uncompressed)).collect();
            self.groups.push(Group { rows: rows.len() as u64, sizes });
        }
        bytes.extend(chunks.into_iter().map(|chunk| chunk.bytes));
        Ok(bytes)
    }

    /// The bytes after the last rows: the metadata of the file, with a text of the caller under `key`.
    #[must_use]
    pub fn footer(mut self, key: &str, text: &str) -> Vec<u8> {
        let mut bytes = self.begin();
        let mut offset = MAGIC.len() as u64;
        let rows = self.groups.iter().map(|group| group.rows).sum();
        let groups = self.groups.iter().map(|group| group.metadata(&mut offset)).collect();
        let metadata = Struct::default()
            .i32(1, 2)
            .children(2, schema())
            .i64(3, rows)
            .children(4, groups)
            .children(5, vec![Struct::default().string(1, key).string(2, text)])
            .string(6, concat!("tokengraft version ", env!("CARGO_PKG_VERSION")))
            .finish();
        bytes.extend_from_slice(&metadata);
        bytes.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes
    }

    /// What a file begins with, the first time.
    fn begin(&mut self) -> Vec<u8> {
        if std::mem::replace(&mut self.is_begun, true) {
            Vec::new()
        } else {
            MAGIC.to_vec()
        }
    }
}

impl Chunk {
    fn new(counts: &Counts, rows: Range<usize>, column: Column) -> Self {
        let mut chunk = Self { bytes: Vec::new(), uncompressed: 0 };
        for rows in counts.chunks_of(rows, PAGE_ROWS, PAGE_BYTES) {
            let (n_rows, mut page) = (rows.len(), Vec::new());
            (column.write)(&mut page, counts, rows);
            let compressed = compress(&page);
            let values = Struct::default().i32(1, n_rows as i32).i32(2, column.encoding).i32(3, RLE).i32(4, RLE);
            let header = Struct::default()
                .i32(1, DATA_PAGE)
                .i32(2, page.len() as i32)
                .i32(3, compressed.len() as i32)
                .child(5, values)
                .finish();
            chunk.uncompressed += (header.len() + page.len()) as u64;
            chunk.bytes.extend(header);
            chunk.bytes.extend(compressed);
        }
        chunk
    }
}

impl Group {
    /// The metadata of the row group that begins at `offset`, which is moved to its end.
    fn metadata(&self, offset: &mut u64) -> Struct {
        let mut columns = Vec::with_capacity(COLUMNS.len());
        for (column, &(compressed, uncompressed)) in COLUMNS.iter().zip(&self.sizes) {
            let metadata = Struct::default()
                .i32(1, column.kind)
                .numbers(2, &[column.encoding])
                .strings(3, &[column.name])
                .i32(4, SNAPPY)
                .i64(5, self.rows)
                .i64(6, uncompressed)
                .i64(7, compressed)
                .i64(9, *offset);
            columns.push(Struct::default().i64(2, 0).child(3, metadata));
            *offset += compressed;
        }
        let total = self.sizes.iter().map(|size| size.1).sum();
        Struct::default().children(1, columns).i64(2, total).i64(3, self.rows)
    }
}

fn schema() -> Vec<Struct> {
    let root = Struct::default().string(4, "schema").i32(5, COLUMNS.len() as i32);
    let column = |column: &Column| Struct::default().i32(1, column.kind).i32(3, REQUIRED).string(4, column.name);
    let unsigned = Struct::default().child(10, Struct::default().i8(1, 64).bool(2, false));
    vec![root, column(&COLUMNS[0]), column(&COLUMNS[1]).i32(6, UINT_64).child(10, unsigned)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rows: Range<u64>) -> Counts {
        let mut counts = Counts::default();
        rows.for_each(|row| counts.push(&row.to_be_bytes()[4..], row % 9 + 1).unwrap());
        counts
    }

    fn file(parts: &[Counts]) -> Vec<u8> {
        let mut encoder = ParquetEncoder::default();
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| encoder.rows(part).unwrap().concat()).collect();
        bytes.extend(encoder.footer("key", "text"));
        bytes
    }

    #[test]
    fn the_bytes_do_not_depend_on_the_number_of_parts() {
        let (part, rows) = (PART as u64, PART as u64 + 70_000);
        assert!(file(&[counts(0..rows)]) == file(&[counts(0..part), counts(part..rows)]));
        assert!(file(&[]) == file(&[Counts::default()]));
    }

    #[test]
    fn pages_and_groups_end_before_they_are_large() {
        let long = |letter: u8| vec![letter; 3 * PAGE_BYTES as usize];
        let mut counts = Counts::default();
        (0..30).for_each(|letter| counts.push(&long(letter), 1).unwrap());
        let mut encoder = ParquetEncoder::default();
        let pieces = encoder.rows(&counts).unwrap();
        assert_eq!(encoder.groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [22, 8]);
        assert_eq!(pieces.len(), 1 + 2 * COLUMNS.len());
    }
}
