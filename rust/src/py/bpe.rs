//! `Bpe` in Python: the merge table.

use std::sync::Arc;

use pyo3::prelude::*;

use super::vocabulary::PyVocabulary;
use crate::bpe::{Bpe, Options, Origin, Structure};

#[pyclass(frozen, name = "Bpe", module = "tokengraft._core")]
pub(super) struct PyBpe(pub(super) Bpe);

#[pymethods]
impl PyBpe {
    #[new]
    #[pyo3(signature = (vocabulary, *, ignore_merges, byte_fallback, unk_token, fuse_unk))]
    fn new(
        py: Python<'_>,
        vocabulary: &PyVocabulary,
        ignore_merges: bool,
        byte_fallback: bool,
        unk_token: Option<String>,
        fuse_unk: bool,
    ) -> PyResult<Self> {
        let options = Options { ignore_merges, byte_fallback, unk_token, fuse_unk };
        let vocabulary = Arc::clone(&vocabulary.0);
        Ok(Self(py.detach(|| Bpe::of(vocabulary, &options))?))
    }

    /// The characters between which text may be cut; None where all may.
    #[getter]
    fn cut_between(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.0.cut_between().map(String::from_iter))
    }

    #[getter]
    fn spells_every_character(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.spells_every_character())
    }

    #[getter]
    fn drops_unknown(&self) -> bool {
        self.0.drops_unknown()
    }

    fn encode(&self, pretoken: &str) -> PyResult<Vec<u32>> {
        Ok(self.0.encode(pretoken)?)
    }

    fn encode_by_merges(&self, pretoken: &str) -> PyResult<Vec<u32>> {
        Ok(self.0.encode_by_merges(pretoken)?)
    }

    /// (merged tokens with their two parts, atomic tokens, unreachable tokens), each by ascending id.
    #[allow(clippy::type_complexity)]
    fn structure(&self, py: Python<'_>) -> (Vec<(u32, u32, u32)>, Vec<u32>, Vec<u32>) {
        let structure = py.detach(|| Structure::of(&self.0));
        let (mut merged, mut atomic, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
        for (id, origin) in structure.ids.into_iter().zip(structure.origins) {
            match origin {
                Origin::Merged(left, right) => merged.push((id, left, right)),
                Origin::Atomic => atomic.push(id),
                Origin::Unreachable => unreachable.push(id),
            }
        }
        (merged, atomic, unreachable)
    }
}
