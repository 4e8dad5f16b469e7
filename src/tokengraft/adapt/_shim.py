"""TO BE DELETED BY THE LEAD: stands in for functions that other modules will provide, with the same signatures.

HoldOut, HeldOutCounts, count_with_hold_out, reading_warnings    -> tokengraft.counting
has_weights                                                      -> tokengraft.checkpoint.layout
require_distinct, require_replaceable                            -> tokengraft.atomic
prune_order (with by_merges)                                     -> tokengraft.prune
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from tokengraft.atomic import _require_replaceable
from tokengraft.atomic import require_new as _require_new
from tokengraft.checkpoint.transplant import ADAPT_FILES, written_before
from tokengraft.corpus import Corpus, Reading, documents, open_corpus
from tokengraft.counting import Effort, Progress, count
from tokengraft.counts import PretokenCounts, Totals
from tokengraft.errors import CheckpointError, CorpusError, OutputError
from tokengraft.prune import Protection, PruneOrder
from tokengraft.prune import prune_order as _prune_order
from tokengraft.prune.removable import removable as removable_tokens
from tokengraft.tokenizer import Tokenizer

__all__ = ["ADAPT_FILES", "removable_tokens", "written_before"]


@dataclass(frozen=True)
class HoldOut:
    """Which documents are held out."""

    one_in: int = 50
    max_bytes: int = 2_000_000


@dataclass(frozen=True)
class HeldOutCounts:
    """Counts, and the documents held out of them."""

    counts: PretokenCounts
    held_out: tuple[str, ...]


def count_with_hold_out(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    reading: Reading,
    effort: Effort,
    hold_out: HoldOut,
    progress: Progress | None = None,
) -> HeldOutCounts:
    """Counts of what is not held out."""
    held: list[str] = []
    skipped: list[str] = []
    tell = (lambda name, more: progress(name, more, 0)) if progress else None
    replaced: list[int] = []
    texts = _noting(_readable_documents(corpus, reading, skipped, tell), replaced)
    rest = _not_held_out(texts, held, hold_out)
    counts = count(tokenizer, rest, reading=replace(reading, shard=None), effort=effort)
    totals = counts.totals + Totals(skipped=len(skipped), replaced=sum(replaced))
    return HeldOutCounts(replace(counts, totals=totals), tuple(held))


def _noting(texts: Iterator[str], replaced: list[int]) -> Iterator[str]:
    for text in texts:
        replaced.append(text.count("\ufffd"))
        yield text


def _readable_documents(
    corpus: Corpus, reading: Reading, skipped: list[str], tell: Callable[[str, int], object] | None
) -> Iterator[str]:
    if not isinstance(corpus, str | os.PathLike | list | tuple) or "-" in (
        corpus,
        *(corpus if isinstance(corpus, list | tuple) else ()),
    ):
        yield from documents(corpus, reading, tell)
        return
    for name in dict.fromkeys(found.name for found in open_corpus(corpus, reading)):
        try:
            yield from documents(name, replace(reading, shard=None), tell)
        except CorpusError:  # noqa: PERF203
            if not reading.skip_bad:
                raise
            skipped.append(name)


def _not_held_out(texts: Iterator[str], held_out: list[str], hold_out: HoldOut) -> Iterator[str]:
    size, seen = 0, set[int]()
    for text in texts:
        digest = int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")
        if digest in seen:
            continue
        if digest % hold_out.one_in or size >= hold_out.max_bytes or not text.strip():
            yield text
            continue
        seen.add(digest)
        size += len(text)
        held_out.append(text)


def reading_warnings(totals: Totals) -> tuple[str, ...]:
    """What was replaced or skipped, in words."""
    words = []
    if totals.replaced:
        words.append(f"{totals.replaced:,} stretches were not UTF-8 and were replaced by U+FFFD")
    if totals.skipped:
        words.append(f"{totals.skipped:,} documents or files could not be read and were left out")
    return tuple(words)


def has_weights(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a folder with a checkpoint."""
    folder = Path(source)
    if not folder.is_dir():
        return False
    if any(folder.glob("*.safetensors")):
        return True
    pickled = sorted(folder.glob("*.bin"))
    if pickled:
        raise CheckpointError(f"the weights are pickled (`{pickled[0].name}`)", hint="save them as safetensors")
    return False


def require_distinct(inputs: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Refuses an output that is an input, lies in one, or has one in it."""
    b = Path(out).resolve()
    for path in inputs:
        a = Path(path).resolve()
        if a == b or a in b.parents or b in a.parents:
            raise OutputError(
                f"`{out}` is the input `{path}`, or one of the two lies in the other", hint="write somewhere else"
            )


def require_new(out: Path, *, force: bool, replaceable: Callable[[Path], bool] | None = None) -> None:
    """Refuses an output that cannot be written."""
    _require_new(out, force=force)
    if replaceable and os.path.lexists(out):
        _require_replaceable(out, replaceable)


def prune_order(
    tokenizer: Tokenizer, counts: PretokenCounts, *, protection: Protection, by_merges: bool = False
) -> PruneOrder:
    """The order; today it is always by merges."""
    del by_merges
    return _prune_order(tokenizer, counts, protection=protection)
