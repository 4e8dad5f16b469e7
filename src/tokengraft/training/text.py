"""The text of a training run: `mix`: target and kept text by share; held-out documents; and `packed` tokens."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers

import numpy as np
import numpy.typing as npt

from tokengraft.corpus.open import Corpus, local_files
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import count_with_hold_out
from tokengraft.counts.threads import CountOptions, HoldOut
from tokengraft.errors import CorpusError, OptionError, option
from tokengraft.measure.bits import chunks
from tokengraft.measure.segments import LINES, Segmenter, batches, read_text, text_warnings
from tokengraft.tokenizer.tokenizer import Tokenizer

PIECE_BYTES = 8192
"""Longer documents are held out in pieces."""
SMALLEST_PIECE = 16
MIN_LINE_BYTES = 40
"""A line that is at least this long and both held out and in a training document is no coincidence."""
HELD_OUT_BYTES = 8_000, 1_000_000
"""The fewest and the most bytes of a held-out text that are scored."""
SCORED_SHARE = 100
"""A held-out text is scored up to one in so many bytes of the training text."""
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TrainingText:
    """The documents of a training run."""

    target: tuple[str, ...]
    keep: tuple[str, ...]
    held_out: Mapping[str, tuple[str, ...]]
    kept: frozenset[str]
    """The names of held-out texts that are kept text: must not get worse."""
    warnings: tuple[str, ...] = ()


def training_text(
    tokenizer: Tokenizer,
    text: Mapping[str, Corpus],
    keep: Mapping[str, Corpus],
    held_out: Mapping[str, Corpus],
    read_options: ReadOptions | None,
) -> TrainingText:
    """The documents to train on and to score.

    A held-out text with the name of a kept text is kept text. Documents of a text without held-out text of its name are
    held out by their hash, as `adapt` does. What is held out of one text is not trained on as part of another.
    """
    options = read_options or LINES
    _require_other_files({**text, **keep}, held_out, options)
    _require_known_names(text, keep, held_out)
    held = {name: read_text(name, corpus, options) for name, corpus in held_out.items()}
    read = {name: read_text(name, corpus, options) for name, corpus in {**text, **keep}.items()}
    warnings = [
        warning for parts in (held, read) for name, part in parts.items() for warning in text_warnings(name, part)
    ]
    scored = {name: part.documents for name, part in held.items()}
    given, pieces, found = _all_lines(scored.values()), dict[str, set[str]](), dict[str, list[str]]()
    dropped = Counter[str]()
    for name, part in read.items():
        documents = [document for document in part.documents if given.isdisjoint(_lines(document))]
        dropped[name] = len(part.documents) - len(documents)
        found[name] = documents
        if documents and name not in held:
            found[name], scored[name] = _split(tokenizer, documents)
            pieces[name] = {piece for piece in scored[name] if len(piece.encode()) >= MIN_LINE_BYTES} - {*documents}
    for name, documents in found.items():  # after all are split
        lines = _all_lines(parts for other, parts in scored.items() if other != name)
        left = [document for document in documents if lines.isdisjoint(_lines(document))]
        dropped[name] += len(documents) - len(left)
        found[name] = _without(left, sorted(set[str]().union(*(pieces[other] for other in pieces if other != name))))
        if dropped[name]:
            warnings.append(f"{name}: {dropped[name]:,} documents are also held out, or have a line that is: left out")
    target, kept = ([document for name in names for document in found[name]] for names in (text, keep))
    for which, names, documents in (("text", text, target), ("keep", keep, kept)):
        if names and not any(document.strip() for document in documents):
            raise CorpusError(
                f"no text of {option(which)} is left to train on, without what is held out",
                hint=f"pass more text to {option(which)}, with several documents",
            )
    return TrainingText(tuple(target), tuple(kept), scored, frozenset(scored) & frozenset(keep), tuple(warnings))


def _all_lines(texts: Iterable[Iterable[str]]) -> set[str]:
    return {line for documents in texts for document in documents for line in _lines(document)}


def _lines(document: str) -> Iterator[str]:
    """What two documents have in common if one is a part of the other: they themselves, and their longer lines."""
    yield document.strip()
    yield from (line.strip() for line in document.splitlines() if len(line.encode()) >= MIN_LINE_BYTES)


def _require_known_names(text: Iterable[str], keep: Iterable[str], held_out: Iterable[str]) -> None:
    """Refuses held-out text with the name of no text: whether it must not get worse would not be known."""
    known = [*text, *keep]
    if unknown := [name for name in held_out if name not in known]:
        name, flag = unknown[0], option("held_out")
        raise OptionError(
            f"{flag} has a text {name!r}, and the texts of {option('text')} and {option('keep')} are "
            f"{', '.join(map(repr, known))}: a held-out text has the name of one of them",
            hint=f"pass {' or '.join(f'{flag} {one}=FILES' for one in known)}, or name the text that it belongs to: "
            f"{option('text')} {name}=FILES or {option('keep')} {name}=FILES",
        )


def _require_other_files(texts: Mapping[str, Corpus], held_out: Mapping[str, Corpus], options: ReadOptions) -> None:
    scored = {path: name for name, corpus in held_out.items() for path in local_files(corpus, options)}
    read = {path for corpus in texts.values() for path in local_files(corpus, options)}
    if both := sorted(path for path in read if path in scored):
        raise OptionError(
            f"`{both[0]}` is read for training and is the held-out text {scored[both[0]]!r}: a model would be scored "
            "on what it was trained on",
            hint=f"pass other text to {option('held_out')}, or leave it out: then documents are held out",
        )


def _split(tokenizer: Tokenizer, documents: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The documents without those that are held out, and these."""
    n_bytes = sum(len(document.encode()) for document in documents)
    hold_out = HoldOut(one_in=50 if n_bytes >= HELD_OUT_BYTES[1] else 10, max_bytes=HELD_OUT_BYTES[1])
    held = count_with_hold_out(
        tokenizer, iter(documents), read_options=LINES, count_options=CountOptions(), hold_out=hold_out
    ).held_out
    return _without(documents, held), held


