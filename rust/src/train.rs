//! Continued BPE training: go on learning merges where a tokenizer stopped.
//!
//! Every distinct pretoken is split by the base model as it works in practice. Then, again and again, the most frequent
//! pair of neighbours becomes a merge; of equally frequent ones the smaller pair of token strings, in code-point order,
//! so that nothing depends on threads, hashing or the order of words. What a merge touches is updated, nothing else.
//!
//! When the product of a pair is a token already, one that the base could not reach, the merge is kept and no token is
//! counted; merges listed for that token may now apply, and do at once, as they will in the encoder.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::alphabet::Alphabet;
use crate::bpe::Bpe;
use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::merges::{pair_key, Merge, Merges};
use crate::pieces::PieceRules;

/// What continued training is asked for.
#[derive(Debug)]
pub struct Task {
    /// How many new tokens.
    pub tokens: usize,
    /// Pairs that occur less often are not merged.
    pub min_count: u64,
    /// The longest token that may be made, in bytes.
    pub max_token_bytes: usize,
    /// Strings that must become neither tokens nor parts of tokens: the added tokens.
    pub forbidden: FxHashSet<String>,
    /// SentencePiece: which pieces may be made.
    pub rules: Option<PieceRules>,
    /// Where any pair that makes a token is a merge, listed or not, as SentencePiece has it: the tokens that the base
    /// cannot reach, with the rank of the first merge that would come after theirs, and the order among those of one
    /// rank. A new token may wake one.
    pub unreachable_ranks: Vec<(String, u32, u32)>,
    /// How many of the most frequent pairs to keep at hand; fewer are quicker to search and sooner used up. The result
    /// does not depend on it.
    pub max_candidates: usize,
}

/// A merge that was learned; tokens by their place: base tokens by ascending id, then the new ones in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedMerge {
    /// Left token.
    pub left: u32,
    /// Right token.
    pub right: u32,
    /// What they make.
    pub product: u32,
    /// How often the pair occurred when it was learned.
    pub count: u64,
}

/// What continued training came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// The new tokens, in the order they were learned.
    pub tokens: Vec<String>,
    /// The merges, in order. Those whose product existed make no new token.
    pub merges: Vec<LearnedMerge>,
}

/// Decides about tokens, and whether to go on.
pub trait Judge {
    /// Whether a string may become a token; a pair that is refused is passed over for good.
    fn allow(&mut self, token: &str) -> bool;

    /// Asked several times a second, in every phase of training.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] ends the training.
    fn go_on(&mut self) -> Result<()>;
}

/// Asks a judge whether to go on, once for so many symbols.
struct Pace<'j> {
    judge: &'j mut dyn Judge,
    symbols: usize,
}

impl<'j> Pace<'j> {
    /// About as many as are handled in a tenth of a second.
    const SYMBOLS: usize = 1 << 20;
    /// Finding a pair that is merged or refused counts as much.
    const STEP: usize = Self::SYMBOLS / 256;

    fn new(judge: &'j mut dyn Judge) -> Self {
        Self { judge, symbols: 0 }
    }

    fn step(&mut self, symbols: usize) -> Result<()> {
        self.symbols += symbols;
        if self.symbols < Self::SYMBOLS {
            return Ok(());
        }
        self.symbols = 0;
        self.judge.go_on()
    }
}

impl Learned {
    /// Learns merges until there are `task.tokens` new tokens, or no pair is frequent enough. `judge` has the last word
    /// on every new token.
    ///
    /// # Errors
    ///
    /// When a pretoken cannot be encoded, there are too many, or the judge stops the training.
    pub fn new(bpe: &Bpe, counts: &Counts, alphabet: Alphabet, task: &Task, judge: &mut dyn Judge) -> Result<Self> {
        let mut pace = Pace::new(judge);
        let words = Words::new(bpe, counts, alphabet, &mut pace)?;
        let mut trainer = Trainer::new(bpe, words, alphabet, task, &mut pace)?;
        trainer.learn(task, &mut pace)?;
        Ok(Self { tokens: trainer.learned_strings(), merges: trainer.learned })
    }
}

/// Distinct pretokens as tokens, with their counts. Those of one token have no pair and are left out.
struct Words {
    /// The tokens of all words; a word that has shrunk leaves its tail unused.
    symbols: Vec<u32>,
    /// Where each word begins. In 64 bits, for a large corpus has more than 2^32 symbols.
    starts: Vec<u64>,
    lengths: Vec<u32>,
    counts: Vec<u64>,
}

