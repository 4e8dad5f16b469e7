//! The steps of a pipeline as plain data, so that other programs can run them: tables of automata, classes of
//! characters, and the normalization of the crate. Nothing is left to the Unicode version of the other program.

use serde_json::{json, Value};
use unicode_normalization_alignments::char::{
    canonical_combining_class, compose, decompose_canonical, decompose_compatible,
};
use unicode_normalization_alignments::UnicodeNormalization;

use super::split::{Behavior, Matcher, Unit};
use super::steps::{Automata, PrefixRule, Step};
use crate::pretokenize::normalize::Form;

/// Hangul syllables, which are composed by arithmetic.
const SYLLABLES: std::ops::RangeInclusive<char> = '\u{AC00}'..='\u{D7A3}';

impl Automata {
    /// The steps, the classes of characters as `[first code point, class]`, and the tables of normalization. None if a
    /// step has no such description.
    pub(crate) fn describe(&self) -> Option<Value> {
        let form = self.steps.iter().find_map(|step| match step {
            Step::Normalize(form) => Some(*form),
            _ => None,
        });
        let of = &self.classes.of;
        let starts = (0..of.len()).filter(|&code| code == 0 || of[code] != of[code - 1]);
        Some(json!({
            "steps": self.steps.iter().map(step).collect::<Option<Vec<Value>>>()?,
            "classes": starts.map(|code| (code, of[code])).collect::<Vec<_>>(),
            "end": self.classes.end(),
            "normalization": form.map(|_| self.normalization()),
        }))
    }

    fn normalization(&self) -> Value {
        let compatible = self.steps.iter().any(|step| matches!(step, Step::Normalize(Form::Nfkc)));
        json!({
            "canonical": decompositions(|character, emit| decompose_canonical(character, emit)),
            "compatible": if compatible {
                decompositions(|character, emit| decompose_compatible(character, emit))
            } else {
                Vec::new()
            },
            "classes": characters()
                .map(|character| (character as u32, canonical_combining_class(character)))
                .filter(|(_, class)| *class > 0)
                .collect::<Vec<_>>(),
            "compositions": compositions(),
        })
    }
}

fn step(step: &Step) -> Option<Value> {
    Some(match step {
        Step::Map(_) | Step::Strip { .. } => return None,
        Step::Normalize(Form::Nfc) => json!({"type": "normalize", "form": "nfc"}),
        Step::Normalize(Form::Nfkc) => json!({"type": "normalize", "form": "nfkc"}),
        Step::Prefix { prefix, rule, .. } => json!({"type": "prefix", "prefix": prefix, "rule": match rule {
            PrefixRule::Always => "always",
            PrefixRule::Missing => "missing",
            PrefixRule::MissingAtStart => "missing at start",
        }}),
        Step::Replace { matcher, content } => {
            json!({"type": "replace", "matcher": described(matcher), "content": content})
        }
        Step::Split { matcher, rule } => json!({
            "type": "split",
            "matcher": described(matcher),
            "behavior": match rule.behavior {
                Behavior::Removed => "removed",
                Behavior::Isolated => "isolated",
                Behavior::MergedWithPrevious => "previous",
                Behavior::MergedWithNext => "next",
                Behavior::Contiguous => "contiguous",
            },
            "invert": rule.invert,
        }),
    })
}

fn described(matcher: &Matcher) -> Value {
    let (next, width) = matcher.dfa.table();
    let byte_classes = (matcher.unit == Unit::Byte).then(|| matcher.byte_classes.to_vec());
    json!({"next": next, "width": width, "byte_classes": byte_classes})
}

/// All characters that normalization needs tables for.
fn characters() -> impl Iterator<Item = char> {
    ('\0'..=char::MAX).filter(|character| !SYLLABLES.contains(character))
}

/// The characters that are decomposed, with what they become.
fn decompositions(decompose: impl Fn(char, &mut dyn FnMut(char))) -> Vec<(u32, String)> {
    let decomposed = characters().map(|character| {
        let mut parts = String::new();
        decompose(character, &mut |part| parts.push(part));
        (character, parts)
    });
    decomposed
        .filter(|(character, parts)| !parts.chars().eq([*character]))
        .map(|(c, parts)| (c as u32, parts))
        .collect()
}

/// The pairs of characters that are composed: first, second, composed.
fn compositions() -> Vec<(u32, u32, u32)> {
    let pair = |(code, parts): (u32, String)| {
        let (last, second) = parts.char_indices().next_back()?;
        let mut composed = parts[..last].nfc().map(|(character, _)| character);
        let first = composed.next().filter(|_| composed.next().is_none())?;
        (compose(first, second).map(u32::from) == Some(code)).then_some((first as u32, second as u32, code))
    };
    decompositions(|character, emit| decompose_canonical(character, emit)).into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use rustc_hash::{FxHashMap, FxHashSet};

    use super::*;

    #[test]
    fn the_pairs_that_are_composed_are_those_of_the_crate() {
        let described = compositions();
        let pairs: FxHashMap<(u32, u32), u32> = described.iter().map(|&(a, b, c)| ((a, b), c)).collect();
        let seconds: FxHashSet<u32> = characters()
            .filter(|&c| canonical_combining_class(c) > 0)
            .map(u32::from)
            .chain(described.iter().map(|pair| pair.1))
            .collect();
        let firsts: FxHashSet<u32> =
            (0..0x400).chain(0x1E00..0x2000).chain(described.iter().flat_map(|pair| [pair.0, pair.2])).collect();
        for &first in &firsts {
            for &second in &seconds {
                let (Some(a), Some(b)) = (char::from_u32(first), char::from_u32(second)) else { continue };
                let known = pairs.get(&(first, second)).copied();
                assert_eq!(known, compose(a, b).map(u32::from), "{first:x} {second:x}");
            }
        }
    }

    #[test]
    fn decompositions_are_complete() {
        let all = decompositions(|character, emit| decompose_canonical(character, emit));
        assert!(all.contains(&(0xF5, "o\u{303}".into())) && !all.iter().any(|entry| entry.0 == 0x61));
    }
}
