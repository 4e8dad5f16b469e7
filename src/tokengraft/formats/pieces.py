"""Reads a SentencePiece `.model` as a tokenizer, with the pipeline that its settings describe."""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, UnsupportedTokenizerError
from tokengraft.formats.huggingface import checked, new_document
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import FLAGS
from tokengraft.tokenizer.kind import SPACE, require_whole_charsmaps
from tokengraft.tokenizer.piece_model import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, PieceModel, all_splits
from tokengraft.tokenizer.tokenizer import Tokenizer


def read_piece_model(
    files: Mapping[str, bytes], file: str, *, name: str | None = None, beside: Tokenizer | None = None
) -> Tokenizer:
    """The tokenizer of a `.model` among the files of a folder. Errors call it ``name``.

    Pieces that score alike are merged in the order of the `tokenizer.json` ``beside`` it. Without one they are refused.
    """
    name = name or file
    model = PieceModel.read(files[file], name)
    holes = model.holes
    ids = {piece.string: i for i, piece in enumerate(model.pieces) if i not in holes}
    if len(ids) + len(holes) < len(model.pieces):
        double = next(piece.string for i, piece in enumerate(model.pieces) if ids.get(piece.string, i) != i)
        raise InvalidTokenizerError(f"`{name}` has the piece {double!r} twice", hint="pass another model")
    if model.is_unigram:
        scores = FrozenDict({piece.string: piece.score for piece in model.pieces})
        rest = json.dumps(_unigram_document(model, name), ensure_ascii=False)
        return checked(Tokenizer(_core.Vocabulary(ids, []), rest, FrozenDict(files), main=file, scores=scores))
    if beside is None:
        _require_expressible(model, name)
    made = [left + right for left, right in beside.merge_strings()] if beside else []
    order = {string: place for place, string in enumerate(dict.fromkeys([*made, *ids]))}
    merges = [(ids[left], ids[right]) for left, right in all_splits(model.normal, order)]
    rest = json.dumps(_document(model, name), ensure_ascii=False)
    return checked(Tokenizer(_core.Vocabulary(ids, merges), rest, FrozenDict(files), main=file))


def _require_expressible(model: PieceModel, name: str) -> None:
    """Refuses models whose merging cannot be written as a list of merges.

    Of pieces that score alike, SentencePiece takes the leftmost. A piece may have a character that is no piece.
    """
    merged = [
        piece for piece in model.pieces if piece.type == NORMAL and len(piece.string) > 1 and piece.string.strip(SPACE)
    ]
    counted = Counter(piece.score for piece in merged)
    alike = [piece.string for piece in merged if counted[piece.score] > 1]
    strange = [piece.string for piece in merged if not model.normal.keys() >= set(piece.string)]
    if alike or strange:
        what = f"{len(alike):,} pieces that score alike, such as {alike[0]!r}" if alike else ""
        raise UnsupportedTokenizerError(
            f"`{name}` has {what or f'the piece {strange[0]!r}, a character of which is no piece'}",
            hint="pass a folder with the `tokenizer.json` of this model, which says what is merged when",
        )


def _document(model: PieceModel, name: str) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges."""
    unknown = next((piece.string for piece in model.pieces if piece.type == UNKNOWN), None)
    space = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoders: list[dict[str, Any]] = [space, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.normalizer.add_dummy_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    added, flags = [], dict.fromkeys(FLAGS, False)
    for token_id, piece in enumerate(model.pieces):
        if piece.type in (UNKNOWN, CONTROL, USER_DEFINED):
            # A piece with a `▁` is searched for after spaces were replaced by `▁`.
            normalized = piece.type == USER_DEFINED and SPACE in piece.string
            decided = {"normalized": normalized, "special": piece.type != USER_DEFINED}
            added.append({"id": token_id, "content": piece.string, **flags, **decided})
    return new_document(
        {"unk_token": unknown, "fuse_unk": True, "byte_fallback": model.byte_fallback},
        added_tokens=added,
        normalizer={"type": "Sequence", "normalizers": [*_normalizers(model, name)]},
        decoder={"type": "Sequence", "decoders": decoders},
    )


def _unigram_document(model: PieceModel, name: str) -> dict[str, Any]:
    """As `_document`, for Unigram."""
    defined = next((piece.string for piece in model.pieces if piece.type == USER_DEFINED), None)
    if defined is not None:
        raise UnsupportedTokenizerError(
            f"`{name}` has the user-defined piece {defined!r}: SentencePiece finds it inside words",
            hint="pass a folder with the `tokenizer.json` of this model",
        )
    document = _document(model, name)
    unknown = next((token_id for token_id, piece in enumerate(model.pieces) if piece.type == UNKNOWN), None)
    settings: dict[str, Any] = {"type": "Unigram", "unk_id": unknown, "vocab": [], "byte_fallback": model.byte_fallback}
    # Words can be split one by one, unless a piece spans two of them.
    is_split = not any(SPACE in string[1:] for string in model.normal)
    words = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": True}
    return document | {"model": settings, "pre_tokenizer": words if is_split else None}


def _normalizers(model: PieceModel, name: str) -> Iterator[dict[str, Any]]:
    """The steps of the file's normalizer, as the `tokenizers` library names them."""
    spec = model.normalizer
    if not spec.escape_whitespaces or (spec.add_dummy_prefix and model.rules.treat_whitespace_as_suffix):
        raise UnsupportedTokenizerError(
            f"`{name}` keeps spaces as they are or writes `{SPACE}` after words, for which there is no pipeline",
            hint="pass a folder with the `tokenizer.json` of this model",
        )
    spaced = next((p.string for p in model.pieces if p.type == USER_DEFINED and SPACE in p.string), None)
    if spaced is not None and spec.add_dummy_prefix:
        raise UnsupportedTokenizerError(
            f"`{name}` has the user-defined piece {spaced!r} and puts a `{SPACE}` before text; no pipeline does both",
            hint="pass a folder with the `tokenizer.json` of this model",
        )
    if spec.charsmap:
        rules = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(spec.charsmap).decode()}
        require_whole_charsmaps(rules)
        yield rules
    if spec.remove_extra_whitespaces:
        # A literal `▁` at the end counts as a space, one at the beginning does not.
        for pattern, content in ((rf"\A +|[ {SPACE}]+\z", ""), (" {2,}", " ")):
            yield {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
    if spec.add_dummy_prefix:
        yield {"type": "Prepend", "prepend": SPACE}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
