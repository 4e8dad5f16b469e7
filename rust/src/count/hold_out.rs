//! Documents that are held out of counting, chosen by a hash of their text.
//!
//! Which documents are held out depends on the texts alone: not on their order, on threads or on blocks. Hold-outs of
//! parts of a corpus can be merged: [`HoldOut::share`] is what one hands on to another.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Mutex, PoisonError};

/// One document may have at most one part in so many of the bytes.
const LARGEST_SHARE: u64 = 8;

/// Holds documents out: in the order of their hash, as many as fit into a number of bytes.
///
/// Eligible is a document that is not blank, has at most an eighth of the bytes, and whose hash is a multiple of
/// `one_in`. Held out is the longest prefix of the distinct eligible documents, ordered by (hash, text), that fits.
#[derive(Debug)]
pub struct HoldOut {
    one_in: u64,
    max_bytes: u64,
    held: Mutex<HeldOut>,
}

type Key = (u64, Box<str>);

#[derive(Debug, Default)]
struct HeldOut {
    /// The documents, with how often each was seen.
    copies: BTreeMap<Key, u64>,
    bytes: u64,
    /// The smallest document ever evicted. Documents from it on, by order, are not held out.
    threshold: Option<Key>,
}

/// What to do with a document that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Count it.
    Count,
    /// Hold it out, and count these instead, which no longer are: each with the number of its occurrences. The offered
    /// document may be one of them.
    Held(Vec<(Box<str>, u64)>),
}

impl HoldOut {
    /// Holds out one eligible document in `one_in`, and at most `max_bytes` bytes of text.
    #[must_use]
    pub fn new(one_in: u64, max_bytes: u64) -> Self {
        Self { one_in: one_in.max(1), max_bytes, held: Mutex::default() }
    }

    /// Offers a document that occurs `copies` times.
    pub fn offer(&self, text: &str, copies: u64) -> Verdict {
        if text.len() as u64 > self.max_bytes / LARGEST_SHARE {
            return Verdict::Count;
        }
        let hash = hash(text.as_bytes());
        if hash % self.one_in != 0 || text.trim().is_empty() {
            return Verdict::Count;
        }
        self.locked().offer((hash, text.into()), copies, self.max_bytes)
    }

    /// What the hold-out of the whole corpus has to be offered, if this one is that of a part: the documents that are
    /// held out, each with the number of its occurrences, and the smallest one that did not fit, with 0 occurrences.
    ///
    /// Without the latter, documents after it in order, which another part has, could still fit into the whole.
    #[must_use]
    pub fn share(&self) -> Vec<(String, u64)> {
        let held = self.locked();
        let evicted = held.threshold.iter().map(|(_, text)| (text.to_string(), 0));
        held.copies.iter().map(|((_, text), copies)| (text.to_string(), *copies)).chain(evicted).collect()
    }