impl Words {
    fn new(bpe: &Bpe, counts: &Counts, alphabet: Alphabet, pace: &mut Pace<'_>) -> Result<Self> {
        const PRETOKENS: usize = 1 << 14;
        const BYTES: u64 = 1 << 20;
        const CHUNKS: usize = 32;
        let spelled = bpe.spelled(alphabet, bpe.ignores_merges());
        let encode = |places: &Range<usize>| {
            let (mut symbols, mut lengths) = (Vec::new(), Vec::new());
            let (mut string, mut word) = (String::new(), Vec::new());
            for place in places.clone() {
                spelled.encode(counts.pretoken(place), &mut string, &mut word)?;
                if word.len() > 1 {
                    symbols.extend_from_slice(&word);
                    lengths.push((place, narrow(word.len(), "tokens in a pretoken")?));
                }
            }
            Ok::<_, Error>((symbols, lengths))
        };
        let mut words = Self { symbols: Vec::new(), starts: Vec::new(), lengths: Vec::new(), counts: Vec::new() };
        // On all cores, but not all at once: between two groups, whoever waits may change their mind.
        for group in counts.chunks(PRETOKENS, BYTES).chunks(CHUNKS) {
            for (symbols, lengths) in group.par_iter().map(encode).collect::<Result<Vec<_>>>()? {
                words.append(&symbols, &lengths, counts);
            }
            pace.step(Pace::SYMBOLS)?;
        }
        narrow(words.starts.len(), "distinct pretokens")?;
        Ok(words)
    }

    fn append(&mut self, symbols: &[u32], lengths: &[(usize, u32)], counts: &Counts) {
        let mut start = self.symbols.len() as u64;
        self.symbols.extend_from_slice(symbols);
        for &(place, length) in lengths {
            self.starts.push(start);
            self.lengths.push(length);
            self.counts.push(counts.counts()[place]);
            start += u64::from(length);
        }
    }

    fn span(&self, number: u32) -> Range<usize> {
        let start = self.starts[number as usize] as usize;
        start..start + self.lengths[number as usize] as usize
    }

    fn word(&self, number: u32) -> &[u32] {
        &self.symbols[self.span(number)]
    }
}

/// A number that must fit into 32 bits.
fn narrow(number: usize, what: &'static str) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::TooMany { number: number as u64, what })
}

/// How often a pair occurs, and in which words it was ever seen; some of those may have lost it since.
#[derive(Default)]
struct Pair {
    count: u64,
    words: Vec<u32>,
    /// It must not be merged: nothing is kept of it any more.
    refused: bool,
}

/// A pair that was this frequent when it was put on the heap.
struct Candidate {
    count: u64,
    left: Rc<str>,
    right: Rc<str>,
    pair: (u32, u32),
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_strings = || (&other.left, &other.right).cmp(&(&self.left, &self.right));
        self.count.cmp(&other.count).then_with(by_strings)
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

struct Trainer<'b> {
    bpe: &'b Bpe,
    words: Words,
    alphabet: Alphabet,
    pairs: FxHashMap<u64, Pair>,
    heap: BinaryHeap<Candidate>,
    strings: Vec<Rc<str>>,
    /// New tokens by their string.
    new: FxHashMap<Rc<str>, u32>,
    /// Learned merges, beside those of the base.
    merges: FxHashMap<(u32, u32), Merge>,
    learned: Vec<LearnedMerge>,
    /// Pairs that grew in the current step.
    grown: Vec<(u32, u32)>,
    /// Rarer pairs are not on the heap: most are never wanted, and a small heap stays in the cache.
    floor: u64,
    rank_space: RankSpace,
}

impl<'b> Trainer<'b> {
    fn new(bpe: &'b Bpe, words: Words, alphabet: Alphabet, task: &Task, pace: &mut Pace<'_>) -> Result<Self> {
        let mut pairs: FxHashMap<u64, Pair> = FxHashMap::default();
        for number in 0..words.starts.len() as u32 {
            pace.step(words.lengths[number as usize] as usize)?;
            let count = words.counts[number as usize];
            for pair in words.word(number).windows(2) {
                let pair = pairs.entry(pair_key(pair[0], pair[1])).or_default();
                pair.count = pair.count.saturating_add(count);
                if pair.words.last() != Some(&number) {
                    pair.words.push(number);
                }
            }
        }
        let strings: Vec<Rc<str>> = (0..bpe.len() as u32).map(|index| Rc::from(bpe.string(index))).collect();
        let mut trainer = Self {
            bpe,
            words,
            alphabet,
            pairs,
            heap: BinaryHeap::new(),
            strings,
            new: FxHashMap::default(),
            merges: FxHashMap::default(),
            learned: Vec::new(),
            grown: Vec::new(),
            floor: u64::MAX,
            rank_space: RankSpace(task.unreachable_ranks.iter().map(|(_, _, order)| order + 2).max().unwrap_or(1)),
        };
        trainer.lower_floor(task);
        Ok(trainer)
    }

