"""`request_of`: the request of an adaptation as JSON-ready data, from which `repeat_of` makes the arguments again.

The record depends only on the request, the inputs and the versions, so that the same request gives the same bytes.
Paths are written as they were given. There is no date, unless SOURCE_DATE_EPOCH is set, and no output path.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.adapt.cache import WITHOUT_EFFECT
from tokengraft.adapt.inputs import TextInput, given_paths
from tokengraft.adapt.options import AdaptOptions, Job, Target
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.options import CountOptions, HoldOut
from tokengraft.errors import OptionError
from tokengraft.evaluate.size import SizeOptions
from tokengraft.extend.include import WordList
from tokengraft.extend.limits import Limits
from tokengraft.prune.removable import Protection
from tokengraft.tokenizer.sentencepiece import PieceRules

STEP = "adapt"
NOT_RECORDED = frozenset(("force", "on_step", "progress", "keep_work", "command"))
"""Options that do not change the result."""
_TEXTS = ("preserve", "parity_text", "test")
_NESTED: dict[str, Any] = {
    "read_options": ReadOptions,
    "count_options": CountOptions,
    "limits": Limits,
    "include": WordList,
    "size": SizeOptions,
    "protection": Protection,
    "hold_out": HoldOut,
}


def request_of(job: Job, inputs: list[TextInput], documents: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """The record of a request.

    Args:
        job: What was asked for.
        inputs: The model and every text, with sizes and hashes.
        documents: How many documents each text has, by `test` or an empty string, and its name.
    """
    kinds = {"target": "", "keep": "", "test": "test"}
    listed = [
        {**asdict(item), "documents": documents.get((kinds.get(item.role, item.role), item.name))} for item in inputs
    ]
    return {
        "step": STEP,
        "command": job.options.command,
        "versions": {
            "tokengraft": _core.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "pyarrow")},
        },
        **_date(),
        "source": os.fspath(job.source),
        "targets": {
            name: {"corpus": given_paths(t.corpus), "weight": str(t.weight)} for name, t in job.targets.items()
        },
        "keep": {name: given_paths(corpus) for name, corpus in job.kept.items()},
        "sizes": _sizes(job),
        "options": _options(job.options),
        "inputs": listed,
    }


def _date() -> dict[str, str]:
    """The date that SOURCE_DATE_EPOCH says; none without it, so that the same request gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return {"date": datetime.fromtimestamp(int(epoch), timezone.utc).isoformat()} if epoch.isdecimal() else {}


def _sizes(job: Job) -> dict[str, int | str]:
    given = {name: getattr(job.sizes, name) for name in ("swap", "add", "remove")}
    return {name: "auto" if job.sizes.auto and name != "remove" else n for name, n in given.items() if n}


def _options(options: AdaptOptions) -> dict[str, Any]:
    """The options that are not the default ones."""
    default, given = AdaptOptions(), dict[str, Any]()
    for field in fields(AdaptOptions):
        value = getattr(options, field.name)
        if field.name in NOT_RECORDED or value is None:
            continue
        if field.name == "preserve":  # may be a column, which cannot be compared
            given[field.name] = given_paths(value)
        elif value == getattr(default, field.name):
            continue
        elif field.name in _TEXTS:
            given[field.name] = {name: given_paths(corpus) for name, corpus in value.items()}
        else:
            given[field.name] = _plain(value)
    # An empty mapping is all defaults of the class, which may differ from those of an adaptation: `documents` does.
    other = {name for name, kind in _NESTED.items() if given.get(name) == {} and kind() != getattr(default, name)}
    return {name: value for name, value in given.items() if value != {} or name in other}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        skipped = WITHOUT_EFFECT if isinstance(value, CountOptions) else ()
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.name not in skipped}
        kind: Any = type(value)
        required = {"words"} if isinstance(value, WordList) else set()
        defaults = {} if required else {name: _plain(getattr(kind(), name)) for name in named}
        return {name: item for name, item in named.items() if name in required or item != defaults.get(name, object())}
    return list(value) if isinstance(value, list | tuple) else value


def repeat_of(request: Any) -> dict[str, Any]:
    """The arguments of `adapt` that repeat a recorded request, without ``out``.

    Raises:
        OptionError: It is not the record of an adaptation, or a text was an object in memory.
    """
    try:
        if request["step"] != STEP:
            raise ValueError(f"it records the step {request['step']!r}")
        targets = {name: Target(_corpus(t["corpus"], name), t["weight"]) for name, t in request["targets"].items()}
        keep = {name: _corpus(paths, name) for name, paths in request["keep"].items()}
        options = _options_of(request["options"], request["command"])
        sizes = {name: request["sizes"][name] for name in request["sizes"]}
        if unknown := [*(sizes.keys() - {"swap", "add", "remove"})]:
            raise ValueError(f"there is no size {unknown[0]!r}")
        if not all(isinstance(item, dict) and {"role", "name"} <= item.keys() for item in request["inputs"]):
            raise ValueError("it has no list of inputs")
        return {"source": request["source"], "target": targets, "keep": keep, **sizes, "options": options}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OptionError(
            f"this is not the record of an adaptation that this version can repeat: {type(error).__name__}: {error}",
            hint="pass the adaptation.json or tokengraft.json of a folder that `tokengraft adapt` wrote",
        ) from error


def _corpus(paths: list[str] | None, name: str) -> str | list[str]:
    if paths is None:
        raise OptionError(
            f"the text `{name}` was an object in memory, which a record cannot have",
            hint="call tg.adapt with the object again",
        )
    return paths[0] if len(paths) == 1 else paths


def _options_of(given: Mapping[str, Any], command: str | None) -> AdaptOptions:
    values: dict[str, Any] = {"command": command}
    for name, value in given.items():
        if name == "preserve":
            values[name] = _corpus(value, "preserve")
        elif name in _TEXTS:
            values[name] = {key: _corpus(paths, key) for key, paths in value.items()}
        elif name in _NESTED:
            values[name] = _NESTED[name](**{key: _value(key, item) for key, item in value.items()})
        else:
            values[name] = _value(name, value)
    return AdaptOptions(**values)


def _value(name: str, value: Any) -> Any:
    if name == "rules" and value is not None:
        return PieceRules(**value)
    return tuple(value) if isinstance(value, list) else value


def read_record(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The request that an `adaptation.json` or `tokengraft.json` records.

    Raises:
        OptionError: The file cannot be read, or records none.
    """
    name, hint = (
        os.fspath(path),
        "pass the adaptation.json or tokengraft.json of a folder that `tokengraft adapt` wrote",
    )
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise OptionError(f"cannot read the record `{name}`: {error.strerror or error}", hint=hint) from error
    except (ValueError, RecursionError) as error:  # ValueError: not JSON or UTF-8; or a NUL in the path
        raise OptionError(f"the record `{name}` is not valid JSON: {error}", hint=hint) from error
    request = content.get("request") if isinstance(content, dict) else None
    if not isinstance(request, dict):
        raise OptionError(f"`{name}` does not record a request", hint=hint)
    return request
