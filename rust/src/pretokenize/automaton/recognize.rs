//! Reads the normalizer and the pre-tokenizer of a `tokenizer.json` as steps that automata can run. A step with a
//! setting that is not known here is refused.

use serde_json::Value;

use super::dfa::Dfa;
use super::map::CharacterMap;
use super::sets::{Classes, Set, Sets};
use super::split::{Behavior, Matcher, Rule, Unit};
use super::steps::{PrefixRule, Step};
use super::syntax::{parse, Node};
use crate::pretokenize::normalize::Form;

/// The pattern that byte-level pre-tokenizers have built in.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// A pipeline with more steps is refused: every step is a call inside that of the step before it.
const MOST_STEPS: usize = 64;

/// A step whose pattern, if it has one, is not compiled yet.
enum Draft {
    Ready(Step),
    Replace {
        pattern: Node,
        content: String,
    },
    Split {
        pattern: Node,
        rule: Rule,
    },
    /// From here on, every byte is a character of its own.
    Bytes,
}

/// The steps of a pipeline and the classes of characters they tell apart. None if a step is not known.
pub(super) fn recognize(normalizer: &Value, pre_tokenizer: &Value, byte_level: bool) -> Option<(Vec<Step>, Classes)> {
    let mut drafts = Drafts::default();
    let (normalizers, pre_tokenizers) = (parts(normalizer, "normalizers")?, parts(pre_tokenizer, "pretokenizers")?);
    // How many spaces there are does not matter if they are removed, and nothing in between changes them.
    let removes_spaces = |step: &&Value| step["type"] == "WhitespaceSplit" || step["type"] == "BertPreTokenizer";
    let keeps_spaces = |step: &&Value| CharacterMap::knows(step) && step["type"] != "Precompiled";
    let is_idle = |place: usize| {
        let rest = &normalizers[place..];
        joins_spaces(rest[0]) && rest.iter().all(|step| keeps_spaces(step) || joins_spaces(step))
    };
    let drops_spaces = pre_tokenizers.first().is_some_and(removes_spaces);
    for (place, step) in normalizers.iter().enumerate() {
        if !(drops_spaces && is_idle(place)) {
            drafts.normalizer(step)?;
        }
        drafts.moves_start |= !(keeps_start(step) || place == 0 && step["type"] == "Precompiled");
    }
    for step in pre_tokenizers {
        drafts.pre_tokenizer(step)?;
        drafts.moves_start = true;
    }
    let bytes = drafts.steps.iter().filter(|step| matches!(step, Draft::Bytes)).count();
    if bytes != usize::from(byte_level) || drafts.steps.len() > MOST_STEPS {
        return None;
    }
    let classes = Classes::new(&drafts.sets)?;
    let mut unit = Unit::Character;
    let mut steps = Vec::new();
    for draft in drafts.steps {
        let matcher = |pattern: Node| Some(Matcher::new(Dfa::new(&pattern, &classes)?, unit, &classes));
        match draft {
            Draft::Split { pattern, rule } => steps.push(Step::Split { matcher: matcher(pattern)?, rule }),
            Draft::Bytes => unit = Unit::Byte,
            // The text is that of the byte-level alphabet now; nothing changes it any more.
            _ if unit == Unit::Byte => return None,
            Draft::Ready(step) => steps.push(step),
            Draft::Replace { pattern, content } => steps.push(Step::Replace { matcher: matcher(pattern)?, content }),
        }
    }
    Some((steps, classes))
}

/// Whether a normalizer makes one space of several.
fn joins_spaces(step: &Value) -> bool {
    joined_spaces(step) == Some(" ")
}

/// What several spaces become in a normalizer that does nothing else.
fn joined_spaces(step: &Value) -> Option<&str> {
    let is = step["type"] == "Replace" && step["pattern"]["Regex"] == " {2,}";
    step["content"].as_str().filter(|_| is)
}

/// Whether the first character after a normalizer still is at the beginning of the document for the crate, or is a
/// space or `▁`, before which no `▁` is put. Compiled rules keep it too, but may make something else of such a space.
fn keeps_start(step: &Value) -> bool {
    let joins = joined_spaces(step).is_some_and(|content| matches!(content, " " | "▁"));
    joins || step["type"] == "Strip" && step["strip_left"] == false
}

/// The steps of a normalizer or pre-tokenizer; sequences, nested ones too, by their steps.
fn parts<'v>(step: &'v Value, name: &str) -> Option<Vec<&'v Value>> {
    if step.is_null() {
        return Some(Vec::new());
    }
    if step["type"] != "Sequence" {
        return Some(vec![step]);
    }
    let parts: Option<Vec<Vec<&Value>>> = step[name].as_array()?.iter().map(|part| parts(part, name)).collect();
    Some(parts?.concat())
}

#[derive(Default)]
struct Drafts {
    steps: Vec<Draft>,
    sets: Sets,
    /// Whether white space was removed.
    has_no_spaces: bool,
    /// Whether the crate may have lost the beginning of the document in some step: see [`keeps_start`].
    moves_start: bool,
}

impl Drafts {
    fn normalizer(&mut self, step: &Value) -> Option<()> {
        if CharacterMap::knows(step) {
            return self.map(step);
        }
        let draft = match step["type"].as_str()? {
            "Strip" => {
                let [left, right] = [step["strip_left"].as_bool()?, step["strip_right"].as_bool()?];
                Draft::Ready(Step::Strip { left, right })
            }
            "NFC" => Draft::Ready(Step::Normalize(Form::Nfc)),
            "NFKC" => Draft::Ready(Step::Normalize(Form::Nfkc)),
            "Prepend" => {
                let prefix = step["prepend"].as_str().filter(|prefix| !prefix.is_empty())?.to_string();
                Draft::Ready(Step::Prefix { prefix, rule: PrefixRule::Always, is_split: false })
            }
            "Replace" => {
                Draft::Replace { pattern: self.pattern(&step["pattern"])?, content: step["content"].as_str()?.into() }
            }
            _ => return None,
        };
        self.steps.push(draft);
        Some(())
    }

