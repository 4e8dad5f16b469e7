//! Whether two tokens stay apart: whether they are the encoding of their joined text.
//!
//! Only the tokens at the boundary matter. While the left token is made, its last part grows: from a character to the
//! whole. So does the first part of the right token. Which of the two grows next is known from the ranks of their
//! merges. They stay apart if, at every step, a merge of the two parts at the boundary does not exist or comes later
//! than the merge that takes one of them away.

use super::encode::PretokenEncoder;
use super::packed::NO_RANK;
use super::sorted::place;

/// Says whether tokens stay apart, and remembers it. The tokens must be reachable.
pub(super) struct Neighbours<'e> {
    encoder: &'e PretokenEncoder<'e>,
    /// The last merge of each token, if it is known.
    origins: Vec<Option<Origin>>,
    /// Answers, one for each hash; the newest stays.
    cache: Vec<u64>,
    /// Buffers to reuse.
    ends: Vec<Part>,
    starts: Vec<Part>,
}

/// A part of a token, and the rank of the merge that takes it away; `NO_RANK` for the whole.
#[derive(Debug, Clone, Copy)]
struct Part {
    token: u32,
    until: u32,
}

/// How a token is made.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Of the last merge; `NO_RANK` for a starting symbol.
    rank: u32,
    left: u32,
    right: u32,
    /// Whether its merges are applied in the order of their ranks, so that ranks say what happens first.
    is_ordered: bool,
}

impl<'e> Neighbours<'e> {
    const BITS: u32 = 14;

    pub(super) fn new(encoder: &'e PretokenEncoder<'e>) -> Self {
        let (origins, cache) = (vec![None; encoder.bpe().len()], vec![u64::MAX; 1 << Self::BITS]);
        Self { encoder, origins, cache, ends: Vec::new(), starts: Vec::new() }
    }

    /// Whether two tokens are the encoding of their joined text.
    pub(super) fn hold(&mut self, left: u32, right: u32) -> bool {
        // Tokens are numbered below 2^31: more do not fit into memory.
        let key = u64::from(left) << 32 | u64::from(right) << 1;
        let at = place(key, Self::BITS);
        let known = self.cache[at];
        if known & !1 == key {
            return known & 1 == 1;
        }
        let hold = match self.origin(left).is_ordered && self.origin(right).is_ordered {
            true => self.hold_by_ranks(left, right),
            false => self.hold_by_encoding(left, right),
        };
        self.cache[at] = key | u64::from(hold);
        hold
    }

    /// By encoding the joined text.
    fn hold_by_encoding(&self, left: u32, right: u32) -> bool {
        let bpe = self.encoder.bpe();
        let mut symbols = Vec::new();
        let spelled = [left, right].into_iter().try_for_each(|token| bpe.symbols(bpe.string(token), &mut symbols));
        self.encoder.merge(&mut symbols, |_, _| ());
        spelled.is_ok() && symbols == [left, right]
    }

    /// By the ranks of the merges at the boundary.
    fn hold_by_ranks(&mut self, left: u32, right: u32) -> bool {
        let (mut ends, mut starts) = (std::mem::take(&mut self.ends), std::mem::take(&mut self.starts));
        self.parts(left, |origin| origin.right, &mut ends);
        self.parts(right, |origin| origin.left, &mut starts);
        let hold = self.no_merge_across(&ends, &starts);
        (self.ends, self.starts) = (ends, starts);
        hold
    }

    fn no_merge_across(&self, mut ends: &[Part], mut starts: &[Part]) -> bool {
        while let (Some((end, more_ends)), Some((start, more_starts))) = (ends.split_last(), starts.split_last()) {
            let across = self.encoder.rank(end.token, start.token);
            // Of equal ranks the leftmost merge is applied: that of the left token, then the one across.
            if across < end.until && across <= start.until && across != NO_RANK {
                return false;
            }
            match end.until <= start.until {
                _ if end.until == NO_RANK && start.until == NO_RANK => return true,
                true => ends = more_ends,
                false => starts = more_starts,
            }
        }
        true
    }

    /// A token, then the part of it on one side, the part of that part, and so on.
    fn parts(&mut self, token: u32, side: impl Fn(&Origin) -> u32, parts: &mut Vec<Part>) {
        parts.clear();
        let (mut token, mut until) = (token, NO_RANK);
        loop {
            parts.push(Part { token, until });
            let origin = self.origin(token);
            if origin.rank == NO_RANK {
                return;
            }
            (token, until) = (side(&origin), origin.rank);
        }
    }

    fn origin(&mut self, token: u32) -> Origin {
        if let Some(origin) = self.origins[token as usize] {
            return origin;
        }
        let mut origin = Origin { rank: NO_RANK, left: token, right: token, is_ordered: true };
        let (bpe, mut symbols) = (self.encoder.bpe(), Vec::new());
        let spelled = bpe.symbols(bpe.string(token), &mut symbols);
        self.encoder.merge(&mut symbols, |(left, right), merge| {
            let is_ordered = origin.is_ordered && (origin.rank == NO_RANK || origin.rank <= merge.rank);
            origin = Origin { rank: merge.rank, left, right, is_ordered };
        });
        origin.is_ordered &= spelled.is_ok() && symbols == [token];
        self.origins[token as usize] = Some(origin);
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Options, Random};

    #[test]
    fn ranks_say_the_same_as_encoding_the_joined_text() {
        let mut random = Random(2);
        let (mut by_ranks, mut apart) = (0, 0);
        for round in 0..300 {
            let bpe = random.byte_level(40, round % 3 > 0, &Options::default());
            let encoder = bpe.pretoken_encoder(false);
            let mut neighbours = Neighbours::new(&encoder);
            let is_reachable = |token: &u32| bpe.encode_by_merges(bpe.string(*token)) == Ok(vec![*token]);
            let reachable: Vec<u32> = (0..bpe.len() as u32).filter(is_reachable).collect();
            for &left in &reachable {
                for &right in &reachable {
                    let expected = neighbours.hold_by_encoding(left, right);
                    assert_eq!(neighbours.hold(left, right), expected, "{left} {right}");
                    assert_eq!(neighbours.hold(left, right), expected, "remembered");
                    by_ranks += usize::from(neighbours.origin(left).is_ordered && neighbours.origin(right).is_ordered);
                    apart += usize::from(expected);
                }
            }
        }
        assert!(by_ranks > 100_000 && apart > 50_000, "{by_ranks} {apart}");
    }
}
