"""A tokenizer with more tokens: ids for them, merges, and every file of the folder that lists either.

Kept ids never move. New tokens take the ids that no token has, ascending, then those after the highest; special tokens
stay where they are, and to make sure of it they are listed in the vocabulary: loaders give an added token that the
vocabulary lacks the next id from the size of the vocabulary on, whatever the file says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from types import MappingProxyType

from tokengraft.errors import InvalidTokenizerError
from tokengraft.jsonfile import JsonStyle, parse_json, require_plain
from tokengraft.tokenizer import Tokenizer

STALE = ("tekken.json", "tokenizer.model", "tiktoken.model")
"""Files in other formats that list the tokens; byte-level folders may have one, and it cannot be kept in step."""


def add_tokens(tokenizer: Tokenizer, tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """The tokenizer with new tokens and, after all others, new merges.

    Raises:
        InvalidTokenizerError: A token exists already, or a merge names one that does not.
    """
    ids = {**tokenizer.vocab, **{token.content: token.id for token in tokenizer.added}}
    known = [token for token in tokens if token in ids]
    if known or len(set(tokens)) < len(tokens):
        raise InvalidTokenizerError(
            f"the tokenizer has the token `{(known or tokens)[0]}` already", hint="apply an extension once, to its base"
        )
    new = dict(zip(tokens, free_ids(ids.values()), strict=False))
    ids |= new
    try:
        pairs = tuple((ids[left], ids[right]) for left, right in merges)
    except KeyError as error:
        raise InvalidTokenizerError(
            f"a merge needs the token {error.args[0]!r}, which the tokenizer lacks",
            hint="apply an extension to the tokenizer it was trained for",
        ) from error
    edited = replace(
        tokenizer,
        vocab=MappingProxyType(dict(sorted(ids.items(), key=lambda item: item[1]))),
        merges=tokenizer.merges + pairs,
        files=MappingProxyType(dict(_files_with(tokenizer.files, new, merges))),
    )
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


def stale_files(files: Mapping[str, bytes]) -> list[str]:
    """The files that list the old tokens in a format that is not written here; an edited tokenizer leaves them out."""
    return sorted(
        name for name in files if name in STALE or name.startswith("tokenizer.model") or name.endswith(".tiktoken")
    )


def _files_with(
    files: Mapping[str, bytes], tokens: Mapping[str, int], merges: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, bytes]]:
    """The other tokenizer files, with the new tokens and merges where they are listed."""
    stale = stale_files(files)
    for name, raw in files.items():
        if name in stale:
            continue
        if name == "vocab.json":
            vocab = parse_json(raw, name)
            require_plain(vocab, name)
            yield name, JsonStyle.of(raw).dump({**vocab, **tokens} if isinstance(vocab, dict) else vocab)
        elif name == "merges.txt":
            lines = "".join(f"{left} {right}\n" for left, right in merges)
            yield name, raw.removesuffix(b"\n") + b"\n" + lines.encode()
        else:
            yield name, raw
