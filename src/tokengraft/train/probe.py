"""`probe`: bits per byte of models on texts, before training and after a short one."""

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokengraft.arguments import checked
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.read import documents
from tokengraft.errors import CorpusError, OptionError, Progress, require_positive
from tokengraft.evaluate.documents import token_names
from tokengraft.evaluate.segments import LINES, Text, lost_bytes, lost_characters, read_text, text_warnings
from tokengraft.formats.files import load_folder
from tokengraft.frozen import FrozenDict
from tokengraft.log import stage
from tokengraft.representation import shown
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.train.chunks import CHUNK_BYTES, chunks, steps_of
from tokengraft.train.models import (
    Device,
    Dtype,
    Hardware,
    LoadedModel,
    free_memory,
    hardware,
    load_model,
    require_context,
)
from tokengraft.train.probe_result import Probe, ProbeScore
from tokengraft.train.score import bits
from tokengraft.train.sequences import ids_of, sequences
from tokengraft.train.short_training import TrainingPlan, train_briefly

Models = Mapping[str, str | os.PathLike[str]]
MIN_CHUNK_BYTES = 16
MIN_LINE_BYTES = 40
"""A line that is at least this long and both scored and in a training document is no coincidence."""
READ_AHEAD = 4
"""The training text is read until it has this many times the bytes that are needed, then it is shuffled."""


@shown
@checked
@dataclass(frozen=True)
class ProbeOptions:
    """How models are scored and trained."""

    steps: int = 50
    """Steps of the short training. Without text to train on there is none."""
    step_bytes: int = 1 << 15
    """Bytes of text of each step: chunks of the training text until they are this long."""
    learning_rate: float = 3e-4
    """The highest. It rises over the first tenth of the steps, then falls to 0."""
    chunk_bytes: int = CHUNK_BYTES
    """Documents are cut into chunks of at most this many bytes, which are read one by one."""
    seed: int = 0
    """Decides the order of the training text."""
    device: Device = "auto"
    dtype: Dtype = "auto"
    """The type to compute in: by default bfloat16 on a GPU and float32 on a CPU."""

    def __post_init__(self) -> None:
        for name in ("steps", "step_bytes"):
            require_positive(name, getattr(self, name))
        if self.chunk_bytes < MIN_CHUNK_BYTES:
            raise OptionError(f"--chunk-bytes is {self.chunk_bytes}", hint=f"pass {MIN_CHUNK_BYTES} or more")
        if not 0 < self.learning_rate < 1:
            raise OptionError(
                f"--learning-rate is {self.learning_rate}; it must be above 0 and below 1", hint="pass 3e-4"
            )
        if self.seed < 0:
            raise OptionError(f"--seed is {self.seed}; it must be 0 or more", hint="pass --seed 0")


