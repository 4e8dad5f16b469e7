"""The tokenizer inside a GGUF file: its tokens, types, scores and merges.

The pipeline is not in the file. A name (`tokenizer.ggml.pre`) selects one that is built into llama.cpp.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.gguf_file import ARRAY, FLOAT32, STRING, GgufFile, GgufKey
from tokengraft.errors import CheckpointError
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.alphabet import SPACE, Kind
from tokengraft.tokenizer.sentencepiece import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, all_splits
from tokengraft.tokenizer.settings import FLAGS
from tokengraft.tokenizer.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."
MODEL, PRE, TOKENS, TYPES, SCORES, MERGES = (
    PREFIX + name for name in ("model", "pre", "tokens", "token_type", "scores", "merges")
)
KINDS: Mapping[str, Kind] = {"gpt2": "byte-level", "llama": "sentencepiece"}
"""The kind of BPE for each value of `tokenizer.ggml.model` that is supported."""
_PLACEHOLDER = re.compile(r"\[PAD(\d+)\]|<unused id (\d+)>")
"""The names of ids without a token: by llama.cpp's converter, and by tokengraft in a SentencePiece model."""


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokens of a GGUF file and how they merge."""

    model: str
    """`gpt2` merges listed pairs; `llama` merges by the scores of products."""
    pre: str | None
    """The name of the pre-tokenizer that llama.cpp uses."""
    tokens: tuple[bytes, ...]
    types: npt.NDArray[np.int64]
    """By id, in SentencePiece's numbers."""
    scores: npt.NDArray[np.float32] | None
    merges: tuple[bytes, ...]

    @classmethod
    def of(cls, file: GgufFile) -> "GgufVocabulary":
        """The vocabulary of a file.

        Raises:
            CheckpointError: It has none, or one of a type that is not supported.
        """
        model = file.keys[MODEL].text if MODEL in file.keys else "none"
        if model not in KINDS or TOKENS not in file.keys:
            raise CheckpointError(
                f"`{file.path.name}` has a tokenizer of the type {model!r}; supported are gpt2 (byte-level BPE) and "
                "llama (SentencePiece BPE)",
                hint="transplant the model as safetensors and convert the result with llama.cpp",
            )
        tokens = _array(file.keys[TOKENS], STRING)
        types = _sized(file, TYPES, len(tokens))
        scores = _sized(file, SCORES, len(tokens))
        merges = _array(file.keys[MERGES], STRING) if MERGES in file.keys else ()
        _require_rule(file, model, merges, scores)
        return cls(
            model=model,
            pre=file.keys[PRE].text if PRE in file.keys else None,
            tokens=tokens,
            types=np.full(len(tokens), NORMAL) if types is None else types.astype(np.int64),
            scores=scores,
            merges=merges,
        )

    @property
    def kind(self) -> Kind:
        """How the vocabulary spells bytes."""
        return KINDS[self.model]

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """The tokens as text.

        Raises:
            CheckpointError: A token is not UTF-8, or two are equal.
        """
        try:
            strings = tuple(token.decode() for token in self.tokens)
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"a token of the GGUF file is not UTF-8: {error.object!r}", hint="convert the model again"
            ) from error
        if len({*strings}) < len(strings):
            double = Counter(strings).most_common(1)[0][0]
            raise CheckpointError(
                f"the GGUF file has the token {double!r} twice, which llama.cpp does not load",
                hint="convert the model again",
            )
        return strings

    def ids(self, new: Tokenizer) -> dict[str, int]:
        """The id of every token, spelled as ``new`` does. Placeholders of ids without a token are left out.

        The converter writes a space for every `▁` in tokens that are searched for in text before merging.
        """
        spaced = {token.content.replace(SPACE, " "): token.content for token in new.added if SPACE in token.content}
        ids = {}
        for token_id, string in enumerate(self.strings):
            if self.types[token_id] == UNUSED and _is_placeholder(string, token_id):
                continue
            if self.types[token_id] == USER_DEFINED and string not in new.ids:
                string = spaced.get(string, string.replace(" ", SPACE) if self.kind == "sentencepiece" else string)
            ids[string] = token_id
        return ids

    def merge_pairs(self) -> Iterator[tuple[str, str]]:
        """The listed merges as pairs of strings. As in llama.cpp, the first space after the first character splits."""
        for merge in self.merges:
            text = merge.decode(errors="replace")
            at = text.find(" ", 1)
            yield text[:at], text[at + 1 :]


