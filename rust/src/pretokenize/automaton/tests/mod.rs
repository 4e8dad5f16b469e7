//! Compares the automata with the `tokenizers` crate: its regular-expression engine for patterns, its pipelines for
//! steps.

mod patterns;
mod pipelines;

/// A generator of numbers, the same ones every time.
pub(super) struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn text(&mut self, alphabet: &[char], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}

/// Characters that patterns treat differently.
const ALPHABET: [char; 34] = [
    'a', 'b', 's', 't', 'l', 'é', 'ß', 'A', 'S', 'Õ', 'ǅ', 'ʰ', '日', 'ا', '\u{301}', '\u{93f}', '1', '२', '½', ' ',
    ' ', '\t', '\n', '\r', '\u{a0}', '\u{3000}', '\'', '/', '!', '…', '🙂', '\0', '\u{200d}', 'ſ',
];

/// A few of them, so that random texts have the same ones side by side.
const SMALL: [char; 20] = [
    'a', 'b', 's', 'S', 'A', 't', ' ', ' ', '\n', '\r', '1', '\'', '日', 'k', '\u{212a}', 'ſ', 'ß', '!', '\u{301}', 'l',
];

/// Calls `check` with random texts, and with every character up to a last one in some contexts.
fn on_texts(numbers: &mut Numbers, n_random: usize, last: char, mut check: impl FnMut(&str)) {
    for _ in 0..n_random {
        check(&numbers.text(&ALPHABET, 20));
    }
    let mut text = String::new();
    for character in '\0'..=last {
        text.extend(['\'', character, 'x', ' ', ' ', character, character, '1', character, '\n']);
        if text.len() > 400 {
            check(&text);
            text.clear();
        }
    }
}
