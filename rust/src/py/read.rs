//! `FileReader` and `Part` in Python: files read in parts.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::counter::PyCounter;
use crate::read::{FileReader, Part};

#[pyclass(frozen, name = "Part", module = "tokengraft._core")]
pub(super) struct PyPart(pub(super) Part);

#[pymethods]
impl PyPart {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }

    fn newlines(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.newlines())
    }
}

#[pyclass(name = "FileReader", module = "tokengraft._core")]
pub(super) struct PyFileReader(FileReader);

#[pymethods]
impl PyFileReader {
    #[new]
    fn new(path: PathBuf, block: usize) -> PyResult<Self> {
        Ok(Self(FileReader::open(&path, block)?))
    }

    #[getter]
    fn position(&self) -> u64 {
        self.0.position()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }

    /// The next part, cut where a counter says, or without one at the end of a line.
    #[pyo3(signature = (counter, longest))]
    fn next(
        &mut self,
        py: Python<'_>,
        counter: Option<&PyCounter>,
        longest: Option<usize>,
    ) -> PyResult<Option<PyPart>> {
        let line_end = |data: &[u8]| data.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        let counter = counter.map(|counter| &counter.0);
        let last_cut = |data: &[u8]| counter.map_or_else(|| line_end(data), |counter| counter.last_cut(data));
        Ok(py.detach(|| self.0.next(last_cut, longest))?.map(PyPart))
    }
}
