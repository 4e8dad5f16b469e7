//! The class and the general category of every character, exactly as the regular-expression engine of the `tokenizers`
//! library sees them.
//!
//! Another Unicode version would give other pretokens. `unicode_runs.txt` was written from the engine: runs of code points
//! of one category, each as its length and category. A test compares every character with it.

use std::sync::OnceLock;

/// Not one of the classes below: punctuation, symbols, control characters, what is unassigned.
pub(crate) const OTHER: u8 = 0;
/// `\s`
pub(crate) const SPACE: u8 = 1;
/// `\p{N}`
pub(crate) const NUMBER: u8 = 2;
/// `\p{L}`
pub(crate) const LETTER: u8 = 3;

/// One more than the last code point.
pub(crate) const CODES: u32 = 0x11_0000;

/// The general categories. Surrogates are no characters and count as `Cn`.
const CATEGORIES: [&str; 29] = [
    "Cn", "Cc", "Cf", "Co", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe", "Pf",
    "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs",
];

/// `\s`: the first and the last character of each run.
pub(crate) const WHITE_SPACE: [(u32, u32); 10] = [
    (0x9, 0xd),
    (0x20, 0x20),
    (0x85, 0x85),
    (0xa0, 0xa0),
    (0x1680, 0x1680),
    (0x2000, 0x200a),
    (0x2028, 0x2029),
    (0x202f, 0x202f),
    (0x205f, 0x205f),
    (0x3000, 0x3000),
];

/// The runs of code points in a general category (`Lu`) or a group of them (`L`), in order, each by its first and last
/// code point. None for other names.
pub(crate) fn category(name: &str) -> Option<Vec<(u32, u32)>> {
    let is_known = matches!(name, "L" | "M" | "N" | "P" | "S" | "Z") || CATEGORIES[1..].contains(&name);
    is_known.then(|| runs().filter(|run| run.2.starts_with(name)).map(|(first, last, _)| (first, last)).collect())
}

/// Runs of code points of one category: first, last, category.
fn runs() -> impl Iterator<Item = (u32, u32, &'static str)> {
    let lines = include_str!("unicode_runs.txt").lines().filter_map(|line| line.split_once(' '));
    lines.scan(0, |first, (length, category)| {
        let start = *first;
        *first += length.parse::<u32>().ok()?;
        Some((start, *first - 1, category))
    })
}

/// The class of every code point, by code point.
pub(crate) fn classes() -> &'static [u8] {
    static CLASSES: OnceLock<Vec<u8>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let mut classes = vec![OTHER; CODES as usize];
        let with_class = |category: &str| match category.as_bytes()[0] {
            b'L' => LETTER,
            b'N' => NUMBER,
            _ => OTHER,
        };
        let spaces = WHITE_SPACE.map(|(first, last)| (first, last, SPACE));
        for (first, last, class) in
            runs().map(|(first, last, category)| (first, last, with_class(category))).chain(spaces)
        {
            classes[first as usize..=last as usize].fill(class);
        }
        classes
    })
}

#[cfg(test)]
mod tests {
    use tokenizers::utils::SysRegex;

    use super::*;

    /// The characters that a pattern for one character matches, by the engine itself.
    fn by_engine(pattern: &str) -> Vec<char> {
        let text: String = ('\0'..=char::MAX).collect();
        let regex = SysRegex::new(&format!("(?:{pattern})+")).unwrap();
        regex.find_iter(&text).flat_map(|(start, end)| text[start..end].chars().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn every_character_has_the_class_that_the_engine_gives_it() {
        let patterns = [(r"\s", SPACE), (r"\p{N}", NUMBER), (r"\p{L}", LETTER)];
        for (pattern, class) in patterns {
            let ours = ('\0'..=char::MAX).filter(|&character| classes()[character as usize] == class);
            assert!(ours.eq(by_engine(pattern)), "{pattern}; see write_runs");
        }
    }

    #[test]
    fn every_category_has_the_characters_that_the_engine_gives_it() {
        for name in CATEGORIES[1..].iter().chain(&["L", "M", "N", "P", "S", "Z"]) {
            let runs = category(name).unwrap();
            let ours = runs.into_iter().flat_map(|(first, last)| (first..=last).filter_map(char::from_u32));
            assert!(ours.eq(by_engine(&format!(r"\p{{{name}}}"))), "{name}; see write_runs");
        }
        assert!(["Cn", "C", "Han", ""].iter().all(|name| category(name).is_none()));
    }

    /// Writes `unicode_runs.txt` again: `cargo test write_runs -- --ignored`.
    #[test]
    #[ignore = "writes a source file; run it after the engine's Unicode version changed"]
    fn write_runs() {
        let mut categories = vec![CATEGORIES[0]; CODES as usize];
        for name in &CATEGORIES[1..] {
            for character in by_engine(&format!(r"\p{{{name}}}")) {
                assert_eq!(categories[character as usize], CATEGORIES[0], "{character:?} has two categories");
                categories[character as usize] = name;
            }
        }
        let runs = categories.chunk_by(|left, right| left == right);
        let text: String = runs.map(|run| format!("{} {}\n", run.len(), run[0])).collect();
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/pretokenize/unicode_runs.txt"), text).unwrap();
    }
}
