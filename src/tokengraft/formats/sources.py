"""`load`: a tokenizer from a folder, a file, a hub name or an object. Files of one folder must agree."""

import os
import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tokengraft.errors import SourceNotFoundError, UnreadableFileError, UnsupportedTokenizerError
from tokengraft.formats.agreement import require_agreement, require_same_ranks
from tokengraft.formats.huggingface import read_tokenizer_json, write_tokenizer_json
from tokengraft.formats.vocabulary_files import (
    NOTHING_GIVEN,
    Given,
    read_piece_model,
    read_ranks,
    read_vocab_txt,
)
from tokengraft.output.atomic import write_folder
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.piece_model import NAMES, piece_file
from tokengraft.tokenizer.rank_file import (
    ENCODING,
    SpecialTokens,
    is_rank_file,
    rank_file,
    rank_file_name,
)
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON, VOCAB_TXT
from tokengraft.tokenizer.tokenizer import Tokenizer

FAIRSEQ = "sentencepiece.bpe.model"
"""The SentencePiece models of fairseq, which has its own ids for special tokens."""
FILE_PATTERNS = (
    *(TOKENIZER_JSON, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "vocab.txt"),
    *("tokenizer.model*", "original/tokenizer.model", "spiece.model", FAIRSEQ, "spm.model"),
    *("*.tiktoken", ENCODING, "tiktoken.model", "tekken.json"),
    *("tokenization_*.py", "chat_template.json", "chat_template.jinja", "additional_chat_templates/*.jinja"),
)


def is_tokenizer_file(path: Path) -> bool:
    """Whether a path, relative to the model folder, belongs to the tokenizer."""
    # Part by part: the `*` of fnmatch also matches `/`.
    wanted = [pattern.split("/") for pattern in FILE_PATTERNS]
    return any(len(path.parts) == len(parts) and all(map(fnmatch, path.parts, parts)) for parts in wanted)


def is_template(name: str) -> bool:
    """Whether a file, by its name in the folder, is a chat template."""
    return name.startswith(("chat_template.", "additional_chat_templates/"))


def load_folder(folder: Path, *, name: str | None = None, given: Given = NOTHING_GIVEN) -> Tokenizer:
    """The tokenizer of a model folder, with all its tokenizer files. Errors call it ``name``."""
    paths = sorted({path for pattern in FILE_PATTERNS for path in folder.glob(pattern) if path.is_file()})
    main = folder / TOKENIZER_JSON
    files = {path.relative_to(folder).as_posix(): _read(path) for path in paths if path != main}
    model, ranks = piece_file(files), rank_file(files)
    require_same_ranks(files, name or str(folder))
    if main in paths or model is not None or VOCAB_TXT in files:
        given.require_none(str(folder))
    if main in paths:
        tokenizer = read_tokenizer_json(_read(main), name=name or str(main), files=files)
        require_agreement(tokenizer, name or str(folder))
        return tokenizer
    if model is not None:
        tokenizer = read_piece_model(files, model, name=name or str(folder / model))
        _require_known_ids(tokenizer, name or str(folder))
        return tokenizer
    if VOCAB_TXT in files:
        return read_vocab_txt(files, name=name or str(folder / VOCAB_TXT))
    if ranks is not None:
        return read_ranks(files, ranks, name=name or str(folder / ranks), given=given)
    if (folder / "source.spm").exists():
        raise UnsupportedTokenizerError(
            f"`{folder}` has a SentencePiece model for each of two languages and one list of ids for both (Marian)",
            hint="nothing can be done for this model yet",
        )
    others = ", ".join(f"`{path.relative_to(folder)}`" for path in paths) or "no tokenizer file at all"
    raise SourceNotFoundError(
        f"`{folder}` has neither a `{TOKENIZER_JSON}` nor a SentencePiece model or rank file; it has {others}",
        hint="pass another folder, or write the file: "
        f"`transformers.AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained('NEW')`",
    )


