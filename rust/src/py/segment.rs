//! `Segmenter` in Python: documents to token ids.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use super::interruptible;
use super::model::PyModel;
use super::pipeline::PyCutter;
use crate::bpe::Alphabet;
use crate::pretokenize::{Pretokenizer, Spelling};
use crate::segment::Segmenter;

#[pyclass(frozen, name = "Segmenter", module = "tokengraft._core")]
pub(super) struct PySegmenter {
    segmenter: Mutex<Segmenter>,
    model: Py<PyModel>,
}

#[pymethods]
impl PySegmenter {
    #[new]
    #[pyo3(signature = (model, skeleton, *, cutter))]
    fn new(model: Py<PyModel>, skeleton: &str, cutter: Option<&PyCutter>) -> PyResult<Self> {
        let spelling = match model.get().0.alphabet() {
            Alphabet::ByteLevel => Spelling::ByteLevel,
            Alphabet::Text => Spelling::Text(cutter.map(|cutter| Arc::clone(&cutter.0))),
        };
        let segmenter = Segmenter::new(Pretokenizer::new(skeleton, spelling)?);
        Ok(Self { segmenter: Mutex::new(segmenter), model })
    }

    /// Ids of 32 bits, the number of tokens of each document as 64 bits, pretokens, and tokens without merge skipping.
    fn segment<'py>(&self, py: Python<'py>, documents: Vec<PyBackedStr>) -> PyResult<PySegmented<'py>> {
        let model = self.model.get();
        let done = interruptible(py, |stop| {
            let texts: Vec<&str> = documents.iter().map(|document| &**document).collect();
            self.segmenter.lock().unwrap_or_else(PoisonError::into_inner).segment(&model.0, &texts, stop)
        })?;
        let ids = words(py, done.ids.len() * 4, done.ids.iter().flat_map(|id| id.to_ne_bytes()))?;
        let lengths = words(py, done.lengths.len() * 8, done.lengths.iter().flat_map(|length| length.to_ne_bytes()))?;
        Ok((ids, lengths, done.pretokens, done.tokens_by_merges))
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
    let numbers =
        |bytes: &[u8]| -> Vec<u32> { bytes.chunks_exact(4).map(|word| native(word, u32::from_ne_bytes)).collect() };
    let places = |bytes: &[u8]| -> Vec<usize> {
        bytes.chunks_exact(8).map(|word| native(word, u64::from_ne_bytes) as usize).collect()
    };
    let edits = interruptible(py, |stop| {
        let (ours, theirs) = ((numbers(ours.0), places(ours.1)), (numbers(theirs.0), places(theirs.1)));
        crate::segment::edit_distances((&ours.0, &ours.1), (&theirs.0, &theirs.1), longest, stop)
    })?;
    let edits = edits.iter().map(|edits| edits.map_or(-1, |edits| edits as i64));
    words(py, edits.len() * 8, edits.flat_map(i64::to_ne_bytes))
}

/// The number in some bytes, of which there are as many as it has.
fn native<const N: usize, T: Default>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> T {
    bytes.try_into().map_or_else(|_| T::default(), number)
}

type PySegmented<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64, u64);

/// Bytes of a known number.
fn words<'py>(py: Python<'py>, length: usize, bytes: impl Iterator<Item = u8>) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, length, |out| {
        out.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        Ok(())
    })
}
