//! The pattern of Mistral-Nemo, which splits words where lower case is followed by upper case.

use std::ops::Range;

use super::letters::Letters;
use super::scanner::{is_letter, Scanner};
use crate::pretokenize::unicode::{CASELESS, LOWER, MARK, NUMBER, UPPER};

impl<L: Letters> Scanner<'_, L> {
    #[inline(always)]
    pub(super) fn nemo(&self, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut start = 0;
        while start < self.bytes.len() {
            let (class, width) = self.class(start);
            let next = start + width;
            let end = if class == NUMBER {
                next
            } else if let Some(end) = self.cased_word(start, class, next) {
                end
            } else {
                let (following, _) = self.class(next);
                self.other_or_white_space(start, class, next, following, b"\r\n/")
            };
            emit(self.bytes, start..end);
            start = end;
        }
    }

    /// The end of `P?U*L+|P?U+L*` where `P` is `[^\r\n\p{L}\p{N}]`, `U` may start a word and `L` may continue it.
    #[inline(always)]
    fn cased_word(&self, start: usize, class: u8, next: usize) -> Option<usize> {
        if is_letter(class) {
            let (Ok(end) | Err(end)) = self.capitals_then_lower(start);
            return Some(end);
        }
        if matches!(self.bytes[start], b'\r' | b'\n') {
            return None;
        }
        match self.capitals_then_lower(next) {
            Ok(end) => Some(end),
            // A mark may also be the first character of the word itself; then it is an `L` and matches at once.
            Err(_) if class == MARK => self.capitals_then_lower(start).ok(),
            Err(capitals) => (capitals > next).then_some(capitals),
        }
    }

    /// The end of `U*L+` from `start` on, or else that of `U*`.
    #[inline(always)]
    fn capitals_then_lower(&self, start: usize) -> Result<usize, usize> {
        // subtle: caseless letters and marks are both `U` and `L`. `U*` takes all it can; where no `L` follows, it
        // backtracks until `L+` matches a character: the match ends after the last one that is both.
        let (mut at, mut after_both) = (start, 0);
        loop {
            match self.class(at) {
                (UPPER, width) => at += width,
                (CASELESS | MARK, width) => {
                    at += width;
                    after_both = at;
                }
                (LOWER, _) => return Ok(self.run(at, |class| matches!(class, LOWER | CASELESS | MARK))),
                _ if after_both > 0 => return Ok(after_both),
                _ => return Err(at),
            }
        }
    }
}
