//! The automaton of a pattern: reads classes of characters and knows after each whether a match has ended before it.
//!
//! A backtracking engine prefers the first alternative that leads to a match. So a state of the automaton is the ordered
//! list of the places in the pattern where that engine could be, the preferred one first, and the list ends where the
//! pattern does. What a look-ahead wants to know is the class that is read next. It is therefore decided when that class
//! is read, and a match is reported one character late, by the transition that reads the character after it.

use rustc_hash::FxHashMap;

use super::sets::Classes;
use super::syntax::Node;

const MOST_PLACES: usize = 4000;
const MOST_STATES: usize = 2000;
/// Places that are visited while an automaton is made: a limit on its time.
const MOST_VISITS: usize = 20_000_000;
/// Pairs of letters that some single character stands for if case is ignored: ß, ﬀ, ﬁ, ﬂ, ﬆ.
const LIGATURES: [[char; 2]; 5] = [['s', 's'], ['f', 'f'], ['f', 'i'], ['f', 'l'], ['s', 't']];

/// A place in a pattern, by what has to follow.
#[derive(Debug)]
enum Place {
    One {
        set: usize,
        folded: Vec<char>,
        then: usize,
    },
    Ahead {
        set: usize,
        or_end: bool,
        then: usize,
    },
    /// Any of these places, in order of preference.
    Either(Vec<usize>),
    Match,
}

/// The places of a pattern.
struct Places(Vec<Place>);

impl Places {
    fn add(&mut self, place: Place) -> Option<usize> {
        self.0.push(place);
        (self.0.len() <= MOST_PLACES).then_some(self.0.len() - 1)
    }

    /// The place where a node begins that is followed by another place.
    fn before(&mut self, node: &Node, then: usize) -> Option<usize> {
        match node {
            Node::One { set, folded } => self.add(Place::One { set: *set, folded: folded.clone(), then }),
            Node::Ahead { set, or_end } => self.add(Place::Ahead { set: *set, or_end: *or_end, then }),
            Node::Sequence(nodes) => nodes.iter().rev().try_fold(then, |then, node| self.before(node, then)),
            Node::Either(nodes) => {
                let starts: Option<Vec<usize>> = nodes.iter().map(|node| self.before(node, then)).collect();
                self.add(Place::Either(starts?))
            }
            Node::Repeat { body, least, most, lazy } => {
                let choice = |body, then| Place::Either(if *lazy { vec![then, body] } else { vec![body, then] });
                let mut start = then;
                match most {
                    Some(most) => {
                        for _ in *least..*most {
                            let body = self.before(body, start)?;
                            start = self.add(choice(body, then))?;
                        }
                    }
                    None => {
                        start = self.add(Place::Match)?; // replaced below
                        let body = self.before(body, start)?;
                        self.0[start] = choice(body, then);
                    }
                }
                (0..*least).try_fold(start, |start, _| self.before(body, start))
            }
        }
    }

    /// Whether two letters may follow each other, case ignored, that a single character stands for.
    fn has_ligature(&self) -> bool {
        let letters = |place: usize| match &self.0[place] {
            Place::One { folded, .. } => folded.as_slice(),
            _ => &[],
        };
        let (mut seen, mut pending) = (Vec::new(), Vec::new());
        self.0.iter().any(|place| match place {
            Place::One { folded, then, .. } if !folded.is_empty() => {
                seen.clear();
                seen.resize(self.0.len(), false);
                pending.push(*then);
                let mut found = false;
                while let Some(next) = pending.pop() {
                    if std::mem::replace(&mut seen[next], true) {
                        continue;
                    }
                    match &self.0[next] {
                        Place::Ahead { then, .. } => pending.push(*then),
                        Place::Either(places) => pending.extend(places),
                        Place::One { .. } | Place::Match => (),
                    }
                    let joins = |pair: &[char; 2]| folded.contains(&pair[0]) && letters(next).contains(&pair[1]);
                    found |= LIGATURES.iter().any(joins);
                }
                found
            }
            _ => false,
        })
    }
}

/// What is known about the place between two characters, whatever stands around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boundary {
    /// The left one is certainly the last character of a match, or certainly not.
    pub(super) ends: bool,
    pub(super) never_ends: bool,
    /// The right one is certainly the first character of a match, or certainly not.
    pub(super) begins: bool,
    pub(super) never_begins: bool,
}

/// The automaton of a pattern.
#[derive(Debug)]
pub(super) struct Dfa {
    /// For every state and class, the end of the text included: where the row of the next state begins, times two, plus
    /// one if a match ends before the character that was read.
    next: Vec<u32>,
    /// Entries in a row.
    width: usize,
    /// The states that lead to a match whatever follows.
    certain: Vec<bool>,
}

/// No match ends from here on.
pub(super) const DEAD: usize = 0;