@checked
@stage("probing models")
def probe(
    models: Models,
    texts: Mapping[str, Corpus],
    *,
    train: Corpus | None = None,
    options: ProbeOptions | None = None,
    read_options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> Probe:
    """Bits per byte of every model on every text, before training and, given text to train on, after a short one.

    Bits per byte can be compared across vocabularies; loss per token cannot. All models read the same chunks, and are
    trained on the same ones in the same order, so that each step has the same bytes for each of them. Before every
    chunk they read their start token, so that no byte is left out. One model is in memory at a time. On a CPU, equal
    arguments give equal numbers.

    Args:
        models: Folders with weights, by name. The others are compared with the first, and tokens that it lacks are new.
        texts: Held-out text by name: whatever `count` reads.
        train: Text for the short training. Documents that are also in ``texts``, or share a line of 40 bytes or
            more with them, are left out of it.
        options: Steps, learning rate, device and more.
        read_options: How to read the texts; by default text files have one document per line.
        progress: Called with the bytes of text that were scored or trained on.

    Raises:
        OptionError: An option has an invalid value, the same file is read for training and for scoring, or torch is
            not installed.
        CorpusError: A text cannot be read, or is too short for the training.
        SourceNotFoundError: A folder is not a checkpoint.
        CheckpointError: A model cannot be loaded or run.
    """
    options = options or ProbeOptions()
    if not models or not texts:
        raise OptionError("no model or no text was given", hint="pass at least one of each, with a name")
    where = hardware(options.device, options.dtype)
    if train is not None:
        _require_other_files(texts, train, read_options or LINES)
    tokenizers = {name: load_folder(Path(folder)) for name, folder in models.items()}
    read = {name: read_text(name, source, read_options) for name, source in texts.items()}
    parts = {name: tuple(chunks(text.documents, options.chunk_bytes)) for name, text in read.items()}
    plan, dropped = (None, 0) if train is None else _training(train, read, options, read_options or LINES)
    total = len(models) * _work(parts, plan)
    job = _Job(parts, plan, next(iter(tokenizers.values())), where, _Reporter(progress, total))
    scores = tuple(score for name, folder in models.items() for score in job.scores(name, folder))
    warnings = [warning for name, text in read.items() for warning in text_warnings(name, text)]
    warnings += _lost(tokenizers, read)
    if dropped:
        warnings.append(
            f"{dropped:,} documents of the training text are also scored, or have a line that is; they were left out"
        )
    return Probe(scores, next(iter(models)), FrozenDict(_settings(options, where, plan)), tuple(warnings))


def _work(parts: Mapping[str, tuple[str, ...]], plan: TrainingPlan | None) -> int:
    """Bytes that one model reads."""
    scored = sum(len(chunk.encode()) for text in parts.values() for chunk in text)
    return scored if plan is None else 2 * scored + plan.n_bytes


def _settings(options: ProbeOptions, where: Hardware, plan: TrainingPlan | None) -> dict[str, Any]:
    training = ("steps", "step_bytes", "learning_rate", "seed")
    given = {name: value for name, value in asdict(options).items() if plan or name not in training}
    return given | asdict(where) | ({"training_bytes": plan.n_bytes} if plan else {})


@dataclass(frozen=True)
class _Reporter:
    progress: Progress | None
    total: int

    def __call__(self, what: str, n_bytes: int) -> None:
        if self.progress:
            self.progress(what, n_bytes, self.total)


@dataclass(frozen=True)
class _Job:
    """What is the same for all models."""

    texts: Mapping[str, tuple[str, ...]]
    plan: TrainingPlan | None
    base: Tokenizer
    where: Hardware
    report: _Reporter

    def scores(self, name: str, folder: str | os.PathLike[str]) -> Iterator[ProbeScore]:
        """The scores of one model, which is in memory only for this."""
        # Small steps would be lost in 16 bits, so weights are trained in 32.
        loaded = load_model(folder, self.where, dtype="float32" if self.plan else None)
        for step in self.plan.steps if self.plan else ():
            longest = max(map(len, ids_of(loaded.tokenizer, step)), default=0)
            require_context(loaded, longest, name, "--chunk-bytes")
        yield from self._scored(name, loaded, 0)
        if self.plan:
            train_briefly(loaded, self.plan, lambda n_bytes: self.report(f"training {name}", n_bytes))
            yield from self._scored(name, loaded, len(self.plan.steps))
        del loaded
        free_memory()

    def _scored(self, name: str, loaded: LoadedModel, steps: int) -> Iterator[ProbeScore]:
        names, known = token_names(loaded.tokenizer, self.base)
        held = {*known.values()}
        new = [token_id for token_id, token in names.items() if token not in held]
        for text, parts in self.texts.items():
            encoded = sequences(loaded.tokenizer, parts)
            require_context(loaded, max(map(len, encoded.ids), default=0), name, "--chunk-bytes")
            rate = encoded.text_bytes / max(encoded.n_tokens, 1)
            every, ours = bits(loaded, encoded, new, lambda n, text=text, rate=rate: self.report(text, round(n * rate)))
            yield ProbeScore(
                name, text, steps, every.bytes, every.tokens, every.bits, ours.bytes, ours.tokens, ours.bits
            )


def _training(
    train: Corpus, texts: Mapping[str, Text], options: ProbeOptions, read_options: ReadOptions
) -> tuple[TrainingPlan, int]:
    """The chunks of every step, and how many documents were left out because they are scored."""
    reader = _Unscored(
        train, {line for text in texts.values() for document in text.documents for line in _lines(document)}
    )
    needed = options.steps * options.step_bytes * READ_AHEAD
    parts, n_bytes = list[str](), 0
    for part in chunks(reader.documents(read_options), options.chunk_bytes):
        parts.append(part)
        n_bytes += len(part.encode())
        if n_bytes >= needed:
            break
    random.Random(options.seed).shuffle(parts)
    steps = tuple(map(tuple, steps_of(parts, options.step_bytes, options.steps)))
    if len(steps) < options.steps:
        raise CorpusError(
            f"the training text has {n_bytes:,} bytes, enough for {len(steps):,} of {options.steps:,} steps of "
            f"{options.step_bytes:,} bytes",
            hint=f"give more text, or pass --steps {max(len(steps), 1)} or a smaller --step-bytes",
        )
    return TrainingPlan(steps, options.learning_rate), reader.dropped


def _lines(document: str) -> Iterator[str]:
    """What two documents have in common if one is a part of the other: they themselves, and their longer lines."""
    yield document.strip()
    yield from (line.strip() for line in document.splitlines() if len(line.encode()) >= MIN_LINE_BYTES)


class _Unscored:
    """The documents of the training text without a line that is scored, and the number of the others."""

    def __init__(self, train: Corpus, scored: set[str]) -> None:
        self.train, self.scored, self.dropped = train, scored, 0

    def documents(self, read_options: ReadOptions) -> Iterator[str]:
        for document in documents(self.train, read_options):
            if not self.scored.isdisjoint(_lines(document)):
                self.dropped += 1
            else:
                yield document


def _require_other_files(texts: Mapping[str, Corpus], train: Corpus, read_options: ReadOptions) -> None:
    scored = {path: name for name, corpus in texts.items() for path in _files(corpus, read_options)}
    both = next((path for path in _files(train, read_options) if path in scored), None)
    if both is not None:
        raise OptionError(
            f"`{both}` is read for training and is the text {scored[both]!r}: a model would be scored on what it was "
            "trained on",
            hint="pass held-out text to --text, or other text to --train",
        )


def _files(corpus: Corpus, read_options: ReadOptions) -> Iterator[Path]:
    """The files of a corpus."""
    for source in open_corpus(corpus, read_options):
        if os.path.lexists(source.name):
            yield Path(source.name).resolve()


def _lost(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, Text]) -> Iterator[str]:
    for name, tokenizer in tokenizers.items():
        for text in texts.values():
            lost = lost_bytes(lost_characters(tokenizer, text.documents))
            if lost:
                yield (
                    f"{name} drops {lost:,} of the {text.n_bytes:,} bytes of {text.name} or replaces them by its "
                    "unknown token, so it needs fewer bits for them than it should"
                )
