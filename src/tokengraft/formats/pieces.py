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
from tokengraft.tokenizer.added import new_entry
from tokengraft.tokenizer.kind import SPACE, require_whole_charsmaps
from tokengraft.tokenizer.piece_model import CONTROL, UNKNOWN, USER_DEFINED, PieceModel, all_splits
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
    _require_expressible(model, name, has_order=beside is not None)
    if model.is_unigram:
        scores = FrozenDict({piece.string: piece.score for piece in model.pieces})
        rest = json.dumps(_unigram_document(model), ensure_ascii=False)
        return checked(Tokenizer(_core.Vocabulary(ids, []), rest, FrozenDict(files), main=file, scores=scores))
    made = [left + right for left, right in beside.merge_strings()] if beside else []
    order = {string: place for place, string in enumerate(dict.fromkeys([*made, *ids]))}
    merges = [(ids[left], ids[right]) for left, right in all_splits(model.normal, order)]
    rest = json.dumps(_document(model), ensure_ascii=False)
    return checked(Tokenizer(_core.Vocabulary(ids, merges), rest, FrozenDict(files), main=file))


def _require_expressible(model: PieceModel, name: str, *, has_order: bool) -> None:
    """Refuses models that no pipeline or list of merges expresses. ``has_order``: another file says what merges when.

    Of pieces that score alike, SentencePiece takes the leftmost. A piece may have a character that is no piece.
    """
    spec, defined = model.normalizer, [piece.string for piece in model.pieces if piece.type == USER_DEFINED]
    is_listed = not (has_order or model.is_unigram)
    merged = {s: score for s, score in model.normal.items() if is_listed and len(s) > 1 and s.strip(SPACE)}
    counted = Counter(merged.values())
    alike = [string for string, score in merged.items() if counted[score] > 1]
    strange = [string for string in merged if not model.normal.keys() >= set(string)]
    spaced = [string for string in defined if SPACE in string and spec.add_dummy_prefix]
    problem = ""
    if alike:
        problem = f"has {len(alike):,} pieces that score alike, such as {alike[0]!r}"
    elif strange:
        problem = f"has the piece {strange[0]!r}, a character of which is no piece"
    elif defined and model.is_unigram:
        problem = f"has the user-defined piece {defined[0]!r}: SentencePiece finds it inside words"
    elif not spec.escape_whitespaces or (spec.add_dummy_prefix and model.rules.treat_whitespace_as_suffix):
        problem = f"keeps spaces as they are or writes `{SPACE}` after words, for which there is no pipeline"
    elif spaced:
        problem = f"has the user-defined piece {spaced[0]!r} and puts a `{SPACE}` before text; no pipeline does both"
    if problem:
        raise UnsupportedTokenizerError(
            f"`{name}` {problem}", hint="pass a folder with the `tokenizer.json` of this model"
        )


def _document(model: PieceModel) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges."""
    unknown = next((piece.string for piece in model.pieces if piece.type == UNKNOWN), None)
    space = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoders: list[dict[str, Any]] = [space, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.normalizer.add_dummy_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    added = []
    for token_id, piece in enumerate(model.pieces):
        if piece.type in (UNKNOWN, CONTROL, USER_DEFINED):
            # A piece with a `▁` is searched for after spaces were replaced by `▁`.
            is_defined = piece.type == USER_DEFINED
            normalized = is_defined and SPACE in piece.string
            added.append(new_entry(token_id, piece.string, special=not is_defined, normalized=normalized))
    return new_document(
        {"unk_token": unknown, "fuse_unk": True, "byte_fallback": model.byte_fallback},
        added_tokens=added,
        normalizer={"type": "Sequence", "normalizers": [*_normalizers(model)]},
        decoder={"type": "Sequence", "decoders": decoders},
    )


def _unigram_document(model: PieceModel) -> dict[str, Any]:
    """As `_document`, for Unigram."""
    document = _document(model)
    unknown = next((token_id for token_id, piece in enumerate(model.pieces) if piece.type == UNKNOWN), None)
    settings: dict[str, Any] = {"type": "Unigram", "unk_id": unknown, "vocab": [], "byte_fallback": model.byte_fallback}
    # Words can be split one by one, unless a piece spans two of them.
    is_split = not any(SPACE in string[1:] for string in model.normal)
    words = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": True}
    return document | {"model": settings, "pre_tokenizer": words if is_split else None}


def _normalizers(model: PieceModel) -> Iterator[dict[str, Any]]:
    """The steps of the file's normalizer, as the `tokenizers` library names them."""
    spec = model.normalizer
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
