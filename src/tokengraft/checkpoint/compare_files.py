"""`comparisons`: compares a written weight file with its source, byte by byte, in parts that can run in threads.

`compare_models`: runs both models on sequences of kept tokens and compares their logits. Needs torch and transformers.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokengraft.checkpoint.byte_ranges import PIECE, equal_bytes
from tokengraft.checkpoint.ids import CONFIG, read_config
from tokengraft.checkpoint.layout import class_with_encoder
from tokengraft.checkpoint.tensors import Ids, TensorFile, all_finite, long_runs, read_rows
from tokengraft.errors import CheckpointError, OptionError, option
from tokengraft.vocab_plan import VocabPlan

if TYPE_CHECKING:
    import torch


ROWS_BYTES = 1 << 20
"""Bytes of rows that are compared at a time, where they are not consecutive in the source."""
_KEPT = "a kept row of `{}` differs from the source"


class ByteComparison(NamedTuple):
    """How much was compared and equal."""

    kept_rows: int = 0
    """Copied rows of tables."""
    new_rows: int = 0
    """New rows, all with finite numbers."""
    untouched_tensors: int = 0
    untouched_bytes: int = 0

    @classmethod
    def total(cls, comparisons: Iterable["ByteComparison"]) -> "ByteComparison":
        """The sum of several comparisons."""
        return cls(*map(sum, zip(cls(), *comparisons, strict=True)))


class _Range(NamedTuple):
    """Bytes that must be equal in both files."""

    what: str
    old_start: int
    new_start: int
    size: int
    counted: ByteComparison


def comparisons(old: TensorFile, new: TensorFile, tables: Mapping[str, Ids]) -> Iterator[Callable[[], ByteComparison]]:
    """Comparisons that together cover a written file. Each opens the files itself.

    A difference where they must be equal is a `CheckpointError`: there is a bug, or the disk fails. ``tables`` are the
    tensors with a vocabulary axis: for every new row the old row that it copies, or -1 if it is new.
    """
    if list(new.tensors) != list(old.tensors):
        raise _damage(f"`{old.path.name}` has different tensors from the source")
    ranges: list[_Range] = []
    for name, tensor in old.tensors.items():
        written, copies = new.tensors[name], tables.get(name)
        wanted = tensor if copies is None else tensor.with_rows(len(copies))
        if (written.dtype, written.shape, written.size) != (wanted.dtype, wanted.shape, wanted.size):
            raise _damage(f"the tensor `{name}` has the shape {written.shape}, not {wanted.shape}, or a different type")
        if copies is None:
            what = f"the tensor `{name}` differs from the source"
            for at in range(0, max(tensor.size, 1), PIECE):
                size = min(PIECE, tensor.size - at)
                counted = ByteComparison(untouched_tensors=int(at == 0), untouched_bytes=size)
                ranges.append(_Range(what, tensor.start + at, written.start + at, size, counted))
            continue
        row, outside = tensor.row_bytes, np.ones(len(copies), bool)
        for begin, end in long_runs(copies):
            outside[begin:end] = False
            step = max(1, PIECE // row)
            for at in range(begin, end, step):
                n = min(step, end - at)
                starts = (tensor.start + int(copies[at]) * row, written.start + at * row)
                ranges.append(_Range(_KEPT.format(name), *starts, n * row, ByteComparison(kept_rows=n)))
        others, step = np.flatnonzero(outside), max(1, ROWS_BYTES // row)
        blocks = (others[at : at + step] for at in range(0, len(others), step))
        yield from (partial(_compare_rows, old, new, name, rows, copies[rows]) for rows in blocks)
    if old.path.samefile(new.path):  # a hard link
        yield partial(ByteComparison.total, [part.counted for part in ranges])
    else:
        yield from (partial(_compare_ranges, old, new, batch) for batch in _batches(ranges))


def _batches(ranges: list[_Range]) -> Iterator[list[_Range]]:
    """The ranges in groups of about `PIECE` bytes: a model can have a hundred thousand small tensors."""
    batch: list[_Range] = []
    size = 0
    for part in ranges:
        batch.append(part)
        size += part.size
        if size >= PIECE:
            yield batch
            batch, size = [], 0
    yield batch


def _compare_ranges(old: TensorFile, new: TensorFile, ranges: list[_Range]) -> ByteComparison:
    with old.path.open("rb", buffering=0) as before, new.path.open("rb", buffering=0) as after:
        for part in ranges:
            if not equal_bytes(before, part.old_start, after, part.new_start, part.size):
                raise _damage(part.what)
    return ByteComparison.total(part.counted for part in ranges)


def _compare_rows(old: TensorFile, new: TensorFile, name: str, rows: Ids, sources: Ids) -> ByteComparison:
    """Compares kept rows with their sources, and requires finite numbers in new rows."""
    kept = sources >= 0
    with old.path.open("rb", buffering=0) as before, new.path.open("rb", buffering=0) as after:
        written = read_rows(after, new.tensors[name], rows)
        source = read_rows(before, old.tensors[name], sources[kept])
    if not np.array_equal(written[kept], source):
        raise _damage(_KEPT.format(name))
    if not all_finite(written[~kept], new.tensors[name].dtype):
        raise CheckpointError(
            f"a new row of `{name}` has numbers that are not finite",
            hint=f"check the source for rows that are not finite, or pass another {option('init')}, or "
            f"{option('hole_rows', 'keep')}",
        )
    return ByteComparison(kept_rows=int(kept.sum()), new_rows=int((~kept).sum()))


def _damage(what: str) -> CheckpointError:
    return CheckpointError(f"after writing, {what}", hint="check the disk and try again; please report this")


SEQUENCES, LENGTH, GENERATED = 8, 24, 8
TOLERANCE = 1e-3
PROMPT = "The"


class Behaviour(NamedTuple):
    """The comparison of two models."""

    sequences: int
    worst: float
    """The largest difference of a logit of a kept token, relative to the largest logit; of models without logits, that
    of their output."""
    old_text: str
    new_text: str
    """The text that each model generates from the same prompt; empty for models with an encoder."""


def require_torch(hint: str = "") -> None:
    """Refuses to run models if torch or transformers is not installed."""
    try:
        import_module("torch")
        import_module("transformers")
    except ImportError as error:
        hint = hint or f"install them, or leave out {option('verify')}"
        raise OptionError(f"running models needs torch and transformers: {error}", hint=hint) from error


def compare_models(old: Path, new: Path, plan: VocabPlan) -> Behaviour:
    """The comparison of the logits of kept tokens, on sequences of kept tokens, in the old and the new model.

    Only one model is in memory at a time.
    """
    require_torch()
    kept = sorted(plan.moved)
    if not kept:
        raise CheckpointError(
            "no token is in both tokenizers: nothing to compare", hint=f"leave out {option('verify')}"
        )
    generator = random.Random(0)
    sequences = [generator.choices(kept, k=LENGTH) for _ in range(SEQUENCES)]
    before, old_text = _run(old, "the source", sequences, kept)
    moved = plan.moved
    after, new_text = _run(new, "the result", [[moved[i] for i in ids] for ids in sequences], [moved[i] for i in kept])
    worst = float((before - after).abs().max() / before.abs().max().clamp(min=1e-9))
    if not worst <= TOLERANCE:
        raise CheckpointError(
            f"the logits of kept tokens differ by {worst:.2e} of the largest logit; rounding explains at most "
            f"{TOLERANCE}",
            hint="please report this, with the architecture",
        )
    return Behaviour(SEQUENCES, worst, old_text, new_text)


def _run(folder: Path, what: str, sequences: list[list[int]], wanted: list[int]) -> tuple["torch.Tensor", str]:
    """The logits of the wanted tokens at every position of the sequences, and the text generated from the prompt.

    For an encoder without a head for tokens, its output, such as hidden states. Encoders and encoder-decoders do not
    generate text: many need more than a prompt.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    offline = {"local_files_only": True, "trust_remote_code": False}
    name = class_with_encoder(read_config(folder / CONFIG))
    try:
        kind = getattr(import_module("transformers"), name) if name else AutoModelForCausalLM
        model: Any = kind.from_pretrained(str(folder), dtype=torch.float32, **offline)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **offline)
        with torch.no_grad():
            found = model(**_inputs(model, sequences))[0]
            if name:
                return found[..., wanted] if found.shape[-1] == model.config.vocab_size else found, ""
            prompt = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
            generated = model.generate(**prompt, max_new_tokens=GENERATED, do_sample=False)
        return found[..., wanted], str(tokenizer.decode(generated[0]))
    except Exception as error:  # any error of another library means that the model does not load or run
        raise CheckpointError(
            f"transformers cannot load or run {what}: {type(error).__name__}: {error}",
            hint=f"check that the source loads and runs, or leave out {option('verify')}",
        ) from error


def _inputs(model: Any, sequences: list[list[int]]) -> "dict[str, torch.Tensor]":
    """The sequences as the input of a model, of both parts of an encoder-decoder; silence for the encoder of speech."""
    import torch

    ids, config = torch.tensor(sequences), model.config
    inputs = {"input_ids": ids}
    if model.main_input_name == "input_features":
        inputs = {"input_features": torch.zeros(len(ids), config.num_mel_bins, 2 * config.max_source_positions)}
    both = "decoder_input_ids" in signature(model.forward).parameters  # not in classes with only the encoder
    return inputs | ({"decoder_input_ids": ids} if both else {})
