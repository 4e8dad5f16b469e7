//! The pattern of GPT-2, which byte-level pre-tokenizers have built in.

use std::ops::Range;

use super::letters::Letters;
use super::scanner::{is_letter, is_other, Scanner, END};
use crate::pretokenize::unicode::{NUMBER, SPACE};

impl<L: Letters> Scanner<'_, L> {
    #[inline(always)]
    pub(super) fn gpt2(&self, mut emit: impl FnMut(&[u8], Range<usize>)) {
        let mut start = 0;
        while start < self.bytes.len() {
            let (class, width) = self.class(start);
            let first = self.bytes[start];
            let contraction = if first == b'\'' { self.contraction(start + 1, false) } else { None };
            let end = if let Some(end) = contraction {
                end
            } else {
                // A space belongs to the word after it.
                let at = start + width;
                let (class, at) = match (first, self.class(at)) {
                    (b' ', (following, width)) if following != SPACE && following != END => (following, at + width),
                    _ => (class, at),
                };
                match class {
                    SPACE => self.white_space(start, false),
                    END => at,
                    NUMBER => self.run(at, |class| class == NUMBER),
                    _ if is_letter(class) => self.letters(at),
                    _ => self.run(at, is_other),
                }
            };
            emit(self.bytes, start..end);
            start = end;
        }
    }
}
