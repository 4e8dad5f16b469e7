//! Bounds the memory of the documents that are processed at once, on all threads together.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};

/// Shorter documents need no reservation: together they need little memory, and the lock would cost more.
const SHORT: usize = 1 << 16;
/// Documents of this length are always processed, whatever the memory: a part of a corpus may be as long as a block of a
/// megabyte and the rest of the one before it.
pub(crate) const ALWAYS: usize = 1 << 21;

/// How many bytes of documents may be processed at once.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory: usize,
    /// Bytes of memory for a byte of text.
    factor: usize,
    in_use: Mutex<usize>,
    released: Condvar,
}

impl Allowance {
    pub(crate) fn new(memory: usize, factor: usize) -> Self {
        Self { memory, factor, in_use: Mutex::new(0), released: Condvar::new() }
    }

    /// The longest document that may be processed, in bytes.
    pub(crate) fn longest(&self) -> usize {
        (self.memory / self.factor).max(ALWAYS)
    }

    /// Waits until there is memory for a document. It is reserved until the result is dropped.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation<'_>> {
        if bytes > self.longest() {
            return Err(Error::CostlyDocument { bytes: bytes as u64, factor: self.factor, longest: self.longest() });
        }
        if bytes <= SHORT {
            return Ok(Reservation { allowance: self, bytes: 0 });
        }
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |in_use: &mut usize| *in_use > 0 && *in_use + bytes > self.longest();
        let mut in_use = self.released.wait_while(in_use, full).unwrap_or_else(PoisonError::into_inner);
        *in_use += bytes;
        Ok(Reservation { allowance: self, bytes })
    }
}

/// The memory of a document that is processed; released when dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    allowance: &'a Allowance,
    bytes: usize,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.allowance.in_use.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
            self.allowance.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_is_processed_at_once_than_memory_allows() {
        let allowance = Allowance::new(30 << 20, 10);
        assert_eq!(allowance.longest(), 3 << 20);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let reservation = allowance.reserve(1 << 20).unwrap();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        drop(reservation);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
    }

    #[test]
    fn a_document_that_needs_more_than_all_memory_is_refused_and_a_short_one_never() {
        let allowance = Allowance::new(0, 10);
        assert!(allowance.reserve(ALWAYS).is_ok());
        let refused = Error::CostlyDocument { bytes: ALWAYS as u64 + 1, factor: 10, longest: ALWAYS };
        assert_eq!(allowance.reserve(ALWAYS + 1).unwrap_err(), refused);
    }
}
