//! Sorted runs on disk: tables that are too large for memory, written in the order of their keys.
//! Merging them is in `rows.rs`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::counts::Counts;
use super::rows::Rows;
use super::sorted::sorted_counts;
use super::table::Table;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// When there are this many runs, they are merged into one: each is an open file at the end.
const MAX_RUNS: usize = 64;

/// Where and when to write tables to disk, and the runs that were written.
pub(super) struct Spill {
    folder: PathBuf,
    bytes_per_table: usize,
    runs: Mutex<Vec<PathBuf>>,
    n_paths: AtomicUsize,
}

impl Spill {
    pub(super) fn new(folder: PathBuf, bytes_per_table: usize) -> Self {
        Self { folder, bytes_per_table, runs: Mutex::default(), n_paths: AtomicUsize::new(0) }
    }

    /// Writes a table to disk and leaves None, if it is larger than allowed.
    pub(super) fn write_if_large(&self, table: &mut Option<Table>) -> Result<()> {
        match table.take_if(|table| table.memory() > self.bytes_per_table) {
            Some(large) => self.write(large),
            None => Ok(()),
        }
    }

    fn write(&self, table: Table) -> Result<()> {
        let mut rows = Rows::new(sorted_counts(vec![table], &Stop::default())?, &[])?;
        let path = self.new_path();
        write_run(&path, |key| rows.next(key))?;
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(path);
        if runs.len() >= MAX_RUNS {
            let merged = self.new_path();
            let mut rows = Rows::new(Counts::default(), &runs)?;
            write_run(&merged, |key| rows.next(key))?;
            for run in runs.drain(..) {
                std::fs::remove_file(&run).map_err(|error| spill_error(&run, &error))?;
            }
            runs.push(merged);
        }
        Ok(())
    }

    /// The runs that were written. There are none afterwards.
    pub(super) fn take_runs(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A path for a run that was not returned before.
    fn new_path(&self) -> PathBuf {
        self.folder.join(format!("run-{}", self.n_paths.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Writes rows in the order that `next` gives them.
fn write_run(path: &Path, mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<u64>>) -> Result<()> {
    let write = |file: &mut BufWriter<File>, key: &[u8], count: u64| {
        file.write_all(&(key.len() as u64).to_le_bytes())?;
        file.write_all(&count.to_le_bytes())?;
        file.write_all(key)
    };
    let file = File::create(path).map_err(|error| spill_error(path, &error))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut key = Vec::new();
    while let Some(count) = next(&mut key)? {
        write(&mut file, &key, count).map_err(|error| spill_error(path, &error))?;
    }
    file.flush().map_err(|error| spill_error(path, &error))
}

/// The next row of a run: its key, copied to `key`, and its count.
pub(super) fn read_row(file: &mut BufReader<File>, key: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let (mut length, mut count) = ([0; 8], [0; 8]);
    match file.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    file.read_exact(&mut count)?;
    key.resize(u64::from_le_bytes(length) as usize, 0);
    file.read_exact(key)?;
    Ok(Some(u64::from_le_bytes(count)))
}

pub(super) fn spill_error(path: &Path, error: &io::Error) -> Error {
    Error::Spill { path: path.display().to_string(), reason: error.to_string() }
}
