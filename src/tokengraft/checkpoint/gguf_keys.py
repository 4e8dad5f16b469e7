"""`new_keys`: the keys of a GGUF file that change with the vocabulary: tokens, types, scores, merges, ids and sizes.

New tokens are written as llama.cpp's converter would write them. Kept tokens keep their string, type and score.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tokengraft.checkpoint.gguf_file import (
    ARRAY,
    INT32,
    GgufFile,
    GgufKey,
    number_key,
    numbers_key,
    string_key,
    strings_key,
)
from tokengraft.checkpoint.gguf_scores import new_scores, require_same_rule
from tokengraft.checkpoint.gguf_vocabulary import MERGES, PRE, SCORES, TOKENS, TYPES, GgufVocabulary
from tokengraft.checkpoint.ids import SUPPRESSED, Renumbering, suppressing
from tokengraft.errors import CheckpointError
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.plan import VocabPlan
from tokengraft.tokenizer.alphabet import SPACE, byte_token
from tokengraft.tokenizer.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from tokengraft.tokenizer.tokenizer import Tokenizer

ADDED_SCORE, UNUSED_SCORE = -1000.0, -10000.0
"""Scores of added tokens and of placeholders, as the converter writes them."""
_IDS = re.compile(r"token_ids?(_|$)|^suppress_tokens$")
"""The last part of the name of a key that holds ids."""
_SIZE = re.compile(r"^vocab_size$")
_SUPPRESSED = f"tokenizer.ggml.{SUPPRESSED}"
_HUGGINGFACE = "tokenizer.huggingface.json"
_BYTES = frozenset(map(byte_token, range(256)))
_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL)
"""Added tokens that the converter makes control tokens, special or not (`does_token_look_special`)."""


class GgufToken(NamedTuple):
    """A token as a GGUF file has it."""

    string: bytes
    type: int
    score: float


@dataclass(frozen=True)
class VocabularyChange:
    """The old and the new vocabulary of a GGUF file."""

    file: GgufFile
    vocabulary: GgufVocabulary
    base: Tokenizer
    """The tokenizer of the file."""
    new: Tokenizer
    plan: VocabPlan
    rows: int
    """Rows of the new tables, padding included."""

    @cached_property
    def tokens(self) -> list[GgufToken]:
        """A token for every new row."""
        flags = {token.content: token.special for token in self.new.added}
        scores = new_scores(self.vocabulary, self.base, self.new) if self.vocabulary.kind == "sentencepiece" else {}
        tokens = [self._token(token_id, flags, scores) for token_id in range(self.rows)]
        if len({token.string for token in tokens}) < len(tokens):
            raise CheckpointError(
                "two tokens would have the same string, which llama.cpp does not load: a token has the name of a "
                "placeholder such as [PAD7], or of an added token with spaces",
                hint="rename the token in the new tokenizer",
            )
        return tokens

    def _token(self, token_id: int, added: Mapping[str, bool], scores: Mapping[str, float]) -> GgufToken:
        source = self.plan.sources[token_id] if token_id < self.plan.rows_after else None
        if source is None:
            return self._placeholder(token_id)
        string = self.new.strings[token_id]
        if isinstance(source, int):
            return self._kept(source, string, added, scores)
        kind = _type(string, added, self.new)
        text = string.replace(SPACE, " ") if kind == USER_DEFINED else string
        return GgufToken(text.encode(), kind, scores.get(string, ADDED_SCORE if string in added else 0.0))

    def _placeholder(self, token_id: int) -> GgufToken:
        """The token of an id without one. The converter takes that of the SentencePiece model, if there is one."""
        model = self.new.piece_model
        if model is not None and token_id in model.holes:
            piece = model.pieces[token_id]
            return GgufToken(piece.string.encode(), UNUSED, piece.score)
        return GgufToken(f"[PAD{token_id}]".encode(), UNUSED, UNUSED_SCORE)

    def _kept(self, old_id: int, string: str, added: Mapping[str, bool], scores: Mapping[str, float]) -> GgufToken:
        old = self.vocabulary
        kind, score = int(old.types[old_id]), 0.0 if old.scores is None else float(old.scores[old_id])
        if kind == NORMAL:
            score = scores.get(string, score)
        if kind in (NORMAL, UNUSED) and string in added:  # it became an added token
            kind = _type(string, added, self.new)
        return GgufToken(old.tokens[old_id], kind, score)

    @property
    def used_ids(self) -> set[int]:
        """The new ids that keys name, suppressed ones not included."""
        keys = [key for key in self._numbers() if not key.name.endswith((SUPPRESSED, "vocab_size"))]
        return {int(i) for key in keys for i in np.atleast_1d(key.value)}

    def keys(self, pre: str | None, suppressed: Collection[int] = ()) -> dict[str, GgufKey]:
        """The changed keys by name.

        Args:
            pre: The type of pre-tokenizer.
            suppressed: Ids without a token, which must not be chosen.
        """
        keys = {TOKENS: strings_key(TOKENS, [token.string for token in self.tokens])}
        for name, values in (
            (TYPES, [token.type for token in self.tokens]),
            (SCORES, [token.score for token in self.tokens]),
        ):
            if name in self.file.keys:
                keys[name] = numbers_key(name, self.file.keys[name].item_type or 0, values)
        if MERGES in self.file.keys:
            keys[MERGES] = strings_key(MERGES, [*_merges(self.new)])
        if _HUGGINGFACE in self.file.keys:
            keys[_HUGGINGFACE] = string_key(_HUGGINGFACE, write_tokenizer_json(self.new))
        if pre is not None:
            keys[PRE] = string_key(PRE, pre.encode())
        if self.vocabulary.kind == "sentencepiece":
            require_same_rule(
                self.new, {token.string.decode(): token.score for token in self.tokens if token.type == NORMAL}
            )
        keys |= {key.name: key for key in self._numbers()}
        return keys | ({_SUPPRESSED: self._suppressing(keys.get(_SUPPRESSED), suppressed)} if suppressed else {})

    def _suppressing(self, key: GgufKey | None, more: Collection[int]) -> GgufKey:
        """The key with suppressed ids, which llama.cpp reads as 32-bit integers."""
        listed = {} if key is None else {SUPPRESSED: [*map(int, key.value)]}
        return numbers_key(_SUPPRESSED, INT32, suppressing(listed, more)[SUPPRESSED])

    def _numbers(self) -> Iterator[GgufKey]:
        """Keys that hold ids or the size of the vocabulary."""
        before = len(self.vocabulary.tokens)
        renumber = Renumbering(self.plan, (before, self.rows), self.file.path.name)
        for name, key in self.file.keys.items():
            last = name.rsplit(".", 1)[-1]
            if _IDS.search(last):
                yield _renumbered(key, renumber)
            elif _SIZE.search(last):
                if key.value != before:
                    raise CheckpointError(
                        f"`{name}` is {key.text}, and the file has {before:,} tokens", hint="convert the model again"
                    )
                yield number_key(key, self.rows)


def _type(string: str, added: Mapping[str, bool], new: Tokenizer) -> int:
    """The type that the converter gives a token."""
    if string in added:
        return CONTROL if added[string] or _SPECIAL.fullmatch(string) else USER_DEFINED
    if new.kind == "sentencepiece":
        return BYTE if string in _BYTES else UNKNOWN if string == new.model.get("unk_token") else NORMAL
    return NORMAL


def _merges(new: Tokenizer) -> Iterator[bytes]:
    """The merges as text. A space within a token is written as the converter does."""
    for left, right in new.merge_strings():
        yield f"{left.replace(' ', 'Ġ')} {right.replace(' ', 'Ġ')}".encode()


def _renumbered(key: GgufKey, renumber: Renumbering) -> GgufKey:
    if key.type == ARRAY and isinstance(key.value, np.ndarray) and key.item_type is not None:
        ids = (renumber(key.name, _id(key, value)) for value in key.value)
        return numbers_key(key.name, key.item_type, [i for i in ids if i is not None])
    new_id = renumber(key.name, _id(key, key.value))
    return key if new_id is None else number_key(key, new_id)


def _id(key: GgufKey, value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise CheckpointError(f"`{key.name}` is {key.text}; a token id is a whole number", hint="convert it again")
    return int(value)
