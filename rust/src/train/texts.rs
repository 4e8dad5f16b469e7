//! The texts of a training, and what the base makes of them.

use rustc_hash::FxHashSet;

use super::balance::{n_tokens, Balance, MaxShare, Measure};
use super::encoded::encoded_words;
use super::preserved::preserved_pairs;
use super::words::Words;
use crate::bpe::Bpe;
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

/// The texts of a training.
#[derive(Debug, Clone, Copy, Default)]
pub struct Texts<'t> {
    /// The text of each language. Of languages that are equally well off, the first is worst off.
    pub languages: &'t [&'t Counts],
    /// The same sentences in every language, by which the languages are compared, and in the language of reference.
    pub parallel: Option<(&'t [&'t Counts], &'t Counts)>,
    /// The largest share of merges that one language may get.
    pub max_share: MaxShare,
    /// Text whose segmentation must not change.
    pub preserved: Option<&'t Counts>,
}

/// The texts as tokens of the base.
pub(super) struct EncodedTexts {
    /// Those of the languages, then the parallel ones.
    pub(super) words: Vec<Words>,
    pub(super) n_languages: usize,
    pub(super) balance: Balance,
    /// The pairs of the preserved text.
    pub(super) preserved: FxHashSet<u64>,
}

impl EncodedTexts {
    pub(super) fn new(bpe: &Bpe, texts: &Texts<'_>, stop: &Stop) -> Result<Self> {
        let preserved = match texts.preserved {
            Some(counts) => preserved_pairs(bpe, counts, stop)?,
            None => FxHashSet::default(),
        };
        let n_languages = texts.languages.len();
        let several = n_languages > 1; // one language is not compared with others
        let (parallel, reference) = texts.parallel.filter(|_| several).unzip();
        let (mut words, mut tokens) = (Vec::new(), Vec::new());
        for counts in texts.languages.iter().chain(parallel.unwrap_or_default()) {
            let encoded = encoded_words(bpe, counts, stop)?;
            tokens.push(if several { n_tokens(counts, encoded.reader(stop))? } else { 0 });
            words.push(encoded);
        }
        let reference = match reference {
            Some(counts) => Some(n_tokens(counts, encoded_words(bpe, counts, stop)?.reader(stop))?),
            None => None,
        };
        let first = if parallel.is_some() { n_languages } else { 0 };
        let measures = (first..first + n_languages).map(|text| Measure {
            text,
            tokens: tokens[text],
            against: reference.unwrap_or(tokens[text]),
        });
        let balance = Balance::new(if several { measures.collect() } else { Vec::new() }, texts.max_share);
        Ok(Self { words, n_languages, balance, preserved })
    }
}
