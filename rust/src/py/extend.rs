//! `extend` in Python: continued training.

use pyo3::prelude::*;

use super::bpe::PyBpe;
use super::counts::PyCounts;
use super::pipeline::PyRules;
use crate::bpe::Alphabet;
use crate::error::Error;
use crate::pretokenize::PieceRules;
use crate::train::{Callbacks, Learned, Task};

/// A learned merge: left and right token, how often the pair occurred, and whether it makes a new token.
type PyMerge = (String, String, u64, bool);

/// Continued training. `allow` is asked about every new token; Ctrl-C is checked in every phase.
#[pyfunction]
#[pyo3(signature = (bpe, counts, tokens, *, byte_level, min_count, max_token_bytes, forbidden, rules, unreachable_ranks, max_candidates, allow))]
#[allow(clippy::too_many_arguments)]
pub(super) fn extend(
    py: Python<'_>,
    bpe: &PyBpe,
    counts: &PyCounts,
    tokens: usize,
    byte_level: bool,
    min_count: u64,
    max_token_bytes: usize,
    forbidden: Vec<String>,
    rules: Option<PyRules>,
    unreachable_ranks: Vec<(String, u32, u32)>,
    max_candidates: usize,
    allow: Option<Py<PyAny>>,
) -> PyResult<Vec<PyMerge>> {
    let alphabet = if byte_level { Alphabet::ByteLevel } else { Alphabet::Text };
    let (forbidden, rules) = (forbidden.into_iter().collect(), rules.map(PieceRules::from));
    let task = Task { tokens, min_count, max_token_bytes, forbidden, rules, unreachable_ranks, max_candidates };
    let mut callbacks = PyCallbacks { allow, failure: None };
    let learned = py.detach(|| Learned::new(&bpe.0, &counts.0, alphabet, &task, &mut callbacks));
    if let Some(failure) = callbacks.failure {
        return Err(failure);
    }
    let learned = learned?;
    let string = |token: u32| match learned.tokens.get((token as usize).wrapping_sub(bpe.0.len())) {
        Some(new) => new.clone(),
        None => bpe.0.string(token).to_string(),
    };
    let mut next = bpe.0.len();
    let merges = learned.merges.iter().map(|merge| {
        let is_new = merge.product as usize == next;
        next += usize::from(is_new);
        (string(merge.left), string(merge.right), merge.count, is_new)
    });
    Ok(merges.collect())
}

/// Asks a Python function about tokens, and Python whether the user pressed Ctrl-C.
struct PyCallbacks {
    allow: Option<Py<PyAny>>,
    /// The exception that was raised. After it, every token is refused.
    failure: Option<PyErr>,
}

impl Callbacks for PyCallbacks {
    fn allow(&mut self, token: &str) -> bool {
        let Some(allow) = &self.allow else { return true };
        let answer = || Python::attach(|py| allow.call1(py, (token,))?.extract(py));
        self.failure.is_none()
            && answer().unwrap_or_else(|error| {
                self.failure = Some(error);
                false
            })
    }

    fn check_interrupt(&mut self) -> Result<(), Error> {
        if self.failure.is_none() {
            self.failure = Python::attach(|py| py.check_signals()).err();
        }
        if self.failure.is_some() {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}
