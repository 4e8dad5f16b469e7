//! Counts to the bytes of a Parquet file, on all cores. Neither reads Parquet nor writes files.
//!
//! Only what counts need: two columns without nulls, byte strings in order and numbers. Neighbours in order share their
//! first bytes, which the file has once (`DELTA_BYTE_ARRAY`). The bytes depend on the counts alone.

mod delta;
mod file;
mod snappy;
mod thrift;

pub use file::ParquetEncoder;
