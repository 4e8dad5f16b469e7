//! Which characters belong to some scripts, and which tokens keep to them.

use std::sync::OnceLock;

use rustc_hash::FxHashSet;
use unicode_script::{Script, UnicodeScript};

use crate::bpe::Alphabet;
use crate::pretokenize::category;

const SPACE: u8 = b' ';

/// The characters of some scripts, and the bytes that they may begin and end with.
///
/// Script extensions count: the danda belongs to Devanagari, the Arabic comma to Arabic. Characters that inherit their
/// script (combining marks that many scripts use, and joiners) belong to every script.
#[derive(Debug, Default)]
pub struct ScriptFilter {
    /// One bit for each code point.
    characters: Vec<u64>,
    /// The bytes of a character without its last ones, without its first ones, and without both.
    starts: FxHashSet<Bytes>,
    ends: FxHashSet<Bytes>,
    middles: FxHashSet<Bytes>,
    space_is_last: bool,
}

/// One to three bytes, and their number.
type Bytes = (usize, [u8; 3]);

impl ScriptFilter {
    /// The filter of scripts by their names, long or short, as [`script_properties`] spells them.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let scripts = named(names);
        let mut filter = Self { characters: vec![0; 0x11_0000 / 64], ..Self::default() };
        for character in ('\0'..=char::MAX).filter(|&character| belongs(character, &scripts)) {
            filter.insert(character);
        }
        filter
    }

    /// The same filter for tokens that have their space at the end.
    #[must_use]
    pub fn with_space_last(self, space_is_last: bool) -> Self {
        Self { space_is_last, ..self }
    }

    fn insert(&mut self, character: char) {
        self.characters[character as usize / 64] |= 1 << (character as usize % 64);
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        for cut in 1..bytes.len() {
            self.starts.insert(short(&bytes[..cut]));
            self.ends.insert(short(&bytes[cut..]));
            self.middles.extend((1..cut).map(|start| short(&bytes[start..cut])));
        }
    }

    /// Whether a character belongs to the scripts.
    #[must_use]
    fn contains(&self, character: char) -> bool {
        self.characters[character as usize / 64] >> (character as usize % 64) & 1 == 1
    }

    /// Whether a token has only characters of the scripts, beside one space at its front. It may begin and end inside
    /// a character of the scripts.
    #[must_use]
    pub(super) fn allows(&self, token: &str, alphabet: Alphabet) -> bool {
        let mut bytes = Vec::with_capacity(token.len());
        alphabet.decode(token, &mut bytes);
        let bytes = bytes.as_slice();
        if self.space_is_last {
            return self.allows_bytes(bytes.strip_suffix(&[SPACE]).unwrap_or(bytes));
        }
        match bytes.strip_prefix(&[SPACE]) {
            Some(rest) => !rest.first().is_some_and(|&byte| is_continuation(byte)) && self.allows_bytes(rest),
            None => self.allows_bytes(bytes),
        }
    }

    fn allows_bytes(&self, bytes: &[u8]) -> bool {
        let first = bytes.iter().position(|&byte| !is_continuation(byte));
        let Some(first) = first else {
            return bytes.is_empty() || is_in(bytes, &self.ends) || is_in(bytes, &self.middles);
        };
        let (end_of_one, rest) = bytes.split_at(first);
        if !end_of_one.is_empty() && !is_in(end_of_one, &self.ends) {
            return false;
        }
        let whole = match std::str::from_utf8(rest) {
            Ok(text) => return text.chars().all(|character| self.contains(character)),
            Err(error) => error.valid_up_to(),
        };
        let (text, start_of_one) = rest.split_at(whole);
        let all_belong = std::str::from_utf8(text).is_ok_and(|text| text.chars().all(|one| self.contains(one)));
        all_belong && is_in(start_of_one, &self.starts)
    }
}

/// The characters of a text that belong to scripts by their long names.
#[must_use]
pub fn of_scripts(text: &str, names: &[String]) -> String {
    let scripts = named(names);
    text.chars().filter(|&character| belongs(character, &scripts)).collect()
}

