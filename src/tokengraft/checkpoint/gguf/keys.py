"""What changes in a GGUF file with the vocabulary: keys and scores."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tokengraft import _core
from tokengraft.checkpoint.gguf.file import (
    ARRAY,
    INT32,
    GgufFile,
    GgufKey,
    number_key,
    numbers_key,
    string_key,
    strings_key,
    wrong_file,
)
from tokengraft.checkpoint.gguf.vocabulary import MERGES, PRE, SCORES, TOKENS, TYPES, GgufVocabulary, normal_scores
from tokengraft.checkpoint.ids import SUPPRESSED, Renumbering, suppressing
from tokengraft.errors import CheckpointError
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.tokenizer.kind import SPACE, byte_token
from tokengraft.tokenizer.piece_model import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    all_splits,
    next_below,
)
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan

_STEP = 7919
"""Pairs of tokens are compared at this distance: a prime, so that all tokens have a neighbour."""


def new_scores(vocabulary: GgufVocabulary, base: Tokenizer, new: Tokenizer) -> dict[str, float]:
    """The scores of all pieces that merge: those of the new `tokenizer.model`, or by the order of the new merges."""
    known = normal_scores(vocabulary, base.ids)
    if new.piece_model is None:
        return _by_merges(new, {piece: score for piece, score in known.items() if piece in new.ids})
    scores = new.piece_model.normal
    # A piece that was pruned and learned again scores lower than before.
    other = next((piece for piece in scores if np.float32(scores[piece]) > np.float32(known.get(piece, np.inf))), None)
    if other is not None:
        raise CheckpointError(
            f"the piece {other!r} has the score {known[other]} in the GGUF file and {scores[other]} in the new "
            f"`{new.piece_file}`: they are of different models",
            hint="pass the GGUF file that was converted from the base of the new tokenizer",
        )
    return scores


def _by_merges(new: Tokenizer, known: Mapping[str, float]) -> dict[str, float]:
    """Scores in the order of the merges, those of the file where they are in that order; characters are below all."""
    scores: dict[str, float] = {}
    above = max(known.values(), default=0.0)
    for left, right in new.merge_strings():
        product = left + right
        if product not in scores:
            score = known.get(product, math.inf)
            above = scores[product] = score if score <= above else next_below(above)
    others = {*new.ids} - {token.content for token in new.added} - {*scores}
    lowest = next_below(min([*scores.values(), *known.values()], default=0.0))
    return scores | {piece: known.get(piece, lowest) for piece in others}


def require_same_rule(new: Tokenizer, scores: Mapping[str, float]) -> None:
    """Refuses scores under which text is split in another way than by the merges of the new tokenizer.

    Compared are all tokens, and every token followed by another.
    """
    ids = new.ids
    normal = {piece: score for piece, score in scores.items() if piece in ids}
    merges = tuple((ids[left], ids[right]) for left, right in all_splits(normal, ids))
    by_score = Tokenizer(_core.Vocabulary(dict(ids), merges), new.rest).core_model
    pieces = sorted(normal)
    for place, piece in enumerate(pieces):
        for text in (piece, piece + pieces[(place + _STEP) % len(pieces)]):
            if new.core_model.encode(text) != by_score.encode(text):
                raise CheckpointError(
                    f"llama.cpp, which merges by score, would split {text!r} in another way than the new tokenizer",
                    hint="pass a new tokenizer with a `tokenizer.model`",
                )


ADDED_SCORE, UNUSED_SCORE = -1000.0, -10000.0
"""Scores of added tokens and of placeholders, as the converter writes them."""
_IDS = re.compile(r"token_ids?(_|$)|^suppress_tokens$")
"""The last part of the name of a key that holds ids."""
_SIZE = "vocab_size"
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

    vocabulary: GgufVocabulary
    base: Tokenizer
    """The tokenizer of the file."""
    new: Tokenizer
    plan: VocabPlan
    rows: int
    """Rows of the new tables, padding included."""

    @property
    def file(self) -> GgufFile:
        """The file with the old vocabulary."""
        return self.vocabulary.file

    @cached_property
    def _added(self) -> dict[str, bool]:
        """Added tokens, and whether they are special."""
        return {token.content: token.special for token in self.new.added}

    @cached_property
    def _scores(self) -> dict[str, float]:
        return new_scores(self.vocabulary, self.base, self.new) if self.vocabulary.kind == "sentencepiece" else {}

    @cached_property
    def tokens(self) -> list[GgufToken]:
        """A token for every new row."""
        tokens = [self._token(token_id) for token_id in range(self.rows)]
        if len({token.string for token in tokens}) < len(tokens):
            raise CheckpointError(
                "two tokens would have the same string, which llama.cpp does not load: a token has the name of a "
                "placeholder such as [PAD7], or of an added token with spaces",
                hint="rename the token in the new tokenizer",
            )
        return tokens

    def _token(self, token_id: int) -> GgufToken:
        source = self.plan.sources[token_id] if token_id < self.plan.rows_after else None
        if source is None:  # as the converter: that of the SentencePiece model, if there is one
            model = self.new.piece_model
            if model is None or token_id not in model.holes:
                return GgufToken(f"[PAD{token_id}]".encode(), UNUSED, UNUSED_SCORE)
            return GgufToken(model.pieces[token_id].string.encode(), UNUSED, model.pieces[token_id].score)
        string, old = self.new.strings[token_id], self.vocabulary
        if not isinstance(source, int):
            kind = self._type(string)
            text = string.replace(SPACE, " ") if kind == USER_DEFINED else string
            score = self._scores.get(string, ADDED_SCORE if string in self._added else 0.0)
            return GgufToken(text.encode(), kind, score)
        kind, score = int(old.types[source]), 0.0 if old.scores is None else float(old.scores[source])
        if kind == NORMAL:
            score = self._scores.get(string, score)
        if kind in (NORMAL, UNUSED) and string in self._added:  # it became an added token
            kind = self._type(string)
        return GgufToken(old.tokens[source], kind, score)

    def _type(self, string: str) -> int:
        """The type that the converter gives a token."""
        if string in self._added:
            return CONTROL if self._added[string] or _SPECIAL.fullmatch(string) else USER_DEFINED
        if self.new.kind == "sentencepiece":
            return BYTE if string in _BYTES else UNKNOWN if string == self.new.model.get("unk_token") else NORMAL
        return NORMAL

    @property
    def id_fields(self) -> list[tuple[str, int]]:
        """The new ids that keys name, with the last part of the key."""
        keys = [(key.name.rsplit(".", 1)[-1], key) for key in self._numbers()]
        return [(name, int(i)) for name, key in keys if name != _SIZE for i in np.atleast_1d(key.value)]

    def keys(self, pre: str | None, suppressed: Collection[int] = ()) -> dict[str, GgufKey]:
        """The changed keys by name, with a type of pre-tokenizer, and ids without a token that must not be chosen."""
        strings, types, scores = zip(*self.tokens, strict=True)
        keys = {TOKENS: strings_key(TOKENS, [*strings])}
        for name, values in ((TYPES, types), (SCORES, scores)):
            if name in self.file.keys:
                keys[name] = numbers_key(name, self.file.keys[name].item_type or 0, values)
        if MERGES in self.file.keys:  # as the converter does, a space within a token is written as Ġ
            pairs = ((left.replace(" ", "Ġ"), right.replace(" ", "Ġ")) for left, right in self.new.merge_strings())
            keys[MERGES] = strings_key(MERGES, [f"{left} {right}".encode() for left, right in pairs])
        if _HUGGINGFACE in self.file.keys:
            keys[_HUGGINGFACE] = string_key(_HUGGINGFACE, write_tokenizer_json(self.new))
        if pre is not None:
            keys[PRE] = string_key(PRE, pre.encode())
        if self.vocabulary.kind == "sentencepiece":
            normal = {token.string.decode(): token.score for token in self.tokens if token.type == NORMAL}
            require_same_rule(self.new, normal)
        keys |= {key.name: key for key in self._numbers()}
        if suppressed:
            listed = {SUPPRESSED: [*map(int, keys[_SUPPRESSED].value)]} if _SUPPRESSED in keys else {}
            ids = suppressing(listed, suppressed)[SUPPRESSED]
            keys[_SUPPRESSED] = numbers_key(_SUPPRESSED, INT32, ids)  # the type that llama.cpp reads
        return keys

    def _numbers(self) -> Iterator[GgufKey]:
        """Keys that hold ids or the size of the vocabulary."""
        before = len(self.vocabulary.tokens)
        renumbering = Renumbering(self.plan, (before, self.rows))
        for name, key in self.file.keys.items():
            last = name.rsplit(".", 1)[-1]
            if _IDS.search(last):
                yield _renumbered(key, renumbering, self.file.path.name)
            elif last == _SIZE:
                if key.value != before:
                    raise wrong_file(f"`{name}` is {key.text}, and the file has {before:,} tokens")
                yield number_key(key, self.rows)


def _renumbered(key: GgufKey, renumbering: Renumbering, file: str) -> GgufKey:
    if key.type == ARRAY and isinstance(key.value, np.ndarray) and key.item_type is not None:
        ids = (renumbering.new_id(_id(key, value), key.name, file) for value in key.value)
        return numbers_key(key.name, key.item_type, [i for i in ids if i is not None])
    new_id = renumbering.new_id(_id(key, key.value), key.name, file)
    return key if new_id is None else number_key(key, new_id)


def _id(key: GgufKey, value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise wrong_file(f"`{key.name}` is {key.text}; a token id is a whole number")
    return int(value)
