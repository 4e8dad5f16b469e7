"""Which files of a model folder belong to its tokenizer; reading them and writing them.

Weights and model configs are not copied on purpose: old weights do not fit new ids.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from tokengraft.errors import (
    InvalidTokenizerError,
    SourceNotFoundError,
    UnreadableFileError,
    UnsupportedTokenizerError,
)
from tokengraft.formats.huggingface import read_tokenizer_json, write_tokenizer_json
from tokengraft.formats.ranks import NOTHING_GIVEN, Given, read_ranks, require_rank_agreement
from tokengraft.formats.sentencepiece import read_piece_model, require_agreement
from tokengraft.frozen import FrozenDict
from tokengraft.output.atomic import write_folder
from tokengraft.tokenizer.families import ENCODING
from tokengraft.tokenizer.rank_file import is_rank_file, rank_file, rank_file_name, rank_files
from tokengraft.tokenizer.sentencepiece import NAMES, piece_file
from tokengraft.tokenizer.tokenizer import Tokenizer

MAIN = "tokenizer.json"
PATTERNS = (
    MAIN,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model*",
    "original/tokenizer.model",
    "*.tiktoken",
    ENCODING,
    "tiktoken.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenization_*.py",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)


def is_tokenizer_file(path: Path) -> bool:
    """Whether a path, relative to the model folder, belongs to the tokenizer."""
    # Part by part: the `*` of fnmatch also matches `/`.
    wanted = [pattern.split("/") for pattern in PATTERNS]
    return any(len(path.parts) == len(parts) and all(map(fnmatch, path.parts, parts)) for parts in wanted)


def load_folder(folder: Path, *, name: str | None = None, given: Given = NOTHING_GIVEN) -> Tokenizer:
    """The tokenizer of a model folder, with all its tokenizer files. Errors call it ``name``.

    Raises:
        SourceNotFoundError: The folder has neither a `tokenizer.json` nor a SentencePiece model or rank file.
        InvalidTokenizerError: It has two of them, and they differ.
    """
    paths = sorted({path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()})
    main = folder / MAIN
    files = {path.relative_to(folder).as_posix(): _read(path) for path in paths if path != main}
    model, ranks = piece_file(files), rank_file(files)
    _require_same_ranks(files, name or str(folder))
    if main in paths:
        given.require_none(str(folder))
        tokenizer = read_tokenizer_json(_read(main), name=name or str(main), files=files)
        require_agreement(tokenizer, name or str(folder))
        require_rank_agreement(tokenizer, name or str(folder))
        return tokenizer
    if model is not None:
        given.require_none(str(folder))
        return read_piece_model(files[model], name=name or str(folder / model), file=model, files=files)
    if ranks is not None:
        return read_ranks(files[ranks], name=name or str(folder / ranks), file=ranks, files=files, given=given)
    others = ", ".join(f"`{path.relative_to(folder)}`" for path in paths) or "no tokenizer file at all"
    raise SourceNotFoundError(
        f"`{folder}` has neither a `{MAIN}` nor a SentencePiece model or rank file; it has {others}",
        hint="pass another folder, or write the file: "
        f"`transformers.AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained('NEW')`",
    )


def _require_same_ranks(files: Mapping[str, bytes], folder: str) -> None:
    """Refuses several rank files with different content: only one of them would be read and changed."""
    first, *others = [*rank_files(files)] or [""]
    differing = next((other for other in others if files[other] != files[first]), None)
    if differing is not None:
        raise InvalidTokenizerError(
            f"`{differing}` and `{first}` in `{folder}` differ, and both are rank files",
            hint="one of the two is stale: take it out of a copy of the folder, or pass the path of the other itself",
        )


def load_file(path: Path, given: Given = NOTHING_GIVEN) -> Tokenizer:
    """The tokenizer of a single file: `tokenizer.json`, SentencePiece model or rank file, by content.

    The other files of its folder are ignored.
    """
    _require_no_gguf(path)
    raw, nothing = _read(path), FrozenDict[str, bytes]({})
    if is_rank_file(raw):
        return read_ranks(raw, name=str(path), file=rank_file_name(path.name, raw), files=nothing, given=given)
    given.require_none(str(path))
    file = path.name if path.name in NAMES else NAMES[0]
    if piece_file({file: raw}) and path.suffix != ".json":
        return read_piece_model(raw, name=str(path), file=file, files=nothing)
    return read_tokenizer_json(raw, name=str(path), files=nothing)


def _require_no_gguf(path: Path) -> None:
    """Refuses a GGUF file before gigabytes of it are read. A pipe is not looked into: it can be read only once."""
    if path.is_file():
        with suppress(OSError), path.open("rb") as stream:
            if stream.read(4) == b"GGUF":
                raise UnsupportedTokenizerError(
                    f"`{path}` is a GGUF file, which has tokens and merges but no pipeline",
                    hint="pass the tokenizer that it was converted with; `tokengraft transplant MODEL.gguf NEW --out "
                    "NEW.gguf` then gives the file the changed one",
                )


def save(
    tokenizer: Tokenizer,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    check: Callable[[Path], object] | None = None,
) -> Path:
    """Writes a tokenizer as a folder and returns its path.

    The folder is complete or does not exist. An unchanged tokenizer is written as it was read. `tokengraft.save` also
    verifies the written files.

    Args:
        tokenizer: The tokenizer.
        out: The folder to write. It must not exist.
        force: Replace an existing folder, if it holds only tokenizer files.
        check: Called with the written folder before it is renamed to ``out``. If it raises, nothing is kept.

    Raises:
        OutputError: The folder exists or cannot be written.
    """
    folder = Path(out)
    write_folder(folder_files(tokenizer), folder, replaceable=is_tokenizer_file if force else None, check=check)
    return folder


def folder_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The files that a tokenizer is written to: their content by relative path."""
    main = {MAIN: tokenizer.original or write_tokenizer_json(tokenizer)} if tokenizer.main == MAIN else {}
    return main | dict(tokenizer.files)


MAX_BYTES = 1 << 29
"""Of a tokenizer file. The largest ones that are in use have 40 MB."""


def _read(path: Path) -> bytes:
    try:
        # Block by block: a pipe, or a device such as /dev/zero, may have no end.
        with path.open("rb") as stream:
            blocks, size = list[bytes](), 0
            while (block := stream.read(1 << 24)) and size <= MAX_BYTES:
                blocks.append(block)
                size += len(block)
    except OSError as error:
        raise UnreadableFileError(
            f"cannot read `{path}`: {error.strerror or error}", hint="check the path and its permissions"
        ) from error
    if size > MAX_BYTES:
        raise UnreadableFileError(
            f"`{path}` has more than {MAX_BYTES:,} bytes, too many for a tokenizer file", hint="check the path"
        )
    return b"".join(blocks)
