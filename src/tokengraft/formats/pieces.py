"""SentencePiece files: reading a `.model`, and writing a `tokenizer.json` as one."""

import base64
import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, UnsupportedTokenizerError
from tokengraft.formats.huggingface import checked, new_document
from tokengraft.formats.ranks import require_none, split_differences
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import FLAGS
from tokengraft.tokenizer.kind import SPACE, byte_token, pipeline_steps, require_whole_charsmaps
from tokengraft.tokenizer.piece_model import (
    BYTE,
    CONTROL,
    NAMES,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    PieceModel,
    all_splits,
    new_model,
    placeholder,
)
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


def require_agreement(tokenizer: Tokenizer, folder: str) -> None:
    """Refuses a `.model` that does not say what the `tokenizer.json` beside it says."""
    model = tokenizer.piece_model
    if model is None:
        return
    if model.is_unigram != (tokenizer.algorithm == "Unigram"):
        raise InvalidTokenizerError(
            f"`{folder}` has a tokenizer.json that is {tokenizer.algorithm}, and a SentencePiece model that is not",
            hint="one of the two is stale: take it out of a copy of the folder",
        )
    differences = _unigram_differences if model.is_unigram else _differences
    require_none(differences(tokenizer, model), tokenizer, tokenizer.piece_file, folder)


def _unigram_differences(tokenizer: Tokenizer, model: PieceModel) -> Iterator[str]:
    """Pieces and scores that differ. Ids may: some libraries count from another number than the file."""
    scores = tokenizer.scores
    for string, score in model.normal.items():
        # The converters of ALBERT and XLNet subtract 100 from the scores of numbers with a comma.
        allowed = (score, score - 100) if "," in string else (score,)
        if not any(math.isclose(scores.get(string, math.inf), one, rel_tol=1e-6, abs_tol=1e-6) for one in allowed):
            yield f"the piece {string!r} scores {scores.get(string, 'nothing')} in the one and {score} in the other"
    others = {piece.string for piece in model.pieces} | {token.content for token in tokenizer.added}
    # CamemBERT's class lists special tokens of its own in front, and these under another name.
    others |= {f"{piece.string}NOTUSED" for piece in model.pieces if piece.type in (CONTROL, UNKNOWN)}
    for string in scores:
        if string not in others:
            yield f"tokenizer.json has {string!r}, which is no piece of the other"


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
    return new_document(
        {"unk_token": unknown, "fuse_unk": True, "byte_fallback": model.byte_fallback},
        added_tokens=[*_added_tokens(model)],
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


def _added_tokens(model: PieceModel) -> Iterator[dict[str, Any]]:
    flags = dict.fromkeys(FLAGS, False)
    for token_id, piece in enumerate(model.pieces):
        if piece.type in (UNKNOWN, CONTROL, USER_DEFINED):
            # A piece with a `▁` is searched for after spaces were replaced by `▁`.
            normalized = piece.type == USER_DEFINED and SPACE in piece.string
            decided = {"normalized": normalized, "special": piece.type != USER_DEFINED}
            yield {"id": token_id, "content": piece.string, **flags, **decided}


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


def by_priority(tokenizer: Tokenizer, others: Collection[str]) -> list[str]:
    """Tokens in the order in which they merge, single characters first, without ``others``.

    A token that merges do not make stays behind the one before it.
    """
    places = {pair: place for place, pair in enumerate(tokenizer.merges)}
    splits, keys, last = tokenizer.structure.splits, dict[str, tuple[int, int]](), -1
    for token in tokenizer.tokens:
        if token.string not in others:
            last = places[splits[token.id]] if token.id in splits else last
            keys[token.string] = (-1 if len(token.string) == 1 else last, token.id)
    return sorted(keys, key=keys.__getitem__)


_STAY = "use it in the format that it has"


def as_piece_model(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer as a SentencePiece model: a piece for every token, scored in the order in which they merge.

    The rules of the trainer are Llama's, which tokengraft assumes for a `tokenizer.json` too.
    """
    if tokenizer.algorithm != "BPE":
        _refuse(f"it is {tokenizer.algorithm}, and only BPE is converted")
    if tokenizer.kind != "sentencepiece":
        _refuse("its tokens are made of bytes, and pieces of SentencePiece of characters")
    unknown = tokenizer.model.get("unk_token")
    if unknown not in tokenizer.ids or not tokenizer.model.get("fuse_unk"):
        _refuse("it has no unknown token whose repetitions are one token, as SentencePiece needs")
    prefix = _adds_prefix(tokenizer)
    strings, kinds = tokenizer.strings, _kinds(tokenizer, str(unknown))
    order = by_priority(tokenizer, {string for string, kind in kinds.items() if kind != NORMAL})
    scores = {string: -1.0 - place for place, string in enumerate(order)}
    pieces = [
        (strings[i], scores.get(strings[i], 0.0), kinds[strings[i]]) if i in strings else placeholder(i)[:3]
        for i in range(tokenizer.n_rows)
    ]
    model = new_model(pieces, byte_fallback=tokenizer.byte_fallback, add_dummy_prefix=prefix)
    converted = read_piece_model({NAMES[0]: model.write()}, NAMES[0])
    difference = next(split_differences(tokenizer, converted), None)
    if difference is not None:
        _refuse(difference)
    return converted


def _kinds(tokenizer: Tokenizer, unknown: str) -> dict[str, int]:
    kinds = dict.fromkeys(tokenizer.ids, NORMAL)
    kinds |= {byte_token(byte): BYTE for byte in range(256) if tokenizer.byte_fallback and byte_token(byte) in kinds}
    kinds |= {token.content: CONTROL if token.special else USER_DEFINED for token in tokenizer.added}
    return kinds | {unknown: UNKNOWN}


def _adds_prefix(tokenizer: Tokenizer) -> bool:
    """Whether text gets a ``▁`` in front, if the pipeline does nothing else than write spaces as ``▁``."""
    steps = pipeline_steps(tokenizer.document)
    prepends = {"type": "Prepend", "prepend": SPACE}
    replaces: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": False}
    if steps not in ([prepends, replaces], [replaces], [metaspace]):
        # A Metaspace step that prepends does so only where text does not begin with a space.
        _refuse(
            f"its pipeline is {', '.join(map(str, steps))}; SentencePiece writes spaces as `{SPACE}`, with or without "
            "one more in front of every text"
        )
    return len(steps) == 2


def _refuse(reason: str) -> NoReturn:
    raise UnsupportedTokenizerError(f"the tokenizer cannot be written as sentencepiece: {reason}", hint=_STAY)
