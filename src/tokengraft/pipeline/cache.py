"""`count_corpora`: counts that are kept beside the output until it is complete, so that an interrupted run can resume.

Cached counts are used only if everything that they depend on is unchanged: the tokenizer, every option for reading and
counting except those in `WITHOUT_EFFECT`, the hold-out, the version, and path, size and modification time of each file.
"""

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.counts.count import HeldOutCounts, count_with_hold_out, engine_kept
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CorpusError, CountsError, OutputError
from tokengraft.formats.sources import folder_files
from tokengraft.output.atomic import new_file
from tokengraft.output.partial import remove_abandoned
from tokengraft.pipeline.options import AdaptOptions
from tokengraft.pipeline.request import Request, work_folder
from tokengraft.tokenizer.tokenizer import Tokenizer

WITHOUT_EFFECT = frozenset(("workers", "memory", "engine", "address"))
"""Fields of `CountOptions` that do not change the result. All other fields are part of the key."""
_OURS = re.compile(r".+-[0-9a-f]{24}\.(parquet|json)")


def count_corpora(job: Request, base: Tokenizer) -> dict[str, HeldOutCounts]:
    """The counts of every corpus without its held-out documents: from the cache, or counted now and cached."""
    with engine_kept(job.options.count_options):
        return {name: _cached(job, base, name, corpus) for name, corpus in job.corpora.items()}


def _cached(job: Request, base: Tokenizer, name: str, corpus: Corpus) -> HeldOutCounts:
    folder, key = work_folder(job.out), cache_key(base, corpus, job.options)
    files = [folder / f"{name}-{key}{suffix}" for suffix in (".parquet", ".json")] if key else []
    counted = _load(*files) if files else None
    job.start(f"counting {name}" if counted is None else f"counting {name}: resumed, from the interrupted run")
    if counted is None:
        counted = _counted(job, base, name, corpus)
        try:
            if files:
                _save(counted, *files)
        except OutputError:
            if folder.exists():
                raise
            # Another run with the same output has ended, and removed the folder: this one goes on without it.
    return counted


def _counted(job: Request, base: Tokenizer, name: str, corpus: Corpus) -> HeldOutCounts:
    options = job.options
    counted = count_with_hold_out(
        base,
        corpus,
        read_options=options.read_options,
        count_options=options.count_options,
        hold_out=options.hold_out,
        progress=options.progress,
    )
    if not counted.held_out or not len(counted.counts):
        held_out = sum(len(text.encode()) for text in counted.held_out)
        raise CorpusError(
            f"the corpus `{name}` is too small: {counted.counts.totals.bytes:,} bytes to learn from, {held_out:,} "
            "bytes to measure on, and both are needed",
            hint="give more text; at least two documents, or one of more than 8 kB that can be cut at a space",
        )
    return counted


def clear(folder: Path) -> None:
    """Removes all cached counts, including those of other inputs. Other files in the folder are not touched.

    What cannot be removed stays: the result is complete without it.
    """
    with suppress(OSError):
        remove_abandoned(folder)
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()  # refused if it has other files


def cache_key(tokenizer: Tokenizer, corpus: Corpus, options: AdaptOptions) -> str | None:
    """A hash of everything that the counts depend on; None if a corpus cannot be identified, such as a pipe."""
    files = _identities(corpus, options)
    if files is None:
        return None
    tokenizer_files = {name: sha256(data).hexdigest() for name, data in folder_files(tokenizer).items()}
    read_options, count_options, hold_out = (
        asdict(value) for value in (options.read_options, options.count_options, options.hold_out)
    )
    count_options = {name: value for name, value in count_options.items() if name not in WITHOUT_EFFECT}
    decisive = [_core.__version__, tokenizer_files, read_options, count_options, hold_out, files]
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:24]


def _identities(corpus: Corpus, options: AdaptOptions) -> list[Any] | None:
    """Path, size and modification time of every file, in reading order, or the version of a remote one.

    None if one can have changed unnoticed: it is not a regular file, or a remote system gives no version.
    """
    if not isinstance(corpus, str | os.PathLike | list | tuple):
        return None
    files = [source.file for source in open_corpus(corpus, options.read_options)]
    known = {file: file.identity if file else None for file in dict.fromkeys(files)}
    return None if None in known.values() else [known[file] for file in files]


def _load(counts: Path, held_out: Path) -> HeldOutCounts | None:
    """The cached counts; None if there are none, or they cannot be read."""
    try:
        held = json.loads(held_out.read_bytes())
        texts, documents = held["texts"], held["documents"]
        known = isinstance(documents, int) and isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        return HeldOutCounts(PretokenCounts.load(counts), tuple(texts), documents) if known else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError, CountsError):
        return None


def _save(counted: HeldOutCounts, counts: Path, held_out: Path) -> None:
    counted.counts.save(counts, force=True)
    held = {"documents": counted.held_out_documents, "texts": counted.held_out}
    with new_file(held_out, force=True) as partial:
        partial.write_text(json.dumps(held), encoding="utf-8")