def _require_known_ids(tokenizer: Tokenizer, folder: str) -> None:
    """Refuses a model without a `tokenizer.json` whose ids only a class of transformers knows.

    T5 adds tokens to the pieces, and the ids of XLM-R, mBART and NLLB have an offset.
    """
    if tokenizer.algorithm == "Unigram" or tokenizer.main == FAIRSEQ:
        raise UnsupportedTokenizerError(
            f"`{folder}` has `{tokenizer.main}` and no `{TOKENIZER_JSON}`: the ids of its pieces may not be those "
            "of the model",
            hint=f"write the file: `transformers.AutoTokenizer.from_pretrained({folder!r}).save_pretrained('NEW')`; or "
            f"pass the path of `{tokenizer.main}` itself if the model has its ids",
        )


def load_file(path: Path, given: Given = NOTHING_GIVEN) -> Tokenizer:
    """The tokenizer of a single file: `tokenizer.json`, SentencePiece model or rank file, by content.

    The other files of its folder are ignored.
    """
    raw = _read(path)
    if is_rank_file(raw):
        file = rank_file_name(path.name, raw)
        return read_ranks({file: raw}, file, name=str(path), given=given)
    given.require_none(str(path))
    file = path.name if path.name in NAMES else NAMES[0]
    if piece_file({file: raw}) and path.suffix != ".json":
        return read_piece_model({file: raw}, file, name=str(path))
    return read_tokenizer_json(raw, name=str(path), files={})


def save(
    tokenizer: Tokenizer,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    check: Callable[[Path], object] | None = None,
) -> Path:
    """Writes a tokenizer as a folder, which is complete or does not exist, and returns its path.

    An unchanged tokenizer is written as it was read. With ``force``, a folder is replaced that holds only tokenizer
    files. ``check`` is called before the folder is renamed to ``out``: if it raises, nothing is kept.
    """
    folder = Path(out)
    write_folder(folder_files(tokenizer), folder, replaceable=is_tokenizer_file if force else None, check=check)
    return folder


