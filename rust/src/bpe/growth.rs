//! How many tokens a text has, and how often new ones occur, for every number of new merges: from one encoding of each
//! pretoken.
//!
//! Encoding always takes the merge of the lowest rank. With fewer new merges it takes the same ones in the same order, and
//! ends before the first that it lacks. So a merge is taken if the table has it and all that were taken before it. Merges
//! that rank after the new ones, such as those of white space in `SentencePiece` types, apply to what is then left.
//! Pretokens that may have them are encoded for every number of new merges that changes them.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::encode::PretokenEncoder;
use super::encoded::{in_parallel, CountedPretokens};
use super::merges::{pair_key, Merge, Merges};
use super::model::{Bpe, Unknown};
use crate::count::Counts;
use crate::error::Result;
use crate::stop::Stop;

/// Changes of occurrences, by the number of a new merge and the index of a token.
type Changes = FxHashMap<(u32, u32), i64>;

/// The number of a token that is not new, and of what there is before all new merges.
const OLD: u32 = u32::MAX;
/// In place of a token: all tokens.
const ALL: u32 = u32::MAX;

/// How the tokens of a text change with each new merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// The number of a merge, the place of a token among the new ones, and the change of its occurrences; in order.
    pub changes: Vec<(u32, u32, i64)>,
    /// The number of all tokens without new merges, with the first one, and so on.
    pub totals: Vec<i64>,
}

impl Bpe {
    /// How the tokens of counted pretokens change with each new merge.
    ///
    /// With the new merges of numbers below n, a new token occurs as often as its changes with numbers below n add up to.
    /// The new merges have the ranks from `first_rank` on. `merge_numbers` has their numbers, which never fall: merges of
    /// one number are there together. `new_tokens` has the id of each new token, and the number of the first merge that
    /// makes it. A merge of a lower rank may need a new token: it is there with that token.
    ///
    /// # Errors
    ///
    /// As [`crate::Model::token_counts`].
    pub fn growth(
        &self,
        counts: &Counts,
        first_rank: u32,
        merge_numbers: &[u32],
        new_tokens: &[(u32, u32)],
        stop: &Stop,
    ) -> Result<Growth> {
        let (mut numbers, mut places) = (vec![OLD; self.len()], vec![0; self.len()]);
        for ((id, number), place) in new_tokens.iter().zip(0u32..) {
            if let Ok(index) = self.ids().binary_search(id) {
                (numbers[index], places[index]) = (*number, place);
            }
        }
        let pretokens = self.counted(counts, self.ignores_merges(), stop)?;
        let last_pairs = self.last_pairs(first_rank + merge_numbers.len() as u32);
        let encoder = pretokens.pretoken_encoder();
        let growing = Growing { pretokens: &pretokens, encoder, first_rank, merge_numbers, numbers, last_pairs };
        let chunks = counts.chunks(1 << 13, u64::MAX);
        let each = |changes: &mut Changes, places| growing.add_changes(counts, places, stop, changes);
        let (_, parts) = in_parallel(&chunks, Changes::default, each)?;
        let changes = parts.into_iter().reduce(|mut sum, more| {
            more.into_iter().for_each(|(key, change)| add(&mut sum, key, change));
            sum
        });
        let changes = changes.unwrap_or_default();
        let all_numbers = new_tokens.iter().map(|(_, number)| number).chain(merge_numbers);
        let n_numbers = all_numbers.max().map_or(0, |&last| last as usize + 1);
        let (mut totals, mut sorted) = (vec![0i64; n_numbers + 1], Vec::with_capacity(changes.len()));
        for ((number, token), change) in changes {
            match token {
                ALL => totals[number.wrapping_add(1) as usize] = change,
                _ => sorted.push((number, places[token as usize], change)),
            }
        }
        for n in 1..totals.len() {
            totals[n] = totals[n].saturating_add(totals[n - 1]);
        }
        sorted.sort_unstable();
        Ok(Growth { changes: sorted, totals })
    }

    /// The first two symbols, before any merge, of all products of merges from a rank on. Text without one of these pairs
    /// has none of the products.
    fn last_pairs(&self, first_rank: u32) -> LastPairs {
        if self.merge_count() == first_rank as usize {
            return LastPairs::None;
        }
        let (mut pairs, mut symbols) = (FxHashSet::default(), Vec::new());
        for merge in self.merges.values().filter(|merge| merge.rank >= first_rank) {
            let string = self.tokens().string(merge.product);
            symbols.clear();
            // A product of byte tokens or of the unknown token is made of other symbols than its characters.
            let has_unknown = |unknown: &u32| string.contains(self.tokens().string(*unknown));
            let is_spelled =
                !string.contains('<') && !matches!(&self.unknown, Unknown::Token(token) if has_unknown(token));
            match self.symbols(string, &mut symbols) {
                Ok(()) if is_spelled && symbols.len() > 1 => pairs.insert(pair_key(symbols[0], symbols[1])),
                _ => return LastPairs::Any,
            };
        }
        LastPairs::Some(pairs)
    }
}

