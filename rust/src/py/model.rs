//! `Model` in Python: how pretokens are split into tokens.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyString};
use rustc_hash::FxHashSet;

use super::interruptible;
use super::vocabulary::PyVocabulary;

use crate::bpe::{byte_of, Alphabet, Bpe, Options, Origin};
use crate::model::{Model, Remaining, Summary, Unigram, WordPiece};

#[pyclass(frozen, name = "Model", module = "tokengraft._core")]
pub(super) struct PyModel(pub(super) Arc<Model>);

#[pymethods]
impl PyModel {
    #[staticmethod]
    #[pyo3(signature = (vocabulary, *, byte_level, ignore_merges, byte_fallback, unk_token, fuse_unk))]
    fn bpe(
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
        Ok(Self(Arc::new(Model::Bpe(py.detach(|| Bpe::of(vocabulary, &options))?))))
    }

    #[staticmethod]
    #[pyo3(signature = (vocabulary, scores, *, unk_id, byte_fallback))]
    fn unigram(
        py: Python<'_>,
        vocabulary: &PyVocabulary,
        scores: Vec<f64>,
        unk_id: Option<u32>,
        byte_fallback: bool,
    ) -> PyResult<Self> {
        let vocabulary = Arc::clone(&vocabulary.0);
        let unigram = py.detach(|| Unigram::of_file(vocabulary, &scores, unk_id, byte_fallback))?;
        Ok(Self(Arc::new(Model::Unigram(unigram))))
    }

    #[staticmethod]
    #[pyo3(signature = (vocabulary, *, unk_token, max_characters))]
    fn word_piece(py: Python<'_>, vocabulary: &PyVocabulary, unk_token: String, max_characters: usize) -> Self {
        let vocabulary = Arc::clone(&vocabulary.0);
        Self(Arc::new(Model::WordPiece(py.detach(|| WordPiece::new(vocabulary, unk_token, max_characters)))))
    }

    /// The ids of a pretoken; `by_merges` turns merge skipping off.
    #[pyo3(signature = (pretoken, *, by_merges=false))]
    fn encode(&self, pretoken: &str, by_merges: bool) -> PyResult<Vec<u32>> {
        Ok(if by_merges { self.0.encode_by_merges(pretoken) } else { self.0.encode(pretoken) }?)
    }

    fn encode_token(&self, string: &str) -> PyResult<Vec<u32>> {
        Ok(self.0.encode_token(string)?)
    }

