"""Compares the tokenizer inside a GGUF file with the new one: was it made from that one, with the same pipeline?

The file does not have the pipeline, only the name of one that is built into llama.cpp.
"""

from bisect import bisect_left
from itertools import product
from typing import NamedTuple

from tokengraft.checkpoint.gguf_file import GgufFile
from tokengraft.checkpoint.gguf_vocabulary import PREFIX, GgufVocabulary
from tokengraft.errors import CheckpointError, InvalidTokenizerError
from tokengraft.formats.ranks import split_differences
from tokengraft.tokenizer.llama_cpp import converter_check, converter_table, ids_hash
from tokengraft.tokenizer.tokenizer import Tokenizer

IN_ORDER = 0.95
"""Share of the common merges that are in the same order if one tokenizer was made from the other. It is 0.91 for
Llama-3 and Qwen-2.5, which both began from cl100k, and below 0.02 for tokenizers without a common origin."""
_PIPELINE = ("normalizer", "pre_tokenizer")


class Tokenizers(NamedTuple):
    """The tokenizer inside a GGUF file, with the pipeline of the new one; and the new one."""

    inside: Tokenizer
    new: Tokenizer


def require_kind(file: GgufFile, vocabulary: GgufVocabulary, new: Tokenizer) -> None:
    """Refuses a new tokenizer of another kind.

    Raises:
        CheckpointError: One is byte-level and the other SentencePiece.
    """
    if vocabulary.kind != new.kind:
        raise CheckpointError(
            f"the tokenizer in `{file.path.name}` is {vocabulary.kind}, the new one {new.kind}",
            hint="pass a tokenizer that was made from that of the model, or transplant the model as safetensors and "
            "convert the result with llama.cpp",
        )


def pre_tokenizer(
    file: GgufFile, vocabulary: GgufVocabulary, tokenizers: Tokenizers
) -> tuple[str | None, tuple[str, ...]]:
    """The name of the pre-tokenizer of the result, and warnings about what could not be compared.

    The file has only the name. It is right if the tokenizer of the file, with the pipeline of the new one, gives the
    hash that llama.cpp's converter knows for that name.

    Raises:
        CheckpointError: The new tokenizer was not made from that of the file, and its pre-tokenizer is not known.
    """
    inside, new = tokenizers
    if vocabulary.kind == "sentencepiece":  # it has no pre-tokenizer; scores are compared later
        return vocabulary.pre, ()
    types = _types(inside, *(_token_id(file, name) for name in ("bos", "eos")))
    if vocabulary.pre in types:
        return vocabulary.pre, ()
    if _same_order(inside, new):
        return vocabulary.pre, (
            f"the pre-tokenizer type {vocabulary.pre!r} of the file is kept; whether it is that of the new tokenizer "
            "could not be checked: llama.cpp's converter does not know the tokenizer. Pass the base with --base",
        )
    other = converter_check(new).type
    if other is None:
        raise CheckpointError(
            f"the new tokenizer was not made from that in `{file.path.name}`: their common merges are in another order "
            "or there are none, and llama.cpp's converter does not know the new one",
            hint="pass a tokenizer that was made from that of the model; if it was, name that one: --base TOKENIZER",
        )
    return other, (f"the new tokenizer is another one: its pre-tokenizer type is {other!r}, not {vocabulary.pre!r}",)


def require_base(file: GgufFile, vocabulary: GgufVocabulary, tokenizers: Tokenizers, base: Tokenizer) -> None:
    """Refuses a base that is not the tokenizer of the file, or has another pipeline than the new tokenizer.

    Raises:
        InvalidTokenizerError: With the first difference.
    """
    inside, new = tokenizers
    theirs, ours = vocabulary.ids(base), base.ids
    differing = next((string for string in {**theirs, **ours} if theirs.get(string) != ours.get(string)), None)
    if differing is not None:
        raise InvalidTokenizerError(
            f"the base gives the token {differing!r} the id {ours.get(differing)}, `{file.path.name}` the id "
            f"{theirs.get(differing)}",
            hint="pass the tokenizer that the file was converted with, or leave out --base",
        )
    # A rank file has merges that never apply, which the converter does not write.
    if vocabulary.kind == "byte-level" and next(split_differences(inside, base), None) is not None:
        raise InvalidTokenizerError(
            f"the base and `{file.path.name}` have different merges", hint="pass the tokenizer of the file"
        )
    if [base.document.get(step) for step in _PIPELINE] != [new.document.get(step) for step in _PIPELINE]:
        raise InvalidTokenizerError(
            "the base and the new tokenizer have different pipelines (normalizer and pre-tokenizer)",
            hint="pass the tokenizer that the new one was made from",
        )


def _token_id(file: GgufFile, name: str) -> int | None:
    key = file.keys.get(f"{PREFIX}{name}_token_id")
    return key.value if key is not None and type(key.value) is int else None


def _types(base: Tokenizer, bos: int | None, eos: int | None) -> set[str]:
    """The types of pre-tokenizer that llama.cpp's converter would give a tokenizer, with or without BOS and EOS."""
    table = converter_table()
    ids = base.encode(table.check_text)
    around = product({(), () if bos is None else (bos,)}, {(), () if eos is None else (eos,)})
    hashes = (ids_hash([*before, *ids, *after]) for before, after in around)
    return {table.types[digest] for digest in hashes if digest in table.types}


def _same_order(base: Tokenizer, new: Tokenizer) -> bool:
    """Whether the merges that two tokenizers share are mostly in the same order: one was made from the other.

    Not all, because a token that is pruned and learned again merges later than before.
    """
    ranks = {pair: rank for rank, pair in enumerate(base.merge_strings())}
    shared = [ranks[pair] for pair in new.merge_strings() if pair in ranks]
    return bool(shared) and _longest_ascent(shared) >= IN_ORDER * len(shared)


def _longest_ascent(numbers: list[int]) -> int:
    """The length of the longest ascending sequence of some of the numbers, in their order.

    >>> _longest_ascent([3, 1, 2, 9, 4, 5])
    4
    """
    ends: list[int] = []  # the lowest end of a sequence of each length
    for number in numbers:
        place = bisect_left(ends, number)
        ends[place : place + 1] = [number]
    return len(ends)
