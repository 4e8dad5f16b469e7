"""A SentencePiece `.model` file: its pieces, and the rules of its trainer. Reading and writing loses nothing.

The file is a message of protocol buffers. Only the fields that matter here are parsed. The bytes of
all other fields, of kept pieces, and of the settings of trainer and normalizer are copied unchanged.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import NamedTuple

from tokengraft.errors import UnreadableFileError, UnsupportedTokenizerError
from tokengraft.representation import shown
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.kind import SPACE

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
NAMES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = b"\x0a", 2, 3, 5
_UNIGRAM, _BPE = 1, 2
_MODEL_TYPES: dict[object, str] = {_UNIGRAM: "Unigram", _BPE: "BPE", 3: "word", 4: "character"}
_MODEL_TYPE, _BYTE_FALLBACK, _UNKNOWN_PIECE, _DELIMITER = 3, 35, 45, 53
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_EXTRA, _ESCAPE = 2, 3, 4, 5
_RULES = {
    "max_sentencepiece_length": (20, 16),
    "split_by_unicode_script": (21, True),
    "split_by_whitespace": (22, True),
    "split_by_number": (23, True),
    "treat_whitespace_as_suffix": (24, False),
    "split_digits": (25, False),
    "allow_whitespace_only_pieces": (26, False),
}
"""Number and default of the fields of `trainer_spec` that decide which pieces may be made."""


@shown
@dataclass(frozen=True)
class PieceRules:
    """Which pieces SentencePiece's trainer may make: fields of its `trainer_spec`. The defaults are Llama's."""

    split_by_unicode_script: bool = True
    split_by_number: bool = True
    split_by_whitespace: bool = True
    split_digits: bool = True
    treat_whitespace_as_suffix: bool = False
    allow_whitespace_only_pieces: bool = True
    max_sentencepiece_length: int = 16


class Piece(NamedTuple):
    """A piece of the vocabulary. Its position in the file is its id."""

    string: str
    score: float
    type: int
    raw: bytes
    """Its protocol buffer message."""


@dataclass(frozen=True)
class NormalizerSpec:
    """The normalizer settings of the file."""

    charsmap: bytes
    """Compiled rules; empty for the identity."""
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


@dataclass(frozen=True)
class PieceModel:
    """The content of a SentencePiece model: BPE or Unigram."""

    pieces: tuple[Piece, ...]
    others: bytes
    """All other fields of the file, as bytes."""

    @classmethod
    def read(cls, raw: bytes, name: str) -> "PieceModel":
        """The model in the bytes of a file."""
        try:
            fields = [*_fields(raw)]
            pieces = [_parse_piece(value) for number, value, _, _ in fields if number == 1 and isinstance(value, bytes)]
            others = (raw[i:j] for number, value, i, j in fields if number != 1 or not isinstance(value, bytes))
            if not pieces:
                raise ValueError("it has no pieces")
            model = cls(tuple(pieces), b"".join(others))
            _ = model.rules, model.normalizer  # damaged settings are found now
        except (ValueError, IndexError) as error:
            raise UnreadableFileError(
                f"`{name}` is not a SentencePiece model: {error}", hint="pass the `tokenizer.model` of a Llama type"
            ) from error
        model._require_known(name)
        return model

    def write(self) -> bytes:
        """The bytes of the file."""
        return b"".join(_PIECES + _varint(len(piece.raw)) + piece.raw for piece in self.pieces) + self.others

    @cached_property
    def rules(self) -> PieceRules:
        """Which pieces the trainer was allowed to make."""
        rules = {name: self._trainer.get(number, default) for name, (number, default) in _RULES.items()}
        length = rules.pop("max_sentencepiece_length")
        flags = {name: bool(value) for name, value in rules.items()}
        return PieceRules(**flags, max_sentencepiece_length=length if isinstance(length, int) else 16)

    @property
    def is_unigram(self) -> bool:
        """Whether the pieces are chosen by the best sum of their scores; otherwise they are merged."""
        return self._trainer.get(_MODEL_TYPE, _UNIGRAM) == _UNIGRAM

    @property
    def byte_fallback(self) -> bool:
        """Whether unknown characters become ``<0xNN>`` pieces."""
        return bool(self._trainer.get(_BYTE_FALLBACK, False))

    @cached_property
    def normalizer(self) -> NormalizerSpec:
        """How text is normalized before it is split."""
        settings = self._message(_NORMALIZER)
        charsmap = settings.get(_CHARSMAP, b"")
        return NormalizerSpec(
            charsmap=charsmap if isinstance(charsmap, bytes) else b"",
            add_dummy_prefix=bool(settings.get(_DUMMY_PREFIX, True)),
            remove_extra_whitespaces=bool(settings.get(_REMOVE_EXTRA, True)),
            escape_whitespaces=bool(settings.get(_ESCAPE, True)),
        )

    @cached_property
    def normal(self) -> dict[str, float]:
        """The pieces that take part in merging, with their scores."""
        return {piece.string: piece.score for piece in self.pieces if piece.type == NORMAL}

    def fields(self) -> dict[tuple[int, int], list[int | bytes]]:
        """All fields beside the pieces: by the number of the message and of the field in it, or 0, the values."""
        found: dict[tuple[int, int], list[int | bytes]] = {}
        for number, value, _, _ in _fields(self.others):
            inner = [(0, value)]
            if number in (_TRAINER, _NORMALIZER, _DENORMALIZER) and isinstance(value, bytes):
                with suppress(ValueError, IndexError):  # damaged: compared as a whole
                    inner = [(field, content) for field, content, _, _ in _fields(value)]
            for field, content in inner:
                found.setdefault((number, field), []).append(content)
        return found

    @cached_property
    def holes(self) -> frozenset[int]:
        """Ids without a token, which have a placeholder piece."""
        return frozenset(
            i for i, piece in enumerate(self.pieces) if piece.type == UNUSED and piece[:3] == placeholder(i)[:3]
        )

    def changed(self, change: Change, *, alone: bool = False) -> "PieceModel":
        """The model after a change. ``alone``: no other file says which added tokens are special."""
        return self._relisted(change) if self.is_unigram else self._renumbered(change, alone=alone)

    def _relisted(self, change: Change) -> "PieceModel":
        """A Unigram model with other pieces, in the order that it has.

        Its ids may be others than those of `tokenizer.json`: by an offset (XLM-R), or all of them (M2M-100). New pieces
        have the places of those that they replace, or follow at their ids less the offset. Ids between the last piece
        and the new ones get a piece too: that of an added token, or a placeholder.
        """
        scores, ids = change.scores, change.ids
        named = ((change.replaced.get(piece.string, piece.string), piece) for piece in self.pieces)
        pieces = [_piece(name, scores[name], NORMAL) if name in scores else piece for name, piece in named]
        pieces = [piece for piece in pieces if piece.string not in change.gone]
        known = {piece.string for piece in pieces}
        more = {ids[token]: _piece(token, score, NORMAL) for token, score in scores.items() if token not in known}
        if more:
            normal = ((place, piece.string) for place, piece in enumerate(pieces) if piece.type == NORMAL)
            offsets = {ids[string] - place for place, string in normal if string in ids}
            if len(offsets) != 1 or len(pieces) > min(more) - min(offsets):
                raise UnsupportedTokenizerError(
                    "the SentencePiece model lists its pieces in another order than tokenizer.json: new pieces would "
                    "get other ids than there",
                    hint="pass the path of the tokenizer.json alone",
                )
            (offset,) = offsets
            between = {i: piece for i, piece in _added_pieces(change.specials).items() if piece.string not in known}
            for place in range(len(pieces), max(more) - offset + 1):
                pieces.append(more.get(place + offset) or between.get(place + offset) or placeholder(place))
        return replace(self, pieces=tuple(pieces))

    def _renumbered(self, change: Change, *, alone: bool) -> "PieceModel":
        """A BPE model with other pieces. The id of a removed piece gets a placeholder, unless it is after all others.

        New pieces score below all others but runs of white space. SentencePiece finds user-defined pieces in text, as
        other loaders find added tokens. So new added tokens are these, except for special ones of a model ``alone``.
        """
        kept = {change.moved[old]: piece for old, piece in enumerate(self.pieces) if old in change.moved}
        scores = self._scores_below(len(change.new))
        kept |= {token_id: _piece(token, next(scores), NORMAL) for token, token_id in change.new.items()}
        given = {change.ids[text]: (text, flags["special"] and alone) for text, flags in change.given.items()}
        kept |= _added_pieces(given)
        missing, size = _added_pieces(change.specials), max(kept, default=-1) + 1
        return replace(self, pieces=tuple(kept.get(i) or missing.get(i) or placeholder(i) for i in range(size)))

    @cached_property
    def _lowest(self) -> float:
        """The lowest score of a piece that is not white space."""
        return min((score for string, score in self.normal.items() if string.strip(SPACE)), default=0.0)

    @cached_property
    def last_runs(self) -> dict[str, float]:
        """The runs of white space that score below all other pieces, so that they merge after new ones too."""
        runs = ((string, score) for string, score in self.normal.items() if not string.strip(SPACE))
        return {string: score for string, score in runs if len(string) > 1 and score < self._lowest}

    def _scores_below(self, n: int) -> Iterator[float]:
        """So many scores, descending, each another number in 32 bits."""
        score, floor = self._lowest, max(self.last_runs.values(), default=-math.inf)
        for _ in range(n):
            score = next_below(score)
            if score <= floor:
                raise UnsupportedTokenizerError(
                    f"there is no room for {n:,} scores between {self._lowest} and {floor}, the score of "
                    "pieces of white space, which must merge last",
                    hint="add fewer tokens",
                )
            yield score

    def _require_known(self, name: str) -> None:
        model_type = self._trainer.get(_MODEL_TYPE, _UNIGRAM)
        if model_type not in (_BPE, _UNIGRAM):
            raise UnsupportedTokenizerError(
                f"`{name}` is a SentencePiece model of the type {_MODEL_TYPES.get(model_type, model_type)}; tokengraft "
                "edits BPE and Unigram",
                hint="pass another model",
            )
        strange = [piece.string for i, piece in enumerate(self.pieces) if piece.type == UNUSED and i not in self.holes]
        if strange or self._trainer.get(_DELIMITER):
            what = f"marks pieces as unused, such as {strange[0]!r}" if strange else "has a pretokenization delimiter"
            raise UnsupportedTokenizerError(
                f"`{name}` {what}; its encoding then follows rules of its own",
                hint="nothing can be done for this model yet",
            )

    @cached_property
    def _trainer(self) -> dict[int, int | bytes]:
        return self._message(_TRAINER)

    def _message(self, number: int) -> dict[int, int | bytes]:
        messages = (raw for field, raw, _, _ in _fields(self.others) if field == number and isinstance(raw, bytes))
        return {field: value for raw in messages for field, value, _, _ in _fields(raw)}


def new_model(pieces: Sequence[tuple[str, float, int]], *, byte_fallback: bool, add_dummy_prefix: bool) -> PieceModel:
    """A model without normalization, with the rules of Llama's trainer.

    A piece is given by its string, score and type, by id. None of the strings is the placeholder of an id.
    """
    rules = asdict(PieceRules())
    trainer = _number_field(_MODEL_TYPE, _BPE)
    trainer += b"".join(_number_field(number, int(rules[name])) for name, (number, _) in _RULES.items())
    trainer += _number_field(_BYTE_FALLBACK, int(byte_fallback))
    unknown = next((string for string, _, kind in pieces if kind == UNKNOWN), "<unk>")
    trainer += _bytes_field(_UNKNOWN_PIECE, unknown.encode())
    normalizer = _bytes_field(1, b"identity") + _number_field(_DUMMY_PREFIX, int(add_dummy_prefix))
    normalizer += _number_field(_REMOVE_EXTRA, 0) + _number_field(_ESCAPE, 1)
    others = _bytes_field(_TRAINER, trainer) + _bytes_field(_NORMALIZER, normalizer)
    return PieceModel(tuple(_piece(*piece) for piece in pieces), others)


def _number_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def piece_file(files: Mapping[str, bytes]) -> str | None:
    """The name of the SentencePiece model among the files of a folder, if there is one.

    The name does not say it: Llama-3 calls its list of base64 tokens `tokenizer.model` too.
    """
    return next((name for name in NAMES if files.get(name, b"").startswith(_PIECES)), None)


def all_splits(scores: Mapping[str, float], rank: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Every pair of pieces that makes a piece, in the order in which SentencePiece merges.

    Pieces of higher score come first. The pairs of one piece follow the ranks of their parts, as in the files that
    Hugging Face's converter writes; where text has one of them, it cannot have another in the same place.
    """
    for piece in sorted(scores, key=lambda piece: (-scores[piece], rank[piece])):
        cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        pairs = [pair for pair in cuts if pair[0] in scores and pair[1] in scores]
        yield from sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))


