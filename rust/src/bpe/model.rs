//! The BPE model: tokens, merges and options, checked when it is built. Encoding is in `encode.rs`.
//!
//! Models with dropout, or with a subword prefix or suffix, are refused before they get here.

use rustc_hash::{FxHashMap, FxHashSet};

use super::alphabet::byte_token;
use super::merges::{pair_key, Merge, Merges};
use crate::error::{Error, Result};

/// The options of a model beside its tokens and merges.
#[derive(Debug, Clone, Default)]
pub struct Options {
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
    pub(super) ids: Vec<u32>,
    pub(super) strings: Vec<String>,
    pub(super) index_of: FxHashMap<String, u32>,
    pub(super) characters: FxHashMap<char, u32>,
    pub(super) merges: FxHashMap<u64, Merge>,
    /// The `<0xNN>` token of every byte that has one; empty without byte fallback.
    pub(super) bytes: Vec<Option<u32>>,
    pub(super) unknown: Unknown,
    pub(super) fuse_unknown: bool,
    pub(super) ignore_merges: bool,
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
    pub fn new(mut tokens: Vec<(u32, String)>, merges: &[(u32, u32)], options: &Options) -> Result<Self> {
        tokens.sort_unstable();
        for pair in tokens.windows(2) {
            if let [(id, first), (other, second)] = pair {
                if id == other {
                    return Err(Error::DuplicateId { id: *id, first: first.clone(), second: second.clone() });
                }
            }
        }
        let (ids, strings): (Vec<u32>, Vec<String>) = tokens.into_iter().unzip();
        let mut index_of = FxHashMap::with_capacity_and_hasher(strings.len(), Default::default());
        let mut characters = FxHashMap::default();
        for (index, string) in (0u32..).zip(&strings) {
            if index_of.insert(string.clone(), index).is_some() {
                return Err(Error::DuplicateToken { token: string.clone() });
            }
            if let Some(character) = only_character(string) {
                characters.insert(character, index);
            }
        }
        let unknown = match &options.unk_token {
            None => Unknown::Dropped,
            Some(token) => match index_of.get(token) {
                Some(&index) => Unknown::Token(index),
                None => Unknown::Missing(token.clone()),
            },
        };
        let bytes = match options.byte_fallback {
            true => (0..=255u8).map(|byte| index_of.get(&byte_token(byte)).copied()).collect(),
            false => Vec::new(),
        };
        let merges = merge_table(&ids, &strings, &index_of, merges)?;
        Ok(Self {
            ids,
            strings,
            index_of,
            characters,
            merges,
            bytes,
            unknown,
            fuse_unknown: options.fuse_unk,
            ignore_merges: options.ignore_merges,
        })
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn id(&self, index: u32) -> u32 {
        self.ids[index as usize]
    }

    pub(crate) fn string(&self, index: u32) -> &str {
        &self.strings[index as usize]
    }

    /// The strings of the tokens that encoding text can produce. Added tokens and the `<0xNN>` of byte fallback are left
    /// out, unless a merge makes them.
    pub(crate) fn producible_strings<'a>(&'a self, added: &'a FxHashSet<String>) -> impl Iterator<Item = &'a str> {
        let products: FxHashSet<u32> = self.merges.values().map(|merge| merge.product).collect();
        let bytes: FxHashSet<u32> = self.bytes.iter().flatten().copied().collect();
        let is_producible = move |string: &String, index: u32| {
            products.contains(&index) || !added.contains(string) && !bytes.contains(&index)
        };
        let all = self.strings.iter().zip(0u32..);
        all.filter(move |(string, index)| is_producible(string, *index)).map(|(string, _)| string.as_str())
    }

    /// Whether encoding starts from a token: one character, or a `<0xNN>` that byte fallback uses.
    pub(crate) fn is_atomic(&self, index: u32) -> bool {
        only_character(self.string(index)).is_some() || self.bytes.contains(&Some(index))
    }

    pub(crate) fn index(&self, string: &str) -> Option<u32> {
        self.index_of.get(string).copied()
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

fn merge_table(
    ids: &[u32],
    strings: &[String],
    index_of: &FxHashMap<String, u32>,
    merges: &[(u32, u32)],
) -> Result<FxHashMap<u64, Merge>> {
    let index = |rank: usize, id: u32| {
        ids.binary_search(&id).map(|index| index as u32).map_err(|_| Error::UnknownId { rank, id })
    };
    let mut table = FxHashMap::with_capacity_and_hasher(merges.len(), Default::default());
    let mut joined = String::new();
    for (rank, &(left, right)) in merges.iter().enumerate() {
        let pair = (index(rank, left)?, index(rank, right)?);
        let (left, right) = (&strings[pair.0 as usize], &strings[pair.1 as usize]);
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let Some(&product) = index_of.get(&joined) else {
            return Err(Error::MissingProduct { rank, left: left.clone(), right: right.clone() });
        };
        if let Some(earlier) = table.insert(pair_key(pair.0, pair.1), Merge { rank: rank as u32, product }) {
            return Err(Error::DuplicateMerge {
                left: left.clone(),
                right: right.clone(),
                first: earlier.rank as usize,
                second: rank,
            });
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
