//! The Python module `tokengraft._core`: converts values and errors, and releases the GIL. Does nothing else.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};

use crate::bpe::{Alphabet, Bpe, Options, Origin, Structure};
use crate::count::{Block, Counter, Counts, HoldOut, Limits, Rows};
use crate::error::Error;
use crate::parquet::ParquetEncoder;
use crate::pretokenize::{encode_upstream, script_names, Cutter, Piece, PieceRules, Pipeline, Pretokenizer, Spelling};
use crate::read::{FileReader, Part};
use crate::train::{Callbacks, Learned, Task};

impl From<Error> for PyErr {
    /// The class of `tokengraft.errors` that the error belongs to, with its hint.
    fn from(error: Error) -> Self {
        let class = match error {
            _ if error.is_bad_document() => "CorpusError",
            Error::LongPretoken { .. } => "OutputError",
            Error::Overflow { .. } | Error::NotText | Error::BadCounts { .. } | Error::TooMany { .. } => "CountsError",
            Error::Spill { .. } => "OutputError",
            _ => "InvalidTokenizerError",
        };
        Python::attach(|py| {
            let raised = (|| {
                let class = py.import("tokengraft.errors")?.getattr(class)?.cast_into::<PyType>()?;
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

/// A `PieceRules`, read by its fields.
#[derive(FromPyObject)]
struct PyRules {
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
struct PyCutter(Arc<Cutter>);

#[pymethods]
impl PyCutter {
    #[new]
    #[pyo3(signature = (bpe, rules, added))]
    fn new(bpe: &PyBpe, rules: PyRules, added: Vec<String>) -> Self {
        Self(Arc::new(Cutter::new(&bpe.0, rules.into(), &added.into_iter().collect())))
    }

    /// The pairs of characters that the rules would keep apart and some token joins.
    fn joined(&self) -> Vec<String> {
        self.0.joined().into_iter().map(|(left, right)| String::from_iter([left, right])).collect()
    }
}

#[pyclass(frozen, name = "Counter", module = "tokengraft._core")]
struct PyCounter(Counter);

#[pymethods]
impl PyCounter {
    #[new]
    #[pyo3(signature = (
        skeleton, *, byte_level, cutter, through_upstream, spill_folder, bytes_per_table, document_memory, hold_out
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        skeleton: &str,
        byte_level: bool,
        cutter: Option<&PyCutter>,
        through_upstream: bool,
        spill_folder: Option<PathBuf>,
        bytes_per_table: usize,
        document_memory: usize,
        hold_out: Option<(u64, u64)>,
    ) -> PyResult<Self> {
        let spelling = match byte_level {
            true => Spelling::ByteLevel,
            false => Spelling::Text(cutter.map(|cutter| Arc::clone(&cutter.0))),
        };
        let mut pretokenizer = Pretokenizer::new(skeleton, spelling)?;
        if through_upstream {
            pretokenizer = pretokenizer.through_upstream();
        }
        let mut counter = Counter::new(pretokenizer).within(document_memory);
        if let Some((one_in, max_bytes)) = hold_out {
            counter = counter.holding_out(HoldOut::new(one_in, max_bytes));
        }
        Ok(Self(match spill_folder {
            Some(folder) => counter.spilling(folder, bytes_per_table),
            None => counter,
        }))
    }

    fn count(&self, py: Python<'_>, block: PyBlock<'_>, limits: (u64, u64), skip_bad: bool) -> PyResult<PyTally> {
        let (block, limits) = (block.block()?, Limits { documents: limits.0, bytes: limits.1 });
        let tally = py.detach(|| self.0.count_block(block, limits, skip_bad))?;
        Ok((
            (tally.documents, tally.bytes, tally.characters, tally.pretokens, tally.replaced, tally.skipped),
            (tally.read_documents, tally.read_bytes),
            tally.cut_short,
        ))
    }

    fn held_out(&self) -> Vec<String> {
        self.0.held_out()
    }

    fn add(&self, py: Python<'_>, counts: &PyCounts) -> PyResult<()> {
        Ok(py.detach(|| self.0.add(counts.0.iter()))?)
    }

    /// The longest document that memory allows, in bytes.
    #[getter]
    fn longest_document(&self) -> usize {
        self.0.longest_document()
    }

    fn last_cut(&self, py: Python<'_>, data: &[u8]) -> Option<usize> {
        py.detach(|| self.0.last_cut(data))
    }

    fn added(&self) -> Vec<(u32, u64)> {
        self.0.added()
    }

    fn finish(&self, py: Python<'_>) -> PyResult<PyRows> {
        Ok(PyRows(py.detach(|| self.0.finish())?))
    }
}

/// Documents, bytes, characters, pretokens, replaced, skipped; documents and bytes read, those held out included; and
/// whether the limit of bytes cut a text short.
type PyTally = ((u64, u64, u64, u64, u64, u64), (u64, u64), bool);

/// A `tokengraft.corpus.Block`, read by its fields.
#[derive(FromPyObject)]
struct PyBlock<'py> {
    form: String,
    data: PyData<'py>,
    offsets: Bound<'py, PyBytes>,
    nulls: Bound<'py, PyBytes>,
    field: String,
    at_start: bool,
    whole: bool,
}

/// The text of a block.
#[derive(FromPyObject)]
enum PyData<'py> {
    Bytes(Bound<'py, PyBytes>),
    Part(Bound<'py, PyPart>),
}

impl PyBlock<'_> {
    fn block(&self) -> PyResult<Block<'_>> {
        let bytes = match &self.data {
            PyData::Bytes(bytes) => bytes.as_bytes(),
            PyData::Part(part) => &part.get().0,
        };
        Ok(match self.form.as_str() {
            "text" => Block::Text { bytes, at_start: self.at_start, whole: self.whole },
            "lines" => Block::Lines(bytes),
            "documents" => Block::Documents { bytes, offsets: self.offsets.as_bytes(), nulls: self.nulls.as_bytes() },
            "jsonl" => Block::JsonLines { bytes, field: &self.field },
            other => return Err(PyValueError::new_err(format!("there is no form of block {other:?}"))),
        })
    }
}

#[pyclass(frozen, name = "Part", module = "tokengraft._core")]
struct PyPart(Part);

#[pymethods]
impl PyPart {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }

    fn newlines(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.newlines())
    }
}

#[pyclass(name = "FileReader", module = "tokengraft._core")]
struct PyFileReader(FileReader);

#[pymethods]
impl PyFileReader {
    #[new]
    fn new(path: PathBuf, block: usize) -> PyResult<Self> {
        Ok(Self(FileReader::open(&path, block)?))
    }

    #[getter]
    fn position(&self) -> u64 {
        self.0.position()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }

    /// The next part, cut where a counter says, or without one at the end of a line.
    #[pyo3(signature = (counter, longest))]
    fn next(
        &mut self,
        py: Python<'_>,
        counter: Option<&PyCounter>,
        longest: Option<usize>,
    ) -> PyResult<Option<PyPart>> {
        let line_end = |data: &[u8]| data.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        let counter = counter.map(|counter| &counter.0);
        let last_cut = |data: &[u8]| counter.map_or_else(|| line_end(data), |counter| counter.last_cut(data));
        Ok(py.detach(|| self.0.next(last_cut, longest))?.map(PyPart))
    }
}

/// The documents of a block; and how many parts of them were replaced, and how many documents skipped.
#[pyfunction]
fn documents(py: Python<'_>, block: PyBlock<'_>, skip_bad: bool) -> PyResult<(Vec<Py<PyString>>, u64, u64)> {
    let (mut texts, mut replaced, mut skipped) = (Vec::new(), 0, 0);
    for document in block.block()?.documents()? {
        match document {
            Ok(document) => {
                replaced += document.replaced;
                texts.push(PyString::new(py, &document.text).unbind());
            }
            Err(error) if skip_bad && error.is_bad_document() => skipped += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok((texts, replaced, skipped))
}

#[pyclass(name = "Rows", module = "tokengraft._core")]
struct PyRows(Rows);

#[pymethods]
impl PyRows {
    /// Whether some rows are on disk.
    #[getter]
    fn on_disk(&self) -> bool {
        self.0.on_disk()
    }

    fn take(&mut self, py: Python<'_>, most: usize, min_count: u64) -> PyResult<PyCounts> {
        Ok(PyCounts(py.detach(|| self.0.take(most, min_count))?))
    }
}

#[pyclass(frozen, eq, name = "Counts", module = "tokengraft._core")]
#[derive(PartialEq, Eq)]
struct PyCounts(Counts);

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

    /// For pickling: the type and its arguments.
    #[allow(clippy::type_complexity)]
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> (Bound<'py, PyType>, (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)) {
        (slf.get_type(), slf.get().columns(slf.py()))
    }

    fn plus(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Ok(Self(py.detach(|| self.0.plus(&other.0))?))
    }

    fn scaled(&self, py: Python<'_>, numerator: u64, denominator: u64) -> PyResult<Self> {
        Ok(Self(py.detach(|| self.0.scaled(numerator, denominator))?))
    }

    fn frequent(&self, py: Python<'_>, min_count: u64) -> Self {
        Self(py.detach(|| self.0.frequent(min_count)))
    }

    fn characters(&self, py: Python<'_>) -> Vec<(char, u64)> {
        py.detach(|| self.0.characters())
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
    #[pyo3(signature = (bpe, *, byte_level, by_merges))]
    fn lost<'py>(
        &self,
        py: Python<'py>,
        bpe: &PyBpe,
        byte_level: bool,
        by_merges: bool,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let alphabet = if byte_level { Alphabet::ByteLevel } else { Alphabet::Text };
        let lost = py.detach(|| bpe.0.lost_counts(&self.0, alphabet, by_merges))?;
        Ok(lost.into_iter().map(|(text, count)| (PyBytes::new(py, &text), count)).collect())
    }

    /// How often each token of a model occurs in the encoded pretokens, by ascending id.
    #[pyo3(signature = (bpe, *, byte_level, by_merges, uses))]
    fn tokens(
        &self,
        py: Python<'_>,
        bpe: &PyBpe,
        byte_level: bool,
        by_merges: bool,
        uses: bool,
    ) -> PyResult<Vec<(u32, u64)>> {
        let alphabet = if byte_level { Alphabet::ByteLevel } else { Alphabet::Text };
        Ok(py.detach(|| bpe.0.token_counts(&self.0, alphabet, by_merges, uses))?)
    }
}

#[pyclass(name = "ParquetEncoder", module = "tokengraft._core")]
struct PyParquetEncoder(ParquetEncoder);

#[pymethods]
impl PyParquetEncoder {
    #[new]
    fn new() -> Self {
        Self(ParquetEncoder::default())
    }

    /// The bytes of the next rows, in pieces.
    fn rows<'py>(&mut self, py: Python<'py>, counts: &PyCounts) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let pieces = py.detach(|| self.0.rows(&counts.0))?;
        Ok(pieces.into_iter().map(|piece| PyBytes::new(py, &piece)).collect())
    }

    /// The bytes after the last rows, with a text in the metadata of the file.
    fn footer<'py>(&mut self, py: Python<'py>, key: &str, text: &str) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &std::mem::take(&mut self.0).footer(key, text))
    }
}

