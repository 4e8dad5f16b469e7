//! `extend` in Python: continued training.

use pyo3::prelude::*;

use super::counts::PyCounts;
use super::interruptible;
use super::model::PyModel;
use super::pipeline::PyRules;
use crate::bpe::Bpe;
use crate::count::Counts;
use crate::learn::{self, pairs_of, Callbacks, Learned, LearnedPieces, MaxShare, ScriptFilter, Task, Texts};
use crate::pretokenize::PieceRules;
use crate::stop::Stop;

/// A learned merge: left and right token, how often the pair occurred, and whether it makes a new token.
type PyMerge = (String, String, u64, bool);
/// A refused pair: left and right token, how often it occurred, and how many merges were learned before.
type PyRefused = (String, String, u64, usize);
/// Parallel text in every language, and in the language of reference.
type PyParallel<'py> = (Vec<Bound<'py, PyCounts>>, Bound<'py, PyCounts>);

/// Continued training. `allow` is asked about every new token, and `progress` is called with the number of tokens
/// learned.
///
/// Returns the merges, the pairs that were refused, and the index of the language of every merge.
#[pyfunction]
#[pyo3(signature = (model, languages, tokens, *, min_count, max_token_bytes, forbidden, rules, unreachable_ranks, max_candidates, allow, scripts=None, preserved=None, parallel=None, max_share=(1, 1), progress=None))]
#[allow(clippy::too_many_arguments)]
pub(super) fn extend(
    py: Python<'_>,
    model: &PyModel,
    languages: Vec<Bound<'_, PyCounts>>,
    tokens: usize,
    min_count: u64,
    max_token_bytes: usize,
    forbidden: Vec<String>,
    rules: Option<PyRules>,
    unreachable_ranks: Vec<(String, u32, u32)>,
    max_candidates: usize,
    allow: Option<Py<PyAny>>,
    scripts: Option<Vec<String>>,
    preserved: Option<Bound<'_, PyCounts>>,
    parallel: Option<PyParallel<'_>>,
    max_share: (u64, u64),
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<PyMerge>, Vec<PyRefused>, Vec<u32>)> {
    let (forbidden, rules) = (forbidden.into_iter().collect(), rules.map(PieceRules::from));
    let space_is_last = rules.is_some_and(|rules| rules.treat_whitespace_as_suffix);
    let scripts = scripts.map(|names| py.detach(|| ScriptFilter::new(&names).with_space_last(space_is_last)));
    let task =
        Task { tokens, min_count, max_token_bytes, forbidden, rules, scripts, unreachable_ranks, max_candidates };
    let (texts, parallel_texts) = (tables(&languages), parallel.as_ref().map(|(texts, _)| tables(texts)));
    let reference = parallel.as_ref().map(|(_, reference)| &reference.get().0);
    let texts = Texts {
        languages: &texts,
        parallel: parallel_texts.as_deref().zip(reference),
        max_share: MaxShare { numerator: max_share.0, denominator: max_share.1 },
        preserved: preserved.as_ref().map(|counts| &counts.get().0),
    };
    let bpe = model.0.bpe()?;
    let mut failure = None;
    let learned = interruptible(py, |stop| {
        let (allow, progress) = (allow.as_ref(), progress.as_ref());
        let mut callbacks = PyCallbacks { allow, progress, failure: &mut failure, stop };
        Learned::new(bpe, &texts, &task, &mut callbacks, stop)
    });
    failure.map_or_else(|| Ok(as_strings(bpe, &learned?)), Err)
}

/// A token that was learned for a model without merges: left and right text, how often they were neighbours, and the
/// score.
type PyPiece = (String, String, u64, f64);
/// The scores of given tokens, learned tokens, and refused pairs.
type PyLearnedPieces = (Vec<Option<f64>>, Vec<PyPiece>, Vec<PyRefused>);