    /// Puts the most frequent of the pairs below the floor on the heap, which must have none above it left.
    fn lower_floor(&mut self, task: &Task) {
        let wanted = task.max_candidates.max(1);
        let below = |pair: &Pair| !pair.refused && pair.count >= task.min_count && pair.count < self.floor;
        let mut counts: Vec<u64> = self.pairs.values().filter(|pair| below(pair)).map(|pair| pair.count).collect();
        let floor = if counts.len() > wanted {
            *counts.select_nth_unstable_by(wanted, |a, b| b.cmp(a)).1
        } else {
            task.min_count
        };
        let chosen = self.pairs.iter().filter(|(_, pair)| below(pair) && pair.count >= floor);
        let tokens = |key: u64| ((key >> 32) as u32, key as u32);
        let candidates: Vec<Candidate> = chosen.map(|(&key, pair)| self.candidate(tokens(key), pair.count)).collect();
        self.heap = BinaryHeap::from(candidates);
        self.floor = floor;
    }

    fn learned_strings(&self) -> Vec<String> {
        self.strings[self.bpe.len()..].iter().map(|string| string.to_string()).collect()
    }

    fn candidate(&self, pair: (u32, u32), count: u64) -> Candidate {
        let string = |token: u32| Rc::clone(&self.strings[token as usize]);
        Candidate { count, left: string(pair.0), right: string(pair.1), pair }
    }

    fn learn(&mut self, task: &Task, pace: &mut Pace<'_>) -> Result<()> {
        while self.new.len() < task.tokens {
            pace.step(Pace::STEP)?;
            let Some(best) = self.heap.pop() else {
                if self.floor <= task.min_count {
                    break;
                }
                self.lower_floor(task);
                continue;
            };
            let Some(pair) = self.pairs.get(&pair_key(best.pair.0, best.pair.1)) else { continue };
            if pair.count != best.count {
                // It has changed since; where it grew, a newer candidate is on the heap too, and this one is dropped
                // like it when its turn comes.
                if pair.count >= self.floor && pair.count < best.count {
                    let candidate = self.candidate(best.pair, pair.count);
                    self.heap.push(candidate);
                }
                continue;
            }
            let string: String = [&*best.left, &*best.right].concat();
            let too_long = self.alphabet.byte_length(&string) > task.max_token_bytes;
            let against_rules = task.rules.is_some_and(|rules| !rules.allow(&string));
            let has_barred_part = self.may_not_be_part(best.pair.0, task) || self.may_not_be_part(best.pair.1, task);
            let unwanted = too_long || against_rules || has_barred_part || task.forbidden.contains(&string);
            if unwanted || !pace.judge.allow(&string) {
                let refused = Pair { refused: true, ..Pair::default() };
                self.pairs.insert(pair_key(best.pair.0, best.pair.1), refused);
                continue;
            }
            self.append(best, string, task, pace)?;
        }
        // What the judge last decided may have been that it is enough.
        pace.judge.go_on()
    }

    /// Whether a token may not be part of another.
    fn may_not_be_part(&self, token: u32, task: &Task) -> bool {
        let is_base = (token as usize) < self.bpe.len();
        task.forbidden.contains(&*self.strings[token as usize]) || is_base && self.bpe.is_placeholder(token)
    }

