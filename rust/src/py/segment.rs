//! `Segmenter` in Python: documents to token ids.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use super::interruptible;
use super::model::PyModel;
use super::pipeline::PyCutter;
use crate::bpe::Alphabet;
use crate::model::Model;
use crate::pretokenize::{Pretokenizer, Spelling};
use crate::segment::{Segmented, Segmenter};

#[pyclass(frozen, name = "Segmenter", module = "tokengraft._core")]
pub(super) struct PySegmenter(Segmenter);

#[pymethods]
impl PySegmenter {
    #[new]
    #[pyo3(signature = (models, skeleton, *, cutter))]
    fn new(models: Vec<PyRef<'_, PyModel>>, skeleton: &str, cutter: Option<&PyCutter>) -> PyResult<Self> {
        let models: Vec<Arc<Model>> = models.iter().map(|model| Arc::clone(&model.0)).collect();
        let spelling = match models.first().map(|model| model.alphabet()) {
            Some(Alphabet::ByteLevel) => Spelling::ByteLevel,
            _ => Spelling::Text(cutter.map(|cutter| Arc::clone(&cutter.0))),
        };
        Ok(Self(Segmenter::new(Pretokenizer::new(skeleton, spelling)?, models)))
    }

    /// For each model: ids of 32 bits, the number of tokens of each document as 64 bits, pretokens, and tokens without
    /// merge skipping.
    fn segment<'py>(&self, py: Python<'py>, documents: Vec<PyBackedStr>) -> PyResult<Vec<PySegmented<'py>>> {
        let all = interruptible(py, |stop| {
            self.0.segment(&documents.iter().map(|document| &**document).collect::<Vec<&str>>(), stop)
        })?;
        let one = |done: Segmented| {
            let ids = numbers(py, done.ids.iter().map(|id| id.to_ne_bytes()))?;
            let lengths = numbers(py, done.lengths.iter().map(|length| length.to_ne_bytes()))?;
            Ok((ids, lengths, done.pretokens, done.tokens_by_merges))
        };
        all.into_iter().map(one).collect()
    }
}

/// Bytes, characters and words of documents.
#[pyfunction]
pub(super) fn text_size(py: Python<'_>, documents: Vec<PyBackedStr>) -> (usize, usize, usize) {
    py.detach(|| crate::segment::text_size(&documents.iter().map(|document| &**document).collect::<Vec<_>>()))
}

/// Documents as numbers of 32 bits and their places of 64 bits, with both tokenizers; the edits of each as 64 bits, -1
/// where the two differ over more than `longest` tokens.
#[pyfunction]
pub(super) fn edit_distances<'py>(
    py: Python<'py>,
    ours: (&[u8], &[u8]),
    theirs: (&[u8], &[u8]),
    longest: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let tokens =
        |bytes: &[u8]| -> Vec<u32> { bytes.chunks_exact(4).map(|word| native(word, u32::from_ne_bytes)).collect() };
    let places = |bytes: &[u8]| -> Vec<usize> {
        bytes.chunks_exact(8).map(|word| native(word, u64::from_ne_bytes) as usize).collect()
    };
    let edits = interruptible(py, |stop| {
        let (ours, theirs) = ((tokens(ours.0), places(ours.1)), (tokens(theirs.0), places(theirs.1)));
        crate::segment::edit_distances((&ours.0, &ours.1), (&theirs.0, &theirs.1), longest, stop)
    })?;
    numbers(py, edits.iter().map(|edits| edits.map_or(-1, |edits| edits as i64).to_ne_bytes()))
}

/// The number in some bytes, of which there are as many as it has.
fn native<const N: usize, T: Default>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> T {
    bytes.try_into().map_or_else(|_| T::default(), number)
}

type PySegmented<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64, u64);

/// Numbers, one after the other.
fn numbers<const N: usize>(
    py: Python<'_>,
    numbers: impl ExactSizeIterator<Item = [u8; N]>,
) -> PyResult<Bound<'_, PyBytes>> {
    PyBytes::new_with(py, numbers.len() * N, |out| {
        out.chunks_exact_mut(N).zip(numbers).for_each(|(place, number)| place.copy_from_slice(&number));
        Ok(())
    })
}
