"""`record_of`: the request of an adaptation as JSON-ready data. `read_recipe`: the options in it, or in a file by hand.

The record depends only on the request, the inputs and the versions, so that the same request gives the same bytes.
Paths are written as they were given. There is no date, unless SOURCE_DATE_EPOCH is set, and no output path.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.folder import has_weights, open_checkpoint
from tokengraft.checkpoint.rows import init_name
from tokengraft.corpus.files import input_without_credentials
from tokengraft.corpus.open import Corpus, open_corpus, paths_of
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.measure.scores import Evaluation
from tokengraft.options.option import Option
from tokengraft.options.table import options_of
from tokengraft.pipeline.options import AdaptOptions, Target
from tokengraft.pipeline.prepare import Prepared
from tokengraft.pipeline.request import INLINE, Request, given_of
from tokengraft.pipeline.texts import Texts

OF_A_RUN = frozenset(("out", "force", "json", "quiet", "dry_run", "recipe", "workers", "memory", "engine", "address"))
"""Options that do not change the result."""
_HINT = "pass a TOML or JSON file with the options of `tokengraft adapt`, or the tokengraft.json of an adapted model"


def given_paths(corpus: Corpus | PretokenCounts) -> list[str] | None:
    """The paths of a corpus, sorted, without credentials; None if it was something in memory, such as texts."""
    paths = paths_of(corpus)
    return None if paths is None else sorted(input_without_credentials(os.fspath(path)) for path in paths)


def record_of(job: Prepared, texts: Texts, test: Evaluation | None) -> dict[str, Any]:
    """The record of a request: its options as a recipe has them, its inputs, and the versions."""
    from importlib.metadata import version

    documents = {("test", score.text): score.documents for score in (test.scores if test else ())}
    documents |= {(job.role(name), name): texts.n_documents(name) for name in texts.parts}
    inputs = [_model(job), *_text_inputs(job)]
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    date = {"date": datetime.fromtimestamp(int(epoch), UTC).isoformat()} if epoch.isdecimal() else {}
    return {
        "step": job.step,
        "command": job.command,
        "versions": {
            "tokengraft": _core.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "pyarrow")},
        },
        **date,
        "source": os.fspath(job.source),
        "options": recipe_of(job),
        "only_in_python": [*_only_in_python(job)],
        "inputs": [{**item, "documents": documents.get((item["role"], item["name"]))} for item in inputs],
    }


def _model(job: Prepared) -> dict[str, Any]:
    weights = open_checkpoint(Path(job.source)).files if has_weights(job.source) else ()
    return {
        "role": "model",
        "name": Path(job.source).resolve().name,
        "path": os.fspath(job.source),
        "bytes": sum(file.path.stat().st_size for file in weights),
        "sha256": job.base.content_hash,
    }


def _text_inputs(job: Request) -> Iterator[dict[str, Any]]:
    """Every text: its role, its name, its paths as they were given, and the bytes of its files as they are on disk."""
    texts: list[tuple[str, str, Corpus | PretokenCounts]] = [
        *((job.role(name), name, corpus) for name, corpus in job.corpora.items()),
        *(("test", name, text) for name, text in job.tests.items()),
        *([] if job.options.preserve is None else [("preserve", "preserve", job.options.preserve)]),
        *(("parity text", name, text) for name, text in (job.options.parity_text or {}).items()),
    ]
    # Of all shards: the record says what was given, and the shard is an option.
    read_options = ReadOptions(format=job.options.read_options.format, skip_bad=job.options.read_options.skip_bad)
    for role, name, text in texts:
        paths, size = given_paths(text), 0
        if paths is not None:
            files = dict.fromkeys(source.file for source in open_corpus(text, read_options))
            size = sum(file.size for file in files if file)
        path = paths[0] if paths and len(paths) == 1 else paths
        yield {"role": role, "name": name, "path": path, "bytes": size}


def recipe_of(job: Request) -> dict[str, Any]:
    """The options that decide the result, as a recipe has them. A text in memory is null."""
    given = {name: value for name, value in job.given.items() if name not in OF_A_RUN}
    # A record has what the files of word lists said: they may change.
    given |= {name: value for name, value in given_of(job.options).items() if name in INLINE}
    return {"model": os.fspath(job.source), **{name: _plain(value) for name, value in given.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Target):
        paths = given_paths(value.corpus)
        weight = "" if str(value.weight) == "1" else f":{value.weight}"
        return paths and [f"{paths[0]}{weight}", *paths[1:]]
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return f"{value[0]}/{value[1]}"  # a shard
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | tuple | list) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return input_without_credentials(value)
    if callable(value):
        return init_name(value)
    return value if isinstance(value, bool | int | float) else given_paths(value)


def _only_in_python(job: Request) -> Iterator[str]:
    """Options that no recipe can have."""
    options, usual = job.options, AdaptOptions()
    yield from (name for name in ("init", "output_init") if callable(getattr(options, name)))
    yield from (name for name in ("hold_out",) if getattr(options, name) != getattr(usual, name))
    yield from ("read_options.rules",) if options.read_options.rules is not None else ()


def read_recipe(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None]:
    """The options in a TOML or JSON file, or in the record of an adapted model, by their names.

    The command line comes with them if a record has it.
    """
    import tomllib

    name, command = os.fspath(path), None
    try:
        raw = Path(path).read_bytes()
        content = json.loads(raw) if name.endswith(".json") else tomllib.loads(raw.decode())
    except OSError as error:
        raise OptionError(f"cannot read the recipe `{name}`: {error.strerror or error}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:  # not JSON, TOML or UTF-8; or a NUL in the path
        kind = "JSON" if name.endswith(".json") else "TOML"
        raise OptionError(f"the recipe `{name}` is not valid {kind}: {error}", hint=_HINT) from error
    if isinstance(content, dict) and isinstance(request := content.get("request"), dict):
        if request.get("step") != "adapt":
            raise OptionError(f"`{name}` records the step {request.get('step')!r}, not an adaptation", hint=_HINT)
        if only := request.get("only_in_python"):
            raise OptionError(
                f"`{name}` records options that only Python has: {', '.join(map(str, only))}",
                hint="call tg.adapt with them again",
            )
        content, command = request.get("options"), request.get("command")
    if not isinstance(content, dict):
        raise OptionError(f"`{name}` has no options of `tokengraft adapt`", hint=_HINT)
    known = {"model", *(option.name for option in options_of("recipe"))} - (OF_A_RUN - {"engine", "memory", "workers"})
    if unknown := next((key for key in content if key not in known), None):
        close = get_close_matches(unknown, known, n=1)
        meant = f"write {close[0]}" if close else f"remove it; options: {', '.join(sorted(known))}"
        why = "belongs on the command line" if unknown in OF_A_RUN else "is not an option of a recipe"
        raise OptionError(f"`{unknown}` in `{name}` {why}", hint=meant)
    return content, command if isinstance(command, str) else None


def recipe_words(option: Option, value: Any) -> list[str]:
    """The words of the command line for the value that a recipe has. Tables of texts are NAME=FILES."""
    action = option.kind.action
    texts = value if isinstance(value, Mapping) else {option.name: value}
    if name := next((name for name, files in texts.items() if files is None), None):
        raise OptionError(
            f"the text `{name}` was an object in memory, which a recipe cannot have", hint="call tg.adapt with it again"
        )
    if action == "flag":
        return [option.flag] if value else []
    if isinstance(value, Mapping):
        groups = [[f"{name}={files[0]}", *files[1:]] for name, files in ((k, _listed(v)) for k, v in value.items())]
        value = groups if action == "groups" else [word for group in groups for word in group]
    elif action == "groups":
        value = [_listed(group) for group in value] if isinstance(value, list) else [[value]]
    elif action in ("append", "extend"):
        value = _listed(value)
    return [*option.words(value)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
