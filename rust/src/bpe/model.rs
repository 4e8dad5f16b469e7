//! The BPE model: tokens, merges and options, checked when it is built. Encoding is in `encode.rs`.
//!
//! Models with dropout, or with a subword prefix or suffix, are refused before they get here.

use std::sync::{Arc, OnceLock};

use rustc_hash::{FxHashMap, FxHashSet};

use super::alphabet::{byte_token, Alphabet};
use super::encode::EncoderTables;
use super::merges::{pair_key, Merge, Merges};
use super::structure::{Origin, Structure};
use super::tokens::{TokenList, Tokens};
use super::vocabulary::{Vocabulary, NO_PRODUCT};
use crate::error::{Error, Result};

/// The options of a model beside its tokens and merges.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How the vocabulary spells bytes.
    pub alphabet: Alphabet,
    /// A pretoken that is a token becomes that token, whatever the merges say.
    pub ignore_merges: bool,
    /// A character outside the vocabulary becomes its UTF-8 bytes as `<0xNN>` tokens.
    pub byte_fallback: bool,
    /// The token for unknown characters; without one, they are dropped.
    pub unk_token: Option<String>,
    /// Neighbouring unknown characters become one unknown token.
    pub fuse_unk: bool,
}

/// A BPE model: tokens, ranked merges, and the rules for characters outside the vocabulary.
///
/// Inside, a token is an *index* into the list of tokens ordered by id. Ids may have holes and be as large as `u32`
/// allows; a table sized by the largest id would let a 100-byte file ask for gigabytes.
#[derive(Debug)]
pub struct Bpe {
    vocabulary: Arc<Vocabulary>,
    pub(crate) alphabet: Alphabet,
    pub(super) characters: FxHashMap<char, u32>,
    pub(super) merges: FxHashMap<u64, Merge>,
    /// The `<0xNN>` token of every byte that has one; empty without byte fallback.
    pub(super) bytes: Vec<Option<u32>>,
    pub(super) unknown: Unknown,
    pub(super) fuse_unknown: bool,
    pub(super) ignore_merges: bool,
    structure: OnceLock<Structure>,
    pub(super) tables: OnceLock<Box<EncoderTables>>,
}

/// What becomes of a character that the vocabulary cannot spell.
#[derive(Debug)]
pub(super) enum Unknown {
    Dropped,
    /// It becomes this token.
    Token(u32),
    /// Encoding fails: `unk_token` names no token.
    Missing(String),
}

impl Bpe {
    /// A model from tokens with their ids and merges as pairs of ids in rank order.
    ///
    /// # Errors
    ///
    /// When two tokens share an id or a string, a pair is listed twice, a merge names an unknown id, or its product
    /// is not a token. A model that passes can encode any text.
    pub fn new(tokens: Vec<(u32, String)>, merges: &[(u32, u32)], options: &Options) -> Result<Self> {
        let mut list = TokenList::with_capacity(tokens.len());
        tokens.iter().for_each(|(id, string)| list.push(string, *id));
        Self::of(Arc::new(Vocabulary::from_ids(list.tokens()?, merges)?), options)
    }

    /// The model of a vocabulary.
    ///
    /// # Errors
    ///
    /// When a pair is listed twice, or the product of a merge is not a token.
    pub fn of(vocabulary: Arc<Vocabulary>, options: &Options) -> Result<Self> {
        let tokens = &vocabulary.tokens;
        let characters =
            (0..).zip(tokens.strings()).filter_map(|(token, string)| Some((only_character(string)?, token)));
        let unknown = match &options.unk_token {
            None => Unknown::Dropped,
            Some(token) => tokens.index(token).map_or_else(|| Unknown::Missing(token.clone()), Unknown::Token),
        };
        let bytes = match options.byte_fallback {
            true => (0..=255u8).map(|byte| tokens.index(&byte_token(byte))).collect(),
            false => Vec::new(),
        };
        Ok(Self {
            alphabet: options.alphabet,
            characters: characters.collect(),
            merges: merge_table(&vocabulary)?,
            bytes,
            unknown,
            fuse_unknown: options.fuse_unk,
            ignore_merges: options.ignore_merges,
            vocabulary,
            structure: OnceLock::new(),
            tables: OnceLock::new(),
        })
    }

    pub(super) fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.vocabulary.tokens
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.vocabulary.tokens.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn id(&self, index: u32) -> u32 {
        self.ids()[index as usize]
    }

    /// The ids of all tokens, ascending.
    pub(crate) fn ids(&self) -> &[u32] {
        self.vocabulary.tokens.ids()
    }

    pub(crate) fn string(&self, index: u32) -> &str {
        self.vocabulary.tokens.string(index)
    }

