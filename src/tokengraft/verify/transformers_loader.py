"""Loads folders with transformers: in a process of its own, or in this one if transformers is imported already.

Importing transformers takes a second, and two more with torch, which a tokenizer does not need. The process is started
early, imports transformers without torch, and waits for folders. It ends with the block that started it, or when this
process ends. Code in a folder is not executed.
"""

import functools
import gc
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

_START = "import sys; sys.path[:] = {path!r}; from tokengraft.verify.transformers_loader import serve; serve()"
"""Not `python -m`, which imports from the current folder first: that may be a model folder with code in it."""


class Loaded(NamedTuple):
    """What transformers makes of texts."""

    ids: list[list[int]]
    """The ids of each text, without special tokens."""
    tokens: list[list[str]]
    """The tokens with these ids; empty if they were not asked for."""
    added: dict[str, int]
    """The added tokens, with their ids."""


class CannotLoadError(Exception):
    """transformers cannot load a folder. The message is the type of its error and the first line of it."""


@contextmanager
def transformers_started() -> Iterator[None]:
    """Starts importing transformers in a process of its own, for the folders that are loaded inside the block.

    Does nothing if transformers is not installed, is imported here already, or if such a process is running.
    """
    if _PROCESS.get() or "transformers" in sys.modules or importlib.util.find_spec("transformers") is None:
        yield
        return
    try:
        process = _Process()
    except OSError:  # no interpreter, or no more processes: transformers is imported here
        yield
        return
    token = _PROCESS.set(process)
    try:
        yield
    finally:
        _PROCESS.reset(token)
        process.close()


def transformers_installed() -> bool:
    """Whether transformers can be imported."""
    process = _PROCESS.get()
    hello = process.hello() if process else None
    return _auto_tokenizer() is not None if hello is None else bool(hello["installed"])


def announce(folder: Path) -> None:
    """Lets the process load a folder while other work is done."""
    if process := _PROCESS.get():
        process.send({"folder": str(folder.absolute())})


def load_with_transformers(folder: Path, texts: list[str], *, tokens: bool = False) -> Loaded:
    """What `AutoTokenizer` makes of texts: ids, and if asked for, tokens. transformers must be installed.

    Raises:
        CannotLoadError: It cannot load the folder or encode the texts.
    """
    process = _PROCESS.get()
    request = {"folder": str(folder.absolute()), "texts": texts, "tokens": tokens}
    answer = process.ask(request) if process else None
    if answer is None:  # also if the process was killed
        answer = _encoded(_loaded(_auto_tokenizer(), str(folder)), texts, tokens=tokens)
    if "error" in answer:
        raise CannotLoadError(answer["error"])
    return Loaded(**answer)


class _Process:
    """A process that runs `serve`. Its methods return None once it has ended."""

    def __init__(self) -> None:
        path = [entry for entry in sys.path if isinstance(entry, str)]
        command = [sys.executable, "-c", _START.format(path=path)]
        pipe = subprocess.PIPE
        # In a session of its own: Ctrl-C is for this process, which then ends the other one.
        self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8", start_new_session=True)
        self._hello: dict[str, Any] | None = None

    def hello(self) -> dict[str, Any] | None:
        """The first line that the process writes, once it has imported transformers."""
        self._hello = self._hello or self._read()
        return self._hello

    def send(self, request: dict[str, Any]) -> None:
        """Sends a request; nothing happens if the process has ended."""
        with suppress(OSError):
            print(json.dumps(request), file=self._popen.stdin, flush=True)

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request."""
        if not self.hello():
            return None
        self.send(request)
        return self._read()

    def _read(self) -> dict[str, Any] | None:
        line = self._popen.stdout.readline() if self._popen.stdout else ""
        answer: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return answer

    def close(self) -> None:
        """Ends the process at once."""
        self._popen.kill()
        with suppress(OSError), self._popen:  # which closes the pipes and waits; a request may be half written
            pass


_PROCESS: ContextVar[_Process | None] = ContextVar("transformers_process", default=None)


def serve() -> None:
    """Answers requests: lines of JSON on stdin and stdout. A folder without texts is only loaded."""
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nothing else reads the one or writes to the other
    os.dup2(2, 1)
    sys.modules["torch"] = None  # type: ignore[assignment]  # `import torch` fails
    gc.disable()  # imports make no garbage
    _import_faster()
    loader, loaded = _auto_tokenizer(), dict[str, Any]()
    print(json.dumps({"installed": loader is not None}), file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        folder = request["folder"]
        if folder not in loaded:
            loaded = {folder: _loaded(loader, folder)}
        if "texts" in request:
            answer = _encoded(loaded.pop(folder), request["texts"], tokens=request["tokens"])
            print(json.dumps(answer), file=answers, flush=True)


def _import_faster() -> None:
    """Lets `import transformers` look faster for what its 1,700 files of models define, and find the same.

    It goes through every line of every file, though only the last of these names is looked for, and it does so twice,
    because it keeps the results of 550 folders in a cache of 128. That is over half of the time of its import. Another
    version of transformers may do it in another way: then nothing happens.
    """
    if "transformers" in sys.modules:
        return
    from importlib.metadata import version

    package = ModuleType("transformers")
    with suppress(Exception):
        package.__path__ = importlib.util.find_spec("transformers").submodule_search_locations  # type: ignore
        package.__version__ = version("transformers")  # type: ignore[attr-defined]
        sys.modules["transformers"] = package  # the modules in it can be imported without what it does itself
        from transformers.utils import import_utils

        names_in, structure = import_utils.fetch__all__, import_utils.create_import_structure_from_path.__wrapped__
        import_utils.fetch__all__ = lambda content: names_in(content[content.rfind("\n__all__") + 1 :])
        import_utils.create_import_structure_from_path = functools.cache(structure)
    sys.modules.pop("transformers", None)


def _auto_tokenizer() -> Any:
    """The class of transformers that loads tokenizers; None if it is not installed."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # transformers would warn that torch is missing
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return None
    return AutoTokenizer


def _loaded(loader: Any, folder: str) -> Any:
    """The tokenizer of a folder, or the error."""
    try:
        return loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # any error of another library means that it cannot load the folder
        return error


def _encoded(tokenizer: Any, texts: list[str], *, tokens: bool) -> dict[str, Any]:
    """The fields of `Loaded`, or the error."""
    try:
        if isinstance(tokenizer, Exception):
            raise tokenizer
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        as_tokens = [tokenizer.convert_ids_to_tokens(some) for some in ids] if tokens else []
        return {"ids": ids, "tokens": as_tokens, "added": tokenizer.get_added_vocab()}
    except Exception as error:  # as above
        return {"error": summary(error)}


def summary(error: Exception) -> str:
    """The type of an error and the first line of its message, if it has one."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
