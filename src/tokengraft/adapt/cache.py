"""`CountCache`: counts that are kept beside the output until it is complete, so that an interrupted run can resume.

Cached counts are used only if everything that they depend on is unchanged: the tokenizer, every option for reading and
counting except those in `WITHOUT_EFFECT`, the hold-out, the version, and path, size and modification time of each file.
"""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.adapt.options import AdaptOptions
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.counts.count import HeldOutCounts, count_with_hold_out
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CorpusError, CountsError, OutputError, Progress
from tokengraft.formats.files import folder_files
from tokengraft.output.atomic import new_file
from tokengraft.output.partial import remove_abandoned
from tokengraft.tokenizer.tokenizer import Tokenizer

WITHOUT_EFFECT = frozenset(("workers", "memory", "engine", "address"))
"""Fields of `CountOptions` that do not change the result. All other fields are part of the key."""
_OURS = re.compile(r".+-[0-9a-f]{24}\.(parquet|json)")


@dataclass(frozen=True)
class CountCache:
    """Counts corpora for one tokenizer, and keeps the results in a folder."""

    folder: Path
    tokenizer: Tokenizer
    options: AdaptOptions

    def count(
        self, name: str, corpus: Corpus, progress: Progress | None, start: Callable[[str], object]
    ) -> HeldOutCounts:
        """The counts of a corpus without its held-out documents: from the cache, or counted now and cached.

        ``start`` is called with what is done.

        Raises:
            CorpusError: The corpus cannot be read, or is too small to hold out documents.
        """
        key = cache_key(self.tokenizer, corpus, self.options)
        files = [self.folder / f"{name}-{key}{suffix}" for suffix in (".parquet", ".json")] if key else []
        counted = _load(*files) if files else None
        start(f"counting {name}" if counted is None else f"counting {name}: resumed, from the interrupted run")
        if counted is None:
            counted = self._count(name, corpus, progress)
            if files:
                self._save(counted, *files)
        return counted

    def _count(self, name: str, corpus: Corpus, progress: Progress | None) -> HeldOutCounts:
        options = self.options
        counted = count_with_hold_out(
            self.tokenizer,
            corpus,
            read_options=options.read_options,
            count_options=options.count_options,
            hold_out=options.hold_out,
            progress=progress,
        )
        if not counted.held_out or not len(counted.counts):
            raise CorpusError(
                f"the corpus `{name}` is too small: {counted.counts.totals.documents:,} documents to learn from, "
                f"{len(counted.held_out):,} held out, at least 1 of each needed",
                hint=f"give more documents, of which about one in {options.hold_out.one_in} is held out; text files "
                "have one document per line unless --documents files is given",
            )
        return counted

    def _save(self, counted: HeldOutCounts, counts: Path, held_out: Path) -> None:
        try:
            _save(counted, counts, held_out)
        except OutputError:
            if self.folder.exists():
                raise
            # Another run with the same output has ended, and removed the folder: this one goes on without it.

    def clear(self) -> None:
        """Removes all cached counts, including those of other inputs. Other files in the folder are not touched.

        What cannot be removed stays: the result is complete without it.
        """
        with suppress(OSError):
            remove_abandoned(self.folder)
            for path in self.folder.iterdir():
                if _OURS.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            self.folder.rmdir()  # refused if it has other files


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
        texts = json.loads(held_out.read_bytes())
        are_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        return HeldOutCounts(PretokenCounts.load(counts), tuple(texts)) if are_texts else None
    except (OSError, ValueError, RecursionError, CountsError):
        return None


def _save(counted: HeldOutCounts, counts: Path, held_out: Path) -> None:
    counted.counts.save(counts, force=True)
    with new_file(held_out, force=True) as partial:
        partial.write_text(json.dumps(counted.held_out), encoding="utf-8")
