//! Runs the steps of a pipeline over a text, and says where a text may be cut.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use memchr::memchr;
use serde_json::Value;

use super::map::CharacterMap;
use super::recognize::recognize;
use super::sets::Classes;
use super::split::{Matcher, Rule};
use super::words::PADDING;
use crate::pretokenize::normalize::{is_stable, normalized, Form};
use crate::pretokenize::pieces::SPACE;

thread_local! {
    /// The memory for text with a prefix that further steps are applied to.
    static BUFFER: Cell<String> = const { Cell::new(String::new()) };
}

/// When a prefix is put before a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefixRule {
    /// Always, unless the text continues one that was cut.
    Always,
    /// If the text does not begin with it.
    Missing,
    /// The same, at the beginning of a document only.
    MissingAtStart,
}

/// How many times as long text becomes that characters are decomposed in. A few symbols become longer.
const MAP_GROWTH: usize = 3;

/// A step of a pipeline. It applies to every piece of the step before it.
#[derive(Debug)]
pub(super) enum Step {
    Map(CharacterMap),
    Normalize(Form),
    Strip {
        left: bool,
        right: bool,
    },
    Replace {
        matcher: Matcher,
        content: String,
    },
    /// `is_split`: the next step splits the text before every prefix in it.
    Prefix {
        prefix: String,
        rule: PrefixRule,
        is_split: bool,
    },
    Split {
        matcher: Matcher,
        rule: Rule,
    },
}

/// Which text is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The beginning of a document.
    Document,
    /// The rest of a text that was cut.
    Cut,
    /// Text after an added token.
    Added,
}

/// The normalizer and the pre-tokenizer of a pipeline, as automata.
#[derive(Debug)]
pub(crate) struct Automata {
    pub(super) steps: Vec<Step>,
    pub(super) classes: Classes,
}

impl Automata {
    /// The automata of a pipeline, or None if it has something that they cannot do exactly.
    pub(crate) fn recognize(normalizer: &Value, pre_tokenizer: &Value, byte_level: bool) -> Option<Self> {
        let (steps, classes) = recognize(normalizer, pre_tokenizer, byte_level)?;
        Some(Self { steps, classes })
    }

    /// Calls `emit` with every pretoken of a text between added tokens: a prefix, or nothing, and then a text and the
    /// range of bytes in it.
    pub(crate) fn run(&self, text: &str, start: Start, emit: &mut impl FnMut(&str, &str, Range<usize>)) {
        self.apply(0, text, 0..text.len(), start, emit);
    }

    fn apply<E: FnMut(&str, &str, Range<usize>)>(
        &self,
        step: usize,
        text: &str,
        at: Range<usize>,
        start: Start,
        emit: &mut E,
    ) {
        if at.is_empty() {
            return;
        }
        let changed = match self.steps.get(step) {
            None => return emit("", text, at),
            Some(Step::Split { matcher, rule }) if step + 1 == self.steps.len() => {
                return matcher.split(*rule, text, at, &self.classes, |piece| emit("", text, piece));
            }
            Some(Step::Split { matcher, rule }) => {
                return matcher.split(*rule, text, at, &self.classes, |piece| {
                    self.apply(step + 1, text, piece, start, emit);
                });
            }
            Some(Step::Map(map)) if map.before_words().is_some() => {
                let prefix = map.before_words().unwrap_or_default();
                return map.words(&text[at], |text, word, is_whole| match is_whole && !prefix.is_empty() {
                    // The map, a split, a prefix and a split.
                    true if step + 4 == self.steps.len() => emit(prefix, text, word),
                    true => self.apply_after(step + 4, prefix, &text[word], start, emit),
                    false => self.apply(step + 2, text, word, start, emit),
                });
            }
            Some(Step::Map(map)) => map.normalized(&text[at]),
            Some(Step::Normalize(form)) => normalized(&text[at], *form),
            Some(Step::Strip { left, right }) => {
                // What follows a cut is inside the text: a cut is after a character that is no white space here.
                let text = if *left && start != Start::Cut { text[at].trim_start() } else { &text[at] };
                Cow::Borrowed(if *right { text.trim_end() } else { text })
            }
            Some(Step::Prefix { prefix, rule, is_split }) => {
                let (whole, text) = (text, &text[at.clone()]);
                if !is_wanted(text, prefix, *rule, start) {
                    return self.apply(step + 1, whole, at, start, emit);
                }
                let is_alone = || prefix.bytes().next().is_some_and(|first| memchr(first, text.as_bytes()).is_none());
                return match *is_split && step + 2 == self.steps.len() && is_alone() {
                    true => emit(prefix, whole, at),
                    false => self.apply_after(step + 1, prefix, text, start, emit),
                };
            }
            Some(Step::Replace { matcher, content }) => self.replaced(matcher, content, &text[at]),
        };
        self.apply(step + 1, &changed, 0..changed.len(), start, emit);
    }

    /// Applies the steps from one on to a text with a prefix.
    fn apply_after<E: FnMut(&str, &str, Range<usize>)>(
        &self,
        step: usize,
        prefix: &str,
        text: &str,
        start: Start,
        emit: &mut E,
    ) {
        let mut buffer = BUFFER.take();
        buffer.clear();
        buffer.extend([prefix, text, PADDING]);
        self.apply(step, &buffer, 0..prefix.len() + text.len(), start, emit);
        BUFFER.set(buffer);
    }