impl Dfa {
    /// The automaton of a pattern, or None if it would be too large, or if the engine's case folding is in its way.
    pub(super) fn new(node: &Node, classes: &Classes) -> Option<Self> {
        let mut places = Places(vec![Place::Match]);
        let start = places.before(node, 0)?;
        if places.has_ligature() {
            return None;
        }
        let width = classes.end() + 1;
        let mut builder = Builder { places: &places, classes, seen: vec![0; places.0.len()], mark: 0, visits: 0 };
        let (mut states, mut numbers) = (vec![Vec::new(), vec![start]], FxHashMap::default());
        numbers.insert(states[0].clone(), DEAD);
        numbers.insert(states[1].clone(), 1);
        let mut next = vec![0; width];
        let mut at = 1;
        while at < states.len() {
            for class in 0..width {
                let (state, matched) = builder.step(&states[at], class)?;
                let number = *numbers.entry(state).or_insert_with_key(|state| {
                    states.push(state.clone());
                    states.len() - 1
                });
                next.push(u32::try_from(number * width * 2 + usize::from(matched)).ok()?);
            }
            at += 1;
            if states.len() > MOST_STATES {
                return None;
            }
        }
        let mut dfa = Self { next, width, certain: Vec::new() };
        dfa.trim();
        dfa.certain = dfa.certain_states();
        Some(dfa)
    }

    /// The first state.
    #[inline(always)]
    pub(super) fn start(&self) -> usize {
        self.width
    }

    /// The state after reading a class, and whether a match ended before it.
    #[inline(always)]
    pub(super) fn read(&self, state: usize, class: usize) -> (usize, bool) {
        let next = self.next[state + class];
        ((next >> 1) as usize, next & 1 == 1)
    }

    /// For every state and class where the next state begins, times two, plus one after a match; and the width of a row.
    /// The first row is of the dead state, the second of the first one.
    pub(super) fn table(&self) -> (&[u32], usize) {
        (&self.next, self.width)
    }

    fn end(&self) -> usize {
        self.width - 1
    }

    fn states(&self) -> impl Iterator<Item = usize> {
        (self.width..self.next.len()).step_by(self.width)
    }

    /// Makes the states dead from which no match can be reached.
    fn trim(&mut self) {
        let mut live = vec![false; self.next.len()];
        let mut grows = true;
        while grows {
            grows = false;
            for state in self.states() {
                let reaches = |&next: &u32| next & 1 == 1 || live[(next >> 1) as usize];
                if !live[state] && self.next[state..state + self.width].iter().any(reaches) {
                    live[state] = true;
                    grows = true;
                }
            }
        }
        for next in &mut self.next {
            if !live[(*next >> 1) as usize] {
                *next &= 1;
            }
        }
    }

    fn certain_states(&self) -> Vec<bool> {
        let mut certain = vec![true; self.next.len()];
        certain[DEAD] = false;
        let mut shrinks = true;
        while shrinks {
            shrinks = false;
            for state in self.states() {
                let matches = |class: usize| {
                    let (next, matched) = self.read(state, class);
                    matched || class != self.end() && certain[next]
                };
                if certain[state] && !(0..self.width).all(matches) {
                    certain[state] = false;
                    shrinks = true;
                }
            }
        }
        certain
    }

    /// What is known about the place between two classes. None if a match may span it, or look across it.
    pub(super) fn boundary(&self, left: usize, right: usize) -> Option<Boundary> {
        let mut may_end = false;
        for state in self.states() {
            let (after, _) = self.read(state, left);
            if after == DEAD {
                continue;
            }
            let (across, ended) = self.read(after, right);
            if across != DEAD || ended != self.read(after, self.end()).1 {
                return None;
            }
            may_end |= ended;
        }
        let alone = self.read(self.start(), left).0;
        let first = self.read(self.start(), right).0;
        Some(Boundary {
            ends: alone != DEAD && self.read(alone, right).1,
            never_ends: !may_end,
            begins: self.certain[first],
            never_begins: first == DEAD,
        })
    }
}

/// Finds the states of an automaton.
struct Builder<'p> {
    places: &'p Places,
    classes: &'p Classes,
    /// In which step a place was seen last.
    seen: Vec<usize>,
    mark: usize,
    visits: usize,
}

impl Builder<'_> {
    /// The state after a state when a class is read, and whether a match ended before it. None: it takes too long.
    fn step(&mut self, state: &[usize], class: usize) -> Option<(Vec<usize>, bool)> {
        self.mark += 1;
        let mut next: Vec<usize> = Vec::new();
        let mut pending: Vec<usize> = state.iter().rev().copied().collect();
        while let Some(place) = pending.pop() {
            self.visits += 1;
            if self.visits > MOST_VISITS {
                return None;
            }
            if std::mem::replace(&mut self.seen[place], self.mark) == self.mark {
                continue;
            }
            match &self.places.0[place] {
                Place::One { set, then, .. } if self.classes.has(*set, class) => {
                    self.visits += next.len();
                    if !next.contains(then) {
                        next.push(*then);
                    }
                }
                Place::Ahead { set, or_end, then } => {
                    let is_end = class == self.classes.end();
                    if if is_end { *or_end } else { self.classes.has(*set, class) } {
                        pending.push(*then);
                    }
                }
                Place::Either(places) => pending.extend(places.iter().rev()),
                Place::Match => return Some((next, true)),
                Place::One { .. } => (),
            }
        }
        Some((next, false))
    }
}
