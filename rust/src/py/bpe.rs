//! `Bpe` in Python: the merge table.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::vocabulary::PyVocabulary;
use crate::bpe::{Alphabet, Bpe, Options, Origin, Summary};

#[pyclass(frozen, name = "Bpe", module = "tokengraft._core")]
pub(super) struct PyBpe(pub(super) Bpe);

#[pymethods]
impl PyBpe {
    #[new]
    #[pyo3(signature = (vocabulary, *, byte_level, ignore_merges, byte_fallback, unk_token, fuse_unk))]
    fn new(
        py: Python<'_>,
        vocabulary: &PyVocabulary,
        byte_level: bool,
        ignore_merges: bool,
        byte_fallback: bool,
        unk_token: Option<String>,
        fuse_unk: bool,
    ) -> PyResult<Self> {
        let alphabet = if byte_level { Alphabet::ByteLevel } else { Alphabet::Text };
        let options = Options { alphabet, ignore_merges, byte_fallback, unk_token, fuse_unk };
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

    /// The two parts of every merged token, atomic tokens, and unreachable tokens; each by ascending id.
    fn structure<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Vec<u32>, Vec<u32>)> {
        let structure = py.detach(|| self.0.structure());
        let (merged, mut atomic, mut unreachable) = (PyDict::new(py), Vec::new(), Vec::new());
        for (&id, &origin) in structure.ids.iter().zip(&structure.origins) {
            match origin {
                Origin::Merged(left, right) => merged.set_item(id, (left, right))?,
                Origin::Atomic => atomic.push(id),
                Origin::Unreachable => unreachable.push(id),
            }
        }
        Ok((merged, atomic, unreachable))
    }

    /// Ids, strings and bytes of all tokens, by ascending id. `more` has tokens that the vocabulary lacks.
    fn tokens<'py>(
        &self,
        py: Python<'py>,
        more: Vec<(u32, String)>,
    ) -> Vec<(u32, Bound<'py, PyString>, Bound<'py, PyBytes>)> {
        let listed = self.0.ids().iter().copied().zip(self.0.strings());
        let mut all: Vec<(u32, &str)> = listed.chain(more.iter().map(|(id, string)| (*id, string.as_str()))).collect();
        all.sort_unstable();
        let mut bytes = Vec::new();
        let mut token = |(id, string): (u32, &str)| {
            bytes.clear();
            self.0.alphabet.decode(string, &mut bytes);
            (id, PyString::new(py, string), PyBytes::new(py, &bytes))
        };
        all.into_iter().map(&mut token).collect()
    }

    /// The fields of a [`Summary`], in order.
    #[pyo3(signature = (added, *, examples))]
    #[allow(clippy::type_complexity)]
    fn summary(
        &self,
        py: Python<'_>,
        added: Vec<u32>,
        examples: usize,
    ) -> (Vec<(u32, u32, bool)>, (usize, usize, usize, usize), Vec<u32>, Vec<u32>) {
        let all = py.detach(|| self.0.summary(&added.into_iter().collect(), examples));
        let Summary { runs, learned, atomic, not_utf8, shared_bytes, unreachable, longest } = all;
        (runs, (learned, atomic, not_utf8, shared_bytes), unreachable, longest)
    }
}
