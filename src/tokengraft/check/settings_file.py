"""Settings files of a tokenizer, for checks."""

from typing import Any

from tokengraft.errors import UnreadableFileError
from tokengraft.output.json_file import parse_settings
from tokengraft.tokenizer.tokenizer import Tokenizer


def read_settings(tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """The content of a JSON file of the folder; empty if it is missing or cannot be read."""
    try:
        return parse_settings(tokenizer.files.get(name, b"{}"), name)
    except UnreadableFileError:
        return {}
