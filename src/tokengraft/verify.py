"""Reads a written tokenizer back, with every loader there is, and compares: the last step before a command is done."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.alphabet import token_bytes
from tokengraft.errors import InvalidTokenizerError
from tokengraft.formats.files import MAIN
from tokengraft.tokenizer import Tokenizer

SAMPLES = 2000


@dataclass(frozen=True)
class Verification:
    """What loaders made of a written tokenizer."""

    loaders: tuple[str, ...]
    """Those that read it as it was meant."""
    notes: tuple[str, ...]
    """Those that read it otherwise, or not at all, and how."""


def verify_folder(folder: Path, tokenizer: Tokenizer, texts: list[str] | None = None) -> Verification:
    """What loaders make of a folder that a tokenizer was written to.

    Compares ids on text drawn from the vocabulary, which reaches merges that ordinary text does not.

    Raises:
        InvalidTokenizerError: The `tokenizers` library reads it otherwise: a bug, not yours.
    """
    samples = (texts or []) + sample_texts(tokenizer)
    expected = [tokenizer.encode(text) for text in samples]
    upstream = _core.encode_with_tokenizers((folder / MAIN).read_text(encoding="utf-8"), samples)
    wrong = next((text for text, a, b in zip(samples, expected, upstream, strict=True) if a != b), None)
    if wrong is not None:
        raise InvalidTokenizerError(f"`tokenizers` encodes {wrong!r} otherwise", hint="please report this")
    note = _transformers_difference(folder, samples, expected)
    loaders = ("tokenizers", *(["transformers"] if note is None else []))
    return Verification(loaders, (note,) if note else ())


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Text of tokens joined at random; the same for the same vocabulary."""
    generator = random.Random(0)
    strings = list(tokenizer.vocab)
    chosen = (generator.choices(strings, k=8) for _ in range(SAMPLES))
    joined = (b"".join(token_bytes(string, tokenizer.kind) for string in some) for some in chosen)
    return [text.decode(errors="replace") for text in joined]


def _transformers_difference(folder: Path, samples: list[str], expected: list[list[int]]) -> str | None:
    """How `AutoTokenizer` reads the folder otherwise; None where it reads it alike, "" where it is not installed."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch is nothing to report
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return ""
    try:
        loaded: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        found = loaded(samples, add_special_tokens=False)["input_ids"]
    except Exception as error:  # whatever a loader of another library raises is its answer
        return f"transformers cannot load the folder: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    different = [text for text, a, b in zip(samples, expected, found, strict=True) if a != b]
    if not different:
        return None
    return (
        f"transformers reads the folder otherwise than tokenizer.json says: {len(different):,} of {len(samples):,} "
        f"sample texts, such as {different[0]!r}; perhaps its class for this model rebuilds it. Try "
        "`PreTrainedTokenizerFast.from_pretrained`, or that as `tokenizer_class` in tokenizer_config.json"
    )
