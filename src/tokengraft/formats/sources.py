"""`load`: the tokenizer of a folder, a file, a hub name, or an object of another library.

Code in a model folder is never executed. The hub is asked only if there is no such local path.
"""

import os
import re
from pathlib import Path
from typing import Any

from tokengraft.arguments import checked
from tokengraft.errors import SourceNotFoundError, UnsupportedTokenizerError
from tokengraft.formats.files import PATTERNS, load_file, load_folder
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.formats.ranks import Given, SpecialTokens
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.tokenizer import Tokenizer

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@checked
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
        UnsupportedTokenizerError: It is not a BPE tokenizer of a kind that tokengraft edits.
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
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(PATTERNS)))
    except Exception as error:  # the hub client raises its own errors, its HTTP library's, OSError and ValueError
        reason = str(error).strip().split("\n")[0]
        raise SourceNotFoundError(
            f"`{name}` is no local path, and the hub did not give it: {type(error).__name__}: {reason}",
            hint=f"{instead}; check the name; for a gated model run `hf auth login`",
        ) from error