    /// The documents that are held out, in the order of their hash.
    #[must_use]
    pub fn documents(&self) -> Vec<String> {
        self.locked().copies.keys().map(|(_, text)| text.to_string()).collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HeldOut> {
        // Nothing that can panic runs under the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldOut {
    fn offer(&mut self, key: Key, copies: u64, max_bytes: u64) -> Verdict {
        if self.threshold.as_ref().is_some_and(|threshold| key >= *threshold) {
            return Verdict::Count;
        }
        let size = key.1.len() as u64;
        match self.copies.entry(key) {
            Entry::Occupied(mut held) => *held.get_mut() += copies,
            Entry::Vacant(place) => {
                place.insert(copies);
                self.bytes += size;
            }
        }
        let mut evicted = Vec::new();
        while self.bytes > max_bytes {
            let Some((key, copies)) = self.copies.pop_last() else { break };
            self.bytes -= key.1.len() as u64;
            evicted.push((key.1.clone(), copies));
            self.threshold = Some(key);
        }
        Verdict::Held(evicted)
    }
}

/// A hash of bytes that is the same on every platform and in every version.
///
/// Words of eight bytes, little end first, the last one filled with zeros, are folded in by multiplication; then the
/// length, and the finalizer of MurmurHash3. Not safe against texts that are chosen to collide.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    const SEED: u64 = 0xD1B5_4A32_D192_ED03;
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(MULTIPLIER);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let chunks = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let whole = chunks.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    let words = whole.chain([u64::from_le_bytes(last), bytes.len() as u64]);
    let mut state = words.fold(SEED, fold);
    for multiplier in [0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53] {
        state = (state ^ (state >> 33)).wrapping_mul(multiplier);
    }
    state ^ (state >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_does_not_change() {
        let hashes = ["", "a", "12345678", "12345678a"].map(|text| hash(text.as_bytes()));
        let expected = [
            10_367_450_535_353_555_958,
            8_414_772_979_113_862_243,
            9_570_122_684_135_431_793,
            2_358_229_719_118_946_370,
        ];
        assert_eq!(hashes, expected);
    }

    #[test]
    fn one_document_in_fifty_is_eligible() {
        let eligible = (0..100_000).filter(|n| hash(format!("document {n}").as_bytes()) % 50 == 0).count();
        assert!((1900..2100).contains(&eligible), "{eligible}");
    }

    #[test]
    fn the_documents_with_the_smallest_hashes_are_held_out_whatever_the_order() {
        let texts: Vec<String> = (0..200).map(|n| format!("{n:03} {}", "x".repeat(n % 7))).collect();
        let mut sorted: Vec<_> = texts.iter().map(|text| (hash(text.as_bytes()), text.clone())).collect();
        sorted.sort();
        let sizes = sorted.iter().scan(0, |sum, (_, text)| {
            *sum += text.len();
            Some(*sum)
        });
        let expected: Vec<_> =
            sizes.zip(&sorted).take_while(|(size, _)| *size <= 100).map(|(_, (_, text))| text.clone()).collect();
        assert!(expected.len() > 5);
        for order in 0..3 {
            let mut offered = texts.clone();
            offered.rotate_left(70 * order);
            let held = HoldOut::new(1, 100);
            for text in &offered {
                held.offer(text, 1);
            }
            assert_eq!(held.documents(), expected);
        }
    }

    #[test]
    fn every_occurrence_is_counted_or_held_out() {
        let held = HoldOut::new(1, 80);
        let mut counted = BTreeMap::<String, u64>::new();
        for n in 0..3000 {
            let text = format!("{}", n % 97);
            match held.offer(&text, 1) {
                Verdict::Count => *counted.entry(text).or_default() += 1,
                Verdict::Held(evicted) => {
                    for (text, copies) in evicted {
                        *counted.entry(text.into()).or_default() += copies;
                    }
                }
            }
        }
        let kept = held.documents();
        assert!(!kept.is_empty());
        assert_eq!(kept.len() + counted.len(), 97);
        assert!(counted.iter().all(|(text, copies)| *copies >= 30 && !kept.contains(text)), "{counted:?}");
    }

    #[test]
    fn the_shares_of_parts_make_the_hold_out_of_the_whole() {
        let texts: Vec<String> = (0..300).map(|n| format!("{} {}", n % 113, "x".repeat(n % 9))).collect();
        for max_bytes in [40, 100, 300, 100_000] {
            let whole = HoldOut::new(2, max_bytes);
            texts.iter().for_each(|text| drop(whole.offer(text, 1)));
            for n_parts in [1, 2, 5, 40] {
                let merged = HoldOut::new(2, max_bytes);
                for part in 0..n_parts {
                    let held = HoldOut::new(2, max_bytes);
                    texts.iter().skip(part).step_by(n_parts).for_each(|text| drop(held.offer(text, 1)));
                    held.share().iter().for_each(|(text, copies)| drop(merged.offer(text, *copies)));
                }
                assert_eq!(merged.share(), whole.share());
            }
        }
    }

    #[test]
    fn blank_and_large_documents_are_not_held_out() {
        let held = HoldOut::new(1, 80);
        assert_eq!(held.offer(" \u{a0}\n", 1), Verdict::Count);
        assert_eq!(held.offer("eleven byte", 1), Verdict::Count);
        assert_eq!(held.offer("ten bytes!", 1), Verdict::Held(Vec::new()));
    }
}