    /// The two parts of every merged token, atomic tokens, and unreachable tokens; each by ascending id.
    fn structure<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Vec<u32>, Vec<u32>)> {
        let origins = py.detach(|| self.0.origins());
        let (merged, mut atomic, mut unreachable) = (PyDict::new(py), Vec::new(), Vec::new());
        for (&id, &origin) in self.0.tokens().ids().iter().zip(origins.iter()) {
            match origin {
                Origin::Merged(left, right) => merged.set_item(id, (left, right))?,
                Origin::Atomic => atomic.push(id),
                Origin::Unreachable => unreachable.push(id),
                Origin::Whole => (),
            }
        }
        Ok((merged, atomic, unreachable))
    }

    /// The ids of the tokens that encoding starts from, ascending.
    fn atomic(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.0.atomic())
    }

    /// The ids of all tokens that some tokens are made of, theirs included, ascending.
    fn with_parts(&self, py: Python<'_>, ids: Vec<u32>) -> Vec<u32> {
        py.detach(|| self.0.with_parts(ids))
    }

    /// Ids, strings and bytes of all tokens, by ascending id. `more` has tokens that the vocabulary lacks.
    fn tokens<'py>(
        &self,
        py: Python<'py>,
        more: Vec<(u32, String)>,
    ) -> Vec<(u32, Bound<'py, PyString>, Bound<'py, PyBytes>)> {
        let mut bytes = Vec::new();
        let mut token = |(id, string): (u32, &str)| {
            bytes.clear();
            self.0.decode(string, &mut bytes);
            (id, PyString::new(py, string), PyBytes::new(py, &bytes))
        };
        self.0.with_more(&more).into_iter().map(&mut token).collect()
    }

    /// The ids of tokens whose removal could change text that is not split into them.
    fn must_stay(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.0.must_stay())
    }

    /// What the string of some tokens is split into without them, each with its id.
    fn parts(&self, py: Python<'_>, tokens: Vec<u32>, apart: Vec<u32>) -> PyResult<Vec<(u32, Vec<u32>)>> {
        let tokens = FxHashSet::from_iter(tokens);
        let mut parts = py.detach(|| self.0.parts(&apart.into_iter().collect()))?;
        parts.retain(|(id, _)| tokens.contains(id));
        Ok(parts)
    }

    /// How often tokens are expected, and how often they are in a text, by themselves or inside another.
    fn expected<'py>(
        &self,
        py: Python<'py>,
        counts: Vec<(u32, u64)>,
        apart: Vec<u32>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let (expected, uses) = py.detach(|| self.0.expected(&counts, &apart.into_iter().collect()))?;
        Ok((expected.into_py_dict(py)?, uses.into_py_dict(py)?))
    }

    /// The leaves in the order in which they are removed, each with its count.
    fn leaf_order(
        &self,
        py: Python<'_>,
        candidates: Vec<u32>,
        counts: Vec<(u32, u64)>,
        expected: Vec<(u32, f64)>,
    ) -> PyResult<Vec<(u32, u64)>> {
        interruptible(py, |stop| self.0.leaf_order(&candidates, &counts, &expected, stop))
    }

    /// Every token that merges make and its two parts, in the order of the merges, as ids of 32 bits.
    fn applied<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let ids = py.detach(|| match &*self.0 {
            Model::Bpe(bpe) => bpe.applied(),
            _ => Vec::new(),
        });
        PyBytes::new(py, &ids.iter().flatten().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// The ids and the lengths of all tokens as 32 bits, their text, and a byte for each: whether text is never made of
    /// it, because the vocabulary lacks it or the byte-level alphabet does not spell it. By ascending id.
    ///
    /// The text is the bytes of a token of a byte-level vocabulary, and the string of any other.
    #[allow(clippy::type_complexity)]
    fn columns<'py>(
        &self,
        py: Python<'py>,
        more: Vec<(u32, String)>,
    ) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (mut ids, mut lengths, mut text, mut outside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (id, string) in self.0.with_more(&more) {
            let start = text.len();
            match self.0.alphabet() {
                Alphabet::ByteLevel => Alphabet::ByteLevel.decode(string, &mut text),
                Alphabet::Text => text.extend_from_slice(string.as_bytes()),
            }
            let length = (text.len() - start) as u32;
            let is_spelled = self.0.alphabet() == Alphabet::Text || string.chars().all(|c| byte_of(c).is_some());
            ids.extend_from_slice(&id.to_le_bytes());
            lengths.extend_from_slice(&length.to_le_bytes());
            outside.push(u8::from(!is_spelled || self.0.tokens().index(string).is_none()));
        }
        (PyBytes::new(py, &ids), PyBytes::new(py, &lengths), PyBytes::new(py, &text), PyBytes::new(py, &outside))
    }

    /// The scripts that tokens are written in, sorted, and the place of that of each token in this list, by ascending id.
    fn scripts<'py>(&self, py: Python<'py>, more: Vec<(u32, String)>) -> (Vec<&'static str>, Bound<'py, PyBytes>) {
        let (names, places) = py.detach(|| self.0.scripts(&more));
        (names, PyBytes::new(py, &places))
    }

    /// The ids of the tokens that stand for white space, and ASCII digits and punctuation, alone.
    fn plain_tokens(&self, py: Python<'_>, more: Vec<(u32, String)>) -> Vec<u32> {
        py.detach(|| self.0.plain_tokens(&more))
    }

    /// The ids of the tokens that stand for one of some texts, each with the place of the text.
    #[pyo3(signature = (more, texts, *, trimmed))]
    fn tokens_of(
        &self,
        py: Python<'_>,
        more: Vec<(u32, String)>,
        texts: Vec<String>,
        trimmed: bool,
    ) -> Vec<(u32, usize)> {
        py.detach(|| self.0.tokens_of(&more, &texts, trimmed))
    }

    /// The ids of the tokens that stand for bytes that are not UTF-8.
    fn partial_tokens(&self, py: Python<'_>, more: Vec<(u32, String)>) -> Vec<u32> {
        py.detach(|| self.0.partial_tokens(&more))
    }

    /// The ids of the learned tokens that no text becomes, ascending.
    fn unreachable(&self, py: Python<'_>, added: Vec<u32>) -> Vec<u32> {
        py.detach(|| self.0.unreachable(&added.into_iter().collect()))
    }

    /// Runs of ids in the same use: the first, the last, and whether they belong to added tokens.
    fn runs(&self, added: Vec<u32>) -> Vec<(u32, u32, bool)> {
        self.0.runs(&added.into_iter().collect())
    }

    /// The fields of a [`Summary`], in order.
    #[pyo3(signature = (added, *, examples))]
    #[allow(clippy::type_complexity)]
    fn summary(&self, py: Python<'_>, added: Vec<u32>, examples: usize) -> ((usize, usize, usize, usize), Vec<u32>) {
        let all = py.detach(|| self.0.summary(&added.into_iter().collect(), examples));
        let Summary { learned, atomic, not_utf8, shared_bytes, longest } = all;
        ((learned, atomic, not_utf8, shared_bytes), longest)
    }
}

#[pyclass(frozen, name = "Remaining", module = "tokengraft._core")]
pub(super) struct PyRemaining(Mutex<Remaining>);

#[pymethods]
impl PyRemaining {
    #[new]
    fn new(model: &PyModel) -> Self {
        Self(Mutex::new(Remaining::new(Arc::clone(&model.0))))
    }

    /// Removes a token, and gives the ids that its string is then split into.
    fn remove(&self, token_id: u32) -> PyResult<Vec<u32>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token_id)?)
    }

    /// Every token that the string of a token is split into or merged from, as often as it is.
    fn uses(&self, token_id: u32) -> PyResult<Vec<u32>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).uses(token_id)?)
    }
}
