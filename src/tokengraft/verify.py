"""Reads a written tokenizer back, with every loader there is, and compares: the last step before a command is done."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.alphabet import SPACE, Kind, token_bytes
from tokengraft.counts import PretokenCounts
from tokengraft.errors import InvalidTokenizerError
from tokengraft.formats.files import MAIN
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.formats.sentencepiece import read_piece_model
from tokengraft.tokenizer import Tokenizer

SAMPLES = 2000
LONGEST_SAMPLE = 256
"""Bytes of a pretoken, or characters of a token, that a sample has at most: a pretoken may be a whole document."""
PIECE_SAMPLES = 20_000
"""Where two forms of a tokenizer must agree."""


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
        InvalidTokenizerError: The `tokenizers` library reads it otherwise, or the SentencePiece model in it merges
            otherwise than its `tokenizer.json`.
    """
    samples = (texts or []) + sample_texts(tokenizer)
    expected = [tokenizer.encode(text) for text in samples]
    written = (folder / MAIN).read_bytes() if tokenizer.main == MAIN else write_tokenizer_json(tokenizer)
    upstream = _core.encode_with_tokenizers(written.decode(), samples)
    wrong = next((text for text, a, b in zip(samples, expected, upstream, strict=True) if a != b), None)
    if wrong is not None:
        raise InvalidTokenizerError(f"`tokenizers` encodes {wrong!r} otherwise", hint="please report this")
    notes: dict[str, str | None] = {}
    if tokenizer.main == MAIN:
        notes["transformers"] = _transformers_difference(folder, samples, expected)
    if tokenizer.piece_file:
        raw = (folder / tokenizer.piece_file).read_bytes()
        _require_same_merging(raw, tokenizer, samples)
        notes["sentencepiece"] = _sentencepiece_difference(raw, tokenizer, samples)
    loaders = ("tokenizers", *(name for name, note in notes.items() if note is None))
    return Verification(loaders, tuple(note for note in notes.values() if note))


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Text of tokens joined at random; the same for the same vocabulary."""
    generator = random.Random(0)
    model = tokenizer.piece_model
    strings = [string for string in (model.normal if model else tokenizer.vocab) if len(string) <= LONGEST_SAMPLE]
    if not strings:
        return []
    chosen = (generator.choices(strings, k=8) for _ in range(PIECE_SAMPLES if model else SAMPLES))
    joined = (b"".join(token_bytes(string, tokenizer.kind) for string in some) for some in chosen)
    return [text.decode(errors="replace") for text in joined]


def sample_pretokens(counts: PretokenCounts, kind: Kind) -> list[str]:
    """Texts of pretokens that are frequent in a corpus, joined at random; the same for the same counts.

    Of a long pretoken only the beginning is used, so that all samples together take a few megabytes.
    """
    generator = random.Random(0)
    top = counts.table.top(min(SAMPLES, len(counts)), LONGEST_SAMPLE)
    frequent = [pretoken for pretoken, _ in top]
    chosen = (b"".join(generator.choices(frequent, k=8)).decode(errors="replace") for _ in range(SAMPLES))
    return [text.replace(SPACE, " ") if kind == "sentencepiece" else text for text in chosen] if frequent else []


def _require_same_merging(raw: bytes, tokenizer: Tokenizer, samples: list[str]) -> None:
    """Refuses a SentencePiece model whose merging is not that of the tokenizer."""
    name = tokenizer.piece_file or ""
    model = read_piece_model(raw, name=name, file=name, files={})
    for text in samples:
        for pretoken in tokenizer.pretokenize(text):
            if isinstance(pretoken, str) and model.bpe.encode(pretoken) != tokenizer.bpe.encode(pretoken):
                raise InvalidTokenizerError(
                    f"`{name}` splits {pretoken!r} otherwise than `{MAIN}`",
                    hint="check that the two agreed before: pass the path of one of them alone, and please report this",
                )


def _sentencepiece_difference(raw: bytes, tokenizer: Tokenizer, samples: list[str]) -> str | None:
    """How `sentencepiece` encodes text otherwise; None where it does alike, "" where it is not installed.

    Text around which the two have always differed is left out: what spells an added token, and spaces at the ends.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return ""
    contents = [token.content for token in tokenizer.added]
    stripped = [text.strip(" ") for text in samples]
    texts = [text for text in stripped if not any(content in text for content in contents)]
    found = SentencePieceProcessor(model_proto=raw).encode(texts)
    different = [text for text, ids in zip(texts, found, strict=True) if tokenizer.encode(text) != ids]
    if not different:
        return None
    return (
        f"sentencepiece encodes {len(different):,} of {len(texts):,} sample texts otherwise than {MAIN} says, such as "
        f"{different[0]!r}: the two normalize differently"
    )


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
