//! The Python face of the core: `tokengraft._core`. Converts values and errors and releases the GIL; nothing else.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::bpe::{Bpe, Options};
use crate::error::Error;
use crate::pretokenize::{Piece, Pipeline};
use crate::structure::{Origin, Structure};

impl From<Error> for PyErr {
    /// A `tokengraft.errors.InvalidTokenizerError` with the hint of the error.
    fn from(error: Error) -> Self {
        Python::attach(|py| {
            let raised = (|| {
                let class = py.import("tokengraft.errors")?.getattr("InvalidTokenizerError")?.cast_into::<PyType>()?;
                let hint = PyDict::new(py);
                hint.set_item("hint", error.hint())?;
                Ok::<_, PyErr>(PyErr::from_value(class.call((error.to_string(),), Some(&hint))?))
            })();
            raised.unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
        })
    }
}

#[pyclass(frozen, name = "Bpe", module = "tokengraft._core")]
struct PyBpe(Bpe);

#[pymethods]
impl PyBpe {
    #[new]
    #[pyo3(signature = (vocab, merges, *, ignore_merges, byte_fallback, unk_token, fuse_unk))]
    fn new(
        py: Python<'_>,
        vocab: &Bound<'_, PyDict>,
        merges: Vec<(u32, u32)>,
        ignore_merges: bool,
        byte_fallback: bool,
        unk_token: Option<String>,
        fuse_unk: bool,
    ) -> PyResult<Self> {
        let mut tokens = Vec::with_capacity(vocab.len());
        for (string, id) in vocab {
            tokens.push((id.extract::<u32>()?, string.extract::<String>()?));
        }
        let options = Options { ignore_merges, byte_fallback, unk_token, fuse_unk };
        Ok(Self(py.detach(|| Bpe::new(tokens, &merges, &options))?))
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

#[pyclass(frozen, name = "Pipeline", module = "tokengraft._core")]
struct PyPipeline(Pipeline);

#[pymethods]
impl PyPipeline {
    #[new]
    fn new(skeleton: &str) -> PyResult<Self> {
        Ok(Self(Pipeline::from_json(skeleton)?))
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
}

/// `tokengraft._core`.
#[pymodule(name = "_core")]
fn core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyBpe>()?;
    module.add_class::<PyPipeline>()
}