def _parse_piece(raw: bytes) -> Piece:
    string, score, kind = b"", 0.0, NORMAL
    for number, value, _, _ in _fields(raw):
        if number == 1 and isinstance(value, bytes):
            string = value
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (score,) = struct.unpack("<f", value)
        elif number == 3 and isinstance(value, int):
            kind = value
    if not math.isfinite(score):
        raise ValueError(f"the piece {string!r} has the score {score}")
    return Piece(string.decode(), score, kind, raw)


def _piece(string: str, score: float, kind: int) -> Piece:
    raw = _bytes_field(1, string.encode()) + b"\x15" + struct.pack("<f", score)
    return Piece(string, score, kind, raw if kind == NORMAL else raw + _number_field(3, kind))


def _added_pieces(specials: Mapping[int, tuple[str, bool]]) -> dict[int, Piece]:
    """Pieces for added tokens, by id."""
    kinds = ((i, text, CONTROL if is_special else USER_DEFINED) for i, (text, is_special) in specials.items())
    return {i: _piece(text, 0.0, kind) for i, text, kind in kinds}


def placeholder(token_id: int) -> Piece:
    """The piece of an id without a token. No merge makes it, because no other piece begins like it."""
    return _piece(f"<unused id {token_id}>", 0.0, UNUSED)


