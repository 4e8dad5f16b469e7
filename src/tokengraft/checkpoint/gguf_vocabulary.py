"""The tokenizer in a GGUF file, whether a new tokenizer was made from it, and the scores of its new pieces."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft import _core
from tokengraft.checkpoint.gguf_file import ARRAY, FLOAT32, STRING, GgufFile, wrong_file
from tokengraft.errors import CheckpointError, InvalidTokenizerError, option
from tokengraft.formats.agreement import most_in_order, split_differences
from tokengraft.tokenizer.added import FLAGS
from tokengraft.tokenizer.kind import SPACE, Kind
from tokengraft.tokenizer.llama_cpp import converter_check, converter_table, ids_hash
from tokengraft.tokenizer.piece_model import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, all_splits, next_below
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

    file: GgufFile
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
        """The vocabulary of a file."""
        model = file.keys[MODEL].text if MODEL in file.keys else "none"
        if model not in KINDS or TOKENS not in file.keys:
            raise CheckpointError(
                f"`{file.path.name}` has a tokenizer of the type {model!r}; supported are gpt2 (byte-level BPE) and "
                "llama (SentencePiece BPE)",
                hint="transplant the model as safetensors and convert the result with llama.cpp",
            )
        for name in (TOKENS, MERGES) if MERGES in file.keys else (TOKENS,):
            if file.keys[name].type != ARRAY or file.keys[name].item_type != STRING:
                raise wrong_file(f"`{name}` is not an array of the type {STRING}")
        tokens = file.keys[TOKENS].value
        types, scores = (_sized(file, name, len(tokens)) for name in (TYPES, SCORES))
        merges = file.keys[MERGES].value if MERGES in file.keys else ()
        has_scores = scores is not None and file.keys[SCORES].item_type == FLOAT32
        if not (merges if model == "gpt2" else has_scores):
            missing = MERGES if model == "gpt2" else SCORES
            raise wrong_file(f"`{file.path.name}` has no `{missing}`, which a tokenizer of the type {model!r} needs")
        return cls(
            file=file,
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
        """The tokens as text."""
        try:
            strings = tuple(token.decode() for token in self.tokens)
        except UnicodeDecodeError as error:
            raise wrong_file(f"a token of the GGUF file is not UTF-8: {error.object!r}") from error
        if len({*strings}) < len(strings):
            double = Counter(strings).most_common(1)[0][0]
            raise wrong_file(f"the GGUF file has the token {double!r} twice, which llama.cpp does not load")
        return strings

    def ids(self, new: Tokenizer) -> dict[str, int]:
        """The id of every token, spelled as ``new`` does. Placeholders of ids without a token are left out.

        The converter writes a space for every `▁` in tokens that are searched for in text before merging.
        """
        spaced = {token.content.replace(SPACE, " "): token.content for token in new.added if SPACE in token.content}
        ids = {}
        for token_id, string in enumerate(self.strings):
            placeholder = _PLACEHOLDER.fullmatch(string) if self.types[token_id] == UNUSED else None
            if placeholder and int(placeholder[1] or placeholder[2]) == token_id:
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
    """The tokenizer inside a GGUF file: its tokens and merges, with the pipeline of ``new``."""
    if vocabulary.kind != new.kind or new.algorithm != "BPE":
        raise CheckpointError(
            f"the tokenizer in `{vocabulary.file.path.name}` is {vocabulary.kind} BPE, the new one {new.kind} "
            f"{new.algorithm}",
            hint="pass a tokenizer that was made from that of the model, or transplant the model as safetensors and "
            "convert the result with llama.cpp",
        )
    ids = vocabulary.ids(new)
    pairs: Iterable[tuple[str, str]] = vocabulary.merge_pairs()
    if vocabulary.scores is not None and vocabulary.kind == "sentencepiece":
        scores = normal_scores(vocabulary, ids)
        pairs = [*all_splits(scores, ids)]
        merged = [scores[piece] for piece in {left + right for left, right in pairs} if piece.strip(SPACE)]
        if len({*merged}) < len(merged):  # the converter writes the same for all if there is no `tokenizer.model`
            raise CheckpointError(
                "pieces of the GGUF file score alike, so llama.cpp does not merge them as the tokenizer does: it was "
                "converted without the `tokenizer.model`",
                hint="put `tokenizer.model` into the model's folder and convert it again",
            )
    try:
        merges = tuple((ids[left], ids[right]) for left, right in pairs)
    except KeyError as error:
        raise wrong_file(f"a merge of the GGUF file names {error.args[0]!r}, which is no token of it") from error
    document = json.loads(new.rest)
    flags = {token.content: {flag: getattr(token, flag) for flag in FLAGS} for token in new.added}
    document["added_tokens"] = [
        {"id": i, "content": content}
        | flags.get(content, dict.fromkeys(FLAGS, False) | {"special": bool(vocabulary.types[i] != USER_DEFINED)})
        for content, i in ids.items()
        if content and vocabulary.types[i] in (CONTROL, USER_DEFINED, UNKNOWN)
    ]
    if document["model"].get("unk_token") not in ids:
        document["model"]["unk_token"] = None
    return Tokenizer(_core.Vocabulary(ids, merges), json.dumps(document, ensure_ascii=False))


def normal_scores(vocabulary: GgufVocabulary, ids: Mapping[str, int]) -> dict[str, float]:
    """The scores of the pieces that take part in merging."""
    scores = vocabulary.scores
    if scores is None:
        return {}
    return {string: float(scores[i]) for string, i in ids.items() if vocabulary.types[i] == NORMAL}


def _sized(file: GgufFile, name: str, n_tokens: int) -> Any:
    """An array of numbers, one for each token; None if the file does not have it."""
    if name not in file.keys:
        return None
    key = file.keys[name]
    if key.type != ARRAY or not isinstance(key.value, np.ndarray) or len(key.value) != n_tokens:
        raise wrong_file(f"`{name}` does not have one number for each of the {n_tokens:,} tokens")
    return key.value


IN_ORDER = 0.95
"""Share of the common merges that are in the same order if one tokenizer was made from the other. It is 0.91 for
Llama-3 and Qwen-2.5, which both began from cl100k, and below 0.02 for tokenizers without a common origin."""
_PIPELINE = ("normalizer", "pre_tokenizer")


def pre_tokenizer(vocabulary: GgufVocabulary, inside: Tokenizer, new: Tokenizer) -> tuple[str | None, tuple[str, ...]]:
    """The name of the pre-tokenizer of the result, and warnings about what could not be compared.

    The file has only the name. It is right if the tokenizer of the file, with the pipeline of the new one, gives the
    hash that llama.cpp's converter knows for that name.
    """
    if vocabulary.kind == "sentencepiece":  # it has no pre-tokenizer; scores are compared later
        return vocabulary.pre, ()
    if vocabulary.pre in _types(vocabulary.file, inside):
        return vocabulary.pre, ()
    if _same_order(inside, new):
        return vocabulary.pre, (
            f"the pre-tokenizer type {vocabulary.pre!r} of the file is kept; whether it is that of the new tokenizer "
            "could not be checked: llama.cpp's converter does not know the tokenizer. Pass the base with --base",
        )
    other = converter_check(new).type
    if other is None:
        raise CheckpointError(
            f"the new tokenizer was not made from that in `{vocabulary.file.path.name}`: their common merges are in "
            "another order or there are none, and llama.cpp's converter does not know the new one",
            hint="pass a tokenizer that was made from that of the model; if it was, name that one: "
            f"{option('base', 'TOKENIZER')}",
        )
    return other, (f"the new tokenizer is another one: its pre-tokenizer type is {other!r}, not {vocabulary.pre!r}",)


def require_base(vocabulary: GgufVocabulary, inside: Tokenizer, new: Tokenizer, base: Tokenizer) -> None:
    """Refuses a base that is not the tokenizer of the file, or has another pipeline than the new tokenizer."""
    theirs, ours, name = vocabulary.ids(base), base.ids, vocabulary.file.path.name
    differing = next((string for string in {**theirs, **ours} if theirs.get(string) != ours.get(string)), None)
    if differing is not None:
        raise InvalidTokenizerError(
            f"the base gives the token {differing!r} the id {ours.get(differing)}, `{name}` the id "
            f"{theirs.get(differing)}",
            hint=f"pass the tokenizer that the file was converted with, or leave out {option('base')}",
        )
    # A rank file has merges that never apply, which the converter does not write.
    if vocabulary.kind == "byte-level" and next(split_differences(inside, base), None) is not None:
        raise InvalidTokenizerError(
            f"the base and `{name}` have different merges", hint="pass the tokenizer of the file"
        )
    if [base.document.get(step) for step in _PIPELINE] != [new.document.get(step) for step in _PIPELINE]:
        raise InvalidTokenizerError(
            "the base and the new tokenizer have different pipelines (normalizer and pre-tokenizer)",
            hint="pass the tokenizer that the new one was made from",
        )


def _types(file: GgufFile, inside: Tokenizer) -> set[str]:
    """The types of pre-tokenizer that llama.cpp's converter would give the tokenizer, with or without BOS and EOS."""
    table = converter_table()
    ids = inside.encode(table.check_text)
    keys = [file.keys.get(f"{PREFIX}{name}_token_id") for name in ("bos", "eos")]
    around = product(*({(), (key.value,) if key is not None and type(key.value) is int else ()} for key in keys))
    hashes = (ids_hash([*before, *ids, *after]) for before, after in around)
    return {table.types[digest] for digest in hashes if digest in table.types}


