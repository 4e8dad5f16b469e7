//! Tokens by the text that they stand for. Bytes that are not UTF-8 are U+FFFD.

use rustc_hash::FxHashMap;

use super::Model;
use crate::pretokenize::main_script;

impl Model {
    /// All tokens with their ids, ascending. `more` has tokens that the vocabulary lacks.
    pub(crate) fn with_more<'m>(&'m self, more: &'m [(u32, String)]) -> Vec<(u32, &'m str)> {
        let listed = self.tokens().ids().iter().copied().zip(self.tokens().strings());
        let mut all: Vec<(u32, &str)> = listed.chain(more.iter().map(|(id, string)| (*id, string.as_str()))).collect();
        all.sort_unstable();
        all
    }

    /// The tokens that something is found for in their text.
    fn by_text<T>(&self, more: &[(u32, String)], find: impl Fn(&str) -> Option<T>) -> Vec<(u32, T)> {
        let mut bytes = Vec::new();
        let mut found = |(id, string)| {
            bytes.clear();
            self.decode(string, &mut bytes);
            find(&String::from_utf8_lossy(&bytes)).map(|one| (id, one))
        };
        self.with_more(more).into_iter().filter_map(&mut found).collect()
    }

    /// The ids of the tokens that stand for white space, and ASCII digits and punctuation, alone.
    #[must_use]
    pub fn plain_tokens(&self, more: &[(u32, String)]) -> Vec<u32> {
        let is_plain =
            |text: &str| !text.is_empty() && text.chars().all(|one| one.is_whitespace() || is_no_letter(one));
        self.by_text(more, |text| is_plain(text).then_some(())).into_iter().map(|(id, ())| id).collect()
    }

    /// The ids of the tokens that stand for one of some texts, each with the place of the text. `trimmed`: without ASCII
    /// characters other than letters at the ends of a token.
    #[must_use]
    pub fn tokens_of(&self, more: &[(u32, String)], texts: &[String], trimmed: bool) -> Vec<(u32, usize)> {
        let places: FxHashMap<&str, usize> = texts.iter().map(String::as_str).zip(0..).collect();
        self.by_text(more, |text| {
            let text = if trimmed { text.trim_matches(is_no_letter) } else { text };
            places.get(text).copied()
        })
    }

    /// The ids of the tokens that stand for bytes that are not UTF-8.
    #[must_use]
    pub fn partial_tokens(&self, more: &[(u32, String)]) -> Vec<u32> {
        let mut bytes = Vec::new();
        let mut is_partial = |string: &str| {
            bytes.clear();
            self.decode(string, &mut bytes);
            std::str::from_utf8(&bytes).is_err()
        };
        self.with_more(more).into_iter().filter(|(_, string)| is_partial(string)).map(|(id, _)| id).collect()
    }

    /// The scripts that tokens are written in, sorted, and the place of that of each token in this list, by ascending id.
    #[must_use]
    pub fn scripts(&self, more: &[(u32, String)]) -> (Vec<&'static str>, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut script = |(_, string)| {
            bytes.clear();
            self.decode(string, &mut bytes);
            main_script(&bytes)
        };
        let scripts: Vec<&str> = self.with_more(more).into_iter().map(&mut script).collect();
        let mut names = scripts.clone();
        names.sort_unstable();
        names.dedup();
        let places: FxHashMap<&str, u8> = names.iter().copied().zip(0..).collect();
        (names, scripts.iter().map(|name| places[name]).collect())
    }
}

fn is_no_letter(character: char) -> bool {
    character.is_ascii() && !character.is_ascii_alphabetic()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Bpe, Options};

    #[test]
    fn tokens_are_found_by_their_text_and_not_by_their_string() {
        let strings = ["Ġ=", "if", "Ġif", "if(", "Ċ", "Â", "Âħ", "é", "1a"];
        let tokens = strings.iter().zip(0..).map(|(string, id)| (id, (*string).to_string())).collect();
        let model = Model::Bpe(Bpe::new(tokens, &[], &Options::default()).unwrap());
        let more = [(20, "42".to_string()), (21, String::new())];
        assert_eq!(model.plain_tokens(&more), [0, 4, 6, 20]);
        let texts = ["if", "\u{fffd}", "a"].map(String::from);
        assert_eq!(model.tokens_of(&more, &texts, false), [(1, 0), (5, 1), (7, 1)]);
        assert_eq!(model.tokens_of(&more, &texts, true), [(1, 0), (2, 0), (3, 0), (5, 1), (7, 1), (8, 2)]);
        assert_eq!(model.partial_tokens(&more), [5, 7]);
        let (names, places) = model.scripts(&more);
        assert_eq!(names, ["Common", "Latin", "part of a character"]);
        assert_eq!(places, [0, 1, 1, 1, 0, 2, 0, 2, 1, 0, 0]);
    }
}
