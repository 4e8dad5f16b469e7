//! `Counts` in Python: pretokens with their counts.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::interruptible;
use super::model::PyModel;
use crate::count::Counts;

#[pyclass(frozen, eq, name = "Counts", module = "tokengraft._core")]
#[derive(PartialEq, Eq)]
pub(super) struct PyCounts(pub(super) Counts);

#[pymethods]
impl PyCounts {
    /// From the bytes of all pretokens, the place where each begins and the last ends, and the counts: the latter two
    /// as little-endian 64-bit numbers.
    #[new]
    fn new(py: Python<'_>, data: &[u8], offsets: &[u8], counts: &[u8]) -> PyResult<Self> {
        let built = py.detach(|| Counts::from_columns(data.to_vec(), &words(offsets), words(counts)))?;
        Ok(Self(built))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The sum of all counts, or the largest number where it is larger.
    fn total(&self) -> u64 {
        u64::try_from(self.0.total()).unwrap_or(u64::MAX)
    }

    fn columns<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (bytes, offsets) = self.0.columns();
        let column = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut bytes = Vec::with_capacity(8 * (self.0.len() + 1));
            numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            PyBytes::new(py, &bytes)
        };
        let (mut offsets, mut counts) = (offsets, self.0.counts().iter().copied());
        (PyBytes::new(py, bytes), column(&mut offsets), column(&mut counts))
    }

    fn plus(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Ok(Self(interruptible(py, |stop| self.0.plus(&other.0, stop))?))
    }

    /// In `n` parts, by a hash of the pretokens.
    fn split(&self, py: Python<'_>, n: usize) -> PyResult<Vec<Self>> {
        Ok(interruptible(py, |stop| self.0.split(n, stop))?.into_iter().map(Self).collect())
    }

    fn scaled(&self, py: Python<'_>, numerator: u64, denominator: u64) -> PyResult<Self> {
        Ok(Self(interruptible(py, |stop| self.0.scaled(numerator, denominator, stop))?))
    }

    #[pyo3(signature = (first=false))]
    fn characters(&self, py: Python<'_>, first: bool) -> PyResult<Vec<(char, u64)>> {
        interruptible(py, |stop| self.0.characters(first, stop))
    }

    /// The most frequent pretokens, no more than the first `longest` bytes of each.
    #[pyo3(signature = (most, longest = None))]
    fn top<'py>(&self, py: Python<'py>, most: usize, longest: Option<usize>) -> Vec<(Bound<'py, PyBytes>, u64)> {
        let places = py.detach(|| self.0.top(most));
        let bytes = |at: usize| {
            let pretoken = self.0.pretoken(at);
            &pretoken[..pretoken.len().min(longest.unwrap_or(usize::MAX))]
        };
        places.into_iter().map(|at| (PyBytes::new(py, bytes(at)), self.0.counts()[at])).collect()
    }

    /// How often each character occurs that a model drops or replaces by its unknown token, by its bytes.
    #[pyo3(signature = (model, *, by_merges))]
    fn lost<'py>(
        &self,
        py: Python<'py>,
        model: &PyModel,
        by_merges: bool,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let lost = interruptible(py, |stop| model.0.lost_counts(&self.0, by_merges, stop))?;
        Ok(lost.into_iter().map(|(text, count)| (PyBytes::new(py, &text), count)).collect())
    }

    /// How often each token of a model occurs in the encoded pretokens, by ascending id.
    #[pyo3(signature = (model, *, by_merges, uses))]
    fn tokens(&self, py: Python<'_>, model: &PyModel, by_merges: bool, uses: bool) -> PyResult<Vec<(u32, u64)>> {
        interruptible(py, |stop| model.0.token_counts(&self.0, by_merges, uses, stop))
    }

    /// The pretokens that two models encode to different tokens, in order.
    fn changed(&self, py: Python<'_>, before: &PyModel, after: &PyModel) -> PyResult<Self> {
        let places = interruptible(py, |stop| before.0.changed_pretokens(&after.0, &self.0, stop))?;
        Ok(Self(self.0.at(&places)))
    }

    /// How the tokens change with each new merge: the columns of the changes, and the totals.
    #[pyo3(signature = (model, *, first_rank, merge_numbers, new_tokens))]
    #[allow(clippy::type_complexity)]
    fn growth<'py>(
        &self,
        py: Python<'py>,
        model: &PyModel,
        first_rank: u32,
        merge_numbers: Vec<u32>,
        new_tokens: Vec<(u32, u32)>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<i64>)> {
        let bpe = model.0.bpe()?;
        let found = interruptible(py, |stop| bpe.growth(&self.0, first_rank, &merge_numbers, &new_tokens, stop))?;
        let column =
            |values: Vec<i64>| PyBytes::new(py, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
        let numbers = column(found.changes.iter().map(|change| i64::from(change.0)).collect());
        let places = column(found.changes.iter().map(|change| i64::from(change.1)).collect());
        Ok((numbers, places, column(found.changes.iter().map(|change| change.2).collect()), found.totals))
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect()
}
