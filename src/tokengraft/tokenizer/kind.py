"""Detects from its pipeline which kind of BPE a `tokenizer.json` describes.

Users are not asked, because a wrong kind fails silently: byte-level training on a SentencePiece vocabulary would learn
tokens that span words.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

from tokengraft.errors import InvalidTokenizerError, UnsupportedTokenizerError
from tokengraft.tokenizer.alphabet import SPACE, Kind


def detect_kind(document: Mapping[str, Any]) -> Kind:
    """The kind of a BPE tokenizer.

    Raises:
        UnsupportedTokenizerError: It is not BPE, or BPE of a type whose merges mean something else.
    """
    _refuse_other_models(document["model"])
    parts = [*pipeline_parts(document.get("normalizer")), *pipeline_parts(document.get("pre_tokenizer"))]
    if any(part["type"] == "ByteLevel" for part in parts):
        return "byte-level"
    if document["model"].get("byte_fallback") or any(_writes_space(part) for part in parts):
        return "sentencepiece"
    raise UnsupportedTokenizerError(
        "the BPE pipeline has neither a ByteLevel step nor the `▁` of SentencePiece; tokengraft edits those two kinds",
        hint="check `pre_tokenizer` and `normalizer` in tokenizer.json; plain character BPE is not supported",
    )


def _refuse_other_models(model: Mapping[str, Any]) -> None:
    model_type = model.get("type", "BPE")
    if model_type != "BPE":
        raise UnsupportedTokenizerError(
            f"the tokenizer's model is {model_type}; tokengraft edits BPE, for the others have no merges",
            hint="pass a model with a BPE tokenizer (Llama, Qwen, Mistral, Gemma, GPT types)",
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name):
            raise UnsupportedTokenizerError(
                f"the BPE model has `{name}` set to {model[name]!r}; "
                "tokengraft edits BPE whose tokens are the plain join of their parts",
                hint=f"nothing can be done for this tokenizer unless `{name}` can be null",
            )


def pipeline_parts(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a pipeline. Sequences, nested ones too, are replaced by their steps.

    Raises:
        InvalidTokenizerError: A step has no `type`. Loaders guess it, which is not safe for an editor.
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


def require_whole_charsmaps(normalizer: Any) -> None:
    """Refuses rules of a `Precompiled` normalizer that state a larger table than they have.

    The `tokenizers` library allocates what the first four bytes state, up to 8 GiB, and ends the process if it cannot.

    Raises:
        InvalidTokenizerError: With both sizes.
    """
    pending = [normalizer]
    while pending:
        step = pending.pop()
        if isinstance(step, list | dict):
            pending.extend(step.values() if isinstance(step, dict) else step)
        charsmap = step.get("precompiled_charsmap") if isinstance(step, dict) else None
        stated = _stated_bytes(charsmap) if isinstance(charsmap, str) else 0
        if isinstance(charsmap, str) and stated > len(charsmap):
            raise InvalidTokenizerError(
                f"`precompiled_charsmap` states a table of {stated:,} bytes, and has {len(charsmap) * 3 // 4:,}",
                hint="download the tokenizer again, or check what wrote it",
            )


def _stated_bytes(charsmap: str) -> int:
    """The size that the beginning of some rules states; 0 if it cannot be read, which the library then reports."""
    try:
        return int.from_bytes(b64decode(charsmap[:8].ljust(8, "="), validate=True)[:4], "little")
    except ValueError:
        return 0


def _writes_space(part: Mapping[str, Any]) -> bool:
    """Whether a step writes spaces as ``▁``."""
    return SPACE in (part.get("replacement"), part.get("prepend"), part.get("content"))
