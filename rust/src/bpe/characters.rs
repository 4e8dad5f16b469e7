//! Characters of several bytes that encoding can start from, instead of from their bytes. Byte-level vocabularies only.
//!
//! The bytes of a character may be replaced by its token before all merges if, beside the bytes before and after it,
//! 1. its bytes alone are merged to its token, by merges of rising rank;
//! 2. no merge joins a part of it with what is outside, at a rank at which that part is still there;
//! 3. every merge that uses the token has a higher rank than those that make it.
//!
//! Then the result is the same. By 2, all its own merges are applied, whatever its neighbours are. They only make the
//! token, and as long as one of them is left, it comes before every merge that uses the token, by 3. So the other merges
//! are the same, in the same order, with and without them.

use rustc_hash::FxHashMap;

use super::alphabet::byte_of;
use super::encode::PretokenEncoder;
use super::model::Bpe;

/// The tokens of characters, and beside which bytes they may be used.
#[derive(Default)]
pub(crate) struct WholeCharacters {
    /// By code point.
    characters: Vec<Character>,
    /// Bytes beside which a character must not be taken as a whole.
    sets: Vec<ByteSet>,
}

#[derive(Clone, Copy)]
struct Character {
    token: Option<u32>,
    /// The index of the bytes that must not come before it.
    not_after: u32,
    /// The index of the bytes that must not follow it.
    not_before: u32,
}

/// A set of bytes, one bit each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    #[inline]
    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

/// A character whose bytes are merged to one token.
struct Candidate {
    character: char,
    token: u32,
    /// The first parts of it, each with the rank of the merge that takes it away; and the last parts.
    starts: Vec<(u32, u32)>,
    ends: Vec<(u32, u32)>,
}

/// For each part of a character: the merges that join it with what is outside, as rank and the byte beside the part.
type Joins = FxHashMap<u32, Vec<(u32, u8)>>;

impl WholeCharacters {
    pub(super) fn new(encoder: &PretokenEncoder<'_>) -> Self {
        let bpe = encoder.bpe();
        let candidates: Vec<Candidate> =
            bpe.strings().zip(0u32..).filter_map(|(string, token)| candidate(encoder, string, token)).collect();
        let (mut before, mut after) = (Joins::default(), Joins::default());
        for candidate in &candidates {
            before.extend(candidate.starts.iter().map(|(part, _)| (*part, Vec::new())));
            after.extend(candidate.ends.iter().map(|(part, _)| (*part, Vec::new())));
        }
        let mut first_use = vec![u32::MAX; bpe.len()];
        for (&key, merge) in &bpe.merges {
            let (left, right) = ((key >> 32) as u32, key as u32);
            for token in [left, right] {
                first_use[token as usize] = first_use[token as usize].min(merge.rank);
            }
            if let Some(joins) = before.get_mut(&right) {
                joins.extend(edge_byte(bpe, left, false).map(|byte| (merge.rank, byte)));
            }
            if let Some(joins) = after.get_mut(&left) {
                joins.extend(edge_byte(bpe, right, true).map(|byte| (merge.rank, byte)));
            }
        }
        let mut whole = Self::default();
        for candidate in candidates.iter().filter(|candidate| candidate.is_used_late(&first_use)) {
            whole.insert(candidate, &before, &after);
        }
        whole
    }

    fn insert(&mut self, candidate: &Candidate, before: &Joins, after: &Joins) {
        let not_after = self.index(bytes_beside(&candidate.starts, before));
        let not_before = self.index(bytes_beside(&candidate.ends, after));
        let code = candidate.character as usize;
        if code >= self.characters.len() {
            self.characters.resize(code + 1, Character { token: None, not_after: 0, not_before: 0 });
        }
        self.characters[code] = Character { token: Some(candidate.token), not_after, not_before };
    }

    /// The index of a set: there are few different ones.
    fn index(&mut self, set: ByteSet) -> u32 {
        let known = self.sets.iter().position(|other| *other == set);
        known.unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        }) as u32
    }

    /// The token of a character, if it may be taken as a whole between these bytes.
    #[inline]
    pub(super) fn token(&self, character: char, before: Option<u8>, after: Option<u8>) -> Option<u32> {
        let known = self.characters.get(character as usize)?;
        let token = known.token?;
        let free = |set: u32, byte: Option<u8>| byte.is_none_or(|byte| !self.sets[set as usize].contains(byte));
        (free(known.not_after, before) && free(known.not_before, after)).then_some(token)
    }
}

impl Candidate {
    /// Whether no merge uses the token before the last merge that makes it.
    fn is_used_late(&self, first_use: &[u32]) -> bool {
        self.starts.first().is_some_and(|(_, last)| first_use[self.token as usize] > *last)
    }
}

/// A token that is a character of several bytes, if its bytes are merged to it by merges of rising rank.
fn candidate(encoder: &PretokenEncoder<'_>, string: &str, token: u32) -> Option<Candidate> {
    if string.len() > 8 || string.is_ascii() {
        return None; // four characters of the byte-level alphabet at most
    }
    let bytes: Vec<u8> = string.chars().map(byte_of).collect::<Option<_>>()?;
    let mut characters = std::str::from_utf8(&bytes).ok()?.chars();
    let character = characters.next().filter(|_| bytes.len() > 1 && characters.next().is_none())?;
    let mut symbols = Vec::new();
    encoder.bpe().symbols(string, &mut symbols).ok()?;
    let mut merges: Vec<(u32, u32, u32, u32)> = Vec::new();
    encoder.merge(&mut symbols, |(left, right), merge| merges.push((merge.rank, left, right, merge.product)));
    if symbols != [token] || !merges.is_sorted_by_key(|merge| merge.0) {
        return None;
    }
    let made = |part: u32| merges.iter().find(|merge| merge.3 == part);
    let parts = |side: fn(&(u32, u32, u32, u32)) -> u32| {
        let mut parts = Vec::new();
        let mut whole = token;
        while let Some(merge) = made(whole) {
            whole = side(merge);
            parts.push((whole, merge.0));
        }
        parts
    };
    Some(Candidate { character, token, starts: parts(|merge| merge.1), ends: parts(|merge| merge.2) })
}

/// The bytes outside that a merge joins with one of these parts while it is still there.
fn bytes_beside(parts: &[(u32, u32)], joins: &Joins) -> ByteSet {
    let mut set = ByteSet::default();
    for (part, until) in parts {
        let joins = joins.get(part).into_iter().flatten();
        joins.filter(|(rank, _)| rank <= until).for_each(|(_, byte)| set.insert(*byte));
    }
    set
}

/// The first or the last byte of a token.
fn edge_byte(bpe: &Bpe, token: u32, first: bool) -> Option<u8> {
    let mut characters = bpe.string(token).chars();
    if first { characters.next() } else { characters.next_back() }.and_then(byte_of)
}
