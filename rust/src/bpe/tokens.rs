//! The tokens of a vocabulary: their strings in one buffer, their ids, and a hash table that finds a string.
//!
//! Does not know merges. A token is an *index* here: its place in the order of ids.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use crate::error::{Error, Result};

/// Tokens by ascending id, with the order in which the file lists them.
#[derive(Debug, Default)]
pub struct Tokens {
    /// All strings, one after the other, in the order of the file.
    text: String,
    /// Where the string of each token begins and ends in the text.
    spans: Vec<(usize, usize)>,
    ids: Vec<u32>,
    /// The tokens in the order of the file; None where that is the order of their ids.
    listed: Option<Vec<u32>>,
    table: Vec<Slot>,
}

/// Half of the hash of a string, and the token. Linear probing; at most half of the slots are in use.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    token: u32,
}

const FREE: Slot = Slot { hash: 0, token: u32::MAX };

impl Tokens {
    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The ids of all tokens, ascending.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn string(&self, token: u32) -> &str {
        let (start, end) = self.spans[token as usize];
        &self.text[start..end]
    }

    /// The strings of all tokens, by ascending id.
    pub(crate) fn strings(&self) -> impl ExactSizeIterator<Item = &str> {
        self.spans.iter().map(|&(start, end)| &self.text[start..end])
    }

    /// The tokens in the order of the file.
    pub(crate) fn listed(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).map(|place| self.listed.as_ref().map_or(place as u32, |listed| listed[place]))
    }

    pub(crate) fn index(&self, string: &str) -> Option<u32> {
        self.find(hash(string), string).ok()
    }

    /// The token with an id.
    pub(crate) fn index_of_id(&self, id: u32) -> Option<u32> {
        let is_same = self.ids.get(id as usize) == Some(&id); // most vocabularies have no holes
        if is_same {
            Some(id)
        } else {
            self.ids.binary_search(&id).ok().map(|index| index as u32)
        }
    }

    /// The token with a string, or the free slot where it would be.
    fn find(&self, hash: u64, string: &str) -> std::result::Result<u32, usize> {
        let mask = self.table.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(slot) = self.table.get(at).filter(|slot| slot.token != FREE.token) {
            if slot.hash == (hash >> 32) as u32 && self.string(slot.token) == string {
                return Ok(slot.token);
            }
            at = (at + 1) & mask;
        }
        Err(at)
    }
}

fn hash(string: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(string.as_bytes());
    hasher.finish()
}

/// A vocabulary, and the tokens with their ids that it lacks.
type WithMore<'t> = (&'t Tokens, &'t [(u32, String)]);

/// The id and a number of every token of two vocabularies, by ascending id: the same number for the same string.
///
/// The numbers of the second one are its places; those of the tokens that it lacks follow.
pub(crate) fn numbered(one: WithMore<'_>, other: WithMore<'_>) -> [Vec<(u32, u32)>; 2] {
    let by_id = |(tokens, more): WithMore<'_>, number: &dyn Fn(&str, u32) -> u32| {
        let listed = tokens.ids.iter().copied().zip(tokens.strings());
        let all = more.iter().map(|(id, string)| (*id, string.as_str())).chain(listed);
        let mut numbers: Vec<(u32, u32)> = all.zip(0..).map(|((id, string), at)| (id, number(string, at))).collect();
        numbers.sort_by_key(|&(id, _)| id);
        numbers.dedup_by_key(|&mut (id, _)| id); // of two tokens with one id, the one that the vocabulary lacks
        numbers
    };
    let (tokens, more) = other;
    let (n_more, first_new) = (more.len() as u32, (more.len() + tokens.len()) as u32);
    let known: FxHashMap<&str, u32> = more.iter().map(|(_, string)| string.as_str()).zip(0..).collect();
    let same = |string: &str| known.get(string).copied().or_else(|| tokens.index(string).map(|token| n_more + token));
    [by_id(one, &|string, at| same(string).unwrap_or(first_new + at)), by_id(other, &|_, at| at)]
}

/// Collects tokens in the order of a file.
#[derive(Debug, Default)]
pub(crate) struct TokenList {
    text: String,
    spans: Vec<(usize, usize)>,
    ids: Vec<u32>,
}

