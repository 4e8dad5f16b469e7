//! The vocabulary and the merges of a tokenizer file, as they are listed there. Does not know the options of the model.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::tokens::Tokens;
use crate::error::{Error, Result};

/// Tokens and ranked merges. The parts of every merge are tokens; its product need not be one: [`crate::Bpe`] checks it.
#[derive(Debug, Default)]
pub struct Vocabulary {
    pub(crate) tokens: Tokens,
    /// Pairs of tokens as indices; the place is the rank.
    pub(crate) merges: Vec<(u32, u32)>,
    /// The token that each merge makes, or `NO_PRODUCT`.
    pub(crate) products: Vec<u32>,
}

/// In the place of a product: the strings of a merge, joined, are no token.
pub(crate) const NO_PRODUCT: u32 = u32::MAX;

impl Vocabulary {
    /// Tokens with merges as pairs of indices.
    pub(crate) fn new(tokens: Tokens, merges: Vec<(u32, u32)>) -> Self {
        let product = |joined: &mut String, &(left, right): &(u32, u32)| {
            joined.clear();
            joined.push_str(tokens.string(left));
            joined.push_str(tokens.string(right));
            tokens.index(joined).unwrap_or(NO_PRODUCT)
        };
        let products = merges.par_iter().with_min_len(1 << 12).map_init(String::new, product).collect();
        Self { tokens, merges, products }
    }

    /// Tokens with merges as pairs of ids.
    ///
    /// # Errors
    ///
    /// When a merge names an id that no token has.
    pub(crate) fn from_ids(tokens: Tokens, merges: &[(u32, u32)]) -> Result<Self> {
        let index = |rank: usize, id: u32| tokens.index_of_id(id).ok_or(Error::UnknownId { rank, id });
        let pairs =
            merges.iter().enumerate().map(|(rank, &(left, right))| Ok((index(rank, left)?, index(rank, right)?)));
        let pairs = pairs.collect::<Result<_>>()?;
        Ok(Self::new(tokens, pairs))
    }

    /// Tokens with every pair that makes a token as a merge: by the id of the product, then by those of the parts.
    ///
    /// This is the rule of rank files, where two neighbours merge if their product has a rank. Tokens for which
    /// `is_apart` holds are neither parts nor products.
    pub(crate) fn by_products(tokens: Tokens, is_apart: impl Fn(u32) -> bool + Sync) -> Self {
        let known = |string: &str| tokens.index(string).filter(|&token| !is_apart(token));
        let pairs = |product: u32| {
            let string = tokens.string(product);
            let cuts = string.char_indices().skip(1).map(|(at, _)| string.split_at(at));
            let cuts = cuts.filter(|_| !is_apart(product));
            let mut pairs: Vec<(u32, u32)> = cuts.filter_map(|(left, right)| known(left).zip(known(right))).collect();
            pairs.sort_unstable();
            pairs.into_iter().map(move |pair| (pair, product))
        };
        let all = (0..tokens.len() as u32).into_par_iter().with_min_len(1 << 10).flat_map_iter(pairs);
        let (merges, products) = all.unzip();
        Self { tokens, merges, products }
    }

    /// The vocabulary with other tokens, and the merges whose parts and product are among them.
    ///
    /// `inserted` has new merges as strings, each with the rank of the merge that it stands before; ascending ranks.
    ///
    /// # Errors
    ///
    /// When a part of a new merge is no token.
    pub(crate) fn edited(&self, tokens: Tokens, inserted: &[(usize, String, String)]) -> Result<Self> {
        let moved: Vec<u32> = self.tokens.strings().map(|string| tokens.index(string).unwrap_or(NO_PRODUCT)).collect();
        let new_index = |token: u32| moved.get(token as usize).copied().filter(|&token| token != NO_PRODUCT);
        let part = |string: &str| tokens.index(string).ok_or_else(|| Error::MissingPart { part: string.into() });
        let mut merges = Vec::with_capacity(self.merges.len() + inserted.len());
        let mut products = Vec::with_capacity(merges.capacity());
        let mut waiting = inserted.iter().peekable();
        for rank in 0..=self.merges.len() {
            while let Some((_, left, right)) =
                waiting.next_if(|(place, ..)| *place <= rank || rank == self.merges.len())
            {
                merges.push((part(left)?, part(right)?));
                products.push(tokens.index(&format!("{left}{right}")).unwrap_or(NO_PRODUCT));
            }
            let Some((&(left, right), &product)) = self.merges.get(rank).zip(self.products.get(rank)) else { break };
            if let (Some(left), Some(right), Some(product)) = (new_index(left), new_index(right), new_index(product)) {
                merges.push((left, right));
                products.push(product);
            }
        }
        Ok(Self { tokens, merges, products })
    }

