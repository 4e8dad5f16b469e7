//! The words that training works on, as one array: every token with links to its neighbours. Does not count pairs.
//!
//! A token takes as many slots as the base had tokens for its text. The first slot has the token. If there are others,
//! the second and the last have the number of slots, so that both neighbours are found in one step, however long the
//! word is. A slot with `BOUNDARY` ends each word.

/// A slot with this number ends a word.
pub(super) const BOUNDARY: u32 = MOST;
/// Tokens are smaller. The bit above it marks slots that are not the first of their token.
pub(super) const MOST: u32 = INNER - 1;
const INNER: u32 = 1 << 31;
/// Counts from here on are looked up in a table.
const LARGE: u32 = 1 << 31;

/// A token or a link, and the count of the word it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    token: u32,
    count: u32,
}

/// All words, one after the other.
#[derive(Debug, Default)]
pub(super) struct Words {
    slots: Vec<Slot>,
    /// The counts that do not fit into a slot.
    large: Vec<u64>,
}

impl Words {
    /// Appends words: their tokens, each word ending with `BOUNDARY`, and the counts of the words.
    pub(super) fn append(&mut self, tokens: &[u32], counts: impl Iterator<Item = u64>) {
        let mut counts = counts;
        self.slots.reserve(tokens.len());
        for word in tokens.split_inclusive(|&token| token == BOUNDARY) {
            let count = counts.next().map_or(0, |count| self.narrow(count));
            self.slots.extend(word.iter().map(|&token| Slot { token, count }));
        }
    }

    fn narrow(&mut self, count: u64) -> u32 {
        match u32::try_from(count) {
            Ok(count) if count < LARGE => count,
            _ => {
                self.large.push(count);
                LARGE | (self.large.len() - 1) as u32
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// All words as one part.
    pub(super) fn whole(&mut self) -> Part<'_> {
        Part { slots: &mut self.slots, start: 0, large: &self.large }
    }

    pub(super) fn shared(&self) -> View<'_> {
        View { slots: &self.slots, large: &self.large }
    }
}
