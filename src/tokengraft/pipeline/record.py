"""`request_of`: the request of an adaptation as JSON-ready data, from which `repeat_of` makes the arguments again.

`inputs_of`: the model and every text of it, with sizes and hashes.

The record depends only on the request, the inputs and the versions, so that the same request gives the same bytes.
Paths are written as they were given. There is no date, unless SOURCE_DATE_EPOCH is set, and no output path.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.ids import CONFIGS
from tokengraft.checkpoint.layout import has_weights, open_checkpoint
from tokengraft.checkpoint.model_files import CARD, other_files
from tokengraft.checkpoint.rows import FUNCTION, init_name
from tokengraft.corpus.files import LocalFile, input_without_credentials
from tokengraft.corpus.open import Corpus, open_corpus, paths_of
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.counts.threads import CountOptions, HoldOut
from tokengraft.errors import OptionError
from tokengraft.formats.sources import folder_files, load
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Limits
from tokengraft.measure.choose_size import SizeOptions
from tokengraft.measure.evaluate import Evaluation
from tokengraft.pipeline.cache import WITHOUT_EFFECT
from tokengraft.pipeline.options import AdaptOptions, Job, Target
from tokengraft.pipeline.texts import Texts
from tokengraft.pruning.removable import Protection
from tokengraft.tokenizer.piece_model import PieceRules
from tokengraft.tokenizer.tokenizer import Tokenizer

BLOCK = 1 << 22
MAX_HASHED = 20 * 10**9
"""Weights with more bytes are not hashed: a core hashes 1.3 GB a second, and 0.3 without instructions for SHA-256."""


Input = dict[str, Any]
"""An input as the record has it.

- `role`: `model`, `target`, `keep`, `test`, `preserve` or `parity text`. With `name`, it identifies the input.
- `path`: as it was given; None for an object in memory.
- `bytes`: of all files, compressed ones as they are on disk; of a model, of its weight files.
- `sha256`: of the file; of several files, of the list of their hashes. Of a model, of its tokenizer. None if an input
  cannot be read twice.
- `files`, of a model alone: the hash of every file that decides the result. None for weights of more than `MAX_HASHED`
  bytes.
