//! Random models and words for tests: merges compete, in any order of ranks, over characters of one to three bytes.

use super::alphabet::{character_of, Alphabet};
use super::model::{Bpe, Options};

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A word of one to `most` characters.
    pub(crate) fn word(&mut self, most: usize) -> String {
        const CHARACTERS: [char; 7] = ['a', 'b', ' ', 'é', 'è', '€', '₭'];
        (0..=self.below(most)).map(|_| CHARACTERS[self.below(CHARACTERS.len())]).collect()
    }

    /// Distinct words in order.
    pub(crate) fn words(&mut self, count: usize, most: usize) -> Vec<String> {
        let mut words: Vec<String> = (0..count).map(|_| self.word(most)).collect();
        words.sort_unstable();
        words.dedup();
        words
    }

    /// A byte-level model. With `trained`, every merge comes after those that make its parts, as in a trained model.
    pub(crate) fn byte_level(&mut self, merges: usize, trained: bool, options: &Options) -> Bpe {
        let mut bytes: Vec<u8> = "ab éè€₭".bytes().collect();
        bytes.sort_unstable();
        bytes.dedup();
        let alphabet = bytes.into_iter().map(|byte| character_of(byte).to_string()).collect();
        self.model(alphabet, merges, trained, options)
    }

    /// A model that spells text.
    pub(crate) fn text(&mut self, merges: usize, options: &Options) -> Bpe {
        let alphabet = ["a", "b", " ", "é", "€"].map(String::from).to_vec();
        self.model(alphabet, merges, true, &Options { alphabet: Alphabet::Text, ..options.clone() })
    }

    fn model(&mut self, mut strings: Vec<String>, tries: usize, trained: bool, options: &Options) -> Bpe {
        let byte_level = !strings.contains(&"é".to_string());
        let mut merges: Vec<(u32, u32)> = Vec::new();
        for _ in 0..8 * tries {
            let Some((left, right)) = self.parts_of_a_word(byte_level) else { continue };
            let index = |string: &String| strings.iter().position(|other| other == string).map(|at| at as u32);
            let Some(pair) = index(&left).zip(index(&right)).filter(|pair| !merges.contains(pair)) else { continue };
            let product = left + &right;
            if !strings.contains(&product) {
                strings.push(product);
            }
            let at = if trained { merges.len() } else { self.below(merges.len() + 1) };
            merges.insert(at, pair);
        }
        let tokens = strings.into_iter().zip(0..).map(|(string, id)| (id, string)).collect();
        Bpe::new(tokens, &merges, options).unwrap()
    }

    /// Two neighbouring parts of a word, as a vocabulary spells them.
    fn parts_of_a_word(&mut self, byte_level: bool) -> Option<(String, String)> {
        let word = self.word(4);
        let symbols: Vec<char> = match byte_level {
            true => word.bytes().map(character_of).collect(),
            false => word.chars().collect(),
        };
        let (start, at, end) = (self.below(symbols.len()), self.below(symbols.len()), self.below(symbols.len()) + 1);
        let part = |from: usize, to: usize| symbols[from..to].iter().collect::<String>();
        (start < at && at < end).then(|| (part(start, at), part(at, end)))
    }
}
