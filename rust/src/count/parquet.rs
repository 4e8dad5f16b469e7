//! Counts as the bytes of a Parquet file: row groups are encoded on all cores. Neither reads Parquet nor writes files.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;
use rayon::prelude::*;

use super::counts::Counts;
use super::delta::{push_numbers, push_strings};
use crate::error::Error;

/// The rows of a row group. The bytes of a file do not depend on threads, because it is fixed.
const ROWS: usize = 1 << 18;
const SCHEMA: &str = "message schema { REQUIRED BYTE_ARRAY pretoken; REQUIRED INT64 count (INTEGER(64,false)); }";

/// The rows and bytes of a page, which is encoded by one core.
const PAGE: (usize, u64) = (1 << 15, 1 << 20);
/// Pretokens are distinct, so a dictionary does not help, and sorted, so each begins as the one before it.
const ENCODINGS: [Encoding; 2] = [Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_BINARY_PACKED];

/// The pages of some rows, one for each column.
type Pages = [CompressedPage; 2];

/// Gives the bytes of a Parquet file of counts, part by part.
pub struct ParquetEncoder {
    writer: SerializedFileWriter<Vec<u8>>,
    columns: SchemaDescriptor,
}

impl ParquetEncoder {
    /// An encoder of a file that has a text in its metadata.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn new(key: &str, text: &str) -> crate::Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let columns = SchemaDescriptor::new(Arc::clone(&schema));
        let properties = WriterProperties::builder()
            .set_created_by(concat!("tokengraft ", env!("CARGO_PKG_VERSION")).to_string())
            .set_key_value_metadata(Some(vec![KeyValue::new(key.to_string(), text.to_string())]))
            .build();
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        Ok(Self { writer, columns })
    }

    /// The bytes of the next rows. All calls but the last must have a multiple of 2^18 rows, so that the bytes of a file
    /// do not depend on the calls.
    ///
    /// # Errors
    ///
    /// When Parquet cannot hold a pretoken, because it is longer than 2 GiB.
    pub fn rows(&mut self, counts: &Counts) -> crate::Result<Vec<u8>> {
        let pages_of = |start| counts.chunks_of(start..counts.len().min(start + ROWS), PAGE.0, PAGE.1);
        let groups: Vec<Vec<Range<usize>>> = (0..counts.len()).step_by(ROWS).map(pages_of).collect();
        let encode = |group: &Vec<Range<usize>>| group.par_iter().map(|rows| pages(counts, rows)).collect();
        let groups: Vec<Vec<Pages>> = groups.par_iter().map(encode).collect::<Result<_>>()?;
        groups.into_iter().try_for_each(|pages| self.append_group(pages))?;
        self.written()
    }

    /// The bytes after the last rows.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn finish(mut self) -> crate::Result<Vec<u8>> {
        self.writer.finish()?;
        self.written()
    }

    fn append_group(&mut self, pages: Vec<Pages>) -> Result<()> {
        let (strings, numbers) = pages.into_iter().map(|[strings, numbers]| (strings, numbers)).unzip();
        let mut group = self.writer.next_row_group()?;
        for (number, pages) in [strings, numbers].into_iter().enumerate() {
            let (bytes, closed) = column(&self.columns, number, pages)?;
            group.append_column(&bytes, closed)?;
        }
        group.close()?;
        Ok(())
    }

    /// Takes what was written since the last time.
    fn written(&mut self) -> crate::Result<Vec<u8>> {
        self.writer.flush().map_err(ParquetError::from)?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }
}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Self::Parquet { reason: error.to_string() }
    }
}

/// The bytes of a column of a row group, and what describes them.
fn column(schema: &SchemaDescriptor, number: usize, pages: Vec<CompressedPage>) -> Result<(Bytes, ColumnCloseResult)> {
    let mut bytes = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut bytes);
    let (mut rows, mut size) = (0, 0);
    for page in pages {
        let written = writer.write_page(page)?;
        rows += u64::from(written.num_values);
        size += written.uncompressed_size;
    }
    let bytes: Bytes = bytes.into_inner()?.into();
    let metadata = ColumnChunkMetaData::builder(schema.column(number))
        .set_compression(Compression::SNAPPY)
        .set_encodings(vec![ENCODINGS[number], Encoding::RLE])
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size(size as i64)
        .set_num_values(rows as i64)
        .set_data_page_offset(0)
        .build()?;
    let closed = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((bytes, closed))
}

fn pages(counts: &Counts, rows: &Range<usize>) -> Result<Pages> {
    let (mut strings, mut numbers) = (Vec::new(), Vec::new());
    push_strings(rows.clone().map(|row| counts.pretoken(row)), &mut strings);
    let counted: Vec<i64> = counts.counts()[rows.clone()].iter().map(|&count| count as i64).collect(); // the same 64 bits
    push_numbers(&counted, &mut numbers);
    Ok([page(&strings, rows.len(), ENCODINGS[0])?, page(&numbers, rows.len(), ENCODINGS[1])?])
}

fn page(values: &[u8], rows: usize, encoding: Encoding) -> Result<CompressedPage> {
    let compressed = snap::raw::Encoder::new().compress_vec(values);
    let page = Page::DataPage {
        buf: compressed.map_err(|error| ParquetError::External(Box::new(error)))?.into(),
        num_values: rows as u32,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    Ok(CompressedPage::new(page, values.len()))
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::bpe::Random;

    fn file(parts: &[Counts]) -> Vec<u8> {
        let mut encoder = ParquetEncoder::new("key", "text").unwrap();
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| encoder.rows(part).unwrap()).collect();
        bytes.extend(encoder.finish().unwrap());
        bytes
    }

    fn read(bytes: Vec<u8>) -> Vec<(Vec<u8>, u64)> {
        let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap());
        rows.map(|row| (row.get_bytes(0).unwrap().data().to_vec(), row.get_ulong(1).unwrap())).collect()
    }

    fn assert_read_back(counts: &Counts) {
        let expected: Vec<(Vec<u8>, u64)> = counts.iter().map(|(key, count)| (key.to_vec(), count)).collect();
        assert!(read(file(std::slice::from_ref(counts))) == expected, "{} rows", counts.len());
    }

    #[test]
    fn what_is_written_is_what_the_parquet_crate_reads() {
        let mut random = Random(8);
        for rows in [0, 1, 2, 31, 32, 33, 34, 127, 128, 129, 130, 160, 161, 162, 1000] {
            for bits in [1, 7, 20, 31, 32, 33, 63, 64] {
                let mut counts = Counts::default();
                for word in random.words(2 * rows, 12).into_iter().take(rows) {
                    let count = (random.below(1 << 31) as u64) << 33 ^ (random.below(1 << 31) as u64) << 10;
                    counts.push(word.as_bytes(), count >> (64 - bits)).unwrap();
                }
                assert_read_back(&counts);
            }
        }
    }

    #[test]
    fn rows_in_several_groups_and_pages_and_long_pretokens_are_read_back() {
        let mut counts = Counts::default();
        counts.push(b"", 3).unwrap();
        (0..ROWS + PAGE.0 + 1).for_each(|row| counts.push(format!("{row:09}").as_bytes(), row as u64).unwrap());
        for end in [b"a", b"b"] {
            let long = [&[b'x'; 3 << 20][..], end].concat();
            counts.push(&long, u64::MAX - 1).unwrap();
        }
        assert_read_back(&counts);
    }
}
