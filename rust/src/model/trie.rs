//! A trie of token strings: finds every token that a text begins with.

use crate::bpe::Tokens;

/// Not a token, and not a node.
const NONE: u32 = u32::MAX;
/// The node of the empty string.
pub(super) const ROOT: u32 = 0;
/// How many places are tried for the children of a node from the first free one on, and then before the end. Without the
/// second, the tries of real vocabularies had 80 slots for each node, and every step of a search missed the caches.
const TRIES: usize = 64;
const TAIL: usize = 256;

/// The tokens of a vocabulary by their bytes, as a double array: the child of a node for a byte is the slot at the base
/// of the node plus the byte, if the parent of that slot is the node.
#[derive(Debug, Clone)]
pub(super) struct Trie {
    slots: Vec<Slot>,
    /// No slot before this one is free.
    free: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    base: u32,
    /// [`NONE`] if the slot is free.
    parent: u32,
    /// The token that ends here, if one does.
    token: u32,
}

const FREE: Slot = Slot { base: 0, parent: NONE, token: NONE };

impl Trie {
    pub(super) fn new(tokens: &Tokens) -> Self {
        let mut trie = Self { slots: vec![Slot { parent: ROOT, ..FREE }], free: 1 };
        let mut sorted: Vec<(&[u8], u32)> = tokens.strings().map(str::as_bytes).zip(0..).collect();
        sorted.sort_unstable();
        // Nodes whose children are missing: with their depth, and the tokens below them.
        let mut waiting = vec![(ROOT, 0, &sorted[..])];
        while let Some((node, depth, below)) = waiting.pop() {
            let is_end = |(string, _): &&(&[u8], u32)| string.len() == depth;
            let ends = below.iter().take_while(is_end).last();
            if let Some((_, token)) = ends.filter(|_| node != ROOT) {
                trie.slots[node as usize].token = *token; // an empty token is in every text
            }
            let groups = || below.chunk_by(|one, other| one.0.get(depth) == other.0.get(depth));
            let groups = || groups().filter_map(|group| Some((*group[0].0.get(depth)?, group)));
            let bytes: Vec<u8> = groups().map(|(byte, _)| byte).collect();
            trie.slots[node as usize].base = trie.place_for(&bytes);
            for (byte, group) in groups() {
                waiting.push((trie.claim(node, byte), depth + 1, group));
            }
        }
        trie
    }

    pub(super) fn insert(&mut self, string: &str, token: u32) {
        let mut node = ROOT;
        for &byte in string.as_bytes() {
            node = match self.child(node, byte) {
                Some(child) => child,
                None => self.add_child(node, byte),
            };
        }
        self.slots[node as usize].token = token;
    }

    pub(super) fn remove(&mut self, string: &str) {
        if let Some(node) = self.node(string.as_bytes()) {
            self.slots[node as usize].token = NONE;
        }
    }

    /// The token of a string that is not empty.
    pub(super) fn find(&self, string: &str) -> Option<u32> {
        self.node(string.as_bytes()).map(|node| self.slots[node as usize].token).filter(|&token| token != NONE)
    }

    /// The node after some bytes, if a token begins with them.
    pub(super) fn node(&self, bytes: &[u8]) -> Option<u32> {
        bytes.iter().try_fold(ROOT, |node, &byte| self.child(node, byte))
    }

    /// The tokens after a node that bytes begin with, shortest first: each with its length after the node.
    #[inline]
    pub(super) fn prefixes<'t>(&'t self, start: u32, bytes: &'t [u8]) -> impl Iterator<Item = (usize, u32)> + 't {
        let nodes = bytes.iter().scan(start, |node, &byte| {
            *node = self.child(*node, byte)?;
            Some(*node)
        });
        (1..).zip(nodes.map(|node| self.slots[node as usize].token)).filter(|(_, token)| *token != NONE)
    }

    #[inline]
    fn child(&self, node: u32, byte: u8) -> Option<u32> {
        let at = self.slots[node as usize].base + u32::from(byte);
        // The root is a slot that is no child, and its own parent.
        (at != ROOT && self.slots.get(at as usize)?.parent == node).then_some(at)
    }

