"""How a vocabulary spells text: token strings and their bytes, the kind of a tokenizer, the steps of its pipeline."""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from tokengraft.errors import InvalidTokenizerError, UnsupportedTokenizerError
from tokengraft.representation import Quoted, quoted

Kind = Literal["byte-level", "sentencepiece", "wordpiece"]
"""How a vocabulary spells text."""
Algorithm = Literal["BPE", "Unigram", "WordPiece"]
"""How a model splits pretokens."""

SPACE = "▁"
CONTINUATION = "##"
"""Before the tokens of WordPiece that continue a word."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
"""Every character of the byte-level alphabet with its byte: printable Latin-1 stands for itself."""
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}
BYTES_OF_TEXT = (*range(0xC0), *range(0xC2, 0xF5))
"""The bytes that occur in UTF-8 text."""


def token_bytes(string: str, kind: Kind) -> bytes:
    """The bytes a token stands for when text is decoded.

    >>> token_bytes("Ġõ", "byte-level"), token_bytes("▁õ", "sentencepiece"), token_bytes("<0x41>", "sentencepiece")
    (b' \\xf5', b' \\xc3\\xb5', b'A')

    A byte-level token with a character outside the alphabet is plain text, as in the decoder of `tokenizers`.
    """
    if kind == "byte-level":
        try:
            return bytes([BYTE_OF[character] for character in string])
        except KeyError:
            return string.encode()
    if kind == "wordpiece":
        return string.removeprefix(CONTINUATION).encode()
    byte = _BYTE_TOKEN.fullmatch(string)
    return bytes([int(byte[1], 16)]) if byte else string.replace(SPACE, " ").encode()


def readable(string: str, kind: Kind | None = None) -> Quoted:
    """A token for display: its text, with bytes that are not valid UTF-8 escaped. Long tokens are cut.

    If the kind is not known, what is valid UTF-8 in the byte-level alphabet is read so, and ``▁`` is a space.

    >>> readable("Ġviá»ĩc", "byte-level"), readable("Ċ", "byte-level"), readable("á»", "byte-level")
    (`␠việc`, `\\n`, `\\xe1\\xbb`)
    >>> readable("ĠvÃµ"), readable("▁või"), readable("õ"), readable("##või")
    (`␠võ`, `␠või`, `õ`, `##või`)
    """
    if kind is None:
        text = token_bytes(string, "byte-level").decode(errors="ignore")
        is_byte_level = len(text.encode()) == len(string) and all(character in BYTE_OF for character in string)
        return quoted(text if is_byte_level else string.replace(SPACE, " "))
    return quoted(token_bytes(string, kind).decode(errors="backslashreplace"))


def spell(data: bytes, kind: Kind) -> str | None:
    """The token string for some bytes. None for a SentencePiece vocabulary if the bytes are not valid UTF-8.

    >>> spell(b" \\xc3\\xb5", "byte-level"), spell(b" \\xc3\\xb5", "sentencepiece"), spell(b"\\xc3", "sentencepiece")
    ('ĠÃµ', '▁õ', None)
    """
    if kind == "byte-level":
        return data.decode("latin-1").translate(CHARACTER_OF)
    try:
        return data.decode().replace(" ", SPACE)
    except UnicodeDecodeError:
        return None


def characters_with(byte: int) -> Iterator[str]:
    """The characters whose UTF-8 form has a byte.

    >>> [*characters_with(0x41)], len([*characters_with(0xC3)])
    (['A'], 64)
    """
    points = (byte,) if byte < 0x80 else (*range(0x80, 0xD800), *range(0xE000, 0x110000))
    return (chr(point) for point in points if byte in chr(point).encode())


def byte_token(byte: int) -> str:
    """The byte-fallback token of a byte: ``0x41 -> "<0x41>"``."""
    return f"<0x{byte:02X}>"


def algorithm_of(model: Mapping[str, Any]) -> Any:
    """The type of a model; old files do not say it, and loaders decide by the fields.

    >>> algorithm_of({"vocab": {}, "merges": []}), algorithm_of({"vocab": []}), algorithm_of({"type": "WordPiece"})
    ('BPE', 'Unigram', 'WordPiece')
    """
    if model.get("type") is not None:
        return model["type"]
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    needed = ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
    is_word_piece = "merges" not in model and all(model.get(name) is not None for name in needed)
    return "WordPiece" if is_word_piece else "BPE"


def detect_kind(document: Mapping[str, Any]) -> Kind:
    """The kind of a tokenizer. Refuses models that tokengraft does not know, and settings that mean something else."""
    model = document["model"]
    algorithm = algorithm_of(model)
    if algorithm not in get_args(Algorithm):
        raise UnsupportedTokenizerError(
            f"the tokenizer's model is {algorithm}; tokengraft edits {', '.join(get_args(Algorithm))}",
            hint="nothing can be done for this tokenizer",
        )
    expected = {"continuing_subword_prefix": CONTINUATION} if algorithm == "WordPiece" else {}
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name) and model[name] != expected.get(name):
            raise UnsupportedTokenizerError(
                f"the {algorithm} model has `{name}` set to {model[name]!r}; "
                "tokengraft edits models whose tokens are the plain join of their parts",
                hint=f"nothing can be done for this tokenizer unless `{name}` can be null",
            )
    if algorithm == "WordPiece":
        prefix = model.get("continuing_subword_prefix")
        if prefix != CONTINUATION:  # "" too, which is no prefix
            raise UnsupportedTokenizerError(
                f"the WordPiece model writes {prefix!r} before the tokens that continue a word; tokengraft edits "
                f"models that write {CONTINUATION!r}",
                hint="nothing can be done for this tokenizer",
            )
        return "wordpiece"
    steps = pipeline_steps(document)
    if any(step["type"] == "ByteLevel" for step in steps) and algorithm == "BPE":
        return "byte-level"
    written = [step.get(key) for step in steps for key in ("replacement", "prepend", "content")]
    if model.get("byte_fallback") or SPACE in written:
        return "sentencepiece"
    raise UnsupportedTokenizerError(
        f"the {algorithm} pipeline has neither a ByteLevel step nor the `▁` of SentencePiece; tokengraft edits those "
        "two kinds",
        hint="check `pre_tokenizer` and `normalizer` in tokenizer.json; plain characters are not supported",
    )


def pipeline_alone(document: Mapping[str, Any], vocab: Mapping[str, int]) -> dict[str, Any]:
    """A `tokenizer.json` for its pipeline alone: its model is BPE with these tokens and no merges."""
    return {**document, "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def pipeline_steps(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The steps of the normalizer and of the pre-tokenizer."""
    return [step for name in ("normalizer", "pre_tokenizer") for step in pipeline_parts(document.get(name))]