def base_tokenizer(vocabulary: GgufVocabulary, new: Tokenizer) -> Tokenizer:
    """The tokenizer inside a GGUF file: its tokens and merges, with the pipeline of ``new``.

    Raises:
        CheckpointError: The tokens and merges are inconsistent, or scores do not decide what is merged first.
    """
    ids = vocabulary.ids(new)
    pairs: Iterable[tuple[str, str]] = vocabulary.merge_pairs()
    if vocabulary.scores is not None and vocabulary.kind == "sentencepiece":
        scores = normal_scores(vocabulary, ids)
        pairs = [*all_splits(scores, ids)]
        _require_distinct({left + right: scores[left + right] for left, right in pairs})
    try:
        merges = tuple((ids[left], ids[right]) for left, right in pairs)
    except KeyError as error:
        raise CheckpointError(
            f"a merge of the GGUF file names {error.args[0]!r}, which is no token of it", hint="convert the model again"
        ) from error
    document = json.loads(new.rest)
    document["added_tokens"] = [*_added_entries(vocabulary, ids, new)]
    if document["model"].get("unk_token") not in ids:
        document["model"]["unk_token"] = None
    return Tokenizer(FrozenDict(ids), merges, json.dumps(document, ensure_ascii=False))


def normal_scores(vocabulary: GgufVocabulary, ids: Mapping[str, int]) -> dict[str, float]:
    """The scores of the pieces that take part in merging."""
    scores = vocabulary.scores
    if scores is None:
        return {}
    return {string: float(scores[i]) for string, i in ids.items() if vocabulary.types[i] == NORMAL}


def _require_distinct(scores: Mapping[str, float]) -> None:
    """Refuses files without useful scores: the converter writes the same for all if there is no `tokenizer.model`."""
    merged = [score for piece, score in scores.items() if piece.strip(SPACE)]
    if len({*merged}) < len(merged):
        raise CheckpointError(
            "pieces of the GGUF file score alike, so llama.cpp does not merge them as the tokenizer does: it was "
            "converted without the `tokenizer.model`",
            hint="put `tokenizer.model` into the model's folder and convert it again",
        )


def _added_entries(vocabulary: GgufVocabulary, ids: Mapping[str, int], new: Tokenizer) -> Iterator[dict[str, Any]]:
    """The added tokens, as `tokenizer.json` lists them, with the flags that ``new`` has."""
    flags = {token.content: {flag: getattr(token, flag) for flag in FLAGS} for token in new.added}
    for content, token_id in ids.items():
        if content and vocabulary.types[token_id] in (CONTROL, USER_DEFINED, UNKNOWN):
            default = dict.fromkeys(FLAGS, False) | {"special": bool(vocabulary.types[token_id] != USER_DEFINED)}
            yield {"id": token_id, "content": content} | flags.get(content, default)


def _is_placeholder(string: str, token_id: int) -> bool:
    match = _PLACEHOLDER.fullmatch(string)
    return match is not None and int(match[1] or match[2]) == token_id


def _array(key: GgufKey, item_type: int) -> Any:
    if key.type != ARRAY or key.item_type != item_type:
        raise CheckpointError(f"`{key.name}` is not an array of the type {item_type}", hint="convert the model again")
    return key.value


def _sized(file: GgufFile, name: str, n_tokens: int) -> Any:
    """An array of numbers, one for each token; None if the file does not have it."""
    if name not in file.keys:
        return None
    key = file.keys[name]
    if key.type != ARRAY or not isinstance(key.value, np.ndarray) or len(key.value) != n_tokens:
        raise CheckpointError(
            f"`{name}` does not have one number for each of the {n_tokens:,} tokens", hint="convert the model again"
        )
    return key.value


def _require_rule(file: GgufFile, model: str, merges: tuple[bytes, ...], scores: Any) -> None:
    if model == "gpt2" and not merges:
        missing = MERGES
    elif model == "llama" and (scores is None or file.keys[SCORES].item_type != FLOAT32):
        missing = SCORES
    else:
        return
    raise CheckpointError(
        f"`{file.path.name}` has no `{missing}`, which a tokenizer of the type {model!r} needs",
        hint="convert the model again with a current llama.cpp",
    )
