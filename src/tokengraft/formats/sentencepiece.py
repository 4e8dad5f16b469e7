"""SentencePiece `.model` files as tokenizers: alone, or in a folder with a `tokenizer.json`.

A model alone is converted as Hugging Face's converter does. Two things then follow transformers and not
`sentencepiece`: the text of a control piece, such as ``<s>``, is encoded as that piece, and text after such a piece
gets a ``▁`` in front.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tokengraft.errors import InvalidTokenizerError, UnsupportedTokenizerError
from tokengraft.formats.huggingface import require_added_ids
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.alphabet import SPACE
from tokengraft.tokenizer.kind import require_whole_charsmaps
from tokengraft.tokenizer.sentencepiece import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, PieceModel
from tokengraft.tokenizer.tokenizer import Tokenizer


def read_piece_model(raw: bytes, *, name: str, file: str, files: Mapping[str, bytes]) -> Tokenizer:
    """The tokenizer in the bytes of a `.model` without a `tokenizer.json`.

    Args:
        raw: The bytes.
        name: What to call the file in errors.
        file: Its name in the folder that will be written.
        files: The other tokenizer files of the folder, which the tokenizer keeps.

    Raises:
        UnreadableFileError: It is not a SentencePiece model.
        UnsupportedTokenizerError: It is not BPE, or its normalization cannot be written as a pipeline.
        InvalidTokenizerError: It is inconsistent.
    """
    model = PieceModel.read(raw, name)
    holes = model.holes
    ids = {piece.string: i for i, piece in enumerate(model.pieces) if i not in holes}
    if len(ids) + len(holes) < len(model.pieces):
        double = next(piece.string for i, piece in enumerate(model.pieces) if ids.get(piece.string, i) != i)
        raise InvalidTokenizerError(f"`{name}` has the piece {double!r} twice", hint="pass another model")
    _require_expressible(model, name)
    tokenizer = Tokenizer(
        vocab=FrozenDict(ids),
        merges=tuple(model.merges(ids)),
        rest=json.dumps(_document(model, name), ensure_ascii=False),
        files=FrozenDict({**files, file: raw}),
        main=file,
    )
    _ = tokenizer.bpe
    require_added_ids(tokenizer)
    _ = tokenizer.pipeline  # building the two checks them
    return tokenizer


def _require_expressible(model: PieceModel, name: str) -> None:
    """Refuses models whose merging cannot be written as a list of merges.

    Raises:
        UnsupportedTokenizerError: Pieces score alike, and SentencePiece takes the leftmost; or a piece has a character
            that is no piece.
    """
    merged = [
        piece for piece in model.pieces if piece.type == NORMAL and len(piece.string) > 1 and piece.string.strip(SPACE)
    ]
    counted = Counter(piece.score for piece in merged)
    alike = [piece.string for piece in merged if counted[piece.score] > 1]
    strange = [piece.string for piece in merged if not model.normal.keys() >= set(piece.string)]
    if alike or strange:
        what = (
            f"{len(alike):,} pieces that score alike, such as {alike[0]!r}" if alike else f"the piece {strange[0]!r}, "
        )
        raise UnsupportedTokenizerError(
            f"`{name}` has {what}" + ("" if alike else "a character of which is no piece"),
            hint="pass a folder with the `tokenizer.json` of this model, which says what is merged when",
        )


def require_agreement(tokenizer: Tokenizer, folder: str) -> None:
    """Refuses a `.model` that does not say what the `tokenizer.json` beside it says.

    Raises:
        InvalidTokenizerError: With the first difference.
    """
    model = tokenizer.piece_model
    difference = None if model is None else next(_differences(tokenizer, model), None)
    if difference:
        raise InvalidTokenizerError(
            f"`{tokenizer.piece_file}` and `tokenizer.json` in `{folder}` differ: {difference}",
            hint="one of the two is stale: take it out of a copy of the folder, or pass the path of the other itself",
        )


def _differences(tokenizer: Tokenizer, model: PieceModel) -> Iterator[str]:
    ids = tokenizer.ids
    holes = model.holes
    for token_id, piece in enumerate(model.pieces):
        if token_id not in holes and ids.get(piece.string) != token_id:
            other = ids.get(piece.string, "no id")
            yield f"the piece {piece.string!r} has the id {token_id:,} in the one and {other} in the other"
    scores, before, lowest = model.normal, "", math.inf
    for left, right in tokenizer.merge_strings():
        product = left + right
        if ids[product] >= len(model.pieces):
            yield f"merges of tokenizer.json make {product!r}, which is no piece of the other"
        if scores.get(product, lowest) > lowest:
            yield f"{product!r} scores higher than {before!r}, and tokenizer.json merges it later"
        if product in scores:
            before, lowest = product, scores[product]


def _document(model: PieceModel, name: str) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges."""
    unknown = next((piece.string for piece in model.pieces if piece.type == UNKNOWN), None)
    space = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoders: list[dict[str, Any]] = [space, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.normalizer.add_dummy_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*_added_tokens(model)],
        "normalizer": {"type": "Sequence", "normalizers": [*_normalizers(model, name)]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "vocab": {},
            "merges": [],
        },
    }


def _added_tokens(model: PieceModel) -> Iterator[dict[str, Any]]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for token_id, piece in enumerate(model.pieces):
        if piece.type in (UNKNOWN, CONTROL, USER_DEFINED):
            # A piece with a `▁` is searched for after spaces were replaced by `▁`.
            normalized = piece.type == USER_DEFINED and SPACE in piece.string
            special = {"special": piece.type != USER_DEFINED, "normalized": normalized}
            yield {"id": token_id, "content": piece.string, **flags, **special}


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