    /// The merges that make some tokens, by rank: the rank of each, and the place of the token.
    pub(crate) fn merges_of(&self, tokens: &[String]) -> Vec<(usize, usize)> {
        let place = |(place, string): (usize, &String)| Some((self.tokens.index(string)?, place));
        let places: FxHashMap<u32, usize> = tokens.iter().enumerate().filter_map(place).collect();
        let product = |(rank, product): (usize, &u32)| Some((rank, *places.get(product)?));
        self.products.iter().enumerate().filter_map(product).collect()
    }

    /// How many of the first merges are the same as those of another vocabulary.
    pub(crate) fn common_merges(&self, other: &Self) -> usize {
        self.merge_strings().zip(other.merge_strings()).take_while(|(one, two)| one == two).count()
    }

    /// The ranks of the merges that another vocabulary lacks, the ranks of its merges that this one lacks, and whether
    /// the others are in the same order in both. The order of merges with one of the tokens `apart` does not matter.
    pub(crate) fn merge_difference(&self, other: &Self, apart: &FxHashSet<&str>) -> (Vec<usize>, Vec<usize>, bool) {
        let moved: Vec<Option<u32>> = self.tokens.strings().map(|string| other.tokens.index(string)).collect();
        let is_apart: Vec<bool> = self.tokens.strings().map(|string| apart.contains(string)).collect();
        let ranks: FxHashMap<(u32, u32), usize> = other.merges.iter().copied().zip(0..).collect();
        let (mut own, mut is_shared, mut in_order, mut last) = (Vec::new(), vec![false; ranks.len()], true, None);
        for (rank, (&(left, right), &product)) in self.merges.iter().zip(&self.products).enumerate() {
            let pair = moved[left as usize].zip(moved[right as usize]);
            let Some(&place) = pair.and_then(|pair| ranks.get(&pair)) else {
                own.push(rank);
                continue;
            };
            is_shared[place] = true;
            if ![left, right, product].iter().any(|&token| is_apart.get(token as usize).copied().unwrap_or(false)) {
                in_order &= last < Some(place);
                last = last.max(Some(place));
            }
        }
        let lacking = (0..other.merges.len()).filter(|&place| !is_shared[place]).collect();
        (own, lacking, in_order)
    }

    /// The merges as pairs of strings, by rank.
    pub(crate) fn merge_strings(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.merges.len()).map(|rank| self.merge_at(rank))
    }

    /// The merge of a rank as strings.
    pub(crate) fn merge_at(&self, rank: usize) -> (&str, &str) {
        let (left, right) = self.merges[rank];
        (self.tokens.string(left), self.tokens.string(right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::TokenList;

    fn tokens(strings: &[&str]) -> Tokens {
        let mut list = TokenList::default();
        strings.iter().zip(0..).for_each(|(string, id)| list.push(string, id));
        list.tokens().unwrap()
    }

    #[test]
    fn every_pair_that_makes_a_token_is_a_merge_by_product_and_then_by_parts() {
        let list = tokens(&["b", "a", "õ", "aõ", "ba", "<a>", "baõ", "b<a>"]);
        let special = list.index("<a>");
        let vocabulary = Vocabulary::by_products(list, |token| Some(token) == special);
        let pairs: Vec<String> = vocabulary.merge_strings().map(|(left, right)| format!("{left} {right}")).collect();
        assert_eq!(pairs, ["a õ", "b a", "b aõ", "ba õ"]);
        assert_eq!(vocabulary.products, [3, 4, 6, 6]);
        let asked = ["baõ", "c", "aõ"].map(String::from);
        assert_eq!(vocabulary.merges_of(&asked), [(0, 2), (2, 0), (3, 0)]);
    }

    #[test]
    fn an_edit_keeps_merges_of_kept_tokens_and_inserts_new_ones_in_their_places() {
        let before =
            Vocabulary::from_ids(tokens(&["a", "b", "c", "ab", "bc", "abc"]), &[(1, 2), (0, 1), (3, 2)]).unwrap();
        let new = |place: usize, left: &str, right: &str| (place, left.to_string(), right.to_string());
        let inserted = [new(0, "c", "a"), new(2, "a", "a"), new(2, "b", "b"), new(3, "c", "c"), new(9, "a", "c")];
        let after = before.edited(tokens(&["c", "b", "a", "ab", "abc", "ca", "aa"]), &inserted).unwrap();
        let pairs: Vec<String> = after.merge_strings().map(|(left, right)| format!("{left} {right}")).collect();
        assert_eq!(pairs, ["c a", "a b", "a a", "b b", "ab c", "c c", "a c"]);
        assert_eq!(after.products, [5, 3, 6, NO_PRODUCT, 4, NO_PRODUCT, NO_PRODUCT]);
        assert_eq!((before.common_merges(&after), before.common_merges(&before)), (0, 3));
        assert_eq!(before.edited(tokens(&["a"]), &[]).unwrap().merges, []);
        let missing = before.edited(tokens(&["a"]), &[new(0, "a", "b")]).unwrap_err();
        assert_eq!(missing, Error::MissingPart { part: "b".into() });
    }
}
