//! The pattern of Llama-3 and Qwen-2, after OpenAI's `cl100k_base`.

use std::ops::Range;

use super::letters::Letters;
use super::scanner::{is_letter, Scanner};
use crate::pretokenize::unicode::NUMBER;

impl<L: Letters> Scanner<'_, L> {
    #[inline(always)]
    pub(super) fn cl100k(&self, digits: u8, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut start = 0;
        while start < self.bytes.len() {
            let end = self.cl100k_end(start, digits);
            emit(self.bytes, start..end);
            start = end;
        }
    }

    /// The end of the pretoken at `start`.
    #[inline(always)]
    fn cl100k_end(&self, start: usize, digits: u8) -> usize {
        if self.bytes[start] == b' ' {
            let end = self.letters(start + 1);
            if end > start + 1 {
                return end; // most pretokens are of this form
            }
        }
        let (class, width) = self.class(start);
        let next = start + width;
        if is_letter(class) {
            self.letters(next)
        } else if class == NUMBER {
            self.numbers(next, digits - 1)
        } else {
            self.cl100k_other(start, class, next)
        }
    }

    #[inline(always)]
    fn cl100k_other(&self, start: usize, class: u8, next: usize) -> usize {
        let first = self.bytes[start];
        if first == b'\'' {
            if let Some(end) = self.contraction(next, true) {
                return end;
            }
        }
        let (following, width) = self.class(next);
        if is_letter(following) && !matches!(first, b'\r' | b'\n') {
            return self.letters(next + width);
        }
        self.other_or_white_space(start, class, next, following)
    }
}
