"""A tokenizer with more tokens: ids for them, merges, and every file of the folder that lists either.

Kept ids never move. New tokens take the ids that no token has, ascending, then those after the highest; special tokens
stay where they are, and to make sure of it they are listed in the vocabulary: loaders give an added token that the
vocabulary lacks the next id from the size of the vocabulary on, whatever the file says.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, count
from math import inf
from types import MappingProxyType

from tokengraft.alphabet import SPACE
from tokengraft.errors import InvalidTokenizerError
from tokengraft.jsonfile import JsonStyle, parse_json, require_plain
from tokengraft.tokenizer import Tokenizer

STALE = ("tekken.json", "tiktoken.model")
"""Files in other formats that list the tokens, and that cannot be kept in step."""


def add_tokens(tokenizer: Tokenizer, tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """The tokenizer with new tokens and new merges.

    Merges come after all others, but for two things that SentencePiece demands: runs of white space merge last; and
    where there is a SentencePiece model, a merge that makes a token of the base ranks as that token's score says.

    Raises:
        InvalidTokenizerError: A token exists already, or a merge names one that does not.
    """
    ids = {token.string: token.id for token in tokenizer.tokens}
    known = [token for token in tokens if token in ids]
    if known or len(set(tokens)) < len(tokens):
        raise InvalidTokenizerError(
            f"the tokenizer has the token `{(known or tokens)[0]}` already", hint="apply an extension once, to its base"
        )
    new = dict(zip(tokens, free_ids(ids.values()), strict=False))
    ids |= new
    missing = next((part for pair in merges for part in pair if part not in ids), None)
    if missing is not None:
        raise InvalidTokenizerError(
            f"a merge needs the token {missing!r}, which the tokenizer lacks",
            hint="apply an extension to the tokenizer it was trained for",
        )
    ranks = asleep(tokenizer)
    learned = [(ids[left], ids[right]) for left, right in merges if left + right not in ranks]
    woken = [(ranks[left + right], (ids[left], ids[right])) for left, right in merges if left + right in ranks]
    edited = replace(
        tokenizer,
        vocab=MappingProxyType(dict(sorted(ids.items(), key=lambda item: item[1]))),
        merges=_in_order(tokenizer, learned, woken),
        files=MappingProxyType({}),
    )
    edited = replace(edited, files=MappingProxyType(dict(_files_with(tokenizer, edited, new))))
    _ = edited.bpe  # building the table checks every id and merge
    return edited


def free_ids(used: Iterable[int]) -> Iterator[int]:
    """The ids that no token has: the holes, ascending, then those after the highest.

    >>> from itertools import islice
    >>> list(islice(free_ids([0, 1, 4]), 4))
    [2, 3, 5, 6]
    """
    taken = set(used)
    highest = max(taken, default=-1)
    return chain((token_id for token_id in range(highest) if token_id not in taken), count(highest + 1))


def stale_files(tokenizer: Tokenizer) -> list[str]:
    """The files that list the old tokens in a format that is not written here; an edited tokenizer leaves them out."""
    return sorted(
        name
        for name in tokenizer.files
        if name != tokenizer.piece_file
        and (name in STALE or name.startswith("tokenizer.model") or name.endswith((".tiktoken", ".model")))
    )


def asleep(tokenizer: Tokenizer) -> dict[str, int]:
    """Tokens that merges cannot reach and SentencePiece would, given their parts; each with its rank among the merges.

    SentencePiece merges any two pieces that make a piece, by the score of what they make; `tokenizer.json` only those
    listed. The two differ where new tokens are the missing parts of an old one. Without a SentencePiece model there is
    nothing to differ from.
    """
    model = tokenizer.piece_model
    strings = {token_id: string for string, token_id in tokenizer.vocab.items()}
    scores = model.normal if model else {}
    found = [strings[token_id] for token_id in tokenizer.structure.unreachable if strings[token_id] in scores]
    if not found:
        return {}
    products = (strings[left] + strings[right] for left, right in tokenizer.merges)
    # What is no normal piece has no score that counts: it goes with the merge before it.
    descending = list(accumulate((-scores.get(product, inf) for product in products), max))
    return {string: bisect_right(descending, -scores[string]) for string in found}


def _in_order(
    tokenizer: Tokenizer, learned: list[tuple[int, int]], woken: list[tuple[int, tuple[int, int]]]
) -> tuple[tuple[int, int], ...]:
    """The merges of a tokenizer and new ones, by rank."""
    base, end = tokenizer.merges, len(tokenizer.merges)
    if tokenizer.kind == "sentencepiece":
        runs = {token_id for string, token_id in tokenizer.vocab.items() if not string.strip(SPACE)}
        while end and runs.issuperset(base[end - 1]):
            end -= 1
    merges = [*base[:end], *learned, *base[end:]]
    for rank, pair in sorted(woken, reverse=True):
        merges.insert(rank if rank <= end else rank + len(learned), pair)
    return tuple(merges)


def _files_with(base: Tokenizer, edited: Tokenizer, new: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The other tokenizer files, with the new tokens and merges where they are listed."""
    stale = stale_files(base)
    for name, raw in base.files.items():
        if name in stale:
            continue
        if name == base.piece_file and base.piece_model:
            specials = {token.id: (token.content, token.special) for token in base.added}
            yield name, base.piece_model.with_tokens(new, specials).write()
        elif name == "vocab.json":
            vocab = parse_json(raw, name)
            require_plain(vocab, name)
            yield name, JsonStyle.of(raw).dump({**vocab, **new} if isinstance(vocab, dict) else vocab)
        elif name == "merges.txt":
            strings = {token_id: string for string, token_id in edited.vocab.items()}
            lines = [line for line in raw.decode(errors="replace").splitlines()[:1] if line.startswith("#version")]
            lines += (f"{strings[left]} {strings[right]}" for left, right in edited.merges)
            yield name, "".join(f"{line}\n" for line in lines).encode()
        else:
            yield name, raw
