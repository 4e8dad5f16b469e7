//! Texts that are held out of counting, chosen by a hash: whole documents, or pieces of long ones.
//!
//! What is held out depends on the texts alone: not on their order, on threads or on blocks. Hold-outs of parts of a
//! corpus can be merged: [`HoldOut::share`] is what one hands on to another.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// One text may have at most one part in so many of the bytes.
const LARGEST_SHARE: u64 = 8;
/// Longer documents are cut into pieces of at most so many bytes, where they can be cut. Smaller pieces make the held-out
/// text of few long documents more even; larger ones leave more documents whole.
const PIECE_BYTES: u64 = 1 << 13;

/// Holds texts out: in the order of their hash, as many as fit into a number of bytes.
///
/// A text is a whole document or a piece of one. It can be held out if it is not blank and has at most an eighth of the
/// bytes. It is eligible if besides its hash is a multiple of `one_in`. Held out is the longest prefix of the distinct
/// eligible texts, ordered by (hash, text), that fits. If there is no eligible one, the first of those that can be held
/// out is.
#[derive(Debug)]
pub struct HoldOut {
    one_in: u64,
    max_bytes: u64,
    held: Mutex<HeldOut>,
    /// Whether an eligible text is held out, so that most texts are counted without waiting for the lock.
    has_eligible: AtomicBool,
}

/// Whether it is not eligible, the hash, and the text.
type Key = (bool, u64, Box<str>);

/// How often a text occurs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copies {
    /// At the beginning of a document, which may be all of it.
    pub at_start: u64,
    /// Inside a document, after a cut.
    pub inside: u64,
}

impl Copies {
    /// One copy.
    #[must_use]
    pub fn one(at_start: bool) -> Self {
        Self { at_start: u64::from(at_start), inside: u64::from(!at_start) }
    }
}

#[derive(Debug, Default)]
struct HeldOut {
    /// The texts, with how often each was seen.
    copies: BTreeMap<Key, Copies>,
    bytes: u64,
    /// The smallest text ever evicted. Texts from it on, by order, are not held out.
    threshold: Option<Key>,
}

/// What to do with a text that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Count it.
    Count,
    /// Hold it out, and count these instead, which no longer are: each with its occurrences. The offered text may be one
    /// of them.
    Held(Vec<(Box<str>, Copies)>),
}

impl HoldOut {
    /// Holds out one text in `one_in`, at least one, and at most `max_bytes` bytes.
    #[must_use]
    pub fn new(one_in: u64, max_bytes: u64) -> Self {
        Self { one_in: one_in.max(1), max_bytes, held: Mutex::default(), has_eligible: AtomicBool::new(false) }
    }

    /// Documents of more bytes than this are cut into pieces.
    #[must_use]
    pub fn piece_bytes(&self) -> usize {
        // At least 1, so that there is an end to every search for cuts.
        (self.max_bytes / LARGEST_SHARE).clamp(1, PIECE_BYTES) as usize
    }

    /// Offers a text with its occurrences.
    pub fn offer(&self, text: &str, copies: Copies) -> Verdict {
        if text.len() as u64 > self.max_bytes / LARGEST_SHARE || text.trim().is_empty() {
            return Verdict::Count;
        }
        let hash = hash(text.as_bytes());
        let is_eligible = hash % self.one_in == 0;
        if !is_eligible && self.has_eligible.load(Ordering::Acquire) {
            return Verdict::Count;
        }
        let verdict = self.locked().offer((!is_eligible, hash, text.into()), copies, self.max_bytes);
        self.has_eligible.fetch_or(is_eligible, Ordering::Release);
        verdict
    }

    /// What the hold-out of the whole corpus has to be offered, if this one is that of a part: the texts that are held
    /// out, each with its occurrences, and the smallest one that was evicted, with none.
    ///
    /// Without the latter, texts after it in order, which another part has, could still fit into the whole.
    #[must_use]
    pub fn share(&self) -> Vec<(String, Copies)> {
        let held = self.locked();
        let evicted = held.threshold.iter().map(|(_, _, text)| (text.to_string(), Copies::default()));
        held.copies.iter().map(|((_, _, text), copies)| (text.to_string(), *copies)).chain(evicted).collect()
    }

