"""The usual way to extend a tokenizer, the baseline of the paper: insert the tokens of a newly trained vocabulary.

A fresh tokenizer is trained on the same text with the base's own pipeline, and its tokens are taken in order until n
are new. The methods differ in the merges that they add: see `NaiveMethod`. With most of them, many of the tokens are
unreachable, which is what the comparison shows.

The fresh tokenizer is continued training from the bare alphabet, which is training from scratch: equal to Hugging
Face's trainer, but for pairs that are equally frequent, which that one takes in the order of ids.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import NoneType
from typing import Literal, NamedTuple, get_args

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, UnsupportedTokenizerError, option, require_type, whole_number
from tokengraft.learn.continued import extend
from tokengraft.learn.trainer import missing_characters
from tokengraft.progress import stage
from tokengraft.tokenizer.added import new_entry
from tokengraft.tokenizer.edit import add_tokens, free_ids, remove_tokens, unreachable_ranks, with_characters
from tokengraft.tokenizer.kind import SPACE, token_bytes
from tokengraft.tokenizer.known_tokens import require_ids
from tokengraft.tokenizer.tokenizer import Tokenizer

NaiveMethod = Literal["naive-regen", "naive-append", "naive-prepend", "add-tokens", "two-piece", "scaffold"]
"""`naive-regen`: every pair of tokens that makes a new one becomes a merge, by priority, after all others (the paper's
baseline). `naive-append`: the fresh tokenizer's own merges, after all others. `naive-prepend`: as regen, before all
others. `add-tokens`: no merges; the tokens are found in the text before BPE, as transformers' `add_tokens` does.
`two-piece`: only tokens that the base spells in exactly two tokens, whose pair becomes a merge after all others.
`scaffold`: a token is spelled with the base and made again by merging its pieces from left to right; tokens in between
are added and count (MEDVOC-LLM)."""
NAIVE_METHODS: tuple[NaiveMethod, ...] = get_args(NaiveMethod)
EXTEND_METHODS = ("continued", *NAIVE_METHODS)
"""The methods of `tokengraft extend`."""
IN_A_MODEL: tuple[NaiveMethod, ...] = ("naive-regen", "two-piece")
"""The methods that a SentencePiece model can express: any pair of pieces that makes a piece is a merge there."""
IN_A_RANK_FILE: tuple[NaiveMethod, ...] = ("naive-regen",)
"""The same for tiktoken and tekken files."""
Pair = tuple[str, str]
Usable = Callable[[Tokenizer, Iterable[str]], Iterable[str]]
"""The tokens that can be used with a tokenizer."""


class Donation(NamedTuple):
    """What a fresh tokenizer or a donor has that the base lacks."""

    characters: list[str]
    """SentencePiece types: missing characters of the text, added before all tokens."""
    tokens: list[str]
    """New tokens, in order."""
    merges: list[Pair]
    """All merges."""


@stage("inserting new tokens")
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
        UnsupportedTokenizerError: The method cannot be written to the SentencePiece model beside the tokenizer, or new
            tokens would get ids that are taken for timestamps or codes.
        CountsError: There are fewer than n new tokens.
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("counts", counts, PretokenCounts, NoneType)
    require_type("donor", donor, Tokenizer, NoneType)
    n = whole_number("n", n)
    if method not in NAIVE_METHODS:
        raise OptionError(f"there is no method {method!r}", hint=f"take one of {', '.join(NAIVE_METHODS)}")
    if tokenizer.algorithm != "BPE":
        raise UnsupportedTokenizerError(
            f"the tokenizer is {tokenizer.algorithm}, and the methods for comparison are for BPE",
            hint=f"leave out {option('method')}",
        )
    require_ids(tokenizer, n)
    by_product = tokenizer.piece_file or tokenizer.rank_file
    exact = IN_A_MODEL if tokenizer.piece_file else IN_A_RANK_FILE
    if by_product and method not in exact:
        raise UnsupportedTokenizerError(
            f"{method} cannot be written to `{by_product}`, where tokens merge by what they make",
            hint=f"pass the path of the tokenizer.json alone, or take {' or '.join(exact)}",
        )
    usable = two_pieces if method == "two-piece" else None
    donation = _donated(tokenizer, donor, usable) if donor else fresh_tokens(tokenizer, counts, n, usable)
    if method == "scaffold":
        return _scaffolded(tokenizer, donation, n)
    chosen = [*donation.characters, *donation.tokens][:n]
    _require_enough(len(chosen), n)
    if usable:
        return _of_two_pieces(tokenizer, chosen)
    if method == "add-tokens":
        return _as_added(tokenizer, chosen)
    if method == "naive-append":
        known, listed = {*tokenizer.ids, *chosen}, set(tokenizer.merge_strings())
        merges = [p for p in donation.merges if known.issuperset((*p, p[0] + p[1])) and p not in listed]
        return add_tokens(tokenizer, chosen, merges)
    made = [*regenerated(chosen, {*tokenizer.ids, *chosen})]
    if method == "naive-regen":
        return add_tokens(tokenizer, chosen, made)
    extended = add_tokens(tokenizer, chosen, [])
    return extended.with_tokens(extended.ids, [*made, *tokenizer.merge_strings()])


def _require_enough(available: int, n: int) -> None:
    if available < n:
        raise CountsError(
            f"{n:,} new tokens were asked for, the fresh tokenizer has {available:,} that the method can take",
            hint=f"ask for at most {available:,}, or give more text",
        )


def fresh_tokens(tokenizer: Tokenizer, counts: PretokenCounts | None, n: int, usable: Usable | None = None) -> Donation:
    """Tokens of a tokenizer trained from scratch that the base lacks, n or more if there are as many.

    They are usable with the base and the missing characters.
    """
    if counts is None:
        raise OptionError(
            "there is nothing to train a fresh tokenizer on",
            hint=f"pass {option('counts')}, {option('corpus')} or {option('donor')}",
        )
    counts.require(tokenizer)
    stay = tokenizer.structure.atomic | {token.id for token in tokenizer.added}
    bare = remove_tokens(tokenizer, [token.string for token in tokenizer.tokens if token.id not in stay])
    characters = list(missing_characters(tokenizer, counts, 0.9995))
    spelled, known = with_characters(tokenizer, characters), {*tokenizer.ids, *characters}
    size = n
    while True:
        size *= 2
        fresh = extend(bare, counts, size)
        tokens = [token for token in fresh.tokens if token not in known]
        tokens = [*usable(spelled, tokens)] if usable else tokens
        if len(characters) + len(tokens) >= n or len(fresh) < size:
            return Donation(characters, tokens, [(merge.left, merge.right) for merge in fresh.merges])


def _donated(tokenizer: Tokenizer, donor: Tokenizer, usable: Usable | None) -> Donation:
    if donor.kind != tokenizer.kind:
        raise OptionError(
            f"the donor is {donor.kind}, the tokenizer {tokenizer.kind}: they spell tokens differently",
            hint="take a donor of the same kind",
        )
    known = {*tokenizer.ids, *(token.content for token in donor.added)}
    tokens = [token.string for token in donor.tokens if token.string not in known]
    return Donation([], [*usable(tokenizer, tokens)] if usable else tokens, donor.merge_strings())


def base_pieces(tokenizer: Tokenizer, token: str) -> list[str] | None:
    """The tokens that spell a token; None if they cannot be merged: unknown characters, bytes, runs of white space."""
    pieces = [tokenizer.strings[token_id] for token_id in tokenizer.core_model.encode(token, by_merges=True)]
    model = tokenizer.piece_model
    mergeable = "".join(pieces) == token and not (model and any(piece not in model.normal for piece in pieces))
    return pieces if mergeable and token.strip(SPACE) else None


def two_pieces(tokenizer: Tokenizer, tokens: Iterable[str]) -> Iterator[str]:
    """The tokens that the tokenizer spells in exactly two tokens."""
    for token in tokens:
        pieces = base_pieces(tokenizer, token)
        if pieces and len(pieces) == 2:
            yield token


def _of_two_pieces(tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """The tokenizer with tokens of two pieces, after missing characters.

    Every token is reachable: the base splits its string into the two pieces, and nothing else can apply to them. For
    the same reason a SentencePiece model can make it from no other pair.
    """
    characters = [token for token in tokens if len(token) == 1]
    spelled = with_characters(tokenizer, characters)
    usable, unreachable = set(spelled.piece_model.normal if spelled.piece_model else ()), unreachable_ranks(spelled)
    merges = list[Pair]()
    for token in tokens[len(characters) :]:
        left, right = base_pieces(spelled, token) or ("", "")
        usable.add(token)
        for each in unreachable:  # with a SentencePiece model, it also completes tokens that could not be reached
            pairs = ((token, each.removeprefix(token)), (each.removesuffix(token), token))
            merges += dict.fromkeys(pair for pair in pairs if "".join(pair) == each and usable.issuperset(pair))
        merges.append((left, right))
    return add_tokens(tokenizer, tokens, merges)


def _scaffolded(tokenizer: Tokenizer, donation: Donation, n: int) -> Tokenizer:
    """The tokenizer with tokens that are merged from left to right; the last may be left unfinished at n tokens."""
    characters = donation.characters[:n]
    spelled = with_characters(tokenizer, characters)
    new, merges = dict.fromkeys(characters), dict[Pair, None]()
    segmented = (base_pieces(spelled, token) or [] for token in donation.tokens)
    for left, right in (("".join(pieces[:at]), pieces[at]) for pieces in segmented for at in range(1, len(pieces))):
        if left + right not in spelled.ids and left + right not in new:
            if len(new) == n:
                break
            new[left + right] = None
        merges[left, right] = None
    _require_enough(len(new), n)
    return add_tokens(tokenizer, [*new], [*merges])


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
    document = json.loads(tokenizer.rest)
    document["added_tokens"] = [
        *(document.get("added_tokens") or []),
        *(new_entry(token_id, text, special=False, normalized=True) for text, token_id in new.items()),
    ]
    listed = replace(tokenizer, rest=json.dumps(document, ensure_ascii=False))
    return listed.with_tokens({**tokenizer.ids, **new}, tokenizer.merge_strings())