/// What `extend` returns: new tokens, and merges as (left, right, product, count).
type PyLearned = (Vec<String>, Vec<(u32, u32, u32, u64)>);

/// Continued training. `allow` is asked about every new token; Ctrl-C is checked several times a second.
#[pyfunction]
#[pyo3(signature = (bpe, counts, tokens, *, byte_level, min_count, max_token_bytes, forbidden, rules, unreachable_ranks, max_candidates, allow))]
#[allow(clippy::too_many_arguments)]
fn extend(
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
) -> PyResult<PyLearned> {
    let alphabet = if byte_level { Alphabet::ByteLevel } else { Alphabet::Text };
    let (forbidden, rules) = (forbidden.into_iter().collect(), rules.map(PieceRules::from));
    let task = Task { tokens, min_count, max_token_bytes, forbidden, rules, unreachable_ranks, max_candidates };
    let mut callbacks = PyCallbacks { allow, failure: None };
    let learned = py.detach(|| Learned::new(&bpe.0, &counts.0, alphabet, &task, &mut callbacks));
    if let Some(failure) = callbacks.failure {
        return Err(failure);
    }
    let learned = learned?;
    let merges = learned.merges.into_iter().map(|merge| (merge.left, merge.right, merge.product, merge.count));
    Ok((learned.tokens, merges.collect()))
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

/// The ids that the `tokenizers` library itself gives, without special tokens.
#[pyfunction]
fn encode_with_tokenizers(py: Python<'_>, tokenizer_json: &str, texts: Vec<String>) -> PyResult<Vec<Vec<u32>>> {
    Ok(py.detach(|| encode_upstream(tokenizer_json, &texts))?)
}

/// The scripts that each text is written in, by their Unicode names, sorted.
#[pyfunction]
fn scripts(py: Python<'_>, texts: Vec<String>) -> Vec<Vec<&'static str>> {
    py.detach(|| texts.iter().map(|text| script_names(text)).collect())
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect()
}

/// `tokengraft._core`.
#[pymodule(name = "_core")]
fn core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyBpe>()?;
    module.add_class::<PyCounter>()?;
    module.add_class::<PyCounts>()?;
    module.add_class::<PyCutter>()?;
    module.add_class::<PyFileReader>()?;
    module.add_class::<PyParquetEncoder>()?;
    module.add_class::<PyPart>()?;
    module.add_class::<PyRows>()?;
    module.add_function(wrap_pyfunction!(documents, module)?)?;
    module.add_function(wrap_pyfunction!(extend, module)?)?;
    module.add_function(wrap_pyfunction!(scripts, module)?)?;
    module.add_function(wrap_pyfunction!(encode_with_tokenizers, module)?)?;
    module.add_class::<PyPipeline>()
}
