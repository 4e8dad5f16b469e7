"""A `tokenizer.json` of a SentencePiece type as a SentencePiece model, if that can express it exactly."""

from typing import Any, NoReturn

from tokengraft.errors import UnsupportedTokenizerError
from tokengraft.formats.priority import by_priority
from tokengraft.formats.ranks import split_differences
from tokengraft.formats.sentencepiece import read_piece_model
from tokengraft.tokenizer.alphabet import SPACE, byte_token
from tokengraft.tokenizer.kind import pipeline_parts
from tokengraft.tokenizer.sentencepiece import (
    BYTE,
    CONTROL,
    NAMES,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    new_model,
    placeholder,
)
from tokengraft.tokenizer.tokenizer import Tokenizer

_STAY = "use it in the format that it has"


def as_piece_model(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer as a SentencePiece model: a piece for every token, scored in the order in which they merge.

    The rules of the trainer are Llama's, which tokengraft assumes for a `tokenizer.json` too.

    Raises:
        UnsupportedTokenizerError: SentencePiece would encode differently. The message says why.
    """
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
        (strings[i], scores.get(strings[i], 0.0), kinds[strings[i]]) if i in strings else placeholder(i)
        for i in range(tokenizer.n_rows)
    ]
    model = new_model(pieces, byte_fallback=tokenizer.byte_fallback, add_dummy_prefix=prefix)
    converted = read_piece_model(model.write(), name=NAMES[0], file=NAMES[0], files={})
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
    steps = [*pipeline_parts(tokenizer.document.get("normalizer"))]
    steps += pipeline_parts(tokenizer.document.get("pre_tokenizer"))
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
