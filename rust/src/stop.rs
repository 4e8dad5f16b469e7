//! How a caller ends a long operation: its loops look here, many times a second.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Whether an operation is asked to end. All of its threads share it.
#[derive(Debug, Default)]
pub struct Stop {
    asked: AtomicBool,
    #[cfg(test)]
    looks: tests::Looks,
}

impl Stop {
    /// Asks the operation to end.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Looks whether the operation is to end. It costs no more than reading a number.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`], if it is.
    #[inline]
    pub fn check(&self) -> Result<()> {
        #[cfg(test)]
        self.looks.add(self);
        if self.asked.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Debug;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// How often an operation looked; and after how many looks it is asked to end, if at all.
    #[derive(Debug, Default)]
    pub(super) struct Looks {
        done: AtomicUsize,
        most: Option<usize>,
    }

    impl Looks {
        pub(super) fn add(&self, stop: &Stop) {
            let done = self.done.fetch_add(1, Ordering::Relaxed);
            if self.most.is_some_and(|most| done >= most) {
                stop.ask();
            }
        }
    }

    /// Checks that an operation ends wherever it is stopped, and returns how often it looked.
    pub(crate) fn stops_anywhere<T: Debug>(operation: impl Fn(&Stop) -> Result<T>) -> usize {
        let whole = Stop::default();
        operation(&whole).unwrap();
        let looks = whole.looks.done.into_inner();
        for most in [0, 1, looks / 3, looks / 2, looks - 1] {
            let stop = Stop { looks: Looks { most: Some(most), ..Looks::default() }, ..Stop::default() };
            assert!(matches!(operation(&stop), Err(Error::Stopped)), "stopped after {most} of {looks} looks");
        }
        looks
    }
}
