"""Mutations of a JSON tree, which stays well-formed: values of other types, numbers at limits, other keys, subtrees."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.byte_mutations import mutate_bytes

RAW = re.compile(r'"@raw ([^"]*)@"')
"""A string that stands for JSON text that Python would not write, with `'` for `"`."""
DEPTHS = (2, 20, 127, 128, 129, 500, 5000, 100_000)
NUMBERS = (0, 1, -1, 2, 255, 256, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30)
FLOATS = (0.0, 0.5, -0.5, 1.0, 1e308, 5e-324, float("nan"), float("inf"), "@raw 1e999@", "@raw -0@", "@raw 1E2@")
STRINGS = ("", " ", "a", "the", "▁", "Ġ", "Ġthe", "<unk>", "<s>", "<0x41>", "<|end|>", "\0", "\n", "\ud800", "\udc00a")
STRINGS += ("😀", "e\u0301", "İ", "ﬁ", "\u2028", "a b", "../x", "/", "0", "-1", "1e5", "true", "x" * 300, "ab" * 20_000)
NAMES = ("BPE", "Unigram", "WordPiece", "Sequence", "ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "Regex")
NAMES += ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "NFC", "NFKC")
NAMES += ("NFD", "NFKD", "Lowercase", "Strip", "StripAccents", "Replace", "Prepend", "BertNormalizer", "Nmt", "String")
NAMES += ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous", "first", "never", "always")
NAMES += ("BF16", "F16", "F32", "F64", "I64", "U8", "BOOL", "F8_E4M3", "model.embed_tokens.weight", "lm_head.weight")
PATTERNS = (
    r"\p{L}+",
    r"\s+(?!\S)|\s+",
    "(?i:'s)",
    "[^\\s\\p{L}]",
    "(",
    "[",
    "a{2,1}",
    "(a*)*b",
    r"\p{N}{1,3}",
    ".",
    "",
)
PATTERNS += (
    "a{9999999}",
    r"\w+|[^\w\s]+",
    "(?=x)",
    r"\bx",
    "[a-",
    r"[\s\S]",
    "$",
    "^",
    "x?",
    "|",
    r"\p{Xx}",
    "(?<n>a)",
)
KEYS = ("type", "id", "content", "special", "normalized", "lstrip", "rstrip", "single_word", "vocab", "merges", "model")
KEYS += ("ignore_merges", "byte_fallback", "dropout", "unk_token", "fuse_unk", "continuing_subword_prefix")
KEYS += ("end_of_word_suffix", "cache_capacity", "add_prefix_space", "use_regex", "invert", "behavior", "pattern")
KEYS += ("eos_token", "bos_token", "pad_token", "image_token", "extra_special_tokens", "additional_special_tokens")
KEYS += ("added_tokens_decoder", "eos_token_id", "vocab_size", "text_config", "tie_word_embeddings", "suppress_tokens")
KEYS += (
    "dtype",
    "shape",
    "data_offsets",
    "__metadata__",
    "weight_map",
    "metadata",
    "",
    "a",
    "\ud800",
    "0",
    "__class__",
)

Tree = Any


class Doubled(dict[str, Any]):
    """An object that is written with one key twice."""

    extra: tuple[str, Any]

    def items(self) -> Any:
        """All pairs and the one that repeats a key."""
        return [*super().items(), self.extra]


def mutate_json(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A JSON file with one to four changes of its tree, in one of several layouts; as bytes if it is no JSON."""
    try:
        tree = json.loads(raw)
    except (ValueError, RecursionError):
        return mutate_bytes(raw, random, donors)
    donor = json.loads(random.choice(donors)) if donors else tree
    for _ in range(random.choice((1, 1, 1, 1, 2, 4))):
        tree = _changed(tree, random, [donor])
    return dump(tree, random)


def dump(tree: Tree, random: Random) -> bytes:
    """The tree as JSON text."""
    indent = random.choice((None, None, None, 2, "\t"))
    separators = random.choice(((",", ":"), (", ", ": "), None)) if indent is None else None
    ascii_only = random.random() < 0.5
    text = json.dumps(tree, ensure_ascii=ascii_only, indent=indent, separators=separators)
    return RAW.sub(lambda raw: raw[1].replace("'", '"'), text).encode("utf-8", "surrogatepass") + b"\n" * (
        random.random() < 0.1
    )


def random_value(random: Random) -> Tree:
    """A value that a parser may not expect."""
    kind = random.randrange(12)
    if kind == 0:
        depth = random.choice(DEPTHS)
        return "@raw " + random.choice(("[" * depth + "]" * depth, "{'a':" * depth + "1" + "}" * depth)) + "@"
    if kind == 1:
        return random.choice((None, True, False, [], {}, [[]], [None], {"": {}}, {"a": 1}, ["a", "b"], [0, 1]))
    if kind == 2:
        return "@raw " + "9" * random.choice((20, 400, 5000)) + "@"
    options: tuple[Any, ...] = (NUMBERS, FLOATS, STRINGS, NAMES, PATTERNS, (None, True, False))
    return random.choice(random.choice(options))


def _changed(tree: Tree, random: Random, donors: list[Tree]) -> Tree:
    """The tree with one change at a random node. Copies what it changes.

    Args:
        tree: The tree.
        random: Decides everything.
        donors: The node at the same place of another tree, after those above it as far as that has them.
    """
    if isinstance(tree, dict) and tree and random.random() < 0.85:
        key = random.choice(list(tree))
        return _keep(tree, {**tree, key: _changed(tree[key], random, [*donors, *_inner(donors[-1], key)])})
    if isinstance(tree, list) and tree and random.random() < 0.75:
        at = random.randrange(len(tree))
        inner = [*donors, *_inner(donors[-1], random.randrange(len(tree)))]
        return [*tree[:at], _changed(tree[at], random, inner), *tree[at + 1 :]]
    return random.choice(_CHANGES)(tree, random, donors)