    /// The texts that are held out, in the order of their hash.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        self.locked().copies.keys().map(|(_, _, text)| text.to_string()).collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HeldOut> {
        // Nothing that can panic runs under the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldOut {
    fn offer(&mut self, key: Key, copies: Copies, max_bytes: u64) -> Verdict {
        if self.threshold.as_ref().is_some_and(|threshold| key >= *threshold) {
            return Verdict::Count;
        }
        let size = key.2.len() as u64;
        match self.copies.entry(key) {
            Entry::Occupied(mut held) => {
                held.get_mut().at_start += copies.at_start;
                held.get_mut().inside += copies.inside;
            }
            Entry::Vacant(place) => {
                place.insert(copies);
                self.bytes += size;
            }
        }
        let mut evicted = Vec::new();
        while self.bytes > max_bytes || self.has_needless() {
            let Some((key, copies)) = self.copies.pop_last() else { break };
            self.bytes -= key.2.len() as u64;
            evicted.push((key.2.clone(), copies));
            self.threshold = Some(key);
        }
        Verdict::Held(evicted)
    }

    /// Whether the last text is not eligible, and there is one before it.
    fn has_needless(&self) -> bool {
        self.copies.len() > 1 && self.copies.last_key_value().is_some_and(|((not_eligible, ..), _)| *not_eligible)
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

    const ONE: Copies = Copies { at_start: 1, inside: 0 };

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
                held.offer(text, ONE);
            }
            assert_eq!(held.texts(), expected);
        }
    }

    #[test]
    fn every_occurrence_is_counted_or_held_out() {
        let held = HoldOut::new(1, 80);
        let mut counted = BTreeMap::<String, u64>::new();
        for n in 0..3000 {
            let text = format!("{}", n % 97);
            match held.offer(&text, ONE) {
                Verdict::Count => *counted.entry(text).or_default() += 1,
                Verdict::Held(evicted) => {
                    for (text, copies) in evicted {
                        *counted.entry(text.into()).or_default() += copies.at_start;
                    }
                }
            }
        }
        let kept = held.texts();
        assert!(!kept.is_empty());
        assert_eq!(kept.len() + counted.len(), 97);
        assert!(counted.iter().all(|(text, copies)| *copies >= 30 && !kept.contains(text)), "{counted:?}");
    }

    #[test]
    fn the_shares_of_parts_make_the_hold_out_of_the_whole() {
        let texts: Vec<String> = (0..300).map(|n| format!("{} {}", n % 113, "x".repeat(n % 9))).collect();
        for (one_in, max_bytes) in [(2, 40), (2, 100), (2, 300), (2, 100_000), (1 << 60, 300)] {
            let whole = HoldOut::new(one_in, max_bytes);
            texts.iter().for_each(|text| drop(whole.offer(text, ONE)));
            for n_parts in [1, 2, 5, 40] {
                let merged = HoldOut::new(one_in, max_bytes);
                for part in 0..n_parts {
                    let held = HoldOut::new(one_in, max_bytes);
                    texts.iter().skip(part).step_by(n_parts).for_each(|text| drop(held.offer(text, ONE)));
                    held.share().iter().for_each(|(text, copies)| drop(merged.offer(text, *copies)));
                }
                assert_eq!(merged.texts(), whole.texts());
                assert!(!whole.texts().is_empty());
            }
        }
    }

    #[test]
    fn if_no_text_is_eligible_the_one_with_the_smallest_hash_is_held_out() {
        let texts: Vec<String> = (0..40).map(|n| format!("text {}", n % 20)).collect();
        let smallest = texts.iter().min_by_key(|text| hash(text.as_bytes())).unwrap();
        let held = HoldOut::new(u64::MAX, 1000);
        let mut counted = 0;
        for text in &texts {
            match held.offer(text, ONE) {
                Verdict::Count => counted += 1,
                Verdict::Held(evicted) => counted += evicted.iter().map(|(_, copies)| copies.at_start).sum::<u64>(),
            }
        }
        assert_eq!((held.texts(), counted), (vec![smallest.clone()], 38));
    }

    #[test]
    fn blank_and_large_documents_are_not_held_out() {
        let held = HoldOut::new(1, 80);
        assert_eq!(held.offer(" \u{a0}\n", ONE), Verdict::Count);
        assert_eq!(held.offer("eleven byte", ONE), Verdict::Count);
        assert_eq!(held.offer("ten bytes!", ONE), Verdict::Held(Vec::new()));
    }
}