def _same_order(base: Tokenizer, new: Tokenizer) -> bool:
    """Whether the merges that two tokenizers share are mostly in the same order: one was made from the other.

    Not all, because a token that is pruned and learned again merges later than before.
    """
    ranks = {pair: rank for rank, pair in enumerate(base.merge_strings())}
    shared = [pair for pair in new.merge_strings() if pair in ranks]
    return bool(shared) and len(most_in_order(shared, ranks)) >= IN_ORDER * len(shared)


_STEP = 7919
"""Pairs of tokens are compared at this distance: a prime, so that all tokens have a neighbour."""


def new_scores(vocabulary: GgufVocabulary, base: Tokenizer, new: Tokenizer) -> dict[str, float]:
    """The scores of all pieces that merge: those of the new `tokenizer.model`, or by the order of the new merges."""
    known = normal_scores(vocabulary, base.ids)
    if new.piece_model is None:
        return _by_merges(new, {piece: score for piece, score in known.items() if piece in new.ids})
    scores = new.piece_model.normal
    # A piece that was pruned and learned again scores lower than before.
    other = next((piece for piece in scores if np.float32(scores[piece]) > np.float32(known.get(piece, np.inf))), None)
    if other is not None:
        raise CheckpointError(
            f"the piece {other!r} has the score {known[other]} in the GGUF file and {scores[other]} in the new "
            f"`{new.piece_file}`: they are of different models",
            hint="pass the GGUF file that was converted from the base of the new tokenizer",
        )
    return scores