/// The combining marks of scripts by their long names, in the order of their code points.
///
/// Script extensions count: the Arabic vowel signs belong to Arabic, though Syriac uses them too. Marks of all scripts
/// belong to Inherited.
#[must_use]
pub fn marks(names: &[String]) -> String {
    let scripts = named(names);
    let is_own = |character: &char| match character.script_extension() {
        every if every.is_common() || every.is_inherited() => scripts.contains(&Script::Inherited),
        some => scripts.iter().any(|&script| is_specific(script) && some.contains_script(script)),
    };
    let all = category("M").into_iter().flatten().flat_map(|(first, last)| first..=last);
    all.filter_map(char::from_u32).filter(is_own).collect()
}

fn named(names: &[String]) -> Vec<Script> {
    let is_named = |script: &Script| names.iter().any(|name| name == script.full_name());
    all_scripts().iter().copied().filter(is_named).collect()
}

fn belongs(character: char, scripts: &[Script]) -> bool {
    let extension = character.script_extension();
    // subtle: an extension that is Common contains every script
    match character.script() {
        Script::Inherited => true,
        _ if extension.is_common() => scripts.contains(&Script::Common),
        _ => scripts.iter().any(|&script| is_specific(script) && extension.contains_script(script)),
    }
}

fn is_specific(script: Script) -> bool {
    !matches!(script, Script::Common | Script::Inherited | Script::Unknown)
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

fn short(bytes: &[u8]) -> Bytes {
    let mut three = [0; 3];
    three.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    (bytes.len(), three)
}

fn is_in(bytes: &[u8], set: &FxHashSet<Bytes>) -> bool {
    bytes.len() <= 3 && set.contains(&short(bytes))
}

/// The scripts that some character has, by their names.
fn all_scripts() -> &'static [Script] {
    static SCRIPTS: OnceLock<Vec<Script>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        let mut scripts: Vec<Script> = ('\0'..=char::MAX).map(|character| character.script()).collect();
        scripts.dedup(); // a million characters become a few thousand runs
        scripts.sort_unstable_by_key(|script| script.full_name());
        scripts.dedup();
        scripts.retain(|script| *script != Script::Unknown);
        scripts
    })
}

