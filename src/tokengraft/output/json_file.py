"""JSON that keeps its layout; extensions, orders and plans as JSON files."""

import codecs
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tokengraft.errors import CountsError, UnreadableFileError
from tokengraft.output.atomic import new_file

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTAINERS = (dict, list, tuple)
_START = re.compile(rb"\s*.(\s*)(.{0,200})", re.DOTALL)
"""The space after the first bracket of a file, and what follows it."""
MAX_DEPTH = 128  # the limit of serde_json, which every loader of `tokenizer.json` reads with


@dataclass(frozen=True)
class JsonStyle:
    """The layout of a JSON file.

    Examples:
        >>> style = JsonStyle.of(b'{"a": 1}')
        >>> style.dump({"õ": [1, 2]})
        b'{"\\\\u00f5": [1, 2]}'
    """

    indent: str | None = "  "
    spaced: bool = True
    """A space after `:`, and without an indent also after `,`."""
    ascii_only: bool = False
    final_newline: bool = False

    @classmethod
    def of(cls, raw: bytes) -> "JsonStyle":
        """The layout of a file, from its first lines. Defaults are those of `tokenizers`."""
        start = _START.match(raw)
        gap, first = start.groups() if start else (b"", b"")
        return cls(
            indent=gap.rpartition(b"\n")[2].decode() if b"\n" in gap else None,
            spaced=b'": ' in first or b'":' not in first,
            ascii_only=raw.isascii(),
            final_newline=raw.endswith(b"\n"),
        )

    def dump(self, document: Any) -> bytes:
        """The document in this layout."""
        flat = self._encoder(" " if self.spaced else "")
        text = flat(document) if self.indent is None else self._lines(document, "\n")
        # An unpaired surrogate has no UTF-8 form, so its escape is written.
        text = _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
        return (text + "\n" * self.final_newline).encode()

    def _encoder(self, gap: str) -> Callable[[Any], str]:
        """Python's encoder, with a gap after every comma."""
        separators = (f",{gap}", ": " if self.spaced else ":")
        return json.JSONEncoder(ensure_ascii=self.ascii_only, separators=separators).encode

    def _lines(self, value: Any, gap: str) -> str:
        """A value with its parts on lines of their own, each after a gap.

        Python's encoder is in C only where it indents nothing. So it writes objects and lists without inner ones, and
        lists of such objects, with the gap after their commas.
        """
        inner, deeper = f"{gap}{self.indent}", f"{gap}{self.indent}{self.indent}"
        parts = [*value.values()] if isinstance(value, dict) else [*value] if isinstance(value, list | tuple) else []
        if not any(isinstance(part, _CONTAINERS) for part in parts):
            text = self._encoder(inner)(value)
        elif isinstance(value, dict):
            encode = self._encoder("")
            names = (encode({name: 0})[1:-2] for name in value)  # one may be a number
            lines = (f"{name}{self._lines(part, inner)}" for name, part in zip(names, parts, strict=True))
            text = f"{{{f',{inner}'.join(lines)}}}"
        elif all(isinstance(part, dict) and part for part in parts) and not any(
            isinstance(one, _CONTAINERS) for part in parts for one in part.values()
        ):
            # No string has a line end, so this is between two objects.
            rows = self._encoder(deeper)(value).replace(f"}},{deeper}{{", f"{inner}}},{inner}{{{deeper}")
            text = f"[{{{deeper}{rows[2:-2]}{inner}}}]"
        else:
            text = f"[{f',{inner}'.join(self._lines(part, inner) for part in parts)}]"
        return f"{text[0]}{inner}{text[1:-1]}{gap}{text[-1]}" if parts else text


def parse_json(raw: bytes, name: str) -> Any:
    """The document in a file, as strictly as the loaders of `tokenizer.json` read it."""
    return _parse(raw, name, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object_without_duplicates)


def parse_settings(raw: bytes, name: str) -> dict[str, Any]:
    """The object in a settings file, such as `tokenizer_config.json`, read as leniently as transformers reads it.

    `NaN`, `Infinity`, halves of surrogate pairs and repeated keys (the last one wins) are accepted: only Python reads
    these files. `JsonStyle.dump` writes the same values back. Do not change values inside the object: it is kept.
    """
    return dict(_settings(raw, name))


@lru_cache(maxsize=4)
def _settings(raw: bytes, name: str) -> dict[str, Any]:
    """The object in a settings file. One with thousands of added tokens is asked for dozens of times."""
    content: dict[str, Any] = _parse(raw, name)
    problem = ""
    if not isinstance(content, dict):
        problem = f"holds a {type(content).__name__}; expected a JSON object"
    elif _is_too_deep(content):
        problem = f"is nested deeper than {MAX_DEPTH} levels"
    if problem:
        raise UnreadableFileError(f"`{name}` {problem}", hint="check what wrote the file")
    return content


def read_settings(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The object in one of several settings files; empty if it is missing or cannot be read."""
    try:
        return parse_settings(files.get(name, b"{}"), name)
    except UnreadableFileError:
        return {}


def _parse(raw: bytes, name: str, **rules: Any) -> Any:
    hint = "download the file again, or check what wrote it"
    if raw.startswith(codecs.BOM_UTF8):
        raise UnreadableFileError(f"`{name}` starts with a byte order mark, which JSON does not allow", hint=hint)
    try:
        return json.loads(raw.decode(), **rules)
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"`{name}` is not UTF-8: byte {error.start} is wrong", hint=hint) from error
    except RecursionError as error:
        raise UnreadableFileError(f"`{name}` is nested deeper than any loader reads", hint=hint) from error
    except ValueError as error:
        raise UnreadableFileError(f"`{name}` is not valid JSON: {error}", hint=hint) from error


def require_plain(document: Any, name: str) -> None:
    """Refuses documents that Python reads but other JSON libraries do not."""
    problem = f"is nested deeper than {MAX_DEPTH} levels" if _is_too_deep(document) else ""
    if not problem and (half := _SURROGATE.search(json.dumps(document, ensure_ascii=False))):
        problem = f"has half of a surrogate pair, {half[0]!a}"
    if problem:
        raise UnreadableFileError(f"`{name}` {problem}; no loader reads that", hint="check what wrote the file")


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object, of which loaders would keep one")
    return document


def _is_too_deep(document: Any) -> bool:
    """Whether a value is nested deeper than `MAX_DEPTH`. Looks at containers alone: there may be thousands of texts."""
    level: list[Any] = [[document]]
    for _ in range(MAX_DEPTH + 1):
        inner = (value.values() if isinstance(value, dict) else value for value in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list) and value]
    return bool(level)


Value = TypeVar("Value")


def write_result_file(document: dict[str, Any], out: str | os.PathLike[str], *, force: bool) -> Path:
    """Writes a document as JSON and returns the path."""
    path = Path(out)
    with new_file(path, force=force) as partial:
        partial.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def read_result(path: str | os.PathLike[str], parse: Callable[[Any], Value], *, what: str, command: str) -> Value:
    """The value that ``parse`` returns for the document in a file. If it raises an error, the file is refused."""
    name = os.fspath(path)
    try:
        document = parse_json(Path(path).read_bytes(), name)
        require_plain(document, name)  # otherwise it could not be written again
        return parse(document)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CountsError(f"`{name}` is not a file of {what}: {error}", hint=f"make one: `{command}`") from error