/// Where merges that rank after the new ones may apply.
enum LastPairs {
    /// There are no such merges.
    None,
    /// Only where text has one of these pairs of symbols.
    Some(FxHashSet<u64>),
    /// Anywhere.
    Any,
}

struct Growing<'e> {
    pretokens: &'e CountedPretokens<'e>,
    encoder: &'e PretokenEncoder<'e>,
    first_rank: u32,
    merge_numbers: &'e [u32],
    /// For each token the number of the merge that first makes it, or `OLD`.
    numbers: Vec<u32>,
    last_pairs: LastPairs,
}

impl Growing<'_> {
    /// The number of a new merge.
    fn number(&self, rank: u32) -> Option<u32> {
        rank.checked_sub(self.first_rank).and_then(|place| self.merge_numbers.get(place as usize)).copied()
    }

    /// The ranks of the new merges from a number on.
    fn ranks_from(&self, number: u32) -> Range<u32> {
        let start = self.merge_numbers.partition_point(|&other| other < number);
        self.first_rank + start as u32..self.first_rank + self.merge_numbers.len() as u32
    }

    fn add_changes(&self, counts: &Counts, places: Range<usize>, stop: &Stop, changes: &mut Changes) -> Result<()> {
        let (mut string, mut symbols, mut own) = (String::new(), Vec::new(), Vec::new());
        for place in places {
            stop.check()?;
            own.clear();
            let pretoken = counts.pretoken(place);
            if self.has_last(pretoken, &mut string, &mut symbols)? {
                self.changes_with_last(&symbols, self.whole(pretoken), &mut own);
            } else {
                if !self.pretokens.tokens_below(self.first_rank, place, &mut symbols) {
                    self.encoder.start(pretoken, &mut string, &mut symbols)?;
                }
                self.pretoken_changes(self.whole(pretoken), &mut symbols, &mut own);
            }
            let count = i64::try_from(counts.counts()[place]).unwrap_or(i64::MAX);
            own.iter().for_each(|&(key, change)| add(changes, key, count.saturating_mul(change)));
        }
        Ok(())
    }

    /// The token that a pretoken is if merges are skipped for it, with its number.
    fn whole(&self, pretoken: &[u8]) -> Option<(u32, u32)> {
        self.encoder.skipped(pretoken).map(|token| (token, self.numbers[token as usize]))
    }

    /// Whether merges that rank after the new ones may apply to a pretoken. Then `symbols` has its symbols.
    fn has_last(&self, pretoken: &[u8], string: &mut String, symbols: &mut Vec<u32>) -> Result<bool> {
        if matches!(self.last_pairs, LastPairs::None) {
            return Ok(false);
        }
        self.encoder.start(pretoken, string, symbols)?;
        Ok(match &self.last_pairs {
            LastPairs::Some(pairs) => symbols.windows(2).any(|pair| pairs.contains(&pair_key(pair[0], pair[1]))),
            _ => true,
        })
    }

    /// The changes inside one pretoken to which all merges apply in the order of their numbers. `symbols` are those of the
    /// pretoken before any merge, or after merges that rank before the new ones.
    fn pretoken_changes(
        &self,
        whole: Option<(u32, u32)>,
        symbols: &mut Vec<u32>,
        changes: &mut Vec<((u32, u32), i64)>,
    ) {
        // From this number on, merges are skipped: the pretoken is one token. An old token is so from the start.
        let end = match whole {
            Some((_, OLD)) => return changes.push(((OLD, ALL), 1)),
            Some((_, number)) => number,
            None => OLD,
        };
        let (mut highest, mut merged) = (None, 0);
        self.encoder.merge(symbols, |(left, right), merge| {
            highest = highest.max(self.number(merge.rank));
            merged += i64::from(highest.is_some());
            let Some(number) = highest.filter(|&number| number < end) else { return };
            changes.push(((number, ALL), -1));
            for (token, change) in [(left, -1), (right, -1), (merge.product, 1)] {
                if self.numbers[token as usize] != OLD {
                    changes.push(((number, token), change));
                }
            }
        });
        changes.push(((OLD, ALL), symbols.len() as i64 + merged));
        if let Some((token, number)) = whole {
            let before: Vec<_> = changes.iter().map(|&((_, part), change)| ((number, part), -change)).collect();
            changes.extend(before);
            changes.extend([((number, ALL), 1), ((number, token), 1)]);
        }
    }

    /// The changes inside one pretoken to which merges that rank after the new ones may apply.
    fn changes_with_last(&self, start: &[u32], whole: Option<(u32, u32)>, changes: &mut Vec<((u32, u32), i64)>) {
        let end = whole.map_or(OLD, |(_, number)| number);
        let tokens = |lacking: Range<u32>, on_merge: &mut dyn FnMut(u32)| {
            let mut symbols = start.to_vec();
            Ranked { encoder: self.encoder, lacking }.merge(&mut symbols, |_, merge| on_merge(merge.rank));
            symbols
        };
        // The numbers of the new merges that change the tokens, whatever applies after them.
        let (mut highest, mut numbers) = (None, Vec::new());
        tokens(self.ranks_from(u32::MAX).end..u32::MAX, &mut |rank| {
            if self.number(rank) > highest {
                highest = self.number(rank);
                numbers.extend(highest.filter(|&number| number < end));
            }
        });
        let mut states = vec![(OLD, self.ranks_from(0))];
        states.extend(numbers.into_iter().map(|number| (number, self.ranks_from(number + 1))));
        let mut states: Vec<_> = states.into_iter().map(|(at, lacking)| (at, tokens(lacking, &mut |_| ()))).collect();
        match whole {
            Some((token, OLD)) => states = vec![(OLD, vec![token])],
            Some((token, number)) => states.push((number, vec![token])),
            None => (),
        }
        let is_new = |token: &&u32| self.numbers[**token as usize] != OLD;
        let mut before: &[u32] = &[];
        for (number, tokens) in &states {
            changes.push(((*number, ALL), tokens.len() as i64 - before.len() as i64));
            changes.extend(before.iter().filter(is_new).map(|&token| ((*number, token), -1)));
            changes.extend(tokens.iter().filter(is_new).map(|&token| ((*number, token), 1)));
            before = tokens;
        }
    }
}

