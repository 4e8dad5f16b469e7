//! The class of every character, exactly as the regular-expression engine of the `tokenizers` library sees it.
//!
//! Another Unicode version would give other pretokens. `RUNS` was written from the engine, and a test compares every
//! character with it.

use std::sync::OnceLock;

use super::unicode_runs::RUNS;

/// Not one of the classes below: punctuation, symbols, control characters, what is unassigned.
pub(crate) const OTHER: u8 = 0;
/// `\s`
pub(crate) const SPACE: u8 = 1;
/// `\p{N}`
pub(crate) const NUMBER: u8 = 2;
/// `\p{M}`
pub(crate) const MARK: u8 = 3;
/// `\p{Lu}` and `\p{Lt}`. From here on, everything is `\p{L}`.
pub(crate) const UPPER: u8 = 4;
/// `\p{Ll}`
pub(crate) const LOWER: u8 = 5;
/// `\p{Lm}` and `\p{Lo}`
pub(crate) const CASELESS: u8 = 6;

/// The class of every code point, by code point.
pub(crate) fn classes() -> &'static [u8] {
    static CLASSES: OnceLock<Vec<u8>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let mut classes = vec![OTHER; 0x11_0000];
        let ends = RUNS.iter().skip(1).map(|run| run.0).chain([0x11_0000]);
        for (&(start, class), end) in RUNS.iter().zip(ends) {
            classes[start as usize..end as usize].fill(class);
        }
        classes
    })
}

#[cfg(test)]
mod tests {
    use tokenizers::utils::SysRegex;

    use super::*;

    /// The class of every character by the engine itself.
    fn by_engine() -> Vec<u8> {
        let mut by_class = vec![OTHER; 0x11_0000];
        let patterns = [
            (r"\s", SPACE),
            (r"\p{N}", NUMBER),
            (r"\p{M}", MARK),
            (r"[\p{Lu}\p{Lt}]", UPPER),
            (r"\p{Ll}", LOWER),
            (r"[\p{Lm}\p{Lo}]", CASELESS),
        ];
        let text: String = ('\0'..=char::MAX).collect();
        for (pattern, class) in patterns {
            for (start, end) in SysRegex::new(pattern).unwrap().find_iter(&text) {
                let character = text[start..end].chars().next().unwrap();
                assert_eq!(by_class[character as usize], OTHER, "{character:?} has two classes");
                by_class[character as usize] = class;
            }
        }
        let letters: Vec<char> = SysRegex::new(r"\p{L}")
            .unwrap()
            .find_iter(&text)
            .map(|(start, _)| text[start..].chars().next().unwrap())
            .collect();
        assert!(('\0'..=char::MAX).filter(|&c| by_class[c as usize] >= UPPER).eq(letters));
        by_class
    }

    #[test]
    fn every_character_has_the_class_that_the_engine_gives_it() {
        let (ours, engine) = (classes(), by_engine());
        for character in '\0'..=char::MAX {
            assert_eq!(ours[character as usize], engine[character as usize], "{character:?}; see write_runs");
        }
    }

    /// Writes `unicode_runs.rs` again: `cargo test write_runs -- --ignored`, then `cargo fmt`.
    #[test]
    #[ignore = "writes a source file; run it after the engine's Unicode version changed"]
    fn write_runs() {
        let classes = by_engine();
        let mut source = String::from(
            "//! Written by the test `write_runs` in `unicode.rs`; do not edit.\n\n\
             /// Runs of code points of one class, each by its first.\n#[rustfmt::skip]\n\
             pub(crate) const RUNS: &[(u32, u8)] = &[",
        );
        let starts = (0..classes.len()).filter(|&at| at == 0 || classes[at] != classes[at - 1]);
        for (place, start) in starts.enumerate() {
            source.push_str(if place % 9 == 0 { "\n    " } else { " " });
            source.push_str(&format!("({start}, {}),", classes[start]));
        }
        source.push_str("\n];\n");
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/pretokenize/unicode_runs.rs"), source).unwrap();
    }
}
