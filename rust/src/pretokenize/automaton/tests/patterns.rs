//! Patterns: the matches of the automata are those of the engine.

use tokenizers::utils::SysRegex;

use super::{on_texts, Numbers, ALPHABET, SMALL};
use crate::pretokenize::automaton::dfa::Dfa;
use crate::pretokenize::automaton::sets::{Classes, Sets};
use crate::pretokenize::automaton::split::{Matcher, Unit};
use crate::pretokenize::automaton::syntax::parse;

/// A pattern as an automaton.
struct Compiled {
    matcher: Matcher,
    classes: Classes,
}

impl Compiled {
    fn new(pattern: &str) -> Option<Self> {
        let mut sets = Sets::default();
        let node = parse(pattern, &mut sets)?;
        let classes = Classes::new(&sets)?;
        Some(Self { matcher: Matcher::new(Dfa::new(&node, &classes)?, Unit::Character, &classes), classes })
    }

    fn matches(&self, text: &str) -> Vec<(usize, usize)> {
        let mut matches = Vec::new();
        self.matcher.matches(text, 0..text.len(), &self.classes, |at| matches.push((at.start, at.end)));
        matches
    }
}

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

/// Patterns of real tokenizers.
pub(super) fn real_patterns() -> Vec<String> {
    let upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
    let lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
    let space = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    let cl100k = |letters: &str, digits: &str| {
        format!(r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{space}")
    };
    let mut patterns = vec![
        // GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".to_string(),
        // Llama-3, Qwen-2, Qwen-3.5
        cl100k(r"\p{L}", r"\p{N}{1,3}"),
        cl100k(r"\p{L}", r"\p{N}"),
        cl100k(r"[\p{L}\p{M}]", r"\p{N}"),
        // GPT-4o, gpt-oss, Llama-4
        format!(
            r"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{space}"
        ),
        // Mistral-Nemo
        format!(
            r"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{space}"
        ),
        // tiktoken's cl100k_base with possessive quantifiers
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s".into(),
        // BLOOM
        r" ?[^(\s|[.,!?…。，、।۔،])]+".into(),
    ];
    // DeepSeek-V3, DeepSeek-Coder, Falcon
    patterns.extend(
        [
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            "[一-龥ࠀ-一가-퟿]+",
            "[0-9][0-9][0-9]",
        ]
        .map(String::from),
    );
    patterns
}

#[test]
fn automata_find_the_matches_of_the_engine_for_real_patterns() {
    let mut numbers = Numbers(1);
    for pattern in real_patterns() {
        let regex = SysRegex::new(&pattern).unwrap();
        let compiled = Compiled::new(&pattern).unwrap_or_else(|| panic!("{pattern} is refused"));
        let compare = |text: &str| {
            let engine: Vec<_> = regex.find_iter(text).collect();
            assert_eq!(compiled.matches(text), engine, "{pattern} on {text:?}");
        };
        for a in ALPHABET {
            for b in ALPHABET {
                ALPHABET.iter().for_each(|&c| compare(&String::from_iter([a, b, c])));
            }
        }
        on_texts(&mut numbers, 20_000, char::MAX, compare);
    }
}

fn random_bracket(numbers: &mut Numbers) -> String {
    const ITEMS: [&str; 16] =
        ["a", "b", "s", "k-t", "A-Z", r"\s", r"\S", r"\d", r"\p{L}", r"\P{L}", r"\n", " ", "'", "-", "1", "日"];
    let mut items: String = (0..1 + numbers.below(3)).map(|_| numbers.pick(&ITEMS)).collect();
    if numbers.below(10) == 0 {
        items += numbers.pick(&[r"\w", r"\W", "&&[^ab]", "[1 ]"]); // the engine is asked about the whole bracket
    }
    format!("[{}{items}]", numbers.pick(&["", "^"]))
}

/// A random pattern.
pub(super) fn random_pattern(numbers: &mut Numbers, depth: usize) -> String {
    const ATOMS: [&str; 38] = [
        "a",
        "b",
        "s",
        "A",
        " ",
        "1",
        "'",
        "日",
        r"\n",
        r"\s",
        r"\S",
        r"\p{L}",
        r"\p{N}",
        r"\p{Lu}",
        r"\d",
        r"\w",
        r"\W",
        ".",
        "[ab]",
        "[^a]",
        r"[^\s\p{L}\p{N}]",
        r"[\r\n]",
        r"[^\r\n\p{L}]",
        "[a-t]",
        "(?i:s)",
        "(?i:'s|'t|l)",
        "(?i:k)",
        "(?!a)",
        r"(?!\S)",
        r"(?=\s)",
        "(?=[b1])",
        "$",
        r"\z",
        r"\p{^L}",
        r"\P{M}",
        r"[\p{L}&&[^a]]",
        r"\x41",
        "(?i:[as])",
    ];
    const QUANTIFIERS: [&str; 18] =
        ["", "", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{2,}", "{0,2}", "{,2}"];
    let mut pattern = String::new();
    for alternative in 0..1 + numbers.below(3) {
        if alternative > 0 {
            pattern.push('|');
        }
        for _ in 0..1 + numbers.below(3) {
            if depth > 0 && numbers.below(4) == 0 {
                let open = numbers.pick(&["(?:", "(", "(?:", "(?=", "(?!"]);
                pattern.push_str(&format!("{open}{})", random_pattern(numbers, depth - 1)));
            } else {
                match numbers.below(8) {
                    0 => pattern.push_str(&random_bracket(numbers)),
                    1 => pattern
                        .push_str(&format!("(?i:{})", numbers.text(&['s', 'S', 't', 'f', 'i', 'l', 'k', '\''], 3))),
                    _ => pattern.push_str(numbers.pick(&ATOMS)),
                }
            }
            pattern.push_str(numbers.pick(&QUANTIFIERS));
        }
    }
    pattern
}

/// Compares random patterns with the engine; gives the number that were compared.
fn compare_random_patterns(numbers: &mut Numbers, n_patterns: usize, n_texts: usize) -> usize {
    let mut compared = 0;
    for _ in 0..n_patterns {
        let pattern = random_pattern(numbers, 2);
        let Some(compiled) = Compiled::new(&pattern) else { continue };
        let Ok(regex) = SysRegex::new(&pattern) else { continue };
        compared += 1;
        for _ in 0..n_texts {
            let text = numbers.text(&SMALL, 14);
            let engine: Vec<_> = regex.find_iter(&text).collect();
            assert_eq!(compiled.matches(&text), engine, "{pattern} on {text:?}");
        }
    }
    compared
}

#[test]
fn automata_find_the_matches_of_the_engine_for_random_patterns() {
    let compared = compare_random_patterns(&mut Numbers(2), 15_000, 60);
    assert!(compared > 1_500, "{compared}");
}

#[test]
fn long_attempts_that_find_nothing_are_not_repeated_at_every_place() {
    let mut numbers = Numbers(5);
    for pattern in [r"\s+$", "a+b|c", "(?:ab)+1", r"\S*?1", "(?:a|b)+(?:1|$)", r" *a+ *\n", "a{3}b?a{100,}1|b"] {
        let (compiled, regex) = (Compiled::new(pattern).unwrap(), SysRegex::new(pattern).unwrap());
        for _ in 0..300 {
            let run =
                |numbers: &mut Numbers| numbers.pick(&["a", " ", "ab", "b", "aaa ", "\n"]).repeat(numbers.below(200));
            let end = |numbers: &mut Numbers| numbers.pick(&["", "", "b", "1", "x", "\n", "c"]);
            let text: String = (0..4).map(|_| run(&mut numbers) + end(&mut numbers)).collect();
            let engine: Vec<_> = regex.find_iter(&text).collect();
            assert_eq!(compiled.matches(&text), engine, "{pattern} on {text:?}");
        }
    }
    let spaces = " ".repeat(3_000_000) + "x"; // quadratic time would be hours
    assert!(Compiled::new(r"\s+$").unwrap().matches(&spaces).is_empty());
}

#[test]
fn what_only_the_engine_can_do_is_refused() {
    let refused = [
        "",
        "a*",
        "(?:a*)+b",
        "(?<=a)b",
        "(?<!a)b",
        "^a",
        r"\ba",
        r"\Ga",
        r"\Aa",
        r"a\Z",
        "(?>a+)b",
        "(?:ab)++",
        r"(a)\1",
        r"\Rb",
        r"\Xb",
        "(?!ab)c",
        "(?=a|b)c",
        "(?i)a",
        "(?i:ss)",
        "(?i:st)",
        "(?i:f)(?i:i)",
        "(?i:s){2}",
        "(?i:é)",
        "(?i:[^a])",
        r"(?i:\p{L})",
        "[[:alpha:]]",
        "[]a]",
        "[a",
        "(a",
        "a)",
        "a{2",
        "a{3,2}",
        "a**",
        "a{2}+",
        "a{2}?",
        "(?#x)a",
        "(?<n>a)",
        r"\p{NoSuchName}",
        "(?=a).+b",
        r"\ha",
        r"\Ka",
        r"[z-a]",
    ];
    for pattern in refused {
        assert!(Compiled::new(pattern).is_none(), "{pattern}");
    }
    let deep = "(".repeat(100_000) + "a" + &")".repeat(100_000);
    let huge = ["a".repeat(100_000), "(?:a{1000}){1000}".into(), format!("[{}]", "ab".repeat(100_000)), deep];
    assert!(huge.iter().all(|pattern| Compiled::new(pattern).is_none()));
    assert!(Compiled::new("(?:a|b)*a(?:a|b){20}").is_none()); // two million states
}

#[test]
fn every_escape_and_bracket_is_read_as_the_engine_reads_it() {
    let text: String = ('\0'..='\u{250}').chain("‘’“”Kſ日\u{301}\u{2028}".chars()).collect();
    let characters: Vec<String> = (1u8..0x80).map(|byte| char::from(byte).to_string()).collect();
    let around = [
        ("", ""),
        ("\\", ""),
        ("[", "]"),
        ("[\\", "]"),
        ("[^", "]"),
        ("[a", "z]"),
        ("(?i:", ")"),
        ("[+-", "]"),
        ("[x&", "]"),
    ];
    let mut compared = 0;
    for (before, after) in around {
        for character in &characters {
            let pattern = format!("{before}{character}{after}");
            let (Some(compiled), Ok(regex)) = (Compiled::new(&pattern), SysRegex::new(&pattern)) else { continue };
            let engine: Vec<_> = regex.find_iter(&text).collect();
            assert_eq!(compiled.matches(&text), engine, "{pattern}");
            compared += 1;
        }
    }
    assert!(compared > 700, "{compared}");
    let every: String = ('\0'..=char::MAX).collect();
    for class in
        [r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\p{L}", r"\P{L}", r"\p{^L}", r"\p{Han}", r"\p{Alpha}", r"\p{Lu}"]
    {
        for pattern in
            [format!("{class}+"), format!("[{class}]+"), format!("[^{class}]+"), format!("[1{class}\u{e9}]+")]
        {
            let (compiled, regex) = (Compiled::new(&pattern).unwrap(), SysRegex::new(&pattern).unwrap());
            assert!(compiled.matches(&every).into_iter().eq(regex.find_iter(&every)), "{pattern}");
        }
    }
}

#[test]
#[ignore = "hours of random patterns; run it after a change of the parser: SEED=1 cargo test fuzz_patterns -- --ignored"]
fn fuzz_patterns() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("seed {seed}: {} patterns", compare_random_patterns(&mut Numbers(seed), 300_000, 200));
}
