"""`blend`: the weighted mean of a model after and before training, file by file, without loading the model.

Every weight is (1 - share) times the trained one plus share times the one before training, computed in 32 bits and
rounded once. Rows of new tokens are those of the trained model: before training they knew nothing.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.checkpoint.adapter import AdapterBlend, is_adapter
from tokengraft.checkpoint.folder import INDEX, Checkpoint, open_checkpoint
from tokengraft.checkpoint.ids import read_config
from tokengraft.checkpoint.layout import find_vocabulary
from tokengraft.checkpoint.model_card import base_name, made_by, public_command, trained_card
from tokengraft.checkpoint.model_files import ADAPT_FILES, CARD, REPORT, TRAIN_FILES, TRAINING, written_before
from tokengraft.checkpoint.result import request_of, write_record
from tokengraft.checkpoint.tensors import (
    ITEM_BYTES,
    Extent,
    Ids,
    Raw,
    Rows,
    Tensor,
    narrow,
    same_bytes,
    widen,
    write_tensors,
)
from tokengraft.errors import CheckpointError, OptionError, Progress, number, option, require_type
from tokengraft.formats.sources import folder_files, is_tokenizer_file, load_folder
from tokengraft.output.atomic import new_folder, require_distinct, require_new, write_files
from tokengraft.progress import stage
from tokengraft.representation import shown

BLOCK_NUMBERS = 1 << 21
"""Numbers that are blended at a time: 8 MB of each model in 32 bits."""
_FIT = "pass the model that was trained, and the one that its training began with"


@shown
@dataclass(frozen=True)
class Blend:
    """The result of a blend."""

    share: float
    """The share of the weights before training."""
    tensors: int
    """Tensors that were written."""
    new_rows: int
    """Rows of new tokens, which are those of the trained model."""
    is_adapter: bool = False
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self) | {"warnings": list(self.warnings)}


@stage("blending weights")
def blend(
    trained: str | os.PathLike[str],
    adapted: str | os.PathLike[str],
    *,
    share: float,
    out: str | os.PathLike[str],
    force: bool = False,
    progress: Progress | None = None,
) -> Blend:
    """Writes the weighted mean of a model after and before training.

    Training on one language costs a model some of the others. The mean of both gives back most of that, and keeps most
    of what was learned. Nothing is trained, so several shares can be tried.

    Args:
        trained: The model after training, in any shards and types; or an adapter of PEFT, which is scaled. The result
            has its files, shards and types.
        adapted: The model before training, as tokengraft wrote it: its `tokengraft.json` says which rows are new.
        share: The share of the weights before training, from 0 to 1. Rows of new tokens are not blended.
        out: The folder to write.
        force: Replace a folder that an earlier blend wrote.
        progress: Called with the bytes written.

    Raises:
        SourceNotFoundError: A folder is not a checkpoint.
        CheckpointError: The models differ in shape or vocabulary, or are quantised.
        OptionError: The share is not a number from 0 to 1.
        OutputError: The folder exists or cannot be written.
    """
    for name, value in (("trained", trained), ("adapted", adapted)):
        require_type(name, value, str, os.PathLike)
    share = float(number("share", share))
    if not 0 <= share <= 1:
        raise OptionError(
            f"{option('share')} is {share:g}; it must be from 0 to 1", hint=f"pass {option('share', 0.2)}"
        )
    require_new(Path(out), force=force)
    require_distinct([trained, adapted], out)
    source, before = Path(trained), Path(adapted)
    if is_adapter(before):
        raise CheckpointError(
            f"`{before}` is an adapter, and not the model before training",
            hint="merge it into its base (`merge_and_unload`) and pass that model",
        )
    with new_folder(Path(out), replaceable=written_before(Path(out)) if force else None) as partial:
        base = open_checkpoint(before)
        new, warnings = new_ids(before, find_vocabulary(base).rows)
        if is_adapter(source):
            done = AdapterBlend.prepare(source, base, new, share)
            done.write(partial)
            result = Blend(share, len(done.file.tensors), len(new), True, warnings)
        else:
            require_same_vocabulary(source, before)
            job = WeightBlend.prepare(open_checkpoint(source), base, new, layout="trained")
            job.write(share, partial, progress)
            result = Blend(share, len(job.pairs), len(new), False, warnings)
        copy_others(source, before, partial)
        words = ["tokengraft", "blend", base_name(source), base_name(before), "--share", f"{share:g}"]
        state = f"Blended: {1 - share:g} times the trained weights, {share:g} times those before training."
        made = made_by(public_command([*words, "--out", "blended"]), REPORT)
        (partial / CARD).write_bytes(trained_card((before, source), state, f"## Blending\n\n{made}"))
        write_report(partial, "blend", {"share": share}, {"trained": source, "adapted": before}, result.as_dict())
    return result


def new_ids(adapted: Path, rows: int) -> tuple[Ids, tuple[str, ...]]:
    """The ids of new tokens by the files of an adapted model, and a warning if it has none of them."""
    for name in (REPORT, TRAINING):
        report = read_config(adapted / name) if (adapted / name).is_file() else {}
        ids = report.get("new_ids") if isinstance(report, dict) else None
        if isinstance(ids, list):
            if not all(type(i) is int and 0 <= i < rows for i in ids):
                raise CheckpointError(
                    f"`{adapted / name}` lists new ids that are no rows of the model, which has {rows:,}",
                    hint="adapt the model again",
                )
            return np.array(ids, np.int64), ()
    if (adapted / REPORT).is_file():
        raise CheckpointError(
            f"`{adapted / REPORT}` does not say which rows are new: an older version wrote it",
            hint="adapt or transplant the model again",
        )
    return np.array([], np.int64), (f"`{adapted}` has no `{REPORT}`: no row is taken for new, and all are blended",)


def require_same_vocabulary(trained: Path, adapted: Path) -> None:
    """Refuses models whose tokenizers have other tokens or ids. A trained model may have no tokenizer."""
    if not any(is_tokenizer_file(Path(path.name)) for path in trained.iterdir()):
        return
    ours, theirs = load_folder(trained).ids, load_folder(adapted).ids
    if ours != theirs:
        differing = next(iter(sorted({*ours.items()} ^ {*theirs.items()}, key=lambda item: item[1])))
        raise CheckpointError(
            f"`{trained}` and `{adapted}` have another vocabulary: only one has {differing[0]!r} with the id "
            f"{differing[1]:,}",
            hint=_FIT,
        )


@dataclass(frozen=True)
class WeightBlend:
    """The tensors of a model after and before training. One of the two has the files, shards and types to write."""

    layout: Checkpoint
    pairs: Mapping[str, tuple[Tensor, Tensor]]
    """The trained and the untrained tensor, by the name in the layout."""
    tables: Mapping[str, int]
    """The numbers in a row of every tensor with a vocabulary axis, by the name in the layout."""
    is_new: "np.ndarray" = field(repr=False)
    """Whether the row of an id is new."""

    @classmethod
    def prepare(cls, trained: Checkpoint, adapted: Checkpoint, new: Ids, *, layout: str) -> "WeightBlend":
        """Finds every tensor in both models. ``layout`` is the model with the files to write."""
        first, second = (find_vocabulary(trained), find_vocabulary(adapted))
        if (first.rows, first.tied) != (second.rows, second.tied):
            tied = ["tied" if one.tied else "untied" for one in (first, second)]
            raise CheckpointError(
                f"the embedding has {first.rows:,} rows in `{trained.folder}` ({tied[0]}) and {second.rows:,} in "
                f"`{adapted.folder}` ({tied[1]})",
                hint=_FIT,
            )
        ours, theirs, vocabulary = (trained, adapted, first) if layout == "trained" else (adapted, trained, second)
        others = {tensor.name: tensor for tensor in theirs.tensors}
        heads = {t.name for t in vocabulary.tensors if t.role == "output" and vocabulary.tied}
        of_others = second if layout == "trained" else first
        stand_in = next(tensor.name for tensor in of_others.tensors if tensor.role == "input")
        pairs = dict[str, tuple[Tensor, Tensor]]()
        for tensor in ours.tensors:
            name = tensor.name
            found = _named(name, others) or (stand_in if name in heads else None)
            other = others.get(found or "")
            if other is None or other.shape != tensor.shape:
                what = f"the shape {list(other.shape)}" if other else "no such tensor"
                raise CheckpointError(
                    f"`{name}` has the shape {list(tensor.shape)} in `{ours.folder}`, and `{theirs.folder}` has {what}",
                    hint=_FIT,
                )
            pairs[name] = (tensor, other) if layout == "trained" else (other, tensor)
            _require_numbers(name, *pairs[name])
        missing = {*others} - {_named(name, others) for name in pairs}
        missing -= {tensor.name for tensor in of_others.tensors if tensor.role == "output"}
        if missing:
            raise CheckpointError(
                f"`{theirs.folder}` has the tensor `{min(missing)}`, and `{ours.folder}` does not", hint=_FIT
            )
        is_new = np.zeros(vocabulary.rows, bool)
        is_new[new] = True
        return cls(ours, pairs, {t.name: t.width for t in vocabulary.tensors}, is_new)

    def write(self, share: float, folder: Path, progress: Progress | None = None) -> None:
        """Writes all weight files."""
        total = sum(file.path.stat().st_size for file in self.layout.files)
        for file in self.layout.files:

            def blocks(tensor: Tensor, name: str = file.path.name) -> Iterator[Extent | Raw]:
                for block in self.blocks(tensor, share):
                    yield block
                    if progress:
                        progress(name, block.size, total)

            write_tensors(folder / file.path.name, ((t, blocks(t)) for t in file.tensors.values()), file.metadata)
        if self.layout.index is not None:
            shutil.copyfile(self.layout.folder / INDEX, folder / INDEX)

    def blocks(self, tensor: Tensor, share: float) -> Iterator[Extent | Raw]:
        """The bytes of a blended tensor of the layout, in parts."""
        if tensor.dtype not in ITEM_BYTES:  # equal in both
            yield tensor.extent
            return
        trained, adapted = self.pairs[tensor.name]
        width = self.tables.get(tensor.name, 1)
        size, step = tensor.size // ITEM_BYTES[tensor.dtype], max(1, BLOCK_NUMBERS // width) * width

        def numbers(side: Tensor, start: int, end: int) -> Rows:
            item = ITEM_BYTES[side.dtype]
            return widen(Extent(side.path, side.start + start * item, (end - start) * item).read(), side.dtype)

        for start in range(0, size, step):
            end = min(start + step, size)
            after = numbers(trained, start, end)
            mean = np.float32(1 - share) * after + np.float32(share) * numbers(adapted, start, end)
            if tensor.name in self.tables:
                new = self.is_new[start // width : end // width]
                mean.reshape(-1, width)[new] = after.reshape(-1, width)[new]
            yield narrow(mean, tensor.dtype)


def _named(name: str, others: Mapping[str, Any]) -> str | None:
    """The name of a tensor in the other model: the same, or with more or fewer parts in front.

    >>> _named("wte.weight", {"transformer.wte.weight": 0, "transformer.wpe.weight": 0})
    'transformer.wte.weight'
    """
    if name in others:
        return name
    parts = name.split(".")
    shorter = next((tail for at in range(1, len(parts)) if (tail := ".".join(parts[at:])) in others), None)
    longer = [other for other in others if other.endswith(f".{name}")]
    return shorter if shorter and shorter.count(".") > 0 else longer[0] if len(longer) == 1 else None


def _require_numbers(name: str, trained: Tensor, adapted: Tensor) -> None:
    """Refuses tensors of quantised types, unless both are equal."""
    kinds = trained.dtype, adapted.dtype
    if all(kind in ITEM_BYTES for kind in kinds) or (kinds[0] == kinds[1] and same_bytes(trained, adapted)):
        return
    raise CheckpointError(
        f"`{name}` is of the type {kinds[0]} after training and {kinds[1]} before: only {', '.join(ITEM_BYTES)} can be "
        "blended",
        hint="blend the unquantised models, and quantise the result",
    )


def copy_others(source: Path, adapted: Path, folder: Path) -> None:
    """Copies the files beside the weights; the tokenizer from the adapted model, if the source has none."""
    left_out = {CARD, REPORT, *ADAPT_FILES, *TRAIN_FILES}
    for path in sorted(source.iterdir()):
        written = (folder / path.name).exists() or path.name.startswith(".") or path.suffix in _WEIGHTS
        if path.is_file() and not written and path.name not in left_out:
            shutil.copyfile(path, folder / path.name)
    templates = source / "additional_chat_templates"
    if templates.is_dir():
        shutil.copytree(templates, folder / templates.name)
    if not any(is_tokenizer_file(Path(path.name)) for path in folder.iterdir()):
        write_files(folder_files(load_folder(adapted)), folder)


_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".safetensors")
"""Other weights, and the state of a training run, which is pickled."""


def write_report(
    folder: Path, step: str, options: Mapping[str, Any], inputs: Mapping[str, Path], result: Mapping[str, Any]
) -> None:
    """Writes `tokengraft.json` of a trained or blended model."""
    names = [{"role": role, "name": path.name} for role, path in inputs.items()]
    write_record(folder, {"request": request_of(step, options, names)}, {step: dict(result), "new_ids": []})
