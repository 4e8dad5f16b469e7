//! The order in which tokens are removed: leaves by count, each before the tokens that it is built from.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{Model, Remaining};
use crate::bpe::Origin;
use crate::error::Result;
use crate::stop::Stop;

/// What decides when a token is removed: its count, and if that is 0, how often it is expected, as the bits of a number
/// that is not negative; then the highest id.
type Key = (u64, u64, Reverse<u32>);

impl Model {
    /// Leaves by count, rarest first, equal ones by id, highest first, each with its count; all as ids.
    ///
    /// When a token is removed, its count is added to the tokens that its text is then encoded as. Tokens with a count of
    /// 0 go by how often they are `expected`. Tokens that are not `candidates` stay.
    ///
    /// # Errors
    ///
    /// As [`Remaining::remove`], and when it is stopped.
    pub fn leaf_order(
        self: &Arc<Self>,
        candidates: &[u32],
        counts: &[(u32, u64)],
        expected: &[(u32, f64)],
        stop: &Stop,
    ) -> Result<Vec<(u32, u64)>> {
        let (tokens, mut remaining) = (self.tokens(), Remaining::new(Arc::clone(self)));
        let place = |id: u32| tokens.index_of_id(id).map(|token| token as usize);
        let (mut flowing, mut hoped) = (vec![0u64; tokens.len()], vec![0f64; tokens.len()]);
        for (id, count) in counts {
            place(*id).into_iter().for_each(|token| flowing[token] = *count);
        }
        for (id, times) in expected {
            place(*id).into_iter().for_each(|token| hoped[token] = *times);
        }
        let split = |origin: &Origin| match *origin {
            Origin::Merged(left, right) => place(left).zip(place(right)).map(|(left, right)| [left, right]),
            _ => None,
        };
        let splits: Vec<Option<[usize; 2]>> = self.origins().iter().map(split).collect();
        let (mut users, mut is_candidate) = (vec![0usize; tokens.len()], vec![false; tokens.len()]);
        splits.iter().flatten().flatten().for_each(|&part| users[part] += 1);
        candidates.iter().filter_map(|&id| place(id)).for_each(|token| is_candidate[token] = true);
        let key = |token: usize, flowing: &[u64]| -> Key {
            let times = if flowing[token] == 0 { hoped[token].to_bits() } else { 0 };
            (flowing[token], times, Reverse(tokens.ids()[token]))
        };
        let leaves = (0..tokens.len()).filter(|&token| is_candidate[token] && users[token] == 0);
        let mut queue: BinaryHeap<Reverse<(Key, usize)>> =
            leaves.map(|token| Reverse((key(token, &flowing), token))).collect();
        let mut order = Vec::with_capacity(candidates.len());
        while let Some(Reverse((queued, token))) = queue.pop() {
            stop.check()?;
            let current = key(token, &flowing);
            if current != queued {
                queue.push(Reverse((current, token))); // its count has risen
                continue;
            }
            let (id, count) = (tokens.ids()[token], flowing[token]);
            order.push((id, count));
            remaining.mark(id);
            let parts = match splits[token] {
                Some(parts) => parts.to_vec(),
                None if count == 0 => Vec::new(),
                None => remaining.split(id)?.into_iter().filter_map(place).collect(),
            };
            parts.iter().for_each(|&part| flowing[part] = flowing[part].saturating_add(count));
            for part in splits[token].into_iter().flatten() {
                users[part] -= 1;
                if users[part] == 0 && is_candidate[part] {
                    queue.push(Reverse((key(part, &flowing), part)));
                }
            }
        }
        Ok(order)
    }

    /// How often tokens are expected in a text, given how often each occurs; and how often they are in it, by themselves
    /// or inside another. Both by id; the tokens `apart` are not built from others.
    ///
    /// In a text of n tokens, `ab` is expected `a * b / n` times. Here `a` is how often that token is in the text, plus how
    /// often it is expected. A token that merges cannot make is expected by the pieces that merges make of it, and one of
    /// a model without merges by what its string is split into without it.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`].
    #[allow(clippy::type_complexity)]
    pub fn expected(
        &self,
        counts: &[(u32, u64)],
        apart: &FxHashSet<u32>,
    ) -> Result<(Vec<(u32, f64)>, Vec<(u32, u64)>)> {
        let (tokens, mut parts, mut bytes) = (self.tokens(), Vec::new(), Vec::new());
        for (id, own) in self.parts(apart)? {
            let Some(token) = tokens.index_of_id(id) else { continue };
            bytes.clear();
            self.decode(tokens.string(token), &mut bytes);
            let indices: Vec<u32> = own.into_iter().filter_map(|part| tokens.index_of_id(part)).collect();
            parts.push((bytes.len(), token as usize, indices));
        }
        parts.sort_unstable();
        let total = counts.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count)).max(1) as f64;
        let mut uses = vec![0u64; tokens.len()];
        for (id, count) in counts {
            tokens.index_of_id(*id).into_iter().for_each(|token| uses[token as usize] = *count);
        }
        for (_, token, own) in parts.iter().rev() {
            let count = uses[*token];
            own.iter().for_each(|&part| uses[part as usize] = uses[part as usize].saturating_add(count));
        }
        let mut rates: Vec<f64> = uses.iter().map(|&count| (count as f64 / total).min(1.0)).collect();
        let mut expected = Vec::with_capacity(parts.len());
        for (_, token, own) in &parts {
            let rate = own.iter().fold(1.0, |rate, &part| rate * rates[part as usize]);
            expected.push((tokens.ids()[*token], rate * total));
            rates[*token] = (rates[*token] + rate).min(1.0);
        }
        let used = tokens.ids().iter().copied().zip(uses).filter(|(_, times)| *times > 0).collect();
        Ok((expected, used))
    }
}