    /// Appends a merge and applies it wherever its pair stands.
    fn append(&mut self, best: Candidate, string: String, task: &Task, pace: &mut Pace<'_>) -> Result<()> {
        let existing = self.bpe.index(&string).or_else(|| self.new.get(string.as_str()).copied());
        let product = existing.unwrap_or_else(|| {
            let token = self.strings.len() as u32;
            let string: Rc<str> = Rc::from(string);
            self.strings.push(Rc::clone(&string));
            self.new.insert(string, token);
            token
        });
        let became_reachable = existing.is_some() || self.makes_reachable(product, task);
        let rank = self.rank_space.rank((self.bpe.merge_count() + self.learned.len()) as u32);
        self.merges.insert(best.pair, Merge { rank, product });
        let (left, right) = best.pair;
        self.learned.push(LearnedMerge { left, right, product, count: best.count });
        let words = self.pairs.remove(&pair_key(best.pair.0, best.pair.1)).map(|pair| pair.words).unwrap_or_default();
        for number in words {
            pace.step(self.words.lengths[number as usize] as usize)?;
            if became_reachable {
                self.encode_again(number);
            } else {
                self.replace(number, best.pair, product);
            }
        }
        self.pairs.remove(&pair_key(best.pair.0, best.pair.1));
        for pair in std::mem::take(&mut self.grown) {
            let count = self.pairs.get(&pair_key(pair.0, pair.1)).map_or(0, |pair| pair.count);
            if count >= self.floor {
                let candidate = self.candidate(pair, count);
                self.heap.push(candidate);
            }
        }
        Ok(())
    }

    /// Lists the merges by which a new token makes tokens that could not be reached; whether there are any.
    ///
    /// They stand before the merge of the new token among the learned ones, so that what is cut at a token has all of
    /// the merges that the token brought.
    fn makes_reachable(&mut self, token: u32, task: &Task) -> bool {
        let string = Rc::clone(&self.strings[token as usize]);
        let known = |rest: &str| self.bpe.index(rest).or_else(|| self.new.get(rest).copied());
        let mut found = Vec::new();
        for (unreachable_ranks, place, order) in &task.unreachable_ranks {
            let Some(product) = self.bpe.index(unreachable_ranks) else { continue };
            let after = unreachable_ranks.strip_prefix(&*string).and_then(known).map(|rest| (token, rest));
            let before = unreachable_ranks.strip_suffix(&*string).and_then(known).map(|rest| (rest, token));
            let merge = Merge { rank: self.rank_space.rank_before(*place, *order), product };
            found.extend(after.into_iter().chain(before).map(|pair| (pair, merge)));
        }
        found.retain(|((left, right), _)| !self.may_not_be_part(*left, task) && !self.may_not_be_part(*right, task));
        found.dedup();
        for &((left, right), merge) in &found {
            self.merges.insert((left, right), merge);
            self.learned.push(LearnedMerge { left, right, product: merge.product, count: 0 });
        }
        !found.is_empty()
    }

    /// Replaces a pair by a token that is in no merge yet.
    fn replace(&mut self, number: u32, (left, right): (u32, u32), product: u32) {
        let Range { start, end } = self.words.span(number);
        let (mut read, mut write) = (start, start);
        while read < end {
            let symbol = self.words.symbols[read];
            if symbol != left || read + 1 >= end || self.words.symbols[read + 1] != right {
                self.words.symbols[write] = symbol;
                (read, write) = (read + 1, write + 1);
                continue;
            }
            if write > start {
                let before = self.words.symbols[write - 1];
                self.lose((before, left), number);
                self.gain((before, product), number);
            }
            if read + 2 < end {
                let after = self.words.symbols[read + 2];
                self.lose((right, after), number);
                self.gain((product, after), number);
            }
            self.words.symbols[write] = product;
            (read, write) = (read + 2, write + 1);
        }
        self.words.lengths[number as usize] = (write - start) as u32;
    }

    /// Lets the encoder go on with a word: listed merges may apply to a token that has come alive.
    fn encode_again(&mut self, number: u32) {
        let Range { start, end } = self.words.span(number);
        let before = self.words.symbols[start..end].to_vec();
        let mut after = before.clone();
        Both(self.bpe, &self.merges, self.rank_space).merge(&mut after, |_, _| ());
        if after == before {
            return;
        }
        before.windows(2).for_each(|pair| self.lose((pair[0], pair[1]), number));
        after.windows(2).for_each(|pair| self.gain((pair[0], pair[1]), number));
        self.words.symbols[start..start + after.len()].copy_from_slice(&after);
        self.words.lengths[number as usize] = after.len() as u32;
    }

    fn lose(&mut self, pair: (u32, u32), number: u32) {
        if let Some(pair) = self.pairs.get_mut(&pair_key(pair.0, pair.1)) {
            pair.count = pair.count.saturating_sub(self.words.counts[number as usize]);
        }
    }

