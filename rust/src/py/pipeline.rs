//! `Pipeline` and `Cutter` in Python: text to pretokens, and where it may be cut.

use std::sync::Arc;

use pyo3::prelude::*;

use super::model::PyModel;
use crate::error::Error;
use crate::pretokenize::{
    describe, script_names, Cutter, Piece, PieceRules, Pipeline, Pretokenizer, Spelling, Upstream,
};

#[pyclass(frozen, name = "Pipeline", module = "tokengraft._core")]
pub(super) struct PyPipeline(pub(super) Pipeline);

#[pymethods]
impl PyPipeline {
    #[new]
    fn new(skeleton: &str) -> PyResult<Self> {
        Ok(Self(Pipeline::from_json(skeleton)?))
    }

    /// What computes the pretokens of a pipeline in counting.
    #[staticmethod]
    fn engine(py: Python<'_>, skeleton: &str, byte_level: bool) -> PyResult<&'static str> {
        let spelling = if byte_level { Spelling::ByteLevel } else { Spelling::Text(None) };
        Ok(py.detach(|| Pretokenizer::new(skeleton, spelling).map(|pretokenizer| pretokenizer.engine()))?)
    }

    /// The steps of a pipeline as JSON, or a `reason` why they cannot be described exactly.
    #[staticmethod]
    fn describe(py: Python<'_>, skeleton: &str, byte_level: bool) -> PyResult<String> {
        Ok(py.detach(|| describe(skeleton, byte_level))?)
    }

    /// Pretokens as `str`, added tokens as their ids.
    fn pieces<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let pieces = py.detach(|| self.0.pieces(text))?;
        pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Pretoken(string) => Ok(string.into_pyobject(py)?.into_any()),
                Piece::Added(id) => Ok(id.into_pyobject(py)?.into_any()),
            })
            .collect()
    }

    /// The ids of each text, without special tokens.
    fn encode_batch(&self, py: Python<'_>, model: &PyModel, texts: Vec<String>) -> PyResult<Vec<Vec<u32>>> {
        Ok(py.detach(|| self.0.encode_batch(&model.0, &texts))?)
    }

    /// The text of some tokens, by the decoder of the pipeline.
    fn decode(&self, py: Python<'_>, tokens: Vec<String>) -> PyResult<String> {
        Ok(py.detach(|| self.0.decode(tokens))?)
    }
}

/// A `PieceRules`, read by its fields.
#[derive(FromPyObject)]
pub(super) struct PyRules {
    split_by_unicode_script: bool,
    split_by_number: bool,
    split_by_whitespace: bool,
    split_digits: bool,
    treat_whitespace_as_suffix: bool,
    allow_whitespace_only_pieces: bool,
    max_sentencepiece_length: usize,
}

impl From<PyRules> for PieceRules {
    fn from(rules: PyRules) -> Self {
        Self {
            split_by_unicode_script: rules.split_by_unicode_script,
            split_by_number: rules.split_by_number,
            split_by_whitespace: rules.split_by_whitespace,
            split_digits: rules.split_digits,
            treat_whitespace_as_suffix: rules.treat_whitespace_as_suffix,
            allow_whitespace_only_pieces: rules.allow_whitespace_only_pieces,
            max_sentencepiece_length: rules.max_sentencepiece_length,
        }
    }
}

#[pyclass(frozen, name = "Cutter", module = "tokengraft._core")]
pub(super) struct PyCutter(pub(super) Arc<Cutter>);

#[pymethods]
impl PyCutter {
    #[new]
    #[pyo3(signature = (model, rules, added))]
    fn new(model: &PyModel, rules: PyRules, added: Vec<String>) -> PyResult<Self> {
        let bpe = model.0.bpe()?;
        Ok(Self(Arc::new(Cutter::new(bpe, rules.into(), &added.into_iter().collect()))))
    }

    /// The pairs of characters that the rules would keep apart and some token joins; and the characters that may stand
    /// beside a cut, None where all may.
    fn limits(&self) -> (Vec<String>, Option<String>) {
        let (joined, between) = self.0.limits();
        let joined = joined.into_iter().map(|(left, right)| String::from_iter([left, right]));
        (joined.collect(), between.map(String::from_iter))
    }
}

/// A tokenizer as the `tokenizers` library itself reads it.
#[pyclass(frozen, name = "Upstream", module = "tokengraft._core")]
pub(super) struct PyUpstream(Upstream);

#[pymethods]
impl PyUpstream {
    #[new]
    fn new(py: Python<'_>, tokenizer_json: &[u8]) -> PyResult<Self> {
        let text = std::str::from_utf8(tokenizer_json).map_err(|_| Error::NotText)?;
        Ok(Self(py.detach(|| Upstream::from_json(text))?))
    }

    /// The ids of each text, without special tokens.
    fn encode_batch(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Vec<Vec<u32>>> {
        Ok(py.detach(|| self.0.encode_batch(&texts))?)
    }
}

/// The scripts that each text is written in, by their Unicode names, sorted.
#[pyfunction]
pub(super) fn scripts(py: Python<'_>, texts: Vec<String>) -> Vec<Vec<&'static str>> {
    py.detach(|| texts.iter().map(|text| script_names(text)).collect())
}
