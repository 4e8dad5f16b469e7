//! `Counter`, `Block` and `Rows` in Python: blocks of text to counts.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::counts::PyCounts;
use super::interruptible;
use super::pipeline::PyCutter;
use crate::count::{Block, Copies, Counter, HoldOut, Limits, Rows, Tally};
use crate::pretokenize::{Pretokenizer, Spelling};

#[pyclass(frozen, name = "Counter", module = "tokengraft._core")]
pub(super) struct PyCounter(pub(super) Counter);

#[pymethods]
impl PyCounter {
    #[new]
    #[pyo3(signature = (
        skeleton, *, byte_level, cutter, spill_folder, bytes_per_table, document_memory, hold_out, through_upstream=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        skeleton: &str,
        byte_level: bool,
        cutter: Option<&PyCutter>,
        spill_folder: Option<PathBuf>,
        bytes_per_table: usize,
        document_memory: usize,
        hold_out: Option<(u64, u64)>,
        through_upstream: bool,
    ) -> PyResult<Self> {
        let spelling = match byte_level {
            true => Spelling::ByteLevel,
            false => Spelling::Text(cutter.map(|cutter| Arc::clone(&cutter.0))),
        };
        let pretokenizer = match through_upstream {
            true => Pretokenizer::through_upstream(skeleton, spelling)?,
            false => Pretokenizer::new(skeleton, spelling)?,
        };
        let mut counter = Counter::new(pretokenizer).within(document_memory);
        if let Some((one_in, max_bytes)) = hold_out {
            counter = counter.holding_out(HoldOut::new(one_in, max_bytes));
        }
        Ok(Self(match spill_folder {
            Some(folder) => counter.spilling(folder, bytes_per_table),
            None => counter,
        }))
    }

    fn count(&self, py: Python<'_>, block: PyBlock<'_>, limits: (u64, u64), skip_bad: bool) -> PyResult<PyTally> {
        let (block, limits) = (block.block()?, Limits { documents: limits.0, bytes: limits.1 });
        let tally = py.detach(|| self.0.count_block(block, limits, skip_bad))?;
        Ok((numbers(&tally), (tally.read_documents, tally.read_bytes), tally.cut_short))
    }

    /// What the counter of the whole corpus has to merge, if this one is that of a part.
    fn hold_out_share(&self) -> Vec<(String, u64, u64)> {
        let share = self.0.hold_out_share().into_iter();
        share.map(|(text, copies)| (text, copies.at_start, copies.inside)).collect()
    }

    /// Takes what counters of parts have held out, and counts what is not held out of the whole.
    fn merge_hold_out(&self, py: Python<'_>, share: Vec<(String, u64, u64)>) -> PyResult<Numbers> {
        let share = share.into_iter().map(|(text, at_start, inside)| (text, Copies { at_start, inside }));
        let share: Vec<_> = share.collect();
        Ok(numbers(&py.detach(|| self.0.merge_hold_out(&share))?))
    }

    fn add(&self, py: Python<'_>, counts: &PyCounts) -> PyResult<()> {
        Ok(py.detach(|| self.0.add(counts.0.iter()))?)
    }

    /// The longest document that memory allows, in bytes.
    #[getter]
    fn longest_document(&self) -> usize {
        self.0.longest_document()
    }

    fn last_cut(&self, py: Python<'_>, data: &[u8]) -> Option<usize> {
        py.detach(|| self.0.last_cut(data))
    }

    fn piece_ends(&self, py: Python<'_>, data: &[u8]) -> Vec<usize> {
        py.detach(|| self.0.piece_ends(data))
    }

    fn added(&self) -> Vec<(u32, u64)> {
        self.0.added()
    }

    fn finish(&self, py: Python<'_>) -> PyResult<PyRows> {
        Ok(PyRows(interruptible(py, |stop| self.0.finish(stop))?))
    }
}

/// Documents, bytes, characters, pretokens, replaced, skipped.
type Numbers = (u64, u64, u64, u64, u64, u64);

/// The numbers; documents and bytes read, those held out included; and whether the limit of bytes cut a text short.
type PyTally = (Numbers, (u64, u64), bool);

fn numbers(tally: &Tally) -> Numbers {
    (tally.documents, tally.bytes, tally.characters, tally.pretokens, tally.replaced, tally.skipped)
}

/// A `tokengraft.corpus.Block`, read by its fields.
#[derive(FromPyObject)]
pub(super) struct PyBlock<'py> {
    form: String,
    data: Bound<'py, PyBytes>,
    offsets: Bound<'py, PyBytes>,
    nulls: Bound<'py, PyBytes>,
    field: String,
    at_start: bool,
}

impl PyBlock<'_> {
    fn block(&self) -> PyResult<Block<'_>> {
        let bytes = self.data.as_bytes();
        Ok(match self.form.as_str() {
            "text" => Block::Text { bytes, at_start: self.at_start, pieces: self.offsets.as_bytes() },
            "lines" => Block::Lines(bytes),
            "documents" => Block::Documents { bytes, offsets: self.offsets.as_bytes(), nulls: self.nulls.as_bytes() },
            "jsonl" => Block::JsonLines { bytes, field: &self.field },
            other => return Err(PyValueError::new_err(format!("there is no form of block {other:?}"))),
        })
    }
}

/// The documents of a block; and how many parts of them were replaced, and how many documents skipped.
#[pyfunction]
pub(super) fn documents(py: Python<'_>, block: PyBlock<'_>, skip_bad: bool) -> PyResult<(Vec<Py<PyString>>, u64, u64)> {
    let (mut texts, mut replaced, mut skipped) = (Vec::new(), 0, 0);
    for document in block.block()?.documents()? {
        match document {
            Ok(document) => {
                replaced += document.replaced;
                texts.push(PyString::new(py, &document.text).unbind());
            }
            Err(error) if skip_bad && error.is_bad_document() => skipped += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok((texts, replaced, skipped))
}

#[pyclass(name = "Rows", module = "tokengraft._core")]
pub(super) struct PyRows(pub(super) Rows);

#[pymethods]
impl PyRows {
    fn take(&mut self, py: Python<'_>, most: Option<usize>, min_count: u64) -> PyResult<PyCounts> {
        Ok(PyCounts(py.detach(|| self.0.take(most, min_count))?))
    }
}