def _inner(tree: Tree, key: str | int) -> list[Tree]:
    """The value at a key or place, if there is one."""
    if isinstance(tree, dict):
        return [tree[key]] if key in tree else []
    return [tree[key]] if isinstance(tree, list) and isinstance(key, int) and key < len(tree) else []


def _keep(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """An object that had a key twice still has it."""
    if not isinstance(old, Doubled):
        return new
    doubled = Doubled(new)
    doubled.extra = old.extra
    return doubled


def _replace(_: Tree, random: Random, __: list[Tree]) -> Tree:
    return random_value(random)


def _from_donor(_: Tree, random: Random, donors: list[Tree]) -> Tree:
    """A subtree of another file, most often the one at the same place."""
    if random.random() < 0.6:
        return donors[-1]
    tree = random.choice(donors)
    while isinstance(tree, dict | list) and tree and random.random() < 0.75:
        tree = random.choice([*tree.values()] if isinstance(tree, dict) else tree)
    return tree


def _within(tree: Tree, random: Random, donors: list[Tree]) -> Tree:
    """A change of the keys or items of a node, or of its number or string."""
    if isinstance(tree, dict):
        return random.choice(_OBJECT_CHANGES)(tree, random, donors)
    if isinstance(tree, list):
        return random.choice(_LIST_CHANGES)(tree, random, donors)
    if isinstance(tree, bool) or tree is None:
        return random.choice((None, True, False))
    if isinstance(tree, int | float):
        return random.choice((tree + 1, tree - 1, -tree, tree * 2, float(tree) if abs(tree) < 2**53 else 0, str(tree)))
    return _text(tree, random)


def _text(text: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    piece = random.choice((*STRINGS[:-1], *PATTERNS[:4]))
    return random.choice(
        (text[:at] + piece + text[at:], text[:at] + text[at + 1 :], text[::-1], text + text, text.upper())
    )


def _delete_key(tree: dict[str, Any], random: Random, _: list[Tree]) -> Tree:
    gone = random.choice(list(tree)) if tree else None
    return {key: value for key, value in tree.items() if key != gone}


def _add_key(tree: dict[str, Any], random: Random, donors: list[Tree]) -> Tree:
    value = random.choice((_replace, _from_donor))(tree, random, donors)
    return {**tree, random.choice((*KEYS, *STRINGS[:-2])): value}


def _rename_key(tree: dict[str, Any], random: Random, _: list[Tree]) -> Tree:
    old = random.choice(list(tree)) if tree else None
    new = random.choice((*KEYS, *STRINGS[:-2], _text(old or "", random)))
    return {new if key == old else key: value for key, value in tree.items()}


def _double_key(tree: dict[str, Any], random: Random, _: list[Tree]) -> Tree:
    if not tree:
        return tree
    doubled = Doubled(tree)
    key = random.choice(list(tree))
    doubled.extra = (key, random.choice((tree[key], random_value(random))))
    return doubled


def _swap_values(tree: dict[str, Any], random: Random, _: list[Tree]) -> Tree:
    if len(tree) < 2:
        return tree
    one, other = random.sample(list(tree), 2)
    return {**tree, one: tree[other], other: tree[one]}


def _copy_value(tree: dict[str, Any], random: Random, _: list[Tree]) -> Tree:
    """Two keys with one value, such as two tokens with one id."""
    if len(tree) < 2:
        return tree
    one, other = random.sample(list(tree), 2)
    return {**tree, one: tree[other]}


def _reordered(tree: dict[str, Any], random: Random, _: list[Tree]) -> Tree:
    keys = list(tree)
    random.shuffle(keys)
    return {key: tree[key] for key in keys}


def _delete_item(tree: list[Any], random: Random, _: list[Tree]) -> Tree:
    at = random.randrange(len(tree) + 1)
    return [*tree[:at], *tree[at + random.choice((1, 1, 5)) :]]


def _repeat_item(tree: list[Any], random: Random, _: list[Tree]) -> Tree:
    at = random.randrange(len(tree) + 1)
    return [*tree[:at], *(tree[at - 1 : at] * random.choice((1, 2, 30))), *tree[at:]]


def _insert_item(tree: list[Any], random: Random, donors: list[Tree]) -> Tree:
    at = random.randrange(len(tree) + 1)
    return [*tree[:at], random.choice((_replace, _from_donor))(tree, random, donors), *tree[at:]]


def _swap_items(tree: list[Any], random: Random, _: list[Tree]) -> Tree:
    shuffled = list(tree)
    if len(tree) > 1:
        one, other = random.sample(range(len(tree)), 2)
        shuffled[one], shuffled[other] = tree[other], tree[one]
    return shuffled


def _shuffled(tree: list[Any], random: Random, _: list[Tree]) -> Tree:
    return random.sample(tree, len(tree))


def _wrap(tree: Tree, random: Random, _: list[Tree]) -> Tree:
    return random.choice(([tree], {"a": tree}, {"type": "Sequence", "normalizers": [tree], "pretokenizers": [tree]}))


Change = Callable[[Any, Random, list[Tree]], Tree]
_CHANGES: tuple[Change, ...] = (_replace, _from_donor, _from_donor, _within, _within, _within, _within, _wrap)
_OBJECT_CHANGES: tuple[Change, ...]
_OBJECT_CHANGES = (_delete_key, _add_key, _rename_key, _double_key, _swap_values, _copy_value, _reordered)
_LIST_CHANGES: tuple[Change, ...] = (_delete_item, _repeat_item, _insert_item, _swap_items, _shuffled)