def _by_merges(new: Tokenizer, known: Mapping[str, float]) -> dict[str, float]:
    """Scores in the order of the merges, those of the file where they are in that order; characters are below all."""
    scores: dict[str, float] = {}
    above = max(known.values(), default=0.0)
    for left, right in new.merge_strings():
        product = left + right
        if product not in scores:
            score = known.get(product, math.inf)
            above = scores[product] = score if score <= above else next_below(above)
    others = {*new.ids} - {token.content for token in new.added} - {*scores}
    lowest = next_below(min([*scores.values(), *known.values()], default=0.0))
    return scores | {piece: known.get(piece, lowest) for piece in others}


def require_same_rule(new: Tokenizer, scores: Mapping[str, float]) -> None:
    """Refuses scores under which text is split in another way than by the merges of the new tokenizer.

    Compared are all tokens, and every token followed by another.
    """
    ids = new.ids
    normal = {piece: score for piece, score in scores.items() if piece in ids}
    merges = tuple((ids[left], ids[right]) for left, right in all_splits(normal, ids))
    by_score = Tokenizer(_core.Vocabulary(dict(ids), merges), new.rest).core_model
    pieces = sorted(normal)
    for place, piece in enumerate(pieces):
        for text in (piece, piece + pieces[(place + _STEP) % len(pieces)]):
            if new.core_model.encode(text) != by_score.encode(text):
                raise CheckpointError(
                    f"llama.cpp, which merges by score, would split {text!r} in another way than the new tokenizer",
                    hint="pass a new tokenizer with a `tokenizer.model`",
                )
