//! Reads split patterns: the part of Oniguruma's syntax whose matches an automaton can find exactly.
//!
//! Whatever is not listed here is refused, and the pipeline goes to the `tokenizers` crate: captures that are referred
//! to, look-behind, look-ahead of more than one character, atomic groups, loops over something that may be empty, line
//! starts and word boundaries, and the many names that only Oniguruma has.

use super::sets::{Set, Sets};
use crate::pretokenize::unicode::category;

const DEEPEST: usize = 40;
const MOST_REPEATS: u32 = 1000;
const LONGEST: usize = 20_000;

/// A pattern, with its sets of characters by number.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// One character of a set. `folded` has the ASCII letters that it stands for where case is ignored.
    One {
        set: usize,
        folded: Vec<char>,
    },
    /// Nothing, if the next character is in the set, or if there is none and `or_end` is set.
    Ahead {
        set: usize,
        or_end: bool,
    },
    Sequence(Vec<Node>),
    /// The first alternative that leads to a match.
    Either(Vec<Node>),
    Repeat {
        body: Box<Node>,
        least: u32,
        most: Option<u32>,
        lazy: bool,
    },
}

impl Node {
    /// One character of a set.
    pub(super) fn one(set: Set, sets: &mut Sets) -> Self {
        Self::One { set: sets.number(set), folded: Vec::new() }
    }

    /// A string, literally.
    pub(super) fn literal(string: &str, sets: &mut Sets) -> Self {
        Self::Sequence(string.chars().map(|character| Self::one(Set::of(character), sets)).collect())
    }

    fn may_be_empty(&self) -> bool {
        match self {
            Self::One { .. } => false,
            Self::Ahead { .. } => true,
            Self::Sequence(nodes) => nodes.iter().all(Self::may_be_empty),
            Self::Either(nodes) => nodes.iter().any(Self::may_be_empty),
            Self::Repeat { body, least, .. } => *least == 0 || body.may_be_empty(),
        }
    }
}

/// Reads a pattern. None if it may have other matches than this reading of it.
pub(super) fn parse(pattern: &str, sets: &mut Sets) -> Option<Node> {
    if pattern.len() > LONGEST {
        return None;
    }
    let mut parser = Parser { rest: pattern, sets, ignores_case: false, depth: 0 };
    let node = parser.alternatives()?;
    (parser.rest.is_empty() && !node.may_be_empty()).then_some(node)
}

struct Parser<'p> {
    rest: &'p str,
    sets: &'p mut Sets,
    ignores_case: bool,
    depth: usize,
}

/// What an item of a bracket expression is.
enum Item {
    Character(char),
    Set(Set),
}

impl Item {
    fn set(self) -> Set {
        match self {
            Self::Character(character) => Set::of(character),
            Self::Set(set) => set,
        }
    }
}