    fn gain(&mut self, pair: (u32, u32), number: u32) {
        let found = self.pairs.entry(pair_key(pair.0, pair.1)).or_default();
        if found.refused {
            return;
        }
        found.count = found.count.saturating_add(self.words.counts[number as usize]);
        if found.words.last() != Some(&number) {
            found.words.push(number);
        }
        if self.grown.last() != Some(&pair) {
            self.grown.push(pair);
        }
    }
}

/// How far ranks stand apart, so that woken merges find rank_space before those of the base.
#[derive(Clone, Copy)]
struct RankSpace(u32);

impl RankSpace {
    /// The rank of a merge by its place in the list. Beyond what 32 bits hold all are last.
    fn rank(self, place: u32) -> u32 {
        place.saturating_mul(self.0).saturating_add(self.0 - 1)
    }

    /// The rank of a merge that comes just before a place.
    fn rank_before(self, place: u32, order: u32) -> u32 {
        place.saturating_mul(self.0).saturating_add(order)
    }
}

/// The merges of the base and those learned since.
struct Both<'m>(&'m Bpe, &'m FxHashMap<(u32, u32), Merge>, RankSpace);

impl Merges for Both<'_> {
    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        let listed = self.0.merge_of(left, right).map(|merge| Merge { rank: self.2.rank(merge.rank), ..merge });
        listed.or_else(|| self.1.get(&(left, right)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::Options;

    /// Allows everything, and stops the training when asked for the last time it was told to answer.
    struct Patient {
        answers: usize,
        asked: usize,
    }

    impl Judge for Patient {
        fn allow(&mut self, _: &str) -> bool {
            true
        }

        fn go_on(&mut self) -> Result<()> {
            self.asked += 1;
            if self.asked > self.answers {
                return Err(Error::Stopped);
            }
            Ok(())
        }
    }

    /// The result of training on many words, and how often the judge was asked.
    fn trained(answers: usize) -> (Result<Learned>, usize) {
        let letters: Vec<(u32, String)> = ('a'..='z').zip(0..).map(|(letter, id)| (id, letter.to_string())).collect();
        let bpe = Bpe::new(letters, &[], &Options::default()).unwrap();
        let word = |number: u32| (0..64).map(move |at| b'a' + (number >> (at % 16)) as u8 % 4);
        let bytes: Vec<u8> = (0..40_000).flat_map(word).collect();
        let offsets: Vec<u64> = (0..=40_000).map(|at| 64 * at).collect();
        let counts = Counts::from_columns(bytes, &offsets, vec![2; 40_000]);
        let task = Task {
            tokens: 2,
            min_count: 1,
            max_token_bytes: 99,
            forbidden: FxHashSet::default(),
            rules: None,
            unreachable_ranks: Vec::new(),
            max_candidates: 99,
        };
        let mut judge = Patient { answers, asked: 0 };
        let learned = Learned::new(&bpe, &counts.unwrap(), Alphabet::ByteLevel, &task, &mut judge);
        (learned, judge.asked)
    }

    #[test]
    fn training_stops_at_once_when_told_to_in_any_phase() {
        let (whole, asked) = trained(usize::MAX);
        assert_eq!(whole.unwrap().tokens.len(), 2);
        // After each group of words, in the table of pairs, in merges that touch many words, and at the end.
        assert!(asked > 5, "asked {asked} times");
        for answers in [0, 1, 2, 3, asked / 2, asked - 1] {
            assert_eq!(trained(answers), (Err(Error::Stopped), answers + 1));
        }
    }

    #[test]
    fn what_does_not_fit_into_32_bits_is_an_error() {
        assert_eq!(narrow(u32::MAX as usize, "words"), Ok(u32::MAX));
        let many = Error::TooMany { number: 1 << 32, what: "words" };
        assert_eq!(narrow(1 << 32, "words"), Err(many));
    }

    #[test]
    fn words_may_begin_beyond_32_bits() {
        let mut words = Words { symbols: Vec::new(), starts: vec![5 << 32], lengths: vec![7], counts: vec![1] };
        assert_eq!(words.span(0), (5usize << 32)..(5usize << 32) + 7);
        let mut counts = Counts::default();
        counts.push(b"ab", 3).unwrap();
        words.append(&[1, 2], &[(0, 2)], &counts);
        assert_eq!((words.span(1), words.word(1)), (0..2, &[1, 2][..]));
    }
}