def folder_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The files that a tokenizer is written to: their content by relative path.

    Refuses ids without a token where a file lists the tokens one after the other.
    """
    has_lines = VOCAB_TXT in tokenizer.files
    broken = next((token for token in tokenizer.vocab if "\n" in token), None) if has_lines else None
    if broken is not None:
        raise UnsupportedTokenizerError(
            f"the token {broken!r} has a line break, so `{VOCAB_TXT}` cannot list it",
            hint=f"take `{VOCAB_TXT}` out of a copy of the folder: the tokenizer.json has all tokens",
        )
    is_list = tokenizer.algorithm == "Unigram" or has_lines
    if is_list and len(tokenizer.vocab) <= max(tokenizer.vocab.values(), default=-1):
        raise UnsupportedTokenizerError(
            f"a {tokenizer.algorithm} vocabulary is a list, which cannot leave out an id, and some have no token",
            hint="renumber the tokens: `Tokenizer.compact()`",
        )
    if tokenizer.main != TOKENIZER_JSON:
        return dict(tokenizer.files)
    return {TOKENIZER_JSON: tokenizer.original or write_tokenizer_json(tokenizer), **tokenizer.files}


MAX_BYTES = 1 << 29
"""Of a tokenizer file. The largest ones that are in use have 40 MB."""


def _read(path: Path) -> bytes:
    try:
        # Block by block: a pipe, or a device such as /dev/zero, may have no end.
        with path.open("rb") as stream:
            blocks = [stream.read(1 << 24)]
            is_gguf = blocks[0].startswith(b"GGUF")
            while blocks[-1] and not is_gguf and sum(map(len, blocks)) <= MAX_BYTES:
                blocks.append(stream.read(1 << 24))
    except OSError as error:
        raise UnreadableFileError(
            f"cannot read `{path}`: {error.strerror or error}", hint="check the path and its permissions"
        ) from error
    if is_gguf:
        raise UnsupportedTokenizerError(
            f"`{path}` is a GGUF file, which has tokens and merges but no pipeline",
            hint="pass the tokenizer that it was converted with; `tokengraft transplant MODEL.gguf NEW --out NEW.gguf` "
            "then gives the file the changed one",
        )
    if blocks[-1]:
        raise UnreadableFileError(
            f"`{path}` has more than {MAX_BYTES:,} bytes, too many for a tokenizer file", hint="check the path"
        )
    return b"".join(blocks)


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def load(
    source: str | os.PathLike[str] | Any,
    *,
    pattern: str | None = None,
    special_tokens: SpecialTokens | None = None,
) -> Tokenizer:
    """The tokenizer at ``source``, checked for consistency.

    Args:
        source: A model folder, a `tokenizer.json`, a SentencePiece `tokenizer.model`, a tiktoken file or a
            `tekken.json`, the name of a model on the hub, or a fast tokenizer object of `transformers` or
            `tokenizers`. The format of a file is decided by its content. A path that exists is never looked up on the
            hub.
        pattern: For a tiktoken file that is none of the known ones: its split pattern as a regular expression, or the
            name of a known one such as ``"o200k_base"``.
        special_tokens: For a tiktoken file: its special tokens with their ids, or a list if they have the ids after the
            ranks, in this order.

    Raises:
        SourceNotFoundError: There is no such folder, file or hub model.
        UnreadableFileError: A file cannot be read.
        UnsupportedTokenizerError: It is of a kind that tokengraft does not edit.
        InvalidTokenizerError: Its files are inconsistent.

    Examples:
        >>> load("no/such/folder")
        Traceback (most recent call last):
        ...
        tokengraft.errors.SourceNotFoundError: there is no folder, file or hub model `no/such/folder`
        hint: pass a folder that has a tokenizer.json, or the path of the file
    """
    given = Given(pattern, special_tokens)
    if not isinstance(source, str | os.PathLike):
        given.require_none(f"a {type(source).__name__} object")
        return _load_object(source)
    path = Path(source)
    try:
        if str(source) and path.is_dir():
            return load_folder(path, given=given)
        if str(source) and path.exists():
            return load_file(path, given)
    except (OSError, ValueError) as error:  # a name too long, a folder that may not be entered, a NUL
        raise SourceNotFoundError(f"cannot look at `{path}`: {error}", hint="check the path") from error
    if isinstance(source, str) and _HUB_NAME.fullmatch(source):
        return load_folder(_download(source), given=given)
    raise SourceNotFoundError(
        f"there is no folder, file or hub model `{source}`",
        hint="pass a folder that has a tokenizer.json, or the path of the file",
    )


def _load_object(source: Any) -> Tokenizer:
    """The tokenizer in a `transformers` fast tokenizer or a `tokenizers.Tokenizer`, known by what it can do."""
    if hasattr(source, "backend_tokenizer") and hasattr(source, "save_pretrained"):
        with temporary_folder() as folder:
            source.save_pretrained(str(folder))
            return load_folder(folder, name=f"a {type(source).__name__} object")
    if hasattr(source, "to_str"):
        raw = source.to_str(pretty=True).encode()
        return read_tokenizer_json(raw, name=f"a {type(source).__name__} object", files={})
    raise UnsupportedTokenizerError(
        f"cannot load from a {type(source).__module__}.{type(source).__name__} object",
        hint="pass a path, a hub name, or a fast tokenizer of transformers "
        "(a slow one has no tokenizer.json: load it with `use_fast=True`)",
    )


def _download(name: str) -> Path:
    """The folder of the tokenizer files of a hub model, in the hub's own cache."""
    instead = "pass the path of a folder that has a tokenizer.json"
    try:
        import huggingface_hub
    except ImportError as error:
        raise SourceNotFoundError(
            f"`{name}` is no local path, and huggingface_hub, which would look it up on the hub, is not installed",
            hint=f"{instead}, or install it: `pip install 'tokengraft[hub]'`",
        ) from error
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(FILE_PATTERNS)))
    except Exception as error:  # the hub client raises its own errors, its HTTP library's, OSError and ValueError
        reason = str(error).strip().split("\n")[0]
        raise SourceNotFoundError(
            f"`{name}` is no local path, and the hub did not give it: {type(error).__name__}: {reason}",
            hint=f"{instead}; check the name; for a gated model run `hf auth login`",
        ) from error
