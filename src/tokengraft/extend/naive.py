"""The usual way to extend a tokenizer, the baseline of the paper: insert the tokens of a newly trained vocabulary.

A fresh tokenizer is trained on the same text with the base's own pipeline, and its tokens are taken in order until n
are new. The methods differ in the merges that they add: see `NaiveMethod`. Many of the tokens are unreachable, which is
what the comparison shows.

The fresh tokenizer is continued training from the bare alphabet, which is training from scratch: equal to Hugging
Face's trainer, but for pairs that are equally frequent, which that one takes in the order of ids.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, UnsupportedTokenizerError
from tokengraft.extend.continued import extend, missing_characters
from tokengraft.tokenizer.alphabet import token_bytes
from tokengraft.tokenizer.edit import add_tokens, free_ids, remove_tokens
from tokengraft.tokenizer.tokenizer import Tokenizer

NaiveMethod = Literal["naive-regen", "naive-append", "naive-prepend", "add-tokens"]
"""`naive-regen`: every pair of tokens that makes a new one becomes a merge, by priority, after all others (the paper's
baseline). `naive-append`: the fresh tokenizer's own merges, after all others. `naive-prepend`: as regen, before all
others. `add-tokens`: no merges; the tokens are found in the text before BPE, as transformers' `add_tokens` does."""
NAIVE_METHODS: tuple[NaiveMethod, ...] = get_args(NaiveMethod)
Pair = tuple[str, str]


def extend_naively(
    tokenizer: Tokenizer,
    counts: PretokenCounts | None,
    n: int,
    method: NaiveMethod = "naive-regen",
    *,
    donor: Tokenizer | None = None,
) -> Tokenizer:
    """The tokenizer with n tokens of a newly trained one inserted.

    Args:
        tokenizer: The base. It is not changed.
        counts: The text to train the fresh tokenizer on; not needed with a donor.
        n: How many new tokens.
        method: Which merges make them.
        donor: A tokenizer to take the tokens from, in the order of its ids, instead of a fresh one.

    Raises:
        OptionError: There is no such method, or neither counts nor a donor.
        UnsupportedTokenizerError: The method cannot be written to the SentencePiece model beside the tokenizer.
        CountsError: There are fewer than n new tokens.
    """
    if method not in NAIVE_METHODS:
        raise OptionError(f"there is no method {method!r}", hint=f"take one of {', '.join(NAIVE_METHODS)}")
    by_product = tokenizer.piece_file or tokenizer.rank_file
    if by_product and method != "naive-regen":
        raise UnsupportedTokenizerError(
            f"{method} cannot be written to `{by_product}`, where tokens merge by what they make",
            hint="pass the path of the tokenizer.json alone, or take naive-regen",
        )
    tokens, merges = _donated(tokenizer, donor) if donor else fresh_tokens(tokenizer, counts, n)
    chosen = list(tokens[:n])
    if len(chosen) < n:
        raise CountsError(
            f"{n:,} new tokens were asked for, the fresh tokenizer has {len(chosen):,}",
            hint=f"ask for at most {len(chosen):,}, or give more text",
        )
    if method == "add-tokens":
        return _as_added(tokenizer, chosen)
    if method == "naive-append":
        known, listed = {*tokenizer.ids, *chosen}, set(tokenizer.merge_strings())
        usable = [pair for pair in merges if known.issuperset((*pair, pair[0] + pair[1])) and pair not in listed]
        return add_tokens(tokenizer, chosen, usable)
    made = [*regenerated(chosen, {*tokenizer.ids, *chosen})]
    if method == "naive-regen":
        return add_tokens(tokenizer, chosen, made)
    extended = add_tokens(tokenizer, chosen, [])
    return extended.with_tokens(extended.ids, [*made, *tokenizer.merge_strings()])


def fresh_tokens(tokenizer: Tokenizer, counts: PretokenCounts | None, n: int) -> tuple[list[str], list[Pair]]:
    """Tokens of a tokenizer trained from scratch that the base lacks, n or more, in order; and all its merges."""
    if counts is None:
        raise OptionError("there is nothing to train a fresh tokenizer on", hint="pass --counts, --corpus or --donor")
    counts.require(tokenizer)
    stay = tokenizer.structure.atomic | {token.id for token in tokenizer.added}
    bare = remove_tokens(tokenizer, [token.string for token in tokenizer.tokens if token.id not in stay])
    size, tokens, merges = n, list[str](), list[Pair]()
    while len(tokens) < n:
        size *= 2
        fresh = extend(bare, counts, size)
        characters = missing_characters(tokenizer, counts, 0.9995)
        learned = [token for token in fresh.tokens if token not in tokenizer.ids and token not in characters]
        tokens = [*characters, *learned]
        merges = [(merge.left, merge.right) for merge in fresh.merges]
        if len(fresh) < size:
            break
    return tokens, merges


def _donated(tokenizer: Tokenizer, donor: Tokenizer) -> tuple[list[str], list[Pair]]:
    if donor.kind != tokenizer.kind:
        raise OptionError(
            f"the donor is {donor.kind}, the tokenizer {tokenizer.kind}: they spell tokens differently",
            hint="take a donor of the same kind",
        )
    added = {token.content for token in donor.added}
    tokens = [token.string for token in donor.tokens if token.string not in tokenizer.ids and token.string not in added]
    return tokens, donor.merge_strings()


def regenerated(tokens: Sequence[str], known: set[str]) -> Iterator[Pair]:
    """Every pair of known tokens that makes a token, by the order of the tokens, longer left parts first.

    >>> list(regenerated(["abc"], {"a", "b", "c", "ab", "bc", "abc"}))
    [('ab', 'c'), ('a', 'bc')]
    """
    for token in tokens:
        for at in range(len(token) - 1, 0, -1):
            if token[:at] in known and token[at:] in known:
                yield token[:at], token[at:]


def _as_added(tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """The tokenizer with the tokens as added tokens. Tokens that are not valid UTF-8 are left out."""
    texts = [token_bytes(token, tokenizer.kind).decode(errors="replace") for token in tokens]
    usable = [text for text in dict.fromkeys(texts) if "\ufffd" not in text and text not in tokenizer.ids]
    new = dict(zip(usable, free_ids(tokenizer.ids.values()), strict=False))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    document = json.loads(tokenizer.rest)
    document["added_tokens"] = [
        *(document.get("added_tokens") or []),
        *({"id": token_id, "content": text} | flags for text, token_id in new.items()),
    ]
    listed = replace(tokenizer, rest=json.dumps(document, ensure_ascii=False))
    return listed.with_tokens({**tokenizer.ids, **new}, tokenizer.merge_strings())