/// The long and the short name of every script that some character has, sorted.
#[must_use]
pub fn script_properties() -> Vec<(&'static str, &'static str)> {
    all_scripts().iter().map(|script| (script.full_name(), script.short_name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{character_of, Random};

    fn filter(names: &[&str]) -> ScriptFilter {
        ScriptFilter::new(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn allows(filter: &ScriptFilter, bytes: &[u8]) -> bool {
        let token: String = bytes.iter().map(|&byte| character_of(byte)).collect();
        filter.allows(&token, Alphabet::ByteLevel)
    }

    #[test]
    fn marks_are_those_of_the_script_its_extensions_included() {
        let of = |name: &str| marks(&[name.to_string()]);
        assert!(of("Thai").ends_with("\u{e47}\u{e48}\u{e49}\u{e4a}\u{e4b}\u{e4c}\u{e4d}\u{e4e}"));
        assert!(of("Arabic").contains('\u{64b}'), "a sign that Syriac uses too");
        assert!(of("Latin").contains('\u{301}') && !of("Latin").contains('\u{94d}'));
        assert!(of("Devanagari").contains('\u{94d}') && !of("Devanagari").contains('\u{301}'));
        assert!(of("Inherited").contains('\u{fe0f}') && !of("Inherited").contains('\u{64b}'));
    }

    /// Whether some text of whole characters of the scripts, after an optional space, contains the bytes at its front
    /// or behind part of a character: every way to complete the bytes is tried, one character after the other.
    fn by_trial(characters: &[String], bytes: &[u8]) -> bool {
        let completes = |rest: &[u8]| {
            let begins = |one: &String| one.as_bytes().starts_with(rest);
            rest.is_empty() || characters.iter().any(begins)
        };
        let mut open: Vec<&[u8]> = vec![bytes];
        open.extend(bytes.strip_prefix(b" "));
        for one in characters.iter().map(String::as_bytes) {
            for cut in 1..one.len() {
                if one[cut..].starts_with(bytes) {
                    return true;
                }
                open.extend(bytes.strip_prefix(&one[cut..]));
            }
        }
        let (mut seen, mut next) = (FxHashSet::default(), open);
        while let Some(rest) = next.pop() {
            if !seen.insert(rest.len()) {
                continue;
            }
            if completes(rest) {
                return true;
            }
            next.extend(characters.iter().filter_map(|one| rest.strip_prefix(one.as_bytes())));
        }
        false
    }

    #[test]
    fn tokens_keep_to_the_scripts_wherever_they_begin_and_end() {
        let mut random = Random(3);
        let arabic = filter(&["Arabic"]);
        let belongs = |character: &char| belongs(*character, &[Script::Arabic]);
        let characters: Vec<String> = ('\0'..=char::MAX).filter(belongs).map(String::from).collect();
        let texts = [" مرحبا، عالم", "म\u{94d}ह। ", "a\u{301}ж 1", "\u{1EE00}\u{10EC2} \u{FDFA}x", "،؛٣"];
        let mut allowed = 0;
        for _ in 0..400 {
            let text = texts[random.below(texts.len())].as_bytes();
            let start = random.below(text.len());
            let end = start + 1 + random.below((text.len() - start).min(9));
            let expected = by_trial(&characters, &text[start..end]);
            assert_eq!(allows(&arabic, &text[start..end]), expected, "{:x?}", &text[start..end]);
            allowed += usize::from(expected);
        }
        assert!((100..350).contains(&allowed), "{allowed}");
        for bytes in [&b"\xff"[..], b"\xd9\xd9", b"\x85\x85\x85\x85", b" \x85", b"  \xd9\x85", b"\xd9 ", b"\xc0\x80"] {
            assert!(!allows(&arabic, bytes) && !by_trial(&characters, bytes), "{bytes:x?}");
        }
    }

    #[test]
    fn extensions_count_and_marks_that_many_scripts_use_belong_to_all() {
        let (arabic, devanagari) = (filter(&["Arabic"]), filter(&["Devanagari"]));
        assert!(arabic.contains('،') && arabic.contains('٣') && arabic.contains('م') && !arabic.contains('1'));
        assert!(devanagari.contains('।') && devanagari.contains('\u{94d}') && !devanagari.contains('،'));
        assert!(!arabic.contains('\u{94d}') && !arabic.contains(' ') && !arabic.contains(','));
        for mark in ['\u{301}', '\u{200D}', '\u{200C}', '\u{FE0F}'] {
            assert!(arabic.contains(mark) && devanagari.contains(mark));
        }
        let two = filter(&["Arabic", "Common"]);
        assert!(two.contains('1') && two.contains(' ') && two.contains('م') && !two.contains('a'));
        assert!(!filter(&["Common"]).contains('،')); // its extensions are Arabic and others
        assert!(!filter(&["Inherited"]).contains('a') && !filter(&["Latin"]).contains('\u{10FFFF}'));
    }

    #[test]
    fn text_keeps_to_the_scripts_with_its_space_at_either_end() {
        let latin = filter(&["Latin"]);
        assert!(latin.allows("▁tere", Alphabet::Text) && latin.allows("e\u{301}", Alphabet::Text));
        assert!(!latin.allows("tere▁", Alphabet::Text) && !latin.allows("▁▁a", Alphabet::Text));
        assert!(!latin.allows("aж", Alphabet::Text) && !latin.allows("a1", Alphabet::Text));
        let last = latin.with_space_last(true);
        assert!(last.allows("tere▁", Alphabet::Text) && !last.allows("▁tere", Alphabet::Text));
    }
}