    /// The strings of all tokens, by ascending id.
    pub(crate) fn strings(&self) -> impl ExactSizeIterator<Item = &str> {
        self.vocabulary.tokens.strings()
    }

    /// The strings of the tokens that encoding text can produce. Added tokens and the `<0xNN>` of byte fallback are left
    /// out, unless a merge makes them.
    pub(crate) fn producible_strings<'a>(&'a self, added: &'a FxHashSet<String>) -> impl Iterator<Item = &'a str> {
        let mut is_product = vec![false; self.len()];
        self.merges.values().for_each(|merge| is_product[merge.product as usize] = true);
        let bytes: FxHashSet<u32> = self.bytes.iter().flatten().copied().collect();
        let is_producible = move |string: &str, index: u32| {
            is_product[index as usize] || !added.contains(string) && !bytes.contains(&index)
        };
        let all = self.strings().zip(0u32..);
        all.filter(move |(string, index)| is_producible(string, *index)).map(|(string, _)| string)
    }

    /// Whether encoding starts from a token: one character, or a `<0xNN>` that byte fallback uses.
    pub(crate) fn is_atomic(&self, index: u32) -> bool {
        only_character(self.string(index)).is_some() || self.bytes.contains(&Some(index))
    }

    pub(crate) fn index(&self, string: &str) -> Option<u32> {
        self.vocabulary.tokens.index(string)
    }

    /// The merge tree, computed when it is first asked for.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        self.structure.get_or_init(|| Structure::of(self))
    }

    /// Every token that merges make and its two parts, as ids, in the order of the merges that apply.
    pub(crate) fn applied(&self) -> Vec<[u32; 3]> {
        let made = self.ids().iter().zip(&self.structure().origins).filter_map(|(&id, origin)| match *origin {
            Origin::Merged(left, right) => {
                let pair = pair_key(self.tokens().index_of_id(left)?, self.tokens().index_of_id(right)?);
                Some((self.merges.get(&pair)?.rank, [id, left, right]))
            }
            _ => None,
        });
        let mut made: Vec<(u32, [u32; 3])> = made.collect();
        made.sort_unstable();
        made.into_iter().map(|(_, ids)| ids).collect()
    }

    pub(crate) fn ignores_merges(&self) -> bool {
        self.ignore_merges
    }

    pub(crate) fn merge_count(&self) -> usize {
        self.merges.len()
    }
}

impl Merges for Bpe {
    #[inline]
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        self.merges.get(&pair_key(left, right)).copied()
    }
}

fn only_character(string: &str) -> Option<char> {
    let mut characters = string.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Some(character),
        _ => None,
    }
}

fn merge_table(vocabulary: &Vocabulary) -> Result<FxHashMap<u64, Merge>> {
    let string = |token: u32| vocabulary.tokens.string(token).to_string();
    let ranked = (0..).zip(vocabulary.merges.iter().zip(&vocabulary.products));
    let mut table = FxHashMap::with_capacity_and_hasher(vocabulary.merges.len(), Default::default());
    for (rank, (&(left, right), &product)) in ranked {
        if product == NO_PRODUCT {
            return Err(Error::MissingProduct { rank: rank as usize, left: string(left), right: string(right) });
        }
        if let Some(Merge { rank: first, .. }) = table.insert(pair_key(left, right), Merge { rank, product }) {
            let (first, second) = (first as usize, rank as usize);
            return Err(Error::DuplicateMerge { left: string(left), right: string(right), first, second });
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(strings: &[&str]) -> Vec<(u32, String)> {
        strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect()
    }

    #[test]
    fn a_large_id_needs_no_more_memory() {
        let bpe = Bpe::new(vec![(u32::MAX, "a".into())], &[], &Options::default()).unwrap();
        assert_eq!(bpe.encode("a").unwrap(), [u32::MAX]);
    }

    #[test]
    fn every_broken_table_is_refused() {
        let new = |tokens: Vec<(u32, String)>, merges: &[(u32, u32)]| {
            Bpe::new(tokens, merges, &Options::default()).unwrap_err()
        };
        let twice = vec![(1, "a".to_string()), (1, "b".to_string())];
        assert!(matches!(new(twice, &[]), Error::DuplicateId { id: 1, .. }));
        let same = vec![(1, "a".to_string()), (2, "a".to_string())];
        assert!(matches!(new(same, &[]), Error::DuplicateToken { .. }));
        let ab = || tokens(&["a", "b", "ab"]);
        assert!(matches!(new(ab(), &[(0, 7)]), Error::UnknownId { rank: 0, id: 7 }));
        assert!(matches!(new(ab(), &[(0, 1), (1, 0)]), Error::MissingProduct { rank: 1, .. }));
        assert!(matches!(new(ab(), &[(0, 1), (0, 1)]), Error::DuplicateMerge { first: 0, second: 1, .. }));
    }
}
