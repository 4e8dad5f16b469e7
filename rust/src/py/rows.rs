//! Means of rows in Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::rows;

/// The mean of each group of rows of bf16. Groups are the numbers of their rows, and the places of these.
#[pyfunction]
pub(super) fn bf16_means<'py>(
    py: Python<'py>,
    rows: &[u8],
    width: usize,
    groups: Vec<usize>,
    places: Vec<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let means = py.detach(|| rows::bf16_means(rows, width, &groups, &places));
    let means = means.ok_or_else(|| PyValueError::new_err("rows, groups and places do not fit together"))?;
    Ok(PyBytes::new(py, &means))
}
