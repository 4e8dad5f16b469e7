"""`probe`: bits per byte of models on texts, before and after a short training. `Probe`: data, table and JSON."""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from tokengraft.corpus.open import Corpus, local_files
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.read import documents
from tokengraft.counts.count import count
from tokengraft.errors import CorpusError, OptionError, Progress, number, positive, require_type, seed, whole_number
from tokengraft.formats.sources import load_folder
from tokengraft.measure.metrics import new_tokens
from tokengraft.measure.segments import LINES, Text, lost_bytes, read_text, text_warnings
from tokengraft.progress import stage
from tokengraft.representation import FrozenDict, Table, aligned, sentences, set_fields, short, shown
from tokengraft.tokenizer.tokenizer import Tokenizer
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
from tokengraft.train.score import (
    CHUNK_BYTES,
    TrainingPlan,
    bits,
    chunks,
    ids_of,
    sequences,
    steps_of,
    train_briefly,
)


@shown
@dataclass(frozen=True)
class ProbeScore:
    """The bits that one model needs for one text."""

    model: str
    text: str
    steps: int
    """Steps of training before it was scored."""
    bytes: int
    """Of the text: the same for every model."""
    tokens: int
    bits: float
    new_bytes: int
    """Bytes of the tokens that the base lacks."""
    new_tokens: int
    new_bits: float

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all tokens."""
        return self.bits / self.bytes

    @property
    def new_bits_per_byte(self) -> float | None:
        """Bits per byte of the tokens that the base lacks; None if the text has none."""
        return self.new_bits / self.new_bytes if self.new_bytes else None

    @property
    def kept_bits_per_byte(self) -> float | None:
        """Bits per byte of the tokens that the base has too; None if the text has none."""
        kept = self.bytes - self.new_bytes
        return (self.bits - self.new_bits) / kept if kept > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        rates = ("bits_per_byte", "new_bits_per_byte", "kept_bits_per_byte")
        return asdict(self) | {name: getattr(self, name) for name in rates}


@shown
@dataclass(frozen=True)
class Probe:
    """Scores of every model on every text: the models in the order given, before training and after it.

    ``print`` shows them as a table.
    """

    scores: tuple[ProbeScore, ...]
    base: str
    """The model that the others are compared with: the first."""
    settings: Mapping[str, Any]
    """How the models were scored and trained."""
    warnings: tuple[str, ...] = ()

    def __getitem__(self, key: tuple[str, str, int]) -> ProbeScore:
        """The score of (model, text, steps)."""
        known = {(score.model, score.text, score.steps): score for score in self.scores}
        if key not in known:
            raise OptionError(f"there is no score of {key}", hint=f"choose one of {short(list(known), 200)}")
        return known[key]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "base": self.base,
            "settings": dict(self.settings),
            "scores": [score.as_dict() for score in self.scores],
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """The scores as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: one row for each model, text and number of steps."""
        heads = ["model", "text", "steps", "bits/byte", "against base", "new tokens", "new", "kept", "bytes/token"]
        return heads, [self._row(score) for score in self.scores]

    def _row(self, score: ProbeScore) -> list[str]:
        base = self[self.base, score.text, score.steps].bits_per_byte
        change = f"{score.bits_per_byte / base - 1:+.1%}" if score.model != self.base and base else ""
        share = f"{score.new_bytes / score.bytes:.1%}" if score.new_bytes else ""
        rates = ["" if r is None else f"{r:.3f}" for r in (score.new_bits_per_byte, score.kept_bits_per_byte)]
        per_token = f"{score.bytes / score.tokens:.2f}"
        names = [score.model, score.text, str(score.steps)]
        return [*names, f"{score.bits_per_byte:.3f}", change, share, *rates, per_token]

    def _facts(self) -> dict[str, Any]:
        return {"base": self.base} | dict(self.settings)

    def _tables(self) -> Iterator[Table]:
        heads, rows = self.table()
        yield Table("scores", tuple(heads), rows, len(rows))
        yield from sentences("warnings", self.warnings)

    def __str__(self) -> str:
        return "\n".join([*aligned(*self.table()), *(f"warning: {warning}" for warning in self.warnings)])


Models = Mapping[str, str | os.PathLike[str]]
MIN_CHUNK_BYTES = 16
MIN_LINE_BYTES = 40
"""A line that is at least this long and both scored and in a training document is no coincidence."""
READ_AHEAD = 4
"""The training text is read until it has this many times the bytes that are needed, then it is shuffled."""


@shown
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
        set_fields(self, positive, "steps", "step_bytes")
        set_fields(self, whole_number, "chunk_bytes")
        set_fields(self, seed, "seed")
        set_fields(self, number, "learning_rate")
        if self.chunk_bytes < MIN_CHUNK_BYTES:
            raise OptionError(f"--chunk-bytes is {self.chunk_bytes}", hint=f"pass {MIN_CHUNK_BYTES} or more")
        if not 0 < self.learning_rate < 1:
            raise OptionError(
                f"--learning-rate is {self.learning_rate}; it must be above 0 and below 1", hint="pass 3e-4"
            )


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
    require_type("options", options, ProbeOptions, NoneType)
    require_type("models", models, Mapping, hint="pass folders by name: {'base': 'model'}")
    require_type("texts", texts, Mapping, hint="pass texts by name: {'et': 'et.txt'}")
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
    scored = sum(len(chunk.encode()) for text in parts.values() for chunk in text)
    total = len(models) * (2 * scored + plan.n_bytes if plan else scored)

    def report(what: str, n_bytes: int) -> None:
        if progress:
            progress(what, n_bytes, total)

    job = _Job(parts, plan, next(iter(tokenizers.values())), where, report)
    scores = tuple(score for name, folder in models.items() for score in job.scores(name, folder))
    warnings = [warning for name, text in read.items() for warning in text_warnings(name, text)]
    warnings += _lost(tokenizers, read)
    if dropped:
        warnings.append(
            f"{dropped:,} documents of the training text are also scored, or have a line that is; they were left out"
        )
    return Probe(scores, next(iter(models)), FrozenDict(_settings(options, where, plan)), tuple(warnings))


def _settings(options: ProbeOptions, where: Hardware, plan: TrainingPlan | None) -> dict[str, Any]:
    training = ("steps", "step_bytes", "learning_rate", "seed")
    given = {name: value for name, value in asdict(options).items() if plan or name not in training}
    return given | asdict(where) | ({"training_bytes": plan.n_bytes} if plan else {})


@dataclass(frozen=True)
class _Job:
    """What is the same for all models."""

    texts: Mapping[str, tuple[str, ...]]
    plan: TrainingPlan | None
    base: Tokenizer
    where: Hardware
    report: Callable[[str, int], None]

    def scores(self, name: str, folder: str | os.PathLike[str]) -> Iterator[ProbeScore]:
        """The scores of one model, which is in memory only for this."""
        # Small steps would be lost in 16 bits, so weights are trained in 32.
        loaded = load_model(folder, self.where, dtype="float32" if self.plan else None)
        for step in self.plan.steps if self.plan else ():
            require_context(loaded, ids_of(loaded.tokenizer, step), name)
        yield from self._scored(name, loaded, 0)
        if self.plan:
            train_briefly(loaded, self.plan, lambda n_bytes: self.report(f"training {name}", n_bytes))
            yield from self._scored(name, loaded, len(self.plan.steps))
        del loaded
        free_memory()

    def _scored(self, name: str, loaded: LoadedModel, steps: int) -> Iterator[ProbeScore]:
        new = new_tokens(loaded.tokenizer, self.base)
        for text, parts in self.texts.items():
            encoded = sequences(loaded.tokenizer, parts)
            require_context(loaded, encoded.ids, name)
            rate = encoded.text_bytes / max(encoded.n_tokens, 1)
            every, ours = bits(loaded, encoded, new, lambda n, text=text, rate=rate: self.report(text, round(n * rate)))
            yield ProbeScore(
                name, text, steps, every.bytes, every.tokens, every.bits, ours.bytes, ours.tokens, ours.bits
            )


def _training(
    train: Corpus, texts: Mapping[str, Text], options: ProbeOptions, read_options: ReadOptions
) -> tuple[TrainingPlan, int]:
    """The chunks of every step, and how many documents were left out because they are scored."""
    scored = {line for text in texts.values() for document in text.documents for line in _lines(document)}
    needed = options.steps * options.step_bytes * READ_AHEAD
    parts, n_bytes, dropped = list[str](), 0, 0

    def unscored() -> Iterator[str]:
        nonlocal dropped
        for document in documents(train, read_options):
            if scored.isdisjoint(_lines(document)):
                yield document
            else:
                dropped += 1

    for part in chunks(unscored(), options.chunk_bytes):
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
    return TrainingPlan(steps, options.learning_rate), dropped


def _lines(document: str) -> Iterator[str]:
    """What two documents have in common if one is a part of the other: they themselves, and their longer lines."""
    yield document.strip()
    yield from (line.strip() for line in document.splitlines() if len(line.encode()) >= MIN_LINE_BYTES)


def _require_other_files(texts: Mapping[str, Corpus], train: Corpus, read_options: ReadOptions) -> None:
    scored = {path: name for name, corpus in texts.items() for path in local_files(corpus, read_options)}
    both = next((path for path in sorted(local_files(train, read_options)) if path in scored), None)
    if both is not None:
        raise OptionError(
            f"`{both}` is read for training and is the text {scored[both]!r}: a model would be scored on what it was "
            "trained on",
            hint="pass held-out text to --text, or other text to --train",
        )


def _lost(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, Text]) -> Iterator[str]:
    unspelled = ((name, tokenizer) for name, tokenizer in tokenizers.items() if not tokenizer.spells_everything)
    for name, tokenizer in unspelled:
        for text in texts.values():
            if lost := lost_bytes(count(tokenizer, iter(text.documents)).lost(tokenizer)):
                yield (
                    f"{name} drops {lost:,} of the {text.n_bytes:,} bytes of {text.name} or replaces them by its "
                    "unknown token, so it needs fewer bits for them than it should"
                )