def _without(documents: Sequence[str], held: Sequence[str]) -> list[str]:
    """The documents without those that are held out, and long ones without the pieces that are."""
    whole = frozenset(held)
    rest = list[str]()
    for document in documents:
        parts = [] if document in whole else [document]
        if len(document) > PIECE_BYTES // 4 and len(document.encode()) > PIECE_BYTES:
            for piece in held:
                if piece in document:
                    parts = [part for text in parts for part in text.split(piece) if part.strip()]
        rest += parts
    return rest


def sample(documents: Sequence[str], max_bytes: int) -> tuple[str, ...]:
    """Every n-th document, so that they have at most ``max_bytes`` bytes, and at least one document.

    >>> sample(["aaaa", "bb", "cc", "dddd"], 7)
    ('aaaa', 'cc')
    """
    for step in numbers(1):
        chosen = tuple(documents[::step])
        if len(chosen) <= 1 or sum(len(document.encode()) for document in chosen) <= max_bytes:
            return chosen if len(chosen) > 1 else tuple(next(chunks([text], max(max_bytes, 16))) for text in chosen)
    raise AssertionError


def mix(
    text: Sequence[str], keep: Sequence[str] = (), *, share: float = 0.1, passes: float = 1, seed: int = 0
) -> Iterator[str]:
    """The documents of a training run, in random order: ``keep`` has a share of the bytes, whatever the sizes.

    Every pass reads all of ``text`` in another order. Kept text is read on where the last pass ended, and again from
    its beginning if it is too short. It is cut where needed, so that the share is right for few and long documents too.

    Examples:
        >>> sorted(mix(["text"] * 40, ["a kept document, which is cut"], share=0.1))[:2]
        ['a kept document,', 'text']
    """
    sizes = np.array([len(document.encode()) for document in text])
    total = float(sizes.sum())
    wanted = total * share / (1 - share) if len(keep) else 0.0
    kept, read, left = _endless([*chunks(keep, PIECE_BYTES)], seed), 0.0, ""
    for number in range(int(np.ceil(passes))):
        random = np.random.default_rng([seed, number])
        order = random.permutation(len(text))
        if (rest := passes - number) < 1:
            order = order[: int(np.searchsorted(np.cumsum(sizes[order]), rest * total)) + 1]
        documents = [text[place] for place in order]
        due = wanted * min(passes, number + 1)
        while due - read >= SMALLEST_PIECE:
            piece, *others = chunks([left or next(kept)], max(SMALLEST_PIECE, int(due - read)))
            left = "".join(others)
            read += len(piece.encode())
            documents.append(piece)
        yield from (documents[place] for place in random.permutation(len(documents)))


def _endless(pieces: Sequence[str], seed: int) -> Iterator[str]:
    for number in numbers():
        yield from (pieces[place] for place in np.random.default_rng([seed, number, 1]).permutation(len(pieces)))


def packed(
    tokenizer: Tokenizer, documents: Iterable[str], start: Sequence[int], max_bytes: int | None
) -> tuple[Ids, int]:
    """The ids of documents, one after the other, with the start tokens before each; and the bytes of the documents."""
    segmenter, parts, total = Segmenter(tokenizer), list[npt.NDArray[np.int32]](), 0
    for batch in batches(documents):
        segments = segmenter.segment(batch)
        places = np.repeat(segments.starts[:-1], len(start))
        parts.append(np.insert(segments.ids.astype(np.int32), places, np.tile(np.array(start, np.int32), len(batch))))
        total += sum(len(document.encode()) for document in batch)
        if max_bytes is not None and total >= max_bytes:
            break
    ids = np.concatenate([*parts, np.zeros(0, np.int32)]).astype(np.int32)
    if max_bytes is not None and total > max_bytes:
        ids, total = ids[: len(ids) * max_bytes // total], max_bytes
    return ids, total


def old_tokens(ids: Ids, new: Sequence[int], pieces: Sequence[int]) -> int:
    """The tokens that the old tokenizer needs for the text of some ids.

    >>> old_tokens(np.array([0, 5, 5], np.int32), [5], [3])
    7
    """
    if not len(ids) or not pieces:
        return len(ids)
    table = np.ones(max(int(ids.max()), *new) + 1, np.int64)
    table[[*new]] = [max(1, n) for n in pieces]
    return int(table[ids].sum())
