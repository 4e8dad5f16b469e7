"""Tokens that an adaptation never prunes: those that configs name, and those of basic text such as ASCII and JSON."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokengraft.adapt.options import Source
from tokengraft.checkpoint.ids import CONFIGS, named_ids
from tokengraft.errors import UnreadableFileError
from tokengraft.evaluate.segments import token_totals
from tokengraft.prune.removable import Protection
from tokengraft.tokenizer.tokenizer import Tokenizer

TOKENIZER_CONFIGS = ("tokenizer_config.json", "special_tokens_map.json")
PLAIN_TEXTS = (
    "".join(map(chr, range(32, 127))),
    '{"id": 12345, "name": "value", "items": [1, 2.5, -3e10, true, false, null], "nested": {"a": "b\\\\n"}}\n',
    "\n\n\t\t    \r\n",
    "def main():\n    return 0\n\n\nif (a == b && c != d) { return x[i]; }  // done\n",
)
"""ASCII, JSON, white space and code."""


def protection(tokenizer: Tokenizer, source: Source, asked: Protection) -> Protection:
    """The protection asked for, plus tokens that configs, chat templates or basic text use.

    Args:
        tokenizer: The base.
        source: Where it came from. If that is a folder, its model configs are read too.
        asked: The protection that the caller asks for.

    Raises:
        UnreadableFileError: A config is not JSON.
    """
    used = {*token_totals(tokenizer, (*PLAIN_TEXTS, *chat_templates(tokenizer))).counted}
    tokenizer_configs = {name: _tokenizer_config(tokenizer, name) for name in TOKENIZER_CONFIGS}
    for config in (tokenizer_configs | model_configs(source)).values():
        used |= named_ids(config)
        used |= {tokenizer.ids[string] for string in _named_strings(config) if string in tokenizer.ids}
    always = sorted(tokenizer.strings[token_id] for token_id in used if token_id in tokenizer.strings)
    return replace(asked, tokens=[*asked.tokens, *always])


def chat_templates(tokenizer: Tokenizer) -> Iterator[str]:
    """The text of every chat template in the tokenizer's files."""
    for name, raw in tokenizer.files.items():
        if name.endswith(".jinja"):
            yield raw.decode(errors="replace")
    template = _tokenizer_config(tokenizer, TOKENIZER_CONFIGS[0]).get("chat_template")
    for item in template if isinstance(template, list) else [template]:
        text = item.get("template") if isinstance(item, dict) else item
        if isinstance(text, str):
            yield text


def model_configs(source: Source) -> dict[str, Any]:
    """The content of every config in a model folder that may name tokens, by file name.

    Raises:
        UnreadableFileError: One is not JSON.
    """
    paths = [Path(source) / name for name in CONFIGS]
    return {path.name: _read_config(path) for path in paths if path.is_file()}


def _tokenizer_config(tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """A config from the tokenizer's files; empty if it is missing or not valid JSON."""
    try:
        content = json.loads(tokenizer.files.get(name, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_config(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFileError(
            f"cannot read `{path}`: {error}", hint="fix the file, or download the model again"
        ) from error


def _named_strings(value: Any) -> Iterator[str]:
    """Strings under keys such as `eos_token` and `extra_special_tokens`, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _named_strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if str(key).endswith(("_token", "_tokens")):
                yield from _strings(item)
            else:
                yield from _named_strings(item)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