def next_below(score: float) -> float:
    """The next lower score: one less, or the next 32-bit float if subtracting one changes nothing."""
    (less,) = struct.unpack("<f", struct.pack("<f", score - 1))
    if less < score:
        return float(less)
    (bits,) = struct.unpack("<I", struct.pack("<f", score))  # far below 0 here, where one bit more is further down
    (less,) = struct.unpack("<f", struct.pack("<I", bits + 1))
    return float(less)


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes, int, int]]:
    """The fields of a message: number, value, and where the field begins and ends."""
    at = 0
    while at < len(raw):
        start = at
        key, at = _read_varint(raw, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = _read_varint(raw, at)
        else:
            if key & 7 == 2:
                size, at = _read_varint(raw, at)
            else:
                size = {1: 8, 5: 4}.get(key & 7, -1)
            if size < 0 or at + size > len(raw):
                raise ValueError(f"the field at byte {start} is damaged")
            value, at = raw[at : at + size], at + size
        yield key >> 3, value, start, at


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = raw[at]
    if value < 0x80:
        return value, at + 1
    value, shift = value & 0x7F, 7
    while shift < 70:
        at += 1
        value |= (raw[at] & 0x7F) << shift
        if raw[at] < 0x80:
            return value, at + 1
        shift += 7
    raise ValueError(f"the number at byte {at} has no end")


def _varint(value: int) -> bytes:
    """A number in groups of 7 bits: ``300 -> b"\\xac\\x02"``."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
