//! `Vocabulary` in Python: the tokens and merges of a file, as Python values only where they are asked for.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bpe::{numbered, TokenList, Vocabulary};
use crate::error::Error;
use crate::tokenizer_json::{hashed_parts, read, Layout, Read};

#[pyclass(frozen, name = "Vocabulary", module = "tokengraft._core")]
pub(super) struct PyVocabulary(pub(super) Arc<Vocabulary>);

#[pymethods]
impl PyVocabulary {
    #[new]
    fn new(py: Python<'_>, vocab: &Bound<'_, PyDict>, merges: Vec<(u32, u32)>) -> PyResult<Self> {
        let mut list = TokenList::with_capacity(vocab.len());
        for (string, id) in vocab {
            list.push(string.cast::<PyString>()?.to_str()?, id.extract()?);
        }
        let vocabulary = py.detach(|| Vocabulary::from_ids(list.tokens()?, &merges))?;
        Ok(Self(Arc::new(vocabulary)))
    }

    /// The vocabulary with other tokens, by ascending id, and the merges whose parts and product are among them.
    fn edited(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyDict>,
        inserted: Vec<(usize, String, String)>,
    ) -> PyResult<Self> {
        let list = by_id(ids)?;
        let vocabulary = py.detach(|| self.0.edited(list.tokens()?, &inserted))?;
        Ok(Self(Arc::new(vocabulary)))
    }

    /// The vocabulary of these tokens, by ascending id, in which every pair that makes a token is a merge.
    #[staticmethod]
    fn by_products(py: Python<'_>, ids: &Bound<'_, PyDict>, apart: Vec<u32>) -> PyResult<Self> {
        let (list, apart) = (by_id(ids)?, FxHashSet::from_iter(apart));
        let vocabulary = py.detach(|| {
            let tokens = list.tokens()?;
            let apart: FxHashSet<u32> = apart.into_iter().filter_map(|id| tokens.index_of_id(id)).collect();
            Ok::<_, Error>(Vocabulary::by_products(tokens, |token| apart.contains(&token)))
        })?;
        Ok(Self(Arc::new(vocabulary)))
    }

