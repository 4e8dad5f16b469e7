"""`TextInput`: an input of an adaptation with its size and hash, for the record of the request."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event

from tokengraft.adapt.options import Job
from tokengraft.checkpoint.layout import has_weights, open_checkpoint
from tokengraft.corpus.files import LocalFile
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.remote import input_without_credentials
from tokengraft.corpus.strings import paths_of
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.formats.sources import load
from tokengraft.tokenizer.tokenizer import Tokenizer

BLOCK = 1 << 22


@dataclass(frozen=True)
class TextInput:
    """The model or a text."""

    role: str
    """`model`, `target`, `keep`, `test`, `preserve` or `parity text`."""
    name: str
    path: str | list[str] | None
    """As it was given; None for an object in memory."""
    bytes: int
    """Of all files, compressed ones as they are on disk; of a model, of its weight files."""
    sha256: str | None
    """Of the file; of several files, of the list of their hashes. Of a model, of its tokenizer: weights are not
    hashed, because that takes longer than all other work on them. None if an input cannot be read twice."""


@contextmanager
def hashing(job: Job, base: Tokenizer) -> "Iterator[Future[list[TextInput]]]":
    """The inputs of a job, hashed in a thread while the block runs."""
    stop = Event()
    pool = ThreadPoolExecutor(1, thread_name_prefix="hash")
    try:
        # A thread has no context of its own, and the context says whether strings are paths.
        yield pool.submit(copy_context().run, inputs_of, job, base, stop)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def inputs_of(job: Job, base: Tokenizer, stop: Event | None = None) -> list[TextInput]:
    """The model and every text of a job, with sizes and hashes."""
    stop = stop or Event()
    return [
        _model(job, base),
        *(_text(role, name, text, job.options.read_options, stop) for role, name, text in _texts(job)),
    ]


def _texts(job: Job) -> Iterator[tuple[str, str, Corpus | PretokenCounts]]:
    yield from (("target", name, job.corpora[name]) for name in job.targets)
    yield from (("keep", name, job.corpora[name]) for name in job.kept)
    yield from (("test", name, text) for name, text in job.tests.items())
    if job.options.preserve is not None:
        yield "preserve", "preserve", job.options.preserve
    yield from (("parity text", name, text) for name, text in (job.options.parity_text or {}).items())


def _model(job: Job, base: Tokenizer) -> TextInput:
    source = Path(job.source)
    weights = open_checkpoint(source).files if has_weights(job.source) else ()
    size = sum(file.path.stat().st_size for file in weights)
    return TextInput("model", source.resolve().name, os.fspath(job.source), size, base.content_hash)


def given_paths(corpus: Corpus | PretokenCounts) -> list[str] | None:
    """The paths of a corpus, sorted, without credentials; None if it was something in memory, such as texts."""
    paths = paths_of(corpus)
    return None if paths is None else sorted(input_without_credentials(os.fspath(path)) for path in paths)


def _text(role: str, name: str, text: Corpus | PretokenCounts, read_options: ReadOptions, stop: Event) -> TextInput:
    paths = given_paths(text)
    if paths is None:
        return TextInput(role, name, None, 0, None)
    # Of all shards: the record says what was given, and the shard is an option.
    sources = open_corpus(text, ReadOptions(format=read_options.format, skip_bad=read_options.skip_bad))
    files = [*dict.fromkeys(source.file for source in sources)]
    hashes = [_hash(file.path, stop) if isinstance(file, LocalFile) and file.identity else None for file in files]
    known = [value for value in hashes if value is not None]
    whole = None if len(known) < len(hashes) else known[0] if len(known) == 1 else _of_lines(known)
    path = paths[0] if len(paths) == 1 else paths
    return TextInput(role, name, path, sum(file.size for file in files if file), whole)


def _of_lines(hashes: list[str]) -> str:
    return sha256("".join(f"{value}\n" for value in hashes).encode()).hexdigest()


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


def require_unchanged(job: Job, recorded: list[dict[str, object]]) -> list[str]:
    """Refuses inputs that are not those of a record. Returns the names of those that cannot be compared.

    Raises:
        OptionError: An input has another size or hash. The message names it.
    """
    before = {(item["role"], item["name"]): item for item in recorded}
    found = inputs_of(job, load(job.source))
    for item in found:
        known = before.get((item.role, item.name), {})
        if known.get("bytes") != item.bytes:
            raise _changed(item, f"it has {item.bytes:,} bytes", known.get("bytes"))
        if known.get("sha256") != item.sha256:
            raise _changed(item, f"it has the SHA-256 hash {item.sha256}", known.get("sha256"))
    return [item.name for item in found if item.sha256 is None]


def _changed(item: TextInput, found: str, expected: object) -> OptionError:
    return OptionError(
        f"the {item.role} `{item.name}` (`{item.path}`) is not that of the record: {found}, not {expected}",
        hint="restore the file, or give all options again instead of --from-record",
    )