impl TokenList {
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self { text: String::new(), spans: Vec::with_capacity(tokens), ids: Vec::with_capacity(tokens) }
    }

    pub(crate) fn push(&mut self, string: &str, id: u32) {
        self.spans.push((self.text.len(), self.text.len() + string.len()));
        self.text.push_str(string);
        self.ids.push(id);
    }

    /// The tokens, if every string and every id is listed once.
    pub(crate) fn tokens(self) -> Result<Tokens> {
        let mut tokens = Tokens { text: self.text, spans: self.spans, ids: self.ids, listed: None, table: Vec::new() };
        if !tokens.ids.is_sorted_by(|one, next| one < next) {
            sort(&mut tokens)?;
        }
        tokens.table = vec![FREE; (2 * tokens.len()).next_power_of_two()];
        for token in 0..tokens.len() as u32 {
            let string = tokens.string(token);
            let hash = hash(string);
            match tokens.find(hash, string) {
                Ok(_) => return Err(Error::DuplicateToken { token: string.to_string() }),
                Err(at) => tokens.table[at] = Slot { hash: (hash >> 32) as u32, token },
            }
        }
        Ok(tokens)
    }
}

/// Orders tokens by id, and keeps the order of the file beside it.
fn sort(tokens: &mut Tokens) -> Result<()> {
    let mut places: Vec<u32> = (0..tokens.len() as u32).collect();
    places.sort_unstable_by_key(|&place| (tokens.ids[place as usize], tokens.string(place)));
    for pair in places.windows(2) {
        let id = tokens.ids[pair[0] as usize];
        if id == tokens.ids[pair[1] as usize] {
            let (first, second) = (tokens.string(pair[0]).into(), tokens.string(pair[1]).into());
            return Err(Error::DuplicateId { id, first, second });
        }
    }
    let mut listed = vec![0; places.len()];
    for (index, &place) in (0..).zip(&places) {
        listed[place as usize] = index;
    }
    tokens.spans = places.iter().map(|&place| tokens.spans[place as usize]).collect();
    tokens.ids = places.iter().map(|&place| tokens.ids[place as usize]).collect();
    tokens.listed = Some(listed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(listed: &[(&str, u32)]) -> Result<Tokens> {
        let mut list = TokenList::default();
        listed.iter().for_each(|(string, id)| list.push(string, *id));
        list.tokens()
    }

    #[test]
    fn every_string_is_found_and_no_other() {
        let strings: Vec<String> = (0..5000).map(|n| format!("{n:b}")).collect();
        let listed: Vec<(&str, u32)> =
            strings.iter().zip(0..).map(|(string, n)| (string.as_str(), n * 3 + 1)).collect();
        let tokens = tokens(&listed).unwrap();
        for (index, (string, id)) in (0..).zip(listed) {
            assert_eq!(tokens.index(string), Some(index));
            assert_eq!((tokens.index_of_id(id), tokens.index_of_id(id + 1)), (Some(index), None));
            assert_eq!(tokens.index(&format!("{string}2")), None);
        }
    }

    #[test]
    fn the_order_of_the_file_is_kept_beside_the_order_of_ids() {
        let tokens = tokens(&[("b", 7), ("", 9), ("a", 2)]).unwrap();
        assert_eq!(tokens.strings().collect::<Vec<_>>(), ["a", "b", ""]);
        assert_eq!(tokens.listed().map(|token| tokens.string(token)).collect::<Vec<_>>(), ["b", "", "a"]);
        assert_eq!(tokens.index(""), Some(2));
    }

    #[test]
    fn nothing_is_found_among_no_tokens() {
        assert_eq!(tokens(&[]).unwrap().index("a"), None);
        assert_eq!(Tokens::default().index("a"), None);
    }

    #[test]
    fn a_string_or_an_id_that_is_listed_twice_is_refused() {
        assert!(matches!(tokens(&[("a", 1), ("a", 2)]), Err(Error::DuplicateToken { .. })));
        let twice = Error::DuplicateId { id: 1, first: "a".into(), second: "b".into() };
        assert_eq!(tokens(&[("b", 1), ("c", 0), ("a", 1)]).unwrap_err(), twice);
    }
}