/// The merges of some ranks.
struct Ranked<'e> {
    encoder: &'e PretokenEncoder<'e>,
    /// Merges of these ranks are left out.
    lacking: Range<u32>,
}

impl Merges for Ranked<'_> {
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        self.encoder.merge_of(left, right).filter(|merge| !self.lacking.contains(&merge.rank))
    }
}

fn add(changes: &mut Changes, key: (u32, u32), change: i64) {
    let sum = changes.entry(key).or_default();
    *sum = sum.saturating_add(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random, TokenList, Vocabulary};
    use crate::model::Model;

    fn counts_of(words: &[String], random: &mut Random) -> Counts {
        let mut offsets = vec![0];
        let bytes: Vec<u8> = words.concat().into_bytes();
        for word in words {
            offsets.push(offsets.last().copied().unwrap_or(0) + word.len() as u64);
        }
        let counts = words.iter().map(|_| 1 + random.below(9) as u64).collect();
        Counts::from_columns(bytes, &offsets, counts).unwrap()
    }

    /// The merges of a model, in order.
    fn ranked(bpe: &Bpe) -> Vec<(u32, u32)> {
        let mut ranked: Vec<(u32, u64)> = bpe.merges.iter().map(|(key, merge)| (merge.rank, *key)).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, key)| ((key >> 32) as u32, key as u32)).collect()
    }

    /// The new tokens of some merges, each with the number of the merge that makes it.
    fn new_tokens(bpe: &Bpe, merges: &[(u32, u32)], new: Range<usize>) -> Vec<(u32, u32)> {
        let product = |&(left, right): &(u32, u32)| bpe.merges[&pair_key(left, right)].product;
        let mut known: Vec<u32> = merges[..new.start].iter().chain(&merges[new.end..]).map(product).collect();
        let (merges, mut new) = (&merges[new], Vec::new());
        for (number, made) in (0..).zip(merges.iter().map(product)) {
            if !known.contains(&made) {
                known.push(made);
                new.push((made, number));
            }
        }
        new
    }

    /// A model with the first merges only, without the tokens that only later merges make.
    fn first_merges(bpe: &Bpe, merges: &[(u32, u32)], dropped: &[u32], options: &Options) -> Bpe {
        let kept = bpe.ids().iter().copied().filter(|id| !dropped.contains(id));
        Bpe::new(kept.map(|id| (id, bpe.string(id).to_string())).collect(), merges, options).unwrap()
    }

    #[test]
    fn changes_add_up_to_the_occurrences_for_every_number_of_merges() {
        for seed in 0..160u64 {
            let mut random = Random(seed);
            let options = Options { ignore_merges: seed % 2 == 0, ..Options::default() };
            let bpe = random.byte_level(24, true, &options);
            let counts = counts_of(&random.words(80, 9), &mut random);
            let merges = ranked(&bpe);
            let first = random.below(merges.len());
            let last = if seed % 4 < 2 { merges.len() } else { first + random.below(merges.len() - first) };
            let new = new_tokens(&bpe, &merges, first..last);
            let numbers: Vec<u32> = (0..(last - first) as u32).collect();
            let growth = bpe.growth(&counts, first as u32, &numbers, &new, &Stop::default()).unwrap();
            for n in 0..=last - first {
                let dropped: Vec<u32> = new.iter().filter(|(_, at)| *at as usize >= n).map(|(id, _)| *id).collect();
                // What ranks after the new merges may need a token that is not there yet: then it cannot apply.
                let applies = |pair: &&(u32, u32)| !dropped.contains(&pair.0) && !dropped.contains(&pair.1);
                let after = merges[last..].iter().filter(applies).copied();
                let kept: Vec<(u32, u32)> = merges[..first + n].iter().copied().chain(after).collect();
                let smaller = first_merges(&bpe, &kept, &dropped, &options);
                let expected = Model::Bpe(smaller).token_counts(&counts, false, false, &Stop::default()).unwrap();
                let total: u64 = expected.iter().map(|(_, times)| times).sum();
                assert_eq!(growth.totals[n], total as i64, "seed {seed}, {n} merges");
                assert_occurrences(&growth, n, &new, &expected);
            }
        }
    }

    fn assert_occurrences(growth: &Growth, n: usize, new: &[(u32, u32)], expected: &[(u32, u64)]) {
        for (place, (id, _)) in (0u32..).zip(new) {
            let below = growth.changes.iter().filter(|c| (c.0 as usize) < n && c.1 == place);
            let times = expected.iter().find(|(other, _)| other == id).map_or(0, |(_, times)| *times);
            assert_eq!(below.map(|c| c.2).sum::<i64>(), times as i64, "{n} merges, token {id}");
        }
    }

    /// A model of some tokens, whose ids are their places, in which every pair that makes a token is a merge.
    fn by_products(strings: &[String], options: &Options) -> (Bpe, Vocabulary) {
        let mut list = TokenList::default();
        strings.iter().zip(0..).for_each(|(string, id)| list.push(string, id));
        let vocabulary = Vocabulary::by_products(list.tokens().unwrap(), |_| false);
        let tokens = (0..).zip(strings.iter().cloned()).collect();
        (Bpe::new(tokens, &vocabulary.merges, options).unwrap(), vocabulary)
    }

    #[test]
    fn changes_add_up_for_every_number_of_tokens_if_every_pair_that_makes_a_token_is_a_merge() {
        let mut early = 0;
        for seed in 0..160u64 {
            let mut random = Random(seed);
            let options = Options { ignore_merges: seed % 2 == 0, ..Options::default() };
            let mut strings: Vec<String> =
                random.byte_level(24, true, &options).tokens().strings().map(String::from).collect();
            let is_symbol = |string: &String| string.chars().count() == 1;
            let n_symbols = strings.iter().filter(|string| is_symbol(string)).count();
            strings.sort_by_key(|string| !is_symbol(string));
            let first = n_symbols + random.below(strings.len() - n_symbols);
            // A token that is older than its parts has merges only with them.
            let at = n_symbols + random.below(strings.len() - n_symbols);
            strings[n_symbols..].rotate_left(at - n_symbols);
            let counts = counts_of(&random.words(80, 9), &mut random);
            let (bpe, vocabulary) = by_products(&strings, &options);
            let first_rank = vocabulary.products.partition_point(|&product| (product as usize) < first);
            let numbers: Vec<u32> =
                vocabulary.products[first_rank..].iter().map(|product| product - first as u32).collect();
            let new: Vec<(u32, u32)> = (first as u32..strings.len() as u32).zip(0..).collect();
            let old = &vocabulary.merges[..first_rank];
            early += usize::from(old.iter().any(|&(left, right)| left.max(right) as usize >= first));
            let growth = bpe.growth(&counts, first_rank as u32, &numbers, &new, &Stop::default()).unwrap();
            for n in 0..=strings.len() - first {
                let (smaller, _) = by_products(&strings[..first + n], &options);
                let expected = Model::Bpe(smaller).token_counts(&counts, false, false, &Stop::default()).unwrap();
                let total: u64 = expected.iter().map(|(_, times)| times).sum();
                assert_eq!(growth.totals[n], total as i64, "seed {seed}, {n} tokens");
                assert_occurrences(&growth, n, &new, &expected);
            }
        }
        assert!(early > 20, "{early}");
    }
}