    /// A normalizer of single characters. Those in a row are one.
    fn map(&mut self, step: &Value) -> Option<()> {
        if let Some(Draft::Ready(Step::Map(map))) = self.steps.last_mut() {
            return map.push(step);
        }
        let mut map = CharacterMap::new();
        map.push(step)?;
        self.ready(Step::Map(map));
        Some(())
    }

    fn pre_tokenizer(&mut self, step: &Value) -> Option<()> {
        let isolated = Rule { behavior: Behavior::Isolated, invert: false };
        match step["type"].as_str()? {
            "Split" => {
                let rule = Rule { behavior: behavior(&step["behavior"])?, invert: step["invert"].as_bool()? };
                let pattern = self.pattern(&step["pattern"])?;
                self.split(pattern, rule);
            }
            "ByteLevel" => self.byte_level(step)?,
            "Digits" => {
                let individual = step["individual_digits"].as_bool()?;
                let behavior = if individual { Behavior::Isolated } else { Behavior::Contiguous };
                self.split_at(Set::by(char::is_numeric), Rule { behavior, invert: false });
            }
            "Punctuation" => {
                let behavior = step.get("behavior").map_or(Some(isolated.behavior), behavior)?;
                self.split_at(Set::punctuation()?, Rule { behavior, invert: false });
            }
            "WhitespaceSplit" => self.whitespace_split(),
            "BertPreTokenizer" => {
                self.whitespace_split();
                self.split_at(Set::punctuation()?, isolated);
            }
            "Whitespace" => self.whitespace()?,
            "Metaspace" => self.metaspace(step)?,
            _ => return None,
        }
        Some(())
    }

    fn pattern(&mut self, pattern: &Value) -> Option<Node> {
        match (&pattern["String"], &pattern["Regex"]) {
            (Value::String(string), Value::Null) if !string.is_empty() => Some(Node::literal(string, &mut self.sets)),
            (Value::Null, Value::String(regex)) => parse(regex, &mut self.sets),
            _ => None,
        }
    }

    fn ready(&mut self, step: Step) {
        self.steps.push(Draft::Ready(step));
    }

    fn split(&mut self, pattern: Node, rule: Rule) {
        self.steps.push(Draft::Split { pattern, rule });
    }

    fn split_at(&mut self, set: Set, rule: Rule) {
        let pattern = Node::one(set, &mut self.sets);
        self.split(pattern, rule);
    }

    fn whitespace_split(&mut self) {
        if let Some(Draft::Ready(Step::Map(map))) = self.steps.last_mut() {
            map.separate_words();
        }
        self.split_at(Set::by(char::is_whitespace), Rule { behavior: Behavior::Removed, invert: false });
        self.has_no_spaces = true;
    }

    fn byte_level(&mut self, step: &Value) -> Option<()> {
        if step["add_prefix_space"].as_bool()? {
            self.ready(Step::Prefix { prefix: " ".into(), rule: PrefixRule::Missing, is_split: false });
        }
        if step.get("use_regex").map_or(Some(true), Value::as_bool)? {
            let pattern = parse(GPT2, &mut self.sets)?;
            self.split(pattern, Rule { behavior: Behavior::Isolated, invert: false });
        }
        self.steps.push(Draft::Bytes);
        Some(())
    }

    /// `\w+|[^\w\s]+`, and what is between matches is removed.
    fn whitespace(&mut self) -> Option<()> {
        let (words, spaces) = Set::words_and_spaces()?;
        let others = words.clone().union(spaces).complement();
        let mut run = |set| {
            let body = Box::new(Node::one(set, &mut self.sets));
            Node::Repeat { body, least: 1, most: None, lazy: false }
        };
        let pattern = Node::Either(vec![run(words), run(others)]);
        self.split(pattern, Rule { behavior: Behavior::Removed, invert: true });
        Some(())
    }

    fn metaspace(&mut self, step: &Value) -> Option<()> {
        let replacement = step["replacement"].as_str()?.to_string();
        let rule = match step.get("prepend_scheme").map_or(Some("always"), Value::as_str)? {
            "always" => Some(PrefixRule::Missing),
            "first" if !self.moves_start && (self.steps.is_empty() || replacement == "▁") => {
                Some(PrefixRule::MissingAtStart)
            }
            "never" => None,
            _ => return None,
        };
        if !self.has_no_spaces {
            let pattern = Node::literal(" ", &mut self.sets);
            self.steps.push(Draft::Replace { pattern, content: replacement.clone() });
        }
        let is_split = match step.get("split") {
            None | Some(Value::Null) => true,
            Some(split) => split.as_bool()?,
        };
        if let [.., Draft::Ready(Step::Map(map)), Draft::Split { .. }] = self.steps.as_mut_slice() {
            if rule == Some(PrefixRule::Missing) && is_split {
                map.put_before_words(&replacement);
            }
        }
        if let Some(rule) = rule {
            self.ready(Step::Prefix { prefix: replacement.clone(), rule, is_split });
        }
        if is_split {
            let pattern = Node::literal(&replacement, &mut self.sets);
            self.split(pattern, Rule { behavior: Behavior::MergedWithNext, invert: false });
        }
        Some(())
    }
}

fn behavior(name: &Value) -> Option<Behavior> {
    serde_json::from_value(name.clone()).ok()
}