    /// Adds a child that is missing. The other children move if its slot is taken.
    fn add_child(&mut self, node: u32, byte: u8) -> u32 {
        let base = self.slots[node as usize].base;
        let mut bytes: Vec<u8> = (0..=255).filter(|&other| self.child(node, other).is_some()).collect();
        let is_free = |slot: Option<&Slot>| slot.is_none_or(|slot| slot.parent == NONE);
        if bytes.is_empty() || !is_free(self.slots.get(base as usize + usize::from(byte))) {
            let moved = std::mem::replace(&mut bytes, vec![byte]);
            bytes.extend(&moved);
            bytes.sort_unstable();
            let new_base = self.place_for(&bytes);
            self.slots[node as usize].base = new_base;
            for &other in &moved {
                let (from, to) = (base + u32::from(other), self.claim(node, other));
                let children: Vec<u8> = (0..=255).filter(|&byte| self.child(from, byte).is_some()).collect();
                let slot = std::mem::replace(&mut self.slots[from as usize], FREE);
                children.iter().for_each(|&byte| self.slots[slot.base as usize + usize::from(byte)].parent = to);
                self.slots[to as usize] = slot;
                self.free = self.free.min(from as usize);
            }
        }
        self.claim(node, byte)
    }

    /// A base at which the slots for some bytes, in order, are free.
    fn place_for(&mut self, bytes: &[u8]) -> u32 {
        let Some(&first) = bytes.first() else { return 0 };
        let is_free = |slots: &[Slot], at: usize| slots.get(at).is_none_or(|slot| slot.parent == NONE);
        while !is_free(&self.slots, self.free) {
            self.free += 1;
        }
        let fits = |base: &usize| bytes.iter().all(|&byte| is_free(&self.slots, base + usize::from(byte)));
        let (first, end) = (usize::from(first), self.slots.len());
        let places = (self.free..end).take(TRIES).chain(end.saturating_sub(TAIL)..end).chain([end.max(first)]);
        places.filter_map(|at| at.checked_sub(first)).find(fits).unwrap_or_default() as u32
    }

    /// Takes the slot of a child.
    fn claim(&mut self, node: u32, byte: u8) -> u32 {
        let at = self.slots[node as usize].base + u32::from(byte);
        if self.slots.len() <= at as usize {
            self.slots.resize(at as usize + 1, FREE);
        }
        self.slots[at as usize] = Slot { parent: node, ..FREE };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Random, TokenList};

    #[test]
    fn few_slots_are_free() {
        let mut random = Random(3);
        let (mut list, mut strings) = (TokenList::default(), std::collections::BTreeSet::new());
        for _ in 0..5_000 {
            strings
                .insert((0..1 + random.below(8)).map(|_| (b'a' + random.below(26) as u8) as char).collect::<String>());
        }
        strings.iter().zip(0..).for_each(|(string, id)| list.push(string, id));
        let trie = Trie::new(&list.tokens().unwrap());
        let taken = trie.slots.iter().filter(|slot| slot.parent != NONE).count();
        assert!(taken * 2 > trie.slots.len(), "{taken} of {}", trie.slots.len());
    }

    #[test]
    fn tokens_are_found_as_in_a_list_whatever_was_added_and_removed() {
        let mut random = Random(2);
        for _ in 0..100 {
            let letters = ["a", "b", "é", "è", "ж", "猫", "😀", "\u{0}"];
            let mut string = || -> String { (0..random.below(5)).map(|_| letters[random.below(8)]).collect() };
            let (mut listed, mut list) = (Vec::new(), TokenList::default());
            for _ in 0..40 {
                let string = string();
                if !listed.contains(&Some(string.clone())) {
                    list.push(&string, listed.len() as u32);
                    listed.push(Some(string));
                }
            }
            let mut trie = Trie::new(&list.tokens().unwrap());
            for _ in 0..200 {
                let new = string();
                if let Some(at) = listed.iter().position(|other| other.as_ref() == Some(&new)) {
                    if !new.is_empty() {
                        trie.remove(&new);
                        listed[at] = None;
                    }
                } else if !new.is_empty() {
                    trie.insert(&new, listed.len() as u32);
                    listed.push(Some(new));
                }
                let text = string() + &string();
                let mut expected: Vec<(usize, u32)> = (0..)
                    .zip(&listed)
                    .filter_map(|(token, string)| Some((token, string.as_ref()?)))
                    .filter(|(_, string)| !string.is_empty() && text.starts_with(string.as_str()))
                    .map(|(token, string)| (string.len(), token))
                    .collect();
                expected.sort_unstable();
                assert_eq!(trie.prefixes(ROOT, text.as_bytes()).collect::<Vec<_>>(), expected, "{text:?}");
            }
        }
    }
}
