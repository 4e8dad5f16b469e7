"""Reads a `tokenizer.json` into a `Tokenizer` and writes it back without loss.

Accepts what the `tokenizers` library accepts, and refuses with a reason what would fail later.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import NoneType
from typing import Any, get_args

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, UnreadableFileError
from tokengraft.output.json_file import JsonStyle, parse_json, require_plain
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.kind import Algorithm, algorithm_of, detect_kind, pipeline_alone, require_whole_charsmaps
from tokengraft.tokenizer.tokenizer import Tokenizer

MAX_ID = 2**32 - 1
MAX_ADDED = 2**17
"""The most added tokens. Speech models have 65,536; the library that finds them in text needs 4.5 kB for each."""
MAX_SCORE = sys.float_info.max


def read_tokenizer_json(raw: bytes, *, name: str, files: Mapping[str, bytes]) -> Tokenizer:
    """The tokenizer in the bytes of a `tokenizer.json`, checked. Errors call it ``name``.

    ``files`` are the other tokenizer files of the folder, which the tokenizer keeps.
    """
    tokenizer = _read_in_core(raw, name, files) or _read_in_python(raw, name, files)
    object.__setattr__(tokenizer, "original", raw)  # no argument, so that no changed copy can have it
    return tokenizer


def _read_in_core(raw: bytes, name: str, files: Mapping[str, bytes]) -> Tokenizer | None:
    """The tokenizer, its vocabulary and merges read by the core; None if the core is in doubt about them.

    No Python object is made of a token or a merge, which makes this five times as fast as `_read_in_python`.
    """
    parts = _core.Vocabulary.read(raw)
    if parts is None:
        return None
    rest, as_text, vocabulary = parts
    try:
        document = parse_json(rest, name)
    except UnreadableFileError:
        return None  # the message would name another line
    if algorithm_of(document["model"]) != "BPE":
        return None
    require_plain(document, name)
    with naming(name):
        text = readable_text(document)
        return checked(Tokenizer(vocabulary, text, FrozenDict(files), JsonStyle.of(raw), as_text))


def _read_in_python(raw: bytes, name: str, files: Mapping[str, bytes]) -> Tokenizer:
    """The tokenizer, read by Python's `json`: files that the core is in doubt about, and all errors."""
    document = parse_json(raw, name)
    vocab, merges, scores = _take_model(document, name)
    require_plain([document, "".join(vocab)], name)
    with naming(name):
        text = readable_text(document)
        for token, token_id in vocab.items():
            if type(token_id) is not int or not 0 <= token_id <= MAX_ID:
                raise InvalidTokenizerError(
                    f"the token `{token}` has the id {token_id!r}; ids are whole numbers from 0 to {MAX_ID:,}",
                    hint="give it a free id in `model.vocab`",
                )
        pairs = _merge_ids(merges, vocab)
        as_text = bool(merges) and isinstance(merges[0], str)
        vocabulary = _core.Vocabulary(vocab, pairs)
        style = JsonStyle.of(raw)
        return checked(Tokenizer(vocabulary, text, FrozenDict(files), style, as_text, scores=FrozenDict(scores)))


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of the file before the message of an error."""
    try:
        yield
    except InvalidTokenizerError as error:
        raise InvalidTokenizerError(f"`{name}`: {error.message}", hint=error.hint) from error


def readable_text(document: dict[str, Any]) -> str:
    """The document as text. Refuses what the library cannot read, so that later code can rely on its structure."""
    text = json.dumps(document, ensure_ascii=False)
    entries = document.get("added_tokens")
    _require_few(len(entries) if isinstance(entries, list) else 0)
    require_whole_charsmaps(document.get("normalizer"))
    is_bpe = algorithm_of(document["model"]) == "BPE"
    _core.Pipeline(text if is_bpe else json.dumps(pipeline_alone(document, {}), ensure_ascii=False))
    detect_kind(document)
    return text


def checked(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, if its ids, merges, added tokens and pipeline are consistent."""
    _ = tokenizer.core_model  # building the table checks every id and merge
    _require_few(len(tokenizer.added))
    vocabulary, owners = tokenizer.core_vocabulary, dict[int, str]()
    for token in tokenizer.added:
        known = vocabulary.string_of(token.id) if token.id <= MAX_ID else None
        owner = owners.setdefault(token.id, token.content if known is None else known)
        if owner != token.content or token.id > MAX_ID:
            problem = f"which `{owner}` has already" if token.id <= MAX_ID else f"and ids end at {MAX_ID:,}"
            raise InvalidTokenizerError(
                f"the added token `{token.content}` is not in `model.vocab`, so loaders give it the id {token.id}, "
                f"{problem}",
                hint=f"put it into `model.vocab` with a free id (listed is {token.listed_id}), or if no text needs it "
                "take it out of `added_tokens` and of the files beside tokenizer.json that name it",
            )
    _ = tokenizer.pipeline  # with the added tokens that only other files name
    return tokenizer


