//! Counts as the bytes of a Parquet file: row groups are encoded on all cores. Neither reads Parquet nor writes files.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::{get_column_writer, get_typed_column_writer, ColumnCloseResult};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescPtr, ColumnPath, SchemaDescriptor};
use rayon::prelude::*;

use super::counts::Counts;
use crate::error::Error;

/// The rows of a row group. The bytes of a file do not depend on threads, because it is fixed.
const ROWS: usize = 1 << 18;
const SCHEMA: &str = "message schema { REQUIRED BYTE_ARRAY pretoken; REQUIRED INT64 count (INTEGER(64,false)); }";

type Properties = Arc<WriterProperties>;
/// The bytes of a column of a row group, and how it ended.
type Column = (Bytes, ColumnCloseResult);
/// The columns of a row group.
type Group = [Column; 2];

/// Gives the bytes of a Parquet file of counts, part by part.
pub struct ParquetEncoder {
    writer: SerializedFileWriter<Vec<u8>>,
    columns: SchemaDescriptor,
    properties: Properties,
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
        let properties = Arc::new(properties(KeyValue::new(key.to_string(), text.to_string())));
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::clone(&properties))?;
        Ok(Self { writer, columns, properties })
    }

    /// The bytes of the next rows. All calls but the last must have a multiple of 2^18 rows, so that the bytes of a file
    /// do not depend on the calls.
    ///
    /// # Errors
    ///
    /// When Parquet cannot hold a pretoken, because it is longer than 2 GiB.
    pub fn rows(&mut self, counts: &Counts) -> crate::Result<Vec<u8>> {
        let starts: Vec<usize> = (0..counts.len()).step_by(ROWS).collect();
        let encode = |&start: &usize| row_group(counts, start, &self.columns, &self.properties);
        let groups: Vec<Group> = starts.par_iter().map(encode).collect::<Result<_>>()?;
        for columns in groups {
            let mut group = self.writer.next_row_group()?;
            for (bytes, closed) in columns {
                group.append_column(&bytes, closed)?;
            }
            group.close()?;
        }
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

/// Pretokens are distinct, so a dictionary does not help, and sorted, so each begins as the one before it.
fn properties(metadata: KeyValue) -> WriterProperties {
    WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_compression(Compression::SNAPPY)
        .set_column_encoding(ColumnPath::from("pretoken"), Encoding::DELTA_BYTE_ARRAY)
        .set_column_encoding(ColumnPath::from("count"), Encoding::DELTA_BINARY_PACKED)
        .set_created_by(concat!("tokengraft ", env!("CARGO_PKG_VERSION")).to_string())
        .set_key_value_metadata(Some(vec![metadata]))
        .build()
}

fn row_group(counts: &Counts, start: usize, schema: &SchemaDescriptor, properties: &Properties) -> Result<Group> {
    let rows = start..counts.len().min(start + ROWS);
    let bytes = Bytes::copy_from_slice(counts.bytes(&rows));
    let ends = rows.clone().scan(0, |end, row| {
        let begin = *end;
        *end += counts.pretoken(row).len();
        Some(begin..*end)
    });
    let pretokens: Vec<ByteArray> = ends.map(|place| bytes.slice(place).into()).collect();
    let numbers: Vec<i64> = counts.counts()[rows].iter().map(|&count| count as i64).collect(); // the same 64 bits
    let encode_pretokens = || column::<ByteArrayType>(schema.column(0), properties, &pretokens);
    let encode_numbers = || column::<Int64Type>(schema.column(1), properties, &numbers);
    let (pretokens, numbers) = rayon::join(encode_pretokens, encode_numbers);
    Ok([pretokens?, numbers?])
}

fn column<T: DataType>(schema: ColumnDescPtr, properties: &Properties, values: &[T::T]) -> Result<Column> {
    let mut bytes = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut bytes));
    let mut writer = get_typed_column_writer::<T>(get_column_writer(schema, Arc::clone(properties), pages));
    writer.write_batch(values, None, None)?;
    let closed = writer.close()?;
    Ok((bytes.into_inner()?.into(), closed))
}