"""


@contextmanager
def hashing(job: Job, base: Tokenizer) -> "Iterator[Future[list[Input]]]":
    """The inputs of a job, hashed in a thread while the block runs."""
    stop = Event()
    pool = ThreadPoolExecutor(1, thread_name_prefix="hash")
    try:
        # A thread has no context of its own, and the context says whether strings are paths.
        yield pool.submit(copy_context().run, inputs_of, job, base, stop)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def inputs_of(job: Job, base: Tokenizer, stop: Event) -> list[Input]:
    """The model and every text of a job. No more files are hashed once ``stop`` is set."""
    texts = ({"role": role, "name": name, **_text(text, job, stop)} for role, name, text in _texts(job))
    return [_model(job, base, stop), *texts]


def _texts(job: Job) -> Iterator[tuple[str, str, Corpus | PretokenCounts]]:
    yield from (("target", name, job.corpora[name]) for name in job.targets)
    yield from (("keep", name, job.corpora[name]) for name in job.kept)
    yield from (("test", name, text) for name, text in job.tests.items())
    if job.options.preserve is not None:
        yield "preserve", "preserve", job.options.preserve
    yield from (("parity text", name, text) for name, text in (job.options.parity_text or {}).items())


def _model(job: Job, base: Tokenizer, stop: Event) -> Input:
    source = Path(job.source)
    checkpoint = open_checkpoint(source) if has_weights(job.source) else None
    weights = [file.path for file in checkpoint.files] if checkpoint else []
    size = sum(path.stat().st_size for path in weights)
    # Without weights, only the configs matter, whose tokens are not pruned, and the card, which the new one contains.
    alone = (source / name for name in (*CONFIGS, CARD))
    others = other_files(checkpoint) if checkpoint else [path for path in alone if path.is_file()]
    tokenizer = folder_files(base)
    files: dict[str, str | None] = {name: sha256(tokenizer[name]).hexdigest() for name in tokenizer}
    files |= {path.relative_to(source).as_posix(): _hash(path, stop) for path in others}
    files |= {path.name: _hash(path, stop) if size <= MAX_HASHED else None for path in weights}
    return {
        "role": "model",
        "name": source.resolve().name,
        "path": os.fspath(job.source),
        "bytes": size,
        "sha256": base.content_hash,
        "files": dict(sorted(files.items())),
    }


def given_paths(corpus: Corpus | PretokenCounts) -> list[str] | None:
    """The paths of a corpus, sorted, without credentials; None if it was something in memory, such as texts."""
    paths = paths_of(corpus)
    return None if paths is None else sorted(input_without_credentials(os.fspath(path)) for path in paths)


def _text(text: Corpus | PretokenCounts, job: Job, stop: Event) -> Input:
    paths, read_options = given_paths(text), job.options.read_options
    if paths is None:
        return {"path": None, "bytes": 0, "sha256": None}
    # Of all shards: the record says what was given, and the shard is an option.
    sources = open_corpus(text, ReadOptions(format=read_options.format, skip_bad=read_options.skip_bad))
    files = [*dict.fromkeys(source.file for source in sources)]
    hashes = [_hash(file.path, stop) if isinstance(file, LocalFile) and file.identity else None for file in files]
    whole = hashes[0] if len(hashes) == 1 else sha256("".join(f"{value}\n" for value in hashes).encode()).hexdigest()
    return {
        "path": paths[0] if len(paths) == 1 else paths,
        "bytes": sum(file.size for file in files if file),
        "sha256": None if None in hashes else whole,
    }


def _hash(path: Path, stop: Event) -> str | None:
    """The hash of a file; None if it cannot be read, or the run has ended."""
    digest = sha256()
    try:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(BLOCK):
                if stop.is_set():
                    return None
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def require_unchanged(job: Job, recorded: list[Input]) -> list[str]:
    """Refuses inputs that are not those of a record. Returns what cannot be compared, as texts for a message."""
    before = {(item["role"], item["name"]): item for item in recorded}
    unknown = list[str]()
    for item in inputs_of(job, load(job.source), Event()):
        known = before.get((item["role"], item["name"]), {})
        if known.get("bytes") != item["bytes"]:
            raise _changed(item, f"it has {item['bytes']:,} bytes", known.get("bytes"))
        if "files" in item:
            unknown += _compare_files(item, known.get("files"))
        if known.get("sha256") != item["sha256"]:
            raise _changed(item, f"it has the SHA-256 hash {item['sha256']}", known.get("sha256"))
        if item["sha256"] is None:
            unknown.append(f"the text `{item['name']}`")
    return unknown


def _compare_files(model: Input, known: object) -> Iterator[str]:
    """Refuses changed files of a model. Yields what cannot be compared."""
    if not isinstance(known, dict):
        yield "the files of the model"
        return
    for name in sorted({*known, *model["files"]}):
        hashes = [files.get(name, "no file") for files in (model["files"], known)]
        if None in hashes and "no file" not in hashes:
            yield f"`{name}` of the model"
        elif hashes[0] != hashes[1]:
            raise _changed(model, f"`{name}` has the SHA-256 hash {hashes[0]}", hashes[1])


def _changed(item: Input, found: str, expected: object) -> OptionError:
    return OptionError(
        f"the {item['role']} `{item['name']}` (`{item['path']}`) is not that of the record: {found}, not {expected}",
        hint="restore the file, or give all options again instead of the record",
    )


STEP = "adapt"
NOT_RECORDED = frozenset(("force", "quiet", "on_step", "progress", "keep_work", "command"))
"""Options that do not change the result."""
_HINT = "pass the adaptation.json or tokengraft.json of a folder that `tokengraft adapt` wrote"
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


def request_of(job: Job, inputs: list[Input], texts: Texts, test: Evaluation | None) -> dict[str, Any]:
    """The record of a request. Every text gets the number of its documents; of test texts, ``test`` has it."""
    documents = {("test", score.text): score.documents for score in (test.scores if test else ())}
    documents |= {(job.role(name), name): texts.n_documents(name) for name in texts.parts}
    sizes = {name: getattr(job.sizes, name) for name in ("swap", "add", "remove")}
    chosen = {"swap": job.sizes.auto, "add": job.sizes.auto, "remove": job.sizes.covering}
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
        "sizes": {name: "auto" if chosen[name] else n for name, n in sizes.items() if n},
        "options": _options(job.options),
        "inputs": [{**item, "documents": documents.get((item["role"], item["name"]))} for item in inputs],
    }


def _date() -> dict[str, str]:
    """The date that SOURCE_DATE_EPOCH says; none without it, so that the same request gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return {"date": datetime.fromtimestamp(int(epoch), timezone.utc).isoformat()} if epoch.isdecimal() else {}


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
    if callable(value):
        return init_name(value)
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
        sizes = dict(request["sizes"])
        if unknown := [*(sizes.keys() - {"swap", "add", "remove"})]:
            raise ValueError(f"there is no size {unknown[0]!r}")
        if not all(isinstance(item, dict) and {"role", "name"} <= item.keys() for item in request["inputs"]):
            raise ValueError("it has no list of inputs")
        return {"source": request["source"], "target": targets, "keep": keep, **sizes, "options": options}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OptionError(
            f"this is not the record of an adaptation that this version can repeat: {type(error).__name__}: {error}",
            hint=_HINT,
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
    if name in ("init", "output_init") and str(value).startswith(FUNCTION):
        raise OptionError(
            f"`{name}` was the {value}, which a record cannot have", hint="call tg.adapt with the function again"
        )
    if name == "rules" and value is not None:
        return PieceRules(**value)
    return tuple(value) if isinstance(value, list) else value


def read_record(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The request that an `adaptation.json` or `tokengraft.json` records."""
    name, hint = os.fspath(path), _HINT
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
