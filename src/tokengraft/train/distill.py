"""`distill`: learns the rows of new tokens from what the same model makes of their pieces (Token Distillation).

After Dobler et al., "Token Distillation: Attention-aware Input Embeddings for New Tokens" (2025). The model is frozen.
It reads a snippet twice: as the old tokenizer splits it, with the old rows (teacher), and as the new one does
(student). Wherever both have read the same bytes, the hidden states of the student should be those of the teacher.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.arguments import checked
from tokengraft.checkpoint.layout import Checkpoint, Vocabulary, find_vocabulary, open_checkpoint
from tokengraft.checkpoint.model_files import written_before
from tokengraft.checkpoint.tensors import ITEM_BYTES, RowReader
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.read import documents
from tokengraft.errors import CheckpointError, CorpusError, OptionError, Progress, require_positive
from tokengraft.evaluate.segments import LINES
from tokengraft.formats.files import load_folder
from tokengraft.log import stage
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.plan import plan
from tokengraft.representation import shown
from tokengraft.train.distill_result import Distillation
from tokengraft.train.learn_rows import LearningOptions, RowLearner
from tokengraft.train.models import (
    Device,
    Dtype,
    Hardware,
    free_memory,
    hardware,
    load_model,
    require_context,
    running,
    start_ids,
)
from tokengraft.train.row_model import RowModel, Teacher
from tokengraft.train.same_model import require_transplant
from tokengraft.train.snippets import Selection, Snippet, SnippetOptions, select_snippets
from tokengraft.train.write_rows import remove_work, write_with_rows

SAVE_SECONDS = 60.0
HINT = "check that transformers runs it, or pass a smaller --step-snippets if memory ran out"
HELD_OUT_EVERY, MOST_HELD_OUT = 20, 256
"""One snippet of this many is not learned from, but no more than that."""
LAYER_SECONDS = 0.005
"""To start the kernels of one layer in one step, for teacher and student, forwards and backwards (on an H200)."""


@shown
@checked
@dataclass(frozen=True)
class DistillOptions:
    """How rows are learned."""

    snippets: int = 25
    """Snippets to find for each new token. One snippet often serves several."""
    min_snippets: int = 5
    """Tokens with fewer snippets keep their rows."""
    snippet_bytes: int = 240
    max_bytes: int = 50_000_000
    """Text to search for snippets at most."""
    passes: int = 2
    """How often the snippets are read."""
    step_snippets: int = 32
    """Snippets of one step. Fewer if the logits would need too much memory."""
    learning_rate: float = 0.05
    """The highest, in units of the root mean square of the embedding, so that it suits any model."""
    next_token_weight: float = 1.0
    """The weight of the loss of the next token. At 1 its gradient is as large as that of the hidden states; 0 leaves it
    out, and rows of an untied output then stay as they are."""
    layer: int = -1
    """The layer whose hidden states are compared: -1 is the last, 1 the first."""
    seed: int = 0
    device: Device = "auto"
    dtype: Dtype = "auto"

    def __post_init__(self) -> None:
        for name in ("snippets", "min_snippets", "max_bytes", "passes", "step_snippets"):
            require_positive(name, getattr(self, name))
        if self.min_snippets > self.snippets:
            raise OptionError(
                f"--min-snippets is {self.min_snippets} and --snippets {self.snippets}: no token would be learned",
                hint="pass --min-snippets of at most --snippets",
            )
        if self.snippet_bytes < 16:
            raise OptionError(f"--snippet-bytes is {self.snippet_bytes}", hint="pass 16 or more")
        if not 0 < self.learning_rate <= 10:
            raise OptionError(f"--learning-rate is {self.learning_rate}", hint="pass a number such as 0.05")
        if not 0 <= self.next_token_weight < 1e6:
            raise OptionError(f"--next-token-weight is {self.next_token_weight}", hint="pass 0 or more, such as 1")
        if self.seed < 0:
            raise OptionError(f"--seed is {self.seed}; it must be 0 or more", hint="pass --seed 0")


@checked
@stage("learning rows by distillation")
def distill(
    base: str | os.PathLike[str],
    adapted: str | os.PathLike[str],
    corpus: Corpus,
    out: str | os.PathLike[str] | None,
    *,
    options: DistillOptions | None = None,
    read_options: ReadOptions | None = None,
    force: bool = False,
    on_plan: Callable[[Distillation], object] | None = None,
    progress: Progress | None = None,
) -> Distillation:
    """Learns the rows of new tokens so that the model makes the same of a token as of its pieces.

    Only the rows of new tokens with enough snippets change; every other byte of the weights is copied. Where the output
    is tied, the shared row is also learned to be predicted; an untied output has rows of its own, which are learned by
    that loss alone. An interrupted run goes on when it is called again with the same arguments. On a CPU, equal
    arguments give equal rows.

    Args:
        base: The model before its vocabulary was changed.
        adapted: The model after it, not trained: the output of `transplant` or `adapt`.
        corpus: Text to find snippets in: whatever `count` reads.
        out: The folder to write. None is a dry run: snippets are searched, and memory and time are estimated.
        options: How rows are learned.
        read_options: How to read the text; by default text files have one document per line.
        force: Replace a folder that tokengraft wrote.
        on_plan: Called before learning starts, with what will be done, and estimates of memory and time.
        progress: Called with the snippets that were read.

    Raises:
        OptionError: An option has an invalid value, or torch is not installed.
        CorpusError: The text cannot be read, or has no new token often enough.
        SourceNotFoundError: A folder is not a checkpoint.
        CheckpointError: The two models are not the same but for their vocabulary, or cannot be run.
        OutputError: The folder exists or cannot be written.
    """
    options = options or DistillOptions()
    where = hardware(options.device, options.dtype)
    if out is not None:
        ours = written_before(Path(out))
        require_new(Path(out), force=force, replaceable=lambda path: path.as_posix() in ours)
        require_distinct([base, adapted], out)
    pair = _Pair.open(Path(base), Path(adapted))
    found = _select(pair, corpus, options, read_options or LINES)
    planned = _planned(pair, found, options, where)
    if out is None:
        return planned
    if on_plan:
        on_plan(planned)
    return _Run(pair, found, options, where, progress).write(Path(out), planned, force=force)


@dataclass(frozen=True)
class _Pair:
    """Both models, with their tables."""

    base: Checkpoint
    adapted: Checkpoint
    base_tables: Vocabulary
    tables: Vocabulary
    new: tuple[int, ...]
    """The ids of new tokens."""

    @classmethod
    def open(cls, base: Path, adapted: Path) -> "_Pair":
        old, new = open_checkpoint(base), open_checkpoint(adapted)
        tables = find_vocabulary(old), find_vocabulary(new)
        further = next((t.info.name for part in tables for t in part.tensors if t.further), None)
        if further is not None:
            raise CheckpointError(
                f"the model has another table of tokens, `{further}`, which cannot be distilled",
                hint="use an initialiser: `tokengraft transplant --init`",
            )
        sources = plan(load_folder(base), load_folder(adapted)).sources
        require_transplant(old, new, tables, sources)
        ids = tuple(row for row, source in enumerate(sources) if isinstance(source, tuple))
        if not ids:
            raise CheckpointError(
                f"`{adapted}` has no token that `{base}` lacks", hint="pass the model before and after the adaptation"
            )
        return cls(old, new, *tables, ids)

    def teacher(self) -> Teacher:
        """The embedding of the base, as a tensor, and its start token."""
        import torch

        tensor = next(t for t in self.base_tables.tensors if t.role == "input")
        with tensor.file.path.open("rb", buffering=0) as stream:
            table = RowReader(stream, tensor.info).values(np.arange(tensor.info.shape[0]))
        return Teacher(torch.from_numpy(table), start_ids(self.base, load_folder(self.base.folder)))


@dataclass(frozen=True)
class _Found:
    """The snippets, the ids that are learned, and which are held out."""

    ids: tuple[int, ...]
    learned: tuple[Snippet, ...]
    held_out: tuple[Snippet, ...]

    @property
    def snippets(self) -> tuple[Snippet, ...]:
        return (*self.learned, *self.held_out)


def _select(pair: _Pair, corpus: Corpus, options: DistillOptions, read_options: ReadOptions) -> _Found:
    old, new = load_folder(pair.base.folder), load_folder(pair.adapted.folder)
    wanted = SnippetOptions(options.snippets, options.snippet_bytes, options.max_bytes)
    selection: Selection = select_snippets(documents(corpus, read_options), old, new, pair.new, wanted)
    learned, held_out = _split(selection.snippets)
    read = {token_id for snippet in learned for token_id in snippet.new.tolist()}
    ids = tuple(sorted(i for i, times in selection.counts.items() if times >= options.min_snippets and i in read))
    if not ids:
        raise CorpusError(
            f"no new token has {options.min_snippets} snippets in the text",
            hint="give text in the language of the new tokens, more of it, or a lower --min-snippets",
        )
    return _Found(ids, learned, held_out)


def _split(every: tuple[Snippet, ...]) -> tuple[tuple[Snippet, ...], tuple[Snippet, ...]]:
    """The snippets that are learned from, and those that are held out. Few snippets are used for both."""
    if len(every) < HELD_OUT_EVERY:
        return every, every
    places = set(range(0, len(every), max(HELD_OUT_EVERY, -(-len(every) // MOST_HELD_OUT))))
    learned = tuple(snippet for place, snippet in enumerate(every) if place not in places)
    return learned, tuple(every[place] for place in sorted(places))


def _step_snippets(found: _Found, rows: int, options: DistillOptions, where: Hardware) -> int:
    """Snippets of a step: as many as asked for, if their logits fit."""
    longest = max(len(snippet.new) for snippet in found.snippets) + 1
    return max(1, min(options.step_snippets, where.max_logits // (rows * longest)))


def _planned(pair: _Pair, found: _Found, options: DistillOptions, where: Hardware) -> Distillation:
    """What will be done, with memory and time."""
    per_step = _step_snippets(found, pair.tables.rows, options, where)
    steps = -(-len(found.learned) // per_step) * options.passes
    old = sum(len(snippet.old) for snippet in found.snippets)
    new = sum(len(snippet.new) for snippet in found.snippets)
    table = next(t.info for t in pair.tables.tensors if t.role == "input")
    numbers = sum(t.size // ITEM_BYTES.get(t.dtype, 2) for file in pair.adapted.files for t in file.tensors.values())
    in_table = table.size // ITEM_BYTES[table.dtype]
    item = 2 if where.dtype == "bfloat16" else 4
    longest = max(len(snippet.new) for snippet in found.snippets) + 1
    # Weights, the old table, the new one with its gradient; logits and their gradient; rows and their statistics.
    memory = item * (numbers + 4 * in_table) + 12 * per_step * longest * pair.tables.rows
    memory += 16 * len(found.ids) * in_table // pair.tables.rows
    # The teacher is run forwards, the student also backwards, but without gradients of the weights of the body.
    body = numbers - in_table * (1 if pair.tables.tied else 2)
    flops = options.passes * (2 * body * old + (4 * body + 6 * in_table) * new)
    return Distillation(
        learned=len(found.ids),
        rare=len(pair.new) - len(found.ids),
        snippets=len(found.snippets),
        steps=steps,
        old_tokens=old,
        new_tokens=new,
        memory=memory,
        seconds=_seconds(flops / _speed(where), steps, pair.adapted.text_config.get("num_hidden_layers"), where),
        device=where.device,
    )


def _seconds(computing: float, steps: int, layers: Any, where: Hardware) -> float:
    """The time that learning takes: that of computing, and on a GPU at least that of starting all kernels."""
    starting = LAYER_SECONDS * steps * layers if where.on_gpu and isinstance(layers, int) else 0.0
    return max(computing, starting)


def _speed(where: Hardware) -> float:
    """Floating point operations per second that a model reaches: about half of those of a large product."""
    import torch

    size = 4096 if where.on_gpu else 512
    matrix = torch.ones(size, size, dtype=getattr(torch, where.dtype), device=where.device)
    _ = matrix @ matrix
    times = []
    for _ in range(3):
        start = time.perf_counter()
        float((matrix @ matrix)[0, 0])
        times.append(time.perf_counter() - start)
    return float(size**3 / min(times))


@dataclass(frozen=True)
class _Run:
    pair: _Pair
    found: _Found
    options: DistillOptions
    where: Hardware
    progress: Progress | None

    def write(self, out: Path, planned: Distillation, *, force: bool) -> Distillation:
        """Learns the rows and writes the folder."""
        whole = out.resolve()
        work = whole.with_name(whole.name + ".work")
        learner = self._learner(_step_snippets(self.found, self.pair.tables.rows, self.options, self.where))
        per_batch = learner.options.step_snippets
        with running("distilled", HINT):
            learner.measure_variance(self.found.held_out, per_batch)
            before = learner.score(self.found.held_out, per_batch)
        learner.resume(work / "distill.pt", self._key())
        self._learn(learner, work / "distill.pt")
        after = learner.score(self.found.held_out, per_batch)
        done = replace(
            planned,
            hidden_before=before[0],
            hidden_after=after[0],
            next_token_before=before[1],
            next_token_after=after[1],
        )
        rows = [adam.rows.detach().float().cpu().numpy() for adam in learner.adams]
        _require_finite(rows)
        summary = done.as_dict() | {"options": asdict(self.options)}
        write_with_rows(self.pair.adapted.folder, out, self.pair.tables, self.found.ids, rows, summary, force=force)
        remove_work(work)
        del learner
        free_memory()
        return done

    def _learner(self, per_step: int) -> RowLearner:
        options = self.options
        loaded = load_model(self.pair.adapted.folder, self.where)
        longest = max(max(len(snippet.old), len(snippet.new)) for snippet in self.found.snippets)
        require_context(loaded, longest, "the model", "--snippet-bytes")
        layers = loaded.model.config.get_text_config().num_hidden_layers
        if not (-layers <= options.layer <= -1 or 1 <= options.layer <= layers):
            raise OptionError(f"--layer is {options.layer}", hint=f"pass 1 to {layers}, or -1 for the last")
        model = RowModel(loaded, self.pair.teacher(), self.found.ids, options.layer)
        learning = LearningOptions(
            options.passes, per_step, options.learning_rate, options.next_token_weight, options.seed
        )
        return RowLearner(model, self.found.learned, learning)

    def _learn(self, learner: RowLearner, state: Path) -> None:
        total = len(self.found.learned) * self.options.passes
        if self.progress and learner.done:
            self.progress("resumed", min(learner.done * learner.options.step_snippets, total), total)
        saved = time.monotonic()
        while learner.done < learner.steps:
            with running("distilled", HINT):
                n = learner.step()
            if self.progress:
                self.progress(f"step {learner.done:,} of {learner.steps:,}", n, total)
            if time.monotonic() - saved >= SAVE_SECONDS:
                learner.save(state, self._key())
                saved = time.monotonic()

    def _key(self) -> str:
        """A hash of everything that decides the rows."""
        digest = sha256(json.dumps([asdict(self.options), asdict(self.where), self.found.ids]).encode())
        for file in (*self.pair.base.files, *self.pair.adapted.files):
            status = file.path.stat()
            digest.update(f"{file.path.name} {status.st_size} {status.st_mtime_ns}".encode())
        for snippet in self.found.learned:
            digest.update(snippet.old.tobytes() + snippet.new.tobytes())
        return digest.hexdigest()


def _require_finite(rows: list[Any]) -> None:
    if not all(np.isfinite(part).all() for part in rows):
        raise CheckpointError(
            "learning gave rows that are not numbers", hint="pass a lower --learning-rate, or --dtype float32"
        )