impl<'p> Parser<'p> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn skip(&mut self, prefix: &str) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    fn alternatives(&mut self) -> Option<Node> {
        let mut alternatives = vec![self.sequence()?];
        while self.skip("|") {
            alternatives.push(self.sequence()?);
        }
        Some(if alternatives.len() == 1 { alternatives.remove(0) } else { Node::Either(alternatives) })
    }

    fn sequence(&mut self) -> Option<Node> {
        let mut nodes = Vec::new();
        while self.peek().is_some_and(|next| !matches!(next, '|' | ')')) {
            let is_any = self.peek() == Some('.');
            let node = self.atom()?;
            let node = self.repeated(node)?;
            if is_any && matches!(node, Node::Repeat { most: None, .. } | Node::Sequence(_)) {
                return None; // the engine looks for `.+` at the beginning of lines only, and then misses `(?=\s).+a`
            }
            nodes.push(node);
        }
        Some(Node::Sequence(nodes))
    }

    fn atom(&mut self) -> Option<Node> {
        match self.next()? {
            '(' => self.group(),
            '[' => self.bracket(),
            '.' if !self.ignores_case => Some(Node::one(Set::of('\n').complement(), self.sets)),
            '$' => Some(Node::Ahead { set: self.sets.number(Set::of('\n')), or_end: true }),
            '\\' if self.skip("z") => Some(Node::Ahead { set: self.sets.number(Set::default()), or_end: true }),
            '\\' => match self.escaped()? {
                Item::Character(character) => self.literal(character),
                Item::Set(_) if self.ignores_case => None,
                Item::Set(set) => Some(Node::one(set, self.sets)),
            },
            '.' | '*' | '+' | '?' | '{' | '}' | ']' | '^' => None,
            character => self.literal(character),
        }
    }

    fn literal(&mut self, character: char) -> Option<Node> {
        if self.ignores_case {
            self.folded(Set::of(character))
        } else {
            Some(Node::one(Set::of(character), self.sets))
        }
    }

    /// One character of a set where case is ignored: only ASCII, and punctuation, which has no case.
    fn folded(&mut self, set: Set) -> Option<Node> {
        let is_punctuation = || {
            let punctuation = category("P").map(Set::new).unwrap_or_default();
            set.clone().union(punctuation.clone()) == punctuation
        };
        if !set.is_ascii() && !is_punctuation() {
            return None;
        }
        let letters: Vec<char> =
            set.characters().filter(char::is_ascii_alphabetic).map(|letter| letter.to_ascii_lowercase()).collect();
        let mut folded = set;
        for letter in &letters {
            folded = folded.union(Set::of(*letter)).union(Set::of(letter.to_ascii_uppercase()));
            // The Kelvin sign and the long s are the only other characters whose case folds to ASCII.
            match letter {
                'k' => folded = folded.union(Set::of('\u{212a}')),
                's' => folded = folded.union(Set::of('\u{17f}')),
                _ => (),
            }
        }
        Some(Node::One { set: self.sets.number(folded), folded: letters })
    }

    fn group(&mut self) -> Option<Node> {
        self.depth += 1;
        let ignored_case = self.ignores_case;
        let is_ahead = self.skip("?=");
        let is_not_ahead = !is_ahead && self.skip("?!");
        if !is_ahead && !is_not_ahead && self.peek() == Some('?') {
            match () {
                () if self.skip("?:") => (),
                () if self.skip("?i:") => self.ignores_case = true,
                () => return None,
            }
        }
        let node = if self.depth > DEEPEST { None } else { self.alternatives() }?;
        self.ignores_case = ignored_case;
        self.depth -= 1;
        if !self.skip(")") {
            return None;
        }
        match node {
            node if !is_ahead && !is_not_ahead => Some(node),
            Node::Sequence(nodes) => match nodes[..] {
                // A look-ahead of one character.
                [Node::One { set, .. }] if is_ahead => Some(Node::Ahead { set, or_end: false }),
                [Node::One { set, .. }] => Some(self.not_ahead(set)),
                _ => None,
            },
            _ => None,
        }
    }

    fn not_ahead(&mut self, set: usize) -> Node {
        let others = self.sets.get(set).complement();
        Node::Ahead { set: self.sets.number(others), or_end: true }
    }

    fn repeated(&mut self, body: Node) -> Option<Node> {
        let Some((least, most, is_interval)) = self.quantifier()? else { return Some(body) };
        if body.may_be_empty() {
            return None; // the engine has rules of its own for loops that do not advance
        }
        let lazy = !is_interval && self.skip("?");
        let possessive = !is_interval && !lazy && self.skip("+");
        if self.peek().is_some_and(|next| matches!(next, '*' | '+' | '?' | '{')) {
            return None; // a quantifier of a quantifier
        }
        let single = if let Node::One { set, .. } = &body { Some(*set) } else { None };
        let repeat = |least, most| Node::Repeat { body: Box::new(body), least, most, lazy };
        match (possessive, single, most) {
            (false, ..) => Some(repeat(least, most)),
            // What takes all it can and gives nothing back is followed by something else.
            (true, Some(set), None) => Some(Node::Sequence(vec![repeat(least, most), self.not_ahead(set)])),
            (true, Some(set), _) => Some(Node::Either(vec![repeat(1, Some(1)), self.not_ahead(set)])),
            (true, None, _) => None,
        }
    }

    /// The least and the most repetitions of a quantifier, and whether it is an interval in braces; or that there is none.
    #[allow(clippy::type_complexity)]
    fn quantifier(&mut self) -> Option<Option<(u32, Option<u32>, bool)>> {
        let quantifier = match self.peek() {
            Some('*') => (0, None, false),
            Some('+') => (1, None, false),
            Some('?') => (0, Some(1), false),
            Some('{') => return self.interval().map(Some),
            _ => return Some(None),
        };
        self.next();
        Some(Some(quantifier))
    }

    /// `{2}`, `{2,}`, `{,3}` or `{2,3}`.
    fn interval(&mut self) -> Option<(u32, Option<u32>, bool)> {
        let (inside, rest) = self.rest.strip_prefix('{')?.split_once('}')?;
        self.rest = rest;
        let number = |digits: &str| {
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|number| is_plain && *number <= MOST_REPEATS)
        };
        let (least, most) = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some(("", most)) => (0, Some(number(most)?)),
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        most.is_none_or(|most| least <= most && most > 0).then_some((least, most, true))
    }

    /// A bracket expression, whose `[` was read. One with others inside is left to the engine.
    fn bracket(&mut self) -> Option<Node> {
        let whole = self.rest;
        let set = match self.plain_bracket() {
            Some(set) => set,
            None => {
                self.rest = whole;
                self.nested_bracket()?
            }
        };
        if self.ignores_case {
            self.folded(set)
        } else {
            Some(Node::one(set, self.sets))
        }
    }

    fn plain_bracket(&mut self) -> Option<Set> {
        let negated = self.skip("^");
        let mut sets = Vec::new();
        while sets.is_empty() || !self.skip("]") {
            sets.push(match self.item(sets.is_empty())? {
                Item::Character(first) if self.rest.starts_with('-') && !self.rest.starts_with("-]") => {
                    self.next();
                    match self.item(false)? {
                        Item::Character(last) if first <= last => Set::range(first, last),
                        _ => return None,
                    }
                }
                item => item.set(),
            });
        }
        let set = Set::all(sets);
        Some(if negated { set.complement() } else { set })
    }

    fn item(&mut self, is_first: bool) -> Option<Item> {
        match self.next()? {
            '[' | ']' => None,
            '&' if self.peek() == Some('&') => None,
            // A hyphen stands for itself only at the beginning or the end.
            '-' if !is_first && self.peek() != Some(']') => None,
            // The engine has other words in brackets than outside them.
            '\\' if self.peek().is_some_and(|next| matches!(next, 'w' | 'W')) => None,
            '\\' => self.escaped(),
            character => Some(Item::Character(character)),
        }
    }

    fn nested_bracket(&mut self) -> Option<Set> {
        let text = self.rest;
        let mut depth = 1;
        while depth > 0 {
            match self.next()? {
                '[' if self.peek().is_some_and(|next| matches!(next, ':' | ']')) || self.rest.starts_with("^]") => {
                    return None;
                }
                '[' => depth += 1,
                ']' => depth -= 1,
                '\\' => self.escaped().map(|_| ())?,
                _ => (),
            }
        }
        let is_plain_start = !text.starts_with([']', ':']) && !text.starts_with("^]");
        let bracket = &text[..text.len() - self.rest.len()];
        (is_plain_start && !self.ignores_case).then(|| Set::by_engine(&format!("[{bracket}")))?
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Option<Item> {
        Some(match self.next()? {
            's' => Item::Set(Set::white_space()),
            'S' => Item::Set(Set::white_space().complement()),
            'd' => Item::Set(Set::property("Nd")?),
            'D' => Item::Set(Set::property("Nd")?.complement()),
            'w' => Item::Set(Set::by_engine(r"\w")?),
            'W' => Item::Set(Set::by_engine(r"\W")?),
            'p' => Item::Set(self.property()?),
            'P' => Item::Set(self.property()?.complement()),
            'n' => Item::Character('\n'),
            'r' => Item::Character('\r'),
            't' => Item::Character('\t'),
            'f' => Item::Character('\u{c}'),
            'x' => Item::Character(self.code()?),
            'u' => Item::Character(self.hexadecimal(4)?),
            // Other syntaxes have anchors of these names.
            '<' | '>' | '`' | '\'' => return None,
            character if character.is_ascii_punctuation() => Item::Character(character),
            _ => return None,
        })
    }

    fn property(&mut self) -> Option<Set> {
        let (name, rest) = self.rest.strip_prefix('{')?.split_once('}')?;
        self.rest = rest;
        let is_negated = name.starts_with('^');
        let set = Set::property(name.strip_prefix('^').unwrap_or(name))?;
        Some(if is_negated { set.complement() } else { set })
    }

    /// `41` or `{1f642}`.
    fn code(&mut self) -> Option<char> {
        match self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((digits, _)) => {
                self.next();
                let character = self.hexadecimal(digits.len())?;
                self.skip("}").then_some(character)
            }
            // A byte of UTF-8 rather than a character from 80 on.
            None => self.hexadecimal(2).filter(char::is_ascii),
        }
    }

    fn hexadecimal(&mut self, digits: usize) -> Option<char> {
        let (number, rest) =
            self.rest.split_at_checked(digits).filter(|(number, _)| (1..=6).contains(&number.len()))?;
        let is_plain = number.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.rest = rest;
        char::from_u32(u32::from_str_radix(number, 16).ok()?).filter(|_| is_plain)
    }
}