    fn replaced<'t>(&self, matcher: &Matcher, content: &str, text: &'t str) -> Cow<'t, str> {
        let (mut replaced, mut done) = (String::new(), 0);
        matcher.matches(text, 0..text.len(), &self.classes, |found| {
            if done == 0 {
                replaced.reserve(text.len() + text.len() / 2);
            }
            replaced.push_str(&text[done..found.start]);
            replaced.push_str(content);
            done = found.end;
        });
        if done == 0 {
            return Cow::Borrowed(text);
        }
        replaced.push_str(&text[done..]);
        Cow::Owned(replaced)
    }

    /// Whether text may be cut between two characters, so that the pretokens of the two parts are those of the whole.
    /// `cuts` decides it inside a pretoken, by the characters that normalization makes of the two.
    pub(crate) fn may_cut(&self, left: char, right: char, cuts: impl Fn(char, char) -> bool) -> bool {
        let mut pairs = vec![(left, right)];
        for step in &self.steps {
            let mut after = Vec::new();
            for (left, right) in pairs {
                match self.across(step, left, right) {
                    Across::Separate => {}
                    Across::Together(new) => after.extend(new),
                    Across::Unknown => return false,
                }
            }
            after.sort_unstable();
            after.dedup();
            pairs = after;
        }
        pairs.into_iter().all(|(left, right)| cuts(left, right))
    }

    /// Whether white space becomes what it becomes alone, given the next character: no map looks at both. `None` if that
    /// is not read yet.
    pub(crate) fn stays_before(&self, space: char, next: Option<char>) -> bool {
        let is_map = |step: &Step| matches!(step, Step::Map(_));
        let (Some(last), Some(next)) = (self.steps.iter().rposition(is_map), next) else {
            return !self.steps.iter().any(is_map);
        };
        // Before the last map, the next character must stay what it is.
        let is_unchanged = |step: &Step| match step {
            Step::Map(map) => map.keeps(next),
            Step::Normalize(form) => is_stable(next, *form),
            Step::Replace { matcher, .. } => {
                matcher.boundary(space, next, &self.classes).is_some_and(|boundary| boundary.never_begins)
            }
            Step::Strip { .. } | Step::Prefix { .. } | Step::Split { .. } => true,
        };
        let is_apart = matches!(&self.steps[last], Step::Map(map) if map.begins_apart(next));
        is_apart && self.steps[..last].iter().all(is_unchanged)
    }

    /// How many times as long as a text its normalized form may be, at most.
    pub(crate) fn growth(&self) -> usize {
        let lengths = self.steps.iter().map(|step| match step {
            Step::Replace { content, .. } => content.len(),
            Step::Map(_) => MAP_GROWTH,
            _ => 1,
        });
        lengths.max().unwrap_or(1).max(1)
    }

    /// Whether some step asks the crate, which may panic.
    pub(crate) fn may_panic(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Map(_)))
    }

    /// Whether some step changes the beginning of a text, but not that of the rest of one that was cut.
    pub(crate) fn changes_start(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Prefix { .. } | Step::Strip { left: true, .. }))
    }

    fn across(&self, step: &Step, left: char, right: char) -> Across {
        let together = |is_known: bool| if is_known { Across::Together(vec![(left, right)]) } else { Across::Unknown };
        match step {
            Step::Map(map) => map.across(left, right).map_or(Across::Unknown, |pair| Across::Together(vec![pair])),
            Step::Normalize(Form::Nfc) => together(is_stable(left, Form::Nfc) && matches!(right, ' ' | '\n' | SPACE)),
            Step::Normalize(Form::Nfkc) => together(left.is_ascii() && matches!(right, ' ' | '\n' | SPACE)),
            Step::Strip { .. } => together(!left.is_whitespace()),
            // The part after the cut must not get a prefix of its own.
            Step::Prefix { prefix, rule: PrefixRule::Missing, .. } => {
                together(right.encode_utf8(&mut [0; 4]) == prefix.as_str())
            }
            Step::Prefix { .. } => together(true),
            Step::Replace { matcher, content } => {
                let Some(boundary) = matcher.boundary(left, right, &self.classes) else { return Across::Unknown };
                // The characters that may be there after the step.
                let side = |is: bool, never: bool, character: char, replacement: Option<char>| match (is, never) {
                    (_, true) => Some(vec![character]),
                    (true, _) => replacement.map(|replacement| vec![replacement]),
                    _ => replacement.map(|replacement| vec![character, replacement]),
                };
                let left = side(boundary.ends, boundary.never_ends, left, content.chars().next_back());
                let right = side(boundary.begins, boundary.never_begins, right, content.chars().next());
                let Some((left, right)) = left.zip(right) else { return Across::Unknown };
                let pairs = left.iter().flat_map(|&left| right.iter().map(move |&right| (left, right)));
                Across::Together(pairs.collect())
            }
            Step::Split { matcher, rule } => match matcher.boundary(left, right, &self.classes) {
                None => Across::Unknown,
                Some(boundary) if rule.separates(boundary) => Across::Separate,
                Some(_) => together(true),
            },
        }
    }
}

/// What a step does at a place between two characters, whatever stands around them.
enum Across {
    /// A piece ends there.
    Separate,
    /// Both sides are as they would be alone, except that they may be one piece; the characters that may be there after
    /// the step.
    Together(Vec<(char, char)>),
    Unknown,
}

/// Whether a prefix is put before a text.
fn is_wanted(text: &str, prefix: &str, rule: PrefixRule, start: Start) -> bool {
    match rule {
        PrefixRule::Always => start != Start::Cut,
        PrefixRule::Missing => !text.starts_with(prefix),
        PrefixRule::MissingAtStart => start == Start::Document && !text.starts_with(prefix),
    }
}
