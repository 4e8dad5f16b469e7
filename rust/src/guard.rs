//! Turns panics of other crates into errors. Some pipelines that the `tokenizers` library reads make it panic later, on
//! a text or on an empty table of its own.

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The result of `action`, or the message that it panicked with. Nothing is printed.
pub(crate) fn guarded<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                default(panic);
            }
        }));
    });
    let before = GUARDED.replace(true);
    // The values that `action` touches are read-only or dropped after a panic.
    let result = catch_unwind(AssertUnwindSafe(action));
    GUARDED.set(before);
    result.map_err(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "it panicked".into(), |message| (*message).into()),
    })
}

/// Whether a panic would become an error.
pub(crate) fn is_guarded() -> bool {
    GUARDED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        assert_eq!(guarded(|| 5), Ok(5));
        assert_eq!(guarded(|| -> u8 { panic!("broken") }), Err("broken".into()));
        assert_eq!(guarded(|| -> u8 { panic!("broken {}", 7) }), Err("broken 7".into()));
    }
}