/// Continued training for a model without merges. `given` are tokens to add first.
///
/// Returns the scores of the given tokens, None for those that cannot be added; the learned tokens; and the pairs that
/// were refused.
#[pyfunction]
#[pyo3(signature = (model, counts, tokens, *, given, min_count, max_token_bytes, forbidden, rules, allow, scripts=None, preserved=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub(super) fn extend_pieces(
    py: Python<'_>,
    model: &PyModel,
    counts: &PyCounts,
    tokens: usize,
    given: Vec<String>,
    min_count: u64,
    max_token_bytes: usize,
    forbidden: Vec<String>,
    rules: Option<PyRules>,
    allow: Option<Py<PyAny>>,
    scripts: Option<Vec<String>>,
    preserved: Option<Bound<'_, PyCounts>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PyLearnedPieces> {
    let (forbidden, rules) = (forbidden.into_iter().collect(), rules.map(PieceRules::from));
    let space_is_last = rules.is_some_and(|rules| rules.treat_whitespace_as_suffix);
    let scripts = scripts.map(|names| py.detach(|| ScriptFilter::new(&names).with_space_last(space_is_last)));
    let task = Task {
        tokens,
        min_count,
        max_token_bytes,
        forbidden,
        rules,
        scripts,
        unreachable_ranks: Vec::new(),
        max_candidates: 0,
    };
    let preserved = preserved.as_ref().map(|counts| &counts.get().0);
    let (model, counts) = (&model.0, &counts.0);
    let mut failure = None;
    let learned = interruptible(py, |stop| {
        let (allow, progress) = (allow.as_ref(), progress.as_ref());
        let mut callbacks = PyCallbacks { allow, progress, failure: &mut failure, stop };
        LearnedPieces::new(model, counts, preserved, &given, &task, &mut callbacks, stop)
    });
    failure.map_or(Ok(()), Err)?;
    let LearnedPieces { given, learned, refused } = learned?;
    let learned = learned.into_iter().map(|piece| (piece.left, piece.right, piece.count, piece.score));
    let refused = refused.into_iter().map(|pair| (pair.left, pair.right, pair.count, pair.after));
    Ok((given, learned.collect(), refused.collect()))
}

fn tables<'c>(counts: &'c [Bound<'_, PyCounts>]) -> Vec<&'c Counts> {
    counts.iter().map(|counts| &counts.get().0).collect()
}

fn as_strings(bpe: &Bpe, learned: &Learned) -> (Vec<PyMerge>, Vec<PyRefused>, Vec<u32>) {
    let string = |token: u32| match learned.tokens.get((token as usize).wrapping_sub(bpe.len())) {
        Some(new) => new.clone(),
        None => bpe.string(token).to_string(),
    };
    let mut next = bpe.len();
    let merges = learned.merges.iter().map(|merge| {
        let is_new = merge.product as usize == next;
        next += usize::from(is_new);
        (string(merge.left), string(merge.right), merge.count, is_new)
    });
    let refused = learned.refused.iter().map(|pair| (string(pair.left), string(pair.right), pair.count, pair.after));
    let languages = learned.merges.iter().map(|merge| merge.language);
    (merges.collect(), refused.collect(), languages.collect())
}

/// The pairs of neighbouring tokens in the segmentation of counted pretokens, sorted.
#[pyfunction]
pub(super) fn pairs(py: Python<'_>, model: &PyModel, counts: &PyCounts) -> PyResult<Vec<(String, String)>> {
    let bpe = model.0.bpe()?;
    let pairs = interruptible(py, |stop| pairs_of(bpe, &counts.0, stop))?;
    let string = |token: u32| bpe.string(token).to_string();
    Ok(pairs.into_iter().map(|(left, right)| (string(left), string(right))).collect())
}

/// The long and the short name of every script that some character has, sorted.
#[pyfunction]
pub(super) fn script_properties(py: Python<'_>) -> Vec<(&'static str, &'static str)> {
    py.detach(crate::learn::script_properties)
}

/// The characters of a string that belong to some scripts, by their long names.
#[pyfunction]
pub(super) fn of_scripts(py: Python<'_>, characters: &str, scripts: Vec<String>) -> String {
    py.detach(|| learn::of_scripts(characters, &scripts))
}

/// The combining marks of scripts by their long names. Marks of all scripts belong to Inherited.
#[pyfunction]
pub(super) fn marks(py: Python<'_>, scripts: Vec<String>) -> String {
    py.detach(|| learn::marks(&scripts))
}

/// Asks Python functions about tokens, and tells them how many are learned.
struct PyCallbacks<'c> {
    allow: Option<&'c Py<PyAny>>,
    progress: Option<&'c Py<PyAny>>,
    /// The exception that one of them raised: then the work is stopped.
    failure: &'c mut Option<PyErr>,
    stop: &'c Stop,
}

impl PyCallbacks<'_> {
    /// The result of a call, unless it or an earlier one failed.
    fn call<T>(&mut self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        Python::attach(call).inspect_err(|_| self.stop.ask()).map_err(|error| *self.failure = Some(error)).ok()
    }
}

impl Callbacks for PyCallbacks<'_> {
    fn allow(&mut self, token: &str) -> bool {
        self.allow.is_none_or(|allow| self.call(|py| allow.call1(py, (token,))?.extract(py)).unwrap_or(false))
    }

    fn learned(&mut self, tokens: usize) {
        if let Some(progress) = self.progress {
            self.call(|py| progress.call1(py, (tokens,)));
        }
    }
}
