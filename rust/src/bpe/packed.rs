//! The merges of a model in a small table that stays in the cache: made for encoding millions of pretokens.

use super::merges::{Merge, Merges};
use super::model::Bpe;
use crate::memory::free_slots;

/// No merge has this rank.
pub(super) const NO_RANK: u32 = u32::MAX;
/// Pretokens of more symbols are merged by a heap.
const SHORT: usize = 64;

/// The ranks of pairs, in one array: the pair and its rank in the same 64 bits.
#[derive(Debug)]
pub(super) struct PackedMerges {
    /// Open addressing with linear probing. 0 is empty: a rank is stored plus one.
    table: Vec<u64>,
    /// Two bits for each pair that has a merge, chosen by its hash: most pairs that have none are known by a bit that is
    /// not set, without a look into the larger table.
    filter: Vec<u64>,
    /// The products, by rank.
    products: Vec<u32>,
    token_bits: u32,
    rank_bits: u32,
}

impl PackedMerges {
    /// None if two tokens and a rank do not fit into 64 bits: with millions of tokens.
    pub(super) fn new(bpe: &Bpe) -> Option<Self> {
        let bits = |number: usize| usize::BITS - number.leading_zeros();
        let (token_bits, rank_bits) = (bits(bpe.len()), bits(bpe.merge_count() + 1));
        if 2 * token_bits + rank_bits > u64::BITS {
            return None;
        }
        let table: Vec<u64> = free_slots((2 * bpe.merge_count()).next_power_of_two().max(2));
        let (filter, products) = (vec![0; table.len() / 16 + 1], vec![0; bpe.merge_count()]);
        let mut packed = Self { table, filter, products, token_bits, rank_bits };
        for (&key, merge) in &bpe.merges {
            packed.insert((key >> 32) as u32, key as u32, *merge);
        }
        Some(packed)
    }

    fn insert(&mut self, left: u32, right: u32, merge: Merge) {
        let pair = self.pair(left, right);
        let hash = hash(pair);
        let (word, bits) = self.filter_bits(hash);
        self.filter[word] |= bits;
        let mut place = self.place(hash);
        while self.table[place] != 0 {
            place = (place + 1) & (self.table.len() - 1);
        }
        self.table[place] = pair << self.rank_bits | u64::from(merge.rank + 1);
        self.products[merge.rank as usize] = merge.product;
    }

    #[inline(always)]
    fn pair(&self, left: u32, right: u32) -> u64 {
        u64::from(left) << self.token_bits | u64::from(right)
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.table.len() - 1)
    }

    /// The word of the filter that a pair has, and its bits there.
    #[inline(always)]
    fn filter_bits(&self, hash: u64) -> (usize, u64) {
        let word = ((hash >> 32) * self.filter.len() as u64) >> 32;
        (word as usize, 1 << (hash >> 26 & 63) | 1 << (hash >> 20 & 63))
    }

    /// The rank of the merge of two neighbours, or `NO_RANK`.
    #[inline(always)]
    pub(super) fn rank(&self, left: u32, right: u32) -> u32 {
        let pair = self.pair(left, right);
        let hash = hash(pair);
        let (word, bits) = self.filter_bits(hash);
        if self.filter[word] & bits != bits {
            return NO_RANK;
        }
        let mut place = self.place(hash);
        loop {
            let entry = self.table[place];
            if entry >> self.rank_bits == pair && entry != 0 {
                return (entry & ((1 << self.rank_bits) - 1)) as u32 - 1;
            }
            if entry == 0 {
                return NO_RANK;
            }
            place = (place + 1) & (self.table.len() - 1);
        }
    }

    /// Applies merges until none applies, lowest rank first, leftmost first; calls `on_merge` with each.
    pub(super) fn apply(&self, symbols: &mut Vec<u32>, on_merge: impl FnMut((u32, u32), Merge)) {
        if symbols.len() <= SHORT {
            self.merge_short(symbols, on_merge);
        } else {
            self.merge(symbols, on_merge);
        }
    }

    fn merge_short(&self, symbols: &mut Vec<u32>, mut on_merge: impl FnMut((u32, u32), Merge)) {
        const NONE: u64 = u64::MAX;
        let count = symbols.len();
        // By place of the left symbol: the rank of its pair, above the place, so that the smallest is the next merge.
        let mut keys = [NONE; SHORT];
        // The products are read together with the ranks: when a merge is applied, its product has arrived.
        let mut products = [0u32; SHORT];
        let (mut before, mut after) = ([0u8; SHORT + 1], [0u8; SHORT + 1]);
        let key = |left: u32, right: u32, at: usize, products: &mut [u32; SHORT]| match self.rank(left, right) {
            NO_RANK => NONE,
            rank => {
                products[at] = self.products[rank as usize];
                u64::from(rank) << 8 | at as u64
            }
        };
        for at in 0..count {
            (before[at], after[at]) = (at.saturating_sub(1) as u8, at as u8 + 1);
            if at + 1 < count {
                keys[at] = key(symbols[at], symbols[at + 1], at, &mut products);
            }
        }
        let mut merged = false;
        loop {
            let best = keys[..count].iter().copied().min().unwrap_or(NONE);
            if best == NONE {
                break;
            }
            merged = true;
            let (rank, at) = ((best >> 8) as u32, (best & 0xFF) as usize);
            let (right, product) = (usize::from(after[at]), products[at]);
            on_merge((symbols[at], symbols[right]), Merge { rank, product });
            symbols[at] = product;
            let end = usize::from(after[right]);
            (after[at], keys[right], symbols[right]) = (end as u8, NONE, NO_RANK);
            before[end] = at as u8;
            keys[at] = if end < count { key(product, symbols[end], at, &mut products) } else { NONE };
            if at > 0 {
                let left = usize::from(before[at]);
                keys[left] = key(symbols[left], product, left, &mut products);
            }
        }
        if merged {
            symbols.retain(|&symbol| symbol != NO_RANK);
        }
    }
}

impl Merges for PackedMerges {
    #[inline]
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        let rank = self.rank(left, right);
        (rank != NO_RANK).then(|| Merge { rank, product: self.products[rank as usize] })
    }
}

#[inline(always)]
fn hash(pair: u64) -> u64 {
    pair.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random};

    #[test]
    fn packed_merges_are_those_of_the_model_and_give_the_same_tokens() {
        let mut random = Random(1);
        for round in 0..300 {
            let bpe = random.byte_level(60, round % 2 == 0, &Options::default());
            let packed = PackedMerges::new(&bpe).unwrap();
            for (left, right) in (0..bpe.len() as u32).flat_map(|left| (0..bpe.len() as u32).map(move |r| (left, r))) {
                assert_eq!(packed.merge_of(left, right), bpe.merge_of(left, right));
            }
            for most in [3, 12, 90] {
                let start: Vec<u32> = (0..random.below(most)).map(|_| random.below(bpe.len()) as u32).collect();
                let (mut ours, mut theirs) = ((start.clone(), Vec::new()), (start, Vec::new()));
                packed.apply(&mut ours.0, |pair, merge| ours.1.push((pair, merge)));
                bpe.merge(&mut theirs.0, |pair, merge| theirs.1.push((pair, merge)));
                assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn a_model_without_merges_has_an_empty_table() {
        let bpe = Random(1).byte_level(0, true, &Options::default());
        assert_eq!(PackedMerges::new(&bpe).unwrap().rank(0, 0), NO_RANK);
    }
}