def pipeline_parts(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a pipeline. Sequences, nested ones too, are replaced by their steps.

    A step without a `type` is refused. Loaders guess it, which is not safe for an editor.
    """
    if step is None:
        return
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        raise InvalidTokenizerError(
            f"the pipeline has the step {step!r}, which does not say its `type`",
            hint="load and save the file once with `tokenizers`, which writes all types",
        )
    if step["type"] == "Sequence":
        for part in step.get("normalizers") or step.get("pretokenizers") or ():
            yield from pipeline_parts(part)
    else:
        yield step


def processor_steps(processor: Any) -> Iterator[dict[str, Any]]:
    """The steps of a post-processor: sequences, nested ones too, are followed by their steps."""
    if isinstance(processor, dict):
        yield processor
        for step in processor.get("processors") or ():
            yield from processor_steps(step)


def require_whole_charsmaps(normalizer: Any) -> None:
    """Refuses rules of a `Precompiled` normalizer that state a larger table than they have.

    The `tokenizers` library allocates what the first four bytes state, up to 8 GiB, and ends the process if it cannot.
    """
    pending = [normalizer]
    while pending:
        step = pending.pop()
        if isinstance(step, list):
            pending.extend(step)
        elif isinstance(step, dict):
            pending.extend(step.values())
            charsmap = step.get("precompiled_charsmap")
            if not isinstance(charsmap, str):
                continue
            try:
                stated = int.from_bytes(b64decode(charsmap[:8].ljust(8, "="), validate=True)[:4], "little")
            except ValueError:  # the library reports it
                continue
            if stated > len(charsmap):
                raise InvalidTokenizerError(
                    f"`precompiled_charsmap` states a table of {stated:,} bytes, and has {len(charsmap) * 3 // 4:,}",
                    hint="download the tokenizer again, or check what wrote it",
                )
