"""Writes and reads results as JSON files: extensions, prune orders and plans."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tokengraft.errors import CountsError
from tokengraft.output.atomic import new_file
from tokengraft.output.json_file import parse_json, require_plain

Value = TypeVar("Value")


def write_result_file(document: dict[str, Any], out: str | os.PathLike[str], *, force: bool) -> Path:
    """Writes a document as JSON and returns the path.

    Raises:
        OutputError: The file exists or cannot be written.
    """
    path = Path(out)
    with new_file(path, force=force) as partial:
        partial.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def read_result(path: str | os.PathLike[str], parse: Callable[[Any], Value], *, what: str, command: str) -> Value:
    """The value that ``parse`` returns for the document in a file.

    Raises:
        CountsError: The file cannot be read, or ``parse`` raised an error.
    """
    name = os.fspath(path)
    try:
        document = parse_json(Path(path).read_bytes(), name)
        require_plain(document, name)  # otherwise it could not be written again
        return parse(document)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CountsError(f"`{name}` is not a file of {what}: {error}", hint=f"make one: `{command}`") from error


def as_hash(value: object) -> str:
    """The `base_hash` of a document, checked.

    Raises:
        ValueError: It is not a SHA-256 hash in hex.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError(f"`base_hash` is {value!r}, not the hash of a tokenizer")
    return value