def new_document(model: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges, as the `tokenizers` library writes one."""
    steps = ("truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    names = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    bpe = {"type": "BPE", **dict.fromkeys(names), "fuse_unk": False, "byte_fallback": False, **model}
    return {"version": "1.0", **dict.fromkeys(steps), **parts, "model": {**bpe, "vocab": {}, "merges": []}}


def write_tokenizer_json(tokenizer: Tokenizer) -> bytes:
    """The bytes of the `tokenizer.json`, laid out as the original."""
    style, document = tokenizer.style, json.loads(tokenizer.rest)
    if tokenizer.algorithm != "BPE":
        document["model"] |= tokenizer.model_lists()
        return style.dump(document)
    # Two strings that the document does not have mark where vocabulary and merges are written.
    number = next(n for n in count() if f'"{n} vocab"' not in tokenizer.rest and f'"{n} merges"' not in tokenizer.rest)
    marks = f"{number} vocab", f"{number} merges"
    document["model"] |= dict(zip(("vocab", "merges"), marks, strict=True))
    parts = tokenizer.core_vocabulary.json(
        indent=style.indent,
        spaced=style.spaced,
        ascii_only=style.ascii_only,
        merges_as_text=tokenizer.merges_as_text,
    )
    raw = style.dump(document)
    for mark, part in zip(marks, parts, strict=True):
        raw = part.join(raw.split(f'"{mark}"'.encode()))
    return raw


def _take_model(document: Any, name: str) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """Removes vocabulary, merges and scores from the document and returns them; the document keeps empty ones."""
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict):
        raise InvalidTokenizerError(
            f"`{name}` has no `model` section, so it is not a tokenizer.json",
            hint="pass the `tokenizer.json` of the model, or its folder",
        )
    algorithm = algorithm_of(model)
    if algorithm not in get_args(Algorithm):
        detect_kind(document)
    wanted = {"vocab": list if algorithm == "Unigram" else dict} | ({"merges": list} if algorithm == "BPE" else {})
    for part, kind in wanted.items():
        if not isinstance(model.get(part), kind):
            raise InvalidTokenizerError(
                f"`{name}` has no `model.{part}` as {algorithm} has it, but {type(model.get(part)).__name__}; "
                "it may be of another model type",
                hint="pass the `tokenizer.json` of a trained model",
            )
    if not model["vocab"]:
        raise InvalidTokenizerError(
            f"the vocabulary in `{name}` is empty", hint="pass the tokenizer of a trained model"
        )
    if algorithm != "BPE":
        _require_settings(model, algorithm, name)
    vocab, merges, scores = model["vocab"], model.get("merges", []), dict[str, Any]()
    if algorithm == "Unigram":
        scores = _scores(vocab, name)
        vocab = {token: token_id for token_id, token in enumerate(scores)}
    model |= {part: kind() for part, kind in wanted.items()}
    return vocab, merges, scores


def _scores(vocab: list[Any], name: str) -> dict[str, Any]:
    """The tokens of a Unigram model in order, with their scores."""
    scores = dict[str, Any]()
    for place, entry in enumerate(vocab):
        is_pair = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)
        if not is_pair or type(entry[1]) not in (int, float) or not -MAX_SCORE <= entry[1] <= MAX_SCORE:
            raise InvalidTokenizerError(
                f"entry {place:,} of the vocabulary in `{name}` is {entry!r:.80}; it must be a token and its score",
                hint='write it as ["a", -3.5]',
            )
        if entry[0] in scores:
            raise InvalidTokenizerError(
                f"the token {entry[0]!r} is listed twice in `{name}`", hint="remove one of the two entries"
            )
        scores[entry[0]] = entry[1]
    return scores


_SETTINGS: dict[str, dict[str, tuple[type, ...]]] = {
    "Unigram": {"unk_id": (int, NoneType), "byte_fallback": (bool,)},
    "WordPiece": {"unk_token": (str,), "continuing_subword_prefix": (str,), "max_input_chars_per_word": (int,)},
}
"""The settings of models without merges, with their types. Those of WordPiece are required."""


def _require_settings(model: Mapping[str, Any], algorithm: str, name: str) -> None:
    """Refuses settings that the `tokenizers` library would refuse."""
    settings = _SETTINGS[algorithm]
    required = {"type"} & model.keys() | ({*settings} if algorithm == "WordPiece" else set())
    for field, types in ({"type": (str,)} | settings).items():
        value = model.get(field)
        is_wrong = type(value) not in types or (isinstance(value, int) and not 0 <= value <= MAX_ID)
        if (field in model or field in required) and is_wrong:
            raise InvalidTokenizerError(
                f"`model.{field}` in `{name}` is {value!r:.80}, which {algorithm} cannot have",
                hint="load the file with `tokenizers.Tokenizer.from_file` to see what it says",
            )
    if algorithm == "WordPiece" and model["unk_token"] not in model["vocab"]:
        raise InvalidTokenizerError(
            f"the unknown token {model['unk_token']!r} of `{name}` is not in its vocabulary",
            hint="add it to `model.vocab`, or correct `model.unk_token`",
        )


def _merge_ids(merges: list[Any], vocab: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """The merges as pairs of ids. Refuses the first one that does not name two tokens in the form of the others."""
    as_text, pairs = bool(merges) and isinstance(merges[0], str), list[tuple[int, int]]()
    for rank, merge in enumerate(merges):
        pair = merge
        if as_text:
            pair = merge.split(" ") if isinstance(merge, str) else []
            # `tokenizers` skips every line that starts like this, which shifts the ranks of all later merges.
            if len(pair) != 2 or merge.startswith("#version"):
                raise InvalidTokenizerError(
                    f"the merge at rank {rank} is {merge!r}; as text, a merge is two tokens with one space between "
                    "them",
                    hint='write all merges as pairs, ["a", "b"], which also allows tokens with spaces; delete comment '
                    "lines",
                )
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            raise InvalidTokenizerError(
                f"the merge at rank {rank} is {merge!r}; a merge is a pair of tokens, and all are written alike",
                hint='write it as ["a", "b"]',
            )
        for part in pair:
            if part not in vocab:
                raise InvalidTokenizerError(
                    f"the merge at rank {rank}, {pair!r}, needs the token `{part}`, which is not in the vocabulary",
                    hint="add the token to `model.vocab`, or delete the merge from `model.merges`",
                )
        pairs.append((vocab[pair[0]], vocab[pair[1]]))
    return tuple(pairs)


def _require_few(added: int) -> None:
    if added > MAX_ADDED:
        raise InvalidTokenizerError(
            f"it has {added:,} added tokens, and tokengraft reads up to {MAX_ADDED:,}",
            hint="put tokens that text is split into, rather than special ones, into `model.vocab` alone",
        )