    /// The rest of a `tokenizer.json`, whether it lists merges as text, and its vocabulary and merges; None in doubt.
    #[staticmethod]
    fn read<'py>(py: Python<'py>, raw: &[u8]) -> Option<(Bound<'py, PyBytes>, bool, Self)> {
        let Read { rest, merges_as_text, vocabulary } = py.detach(|| read(raw))?;
        Some((PyBytes::new(py, &rest), merges_as_text, Self(Arc::new(vocabulary))))
    }

    fn __len__(&self) -> usize {
        self.0.tokens.len()
    }

    /// The number of merges.
    #[getter]
    fn n_merges(&self) -> usize {
        self.0.merges.len()
    }

    /// The highest id; None if there is no token.
    #[getter]
    fn highest_id(&self) -> Option<u32> {
        self.0.tokens.ids().last().copied()
    }

    fn id_of(&self, string: &str) -> Option<u32> {
        self.0.tokens.index(string).map(|token| self.0.tokens.ids()[token as usize])
    }

    fn string_of(&self, token_id: u32) -> Option<&str> {
        self.0.tokens.index_of_id(token_id).map(|token| self.0.tokens.string(token))
    }

    /// Every token with its id, in the order of the file.
    fn vocab<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (vocab, tokens) = (PyDict::new(py), &self.0.tokens);
        for token in tokens.listed() {
            vocab.set_item(tokens.string(token), tokens.ids()[token as usize])?;
        }
        Ok(vocab)
    }

    /// The merges as pairs of ids.
    fn merges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids: Vec<Bound<'_, PyInt>> =
            self.0.tokens.ids().iter().map(|id| id.into_pyobject(py)).collect::<Result<_, _>>()?;
        let pair = |&(left, right): &(u32, u32)| PyTuple::new(py, [&ids[left as usize], &ids[right as usize]]);
        PyTuple::new(py, self.0.merges.iter().map(pair).collect::<PyResult<Vec<_>>>()?)
    }

    /// The ids of both parts of every merge, as 32 bits.
    fn merge_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let (ids, parts) = (self.0.tokens.ids(), self.0.merges.iter().flat_map(|&(left, right)| [left, right]));
        PyBytes::new(py, &parts.flat_map(|token| ids[token as usize].to_le_bytes()).collect::<Vec<u8>>())
    }

    /// The merges of some ranks as pairs of strings; by default of all.
    #[pyo3(signature = (start = 0, end = None))]
    fn merge_strings<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        end: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let mut strings: FxHashMap<u32, Bound<'py, PyString>> = FxHashMap::default();
        let mut string =
            |token: u32| strings.entry(token).or_insert_with(|| PyString::new(py, self.0.tokens.string(token))).clone();
        let end = end.unwrap_or(usize::MAX).min(self.0.merges.len());
        let merges = self.0.merges[start.min(end)..end].iter();
        merges.map(|&(left, right)| PyTuple::new(py, [string(left), string(right)])).collect()
    }

    /// The merges that make some tokens: the rank of each, and the place of the token.
    fn merges_of(&self, py: Python<'_>, tokens: Vec<String>) -> Vec<(usize, usize)> {
        py.detach(|| self.0.merges_of(&tokens))
    }

    /// How many of the first merges are the same as those of another vocabulary.
    fn common_merges(&self, py: Python<'_>, other: &Self) -> usize {
        py.detach(|| self.0.common_merges(&other.0))
    }

    /// The merges that another vocabulary lacks, and those of it that this one lacks, as strings; and whether the others
    /// are in the same order, apart from those with some tokens.
    #[allow(clippy::type_complexity)]
    fn merge_difference(
        &self,
        py: Python<'_>,
        other: &Self,
        apart: Vec<String>,
    ) -> (Vec<(&str, &str)>, Vec<(String, String)>, bool) {
        let apart = apart.iter().map(String::as_str).collect();
        let (own, lacking, in_order) = py.detach(|| self.0.merge_difference(&other.0, &apart));
        let own = own.into_iter().map(|rank| self.0.merge_at(rank)).collect();
        let lacking = lacking.into_iter().map(|rank| other.0.merge_at(rank));
        (own, lacking.map(|(left, right)| (left.to_string(), right.to_string())).collect(), in_order)
    }

    /// Ids and numbers of all tokens of this vocabulary and of another one, each by ascending id.
    #[allow(clippy::type_complexity)]
    fn numbered<'py>(
        &self,
        py: Python<'py>,
        more: Vec<(u32, String)>,
        other: &Self,
        other_more: Vec<(u32, String)>,
    ) -> [(Bound<'py, PyBytes>, Bound<'py, PyBytes>); 2] {
        let bytes = |numbers: Vec<u32>| numbers.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let columns = py.detach(|| {
            let both = numbered((&self.0.tokens, &more), (&other.0.tokens, &other_more));
            both.map(|tokens| tokens.into_iter().unzip()).map(|(ids, numbers)| (bytes(ids), bytes(numbers)))
        });
        columns.map(|(ids, numbers)| (PyBytes::new(py, &ids), PyBytes::new(py, &numbers)))
    }

    /// `model.vocab` and `model.merges` as JSON.
    #[pyo3(signature = (*, indent, spaced, ascii_only, merges_as_text))]
    fn json<'py>(
        &self,
        py: Python<'py>,
        indent: Option<String>,
        spaced: bool,
        ascii_only: bool,
        merges_as_text: bool,
    ) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let layout = Layout { indent, spaced, ascii_only };
        let write = || rayon::join(|| layout.vocab(&self.0), || layout.merges(&self.0, merges_as_text));
        let (vocab, merges) = py.detach(write);
        (PyBytes::new(py, vocab.as_bytes()), PyBytes::new(py, merges.as_bytes()))
    }

    /// What `Tokenizer.content_hash` hashes of it: the strings as JSON, and the merges as bytes.
    fn hashed_parts<'py>(&self, py: Python<'py>, more: Vec<String>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (strings, merges) = py.detach(|| hashed_parts(&self.0, &more));
        (PyBytes::new(py, strings.as_bytes()), PyBytes::new(py, &merges))
    }
}

/// The tokens of a dict, by ascending id.
fn by_id(ids: &Bound<'_, PyDict>) -> PyResult<TokenList> {
    let mut tokens = Vec::with_capacity(ids.len());
    for (string, id) in ids {
        tokens.push((id.extract::<u32>()?, string.cast_into::<PyString>()?));
    }
    tokens.sort_by_key(|(id, _)| *id);
    let mut list = TokenList::with_capacity(tokens.len());
    for (id, string) in &tokens {
        list.push(string.to_str()?, *id);
    }
    Ok(list)
}
