"""`transplant`: gives a checkpoint the vocabulary of another tokenizer, file by file, without loading the model.

Only tensors with a vocabulary axis are read and written, a block of rows at a time. All other bytes are copied.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from tokengraft import _core
from tokengraft.checkpoint.behaviour import Behaviour, compare_models, require_torch
from tokengraft.checkpoint.compare_files import ByteComparison, compare_file
from tokengraft.checkpoint.layout import Checkpoint, VocabTensor, Vocabulary, find_vocabulary, open_checkpoint
from tokengraft.checkpoint.model_files import REPORT, ModelFiles, model_files, written_before
from tokengraft.checkpoint.rows import INITIALISERS, TableInfo, require_initialisers, require_untied
from tokengraft.checkpoint.table import TableShape, TableSpec, new_rows, reader, token_rows
from tokengraft.checkpoint.tensors import RowReader, TensorFile, TensorInfo, copy_bytes, header_bytes
from tokengraft.errors import CheckpointError, OptionError, Progress
from tokengraft.formats.files import load_folder
from tokengraft.formats.sources import load
from tokengraft.output.atomic import new_folder, require_distinct, require_new
from tokengraft.plan import VocabPlan, plan
from tokengraft.tokenizer.tokenizer import Tokenizer

PadMultiple = int | Literal["keep"]
AT_ONCE = 2
"""Weight files that are written and compared at the same time. More need memory and gain little: the disk is the
limit."""
_FICLONE = 0x40049409


@dataclass(frozen=True)
class Transplant:
    """The result of a transplant, or what a dry run would do."""

    plan: VocabPlan
    rows_before: int
    rows_after: int
    """Rows of the embedding, padding included."""
    tensors: tuple[tuple[str, str, str, int, int], ...]
    """Tensors with a vocabulary axis: name, role, type, bytes before and after."""
    tied: bool
    found_by: str
    """How those tensors were found: by the names of an architecture, or by their shapes."""
    init: tuple[str, str]
    """The initialisers of input and output."""
    copied: tuple[str, ...]
    """Weight files that are copied unchanged."""
    carried: tuple[str, ...]
    """Tokenizer files of the source that the new tokenizer does not have. They are kept, with the new ids."""
    left_out: tuple[str, ...]
    """Files of the source that are not written because they belong to the old vocabulary, such as weights in other
    formats."""
    compared: ByteComparison | None = None
    """The comparison of the written files with the source; None in a dry run."""
    behaviour: Behaviour | None = None
    """The comparison of the two running models; None without ``verify``."""

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON-ready data."""
        return {
            **self.plan.summary._asdict(),
            "embedding_rows_before": self.rows_before,
            "embedding_rows_after": self.rows_after,
            "tensors": [list(tensor) for tensor in self.tensors],
            "tied": self.tied,
            "found_by": self.found_by,
            "init": {"input": self.init[0], "output": self.init[1]},
            "copied": list(self.copied),
            "carried": list(self.carried),
            "left_out": list(self.left_out),
            "compared": self.compared._asdict() if self.compared else None,
            "behaviour": self.behaviour._asdict() if self.behaviour else None,
        }


def transplant(
    checkpoint: str | os.PathLike[str],
    new_tokenizer: Tokenizer | str | os.PathLike[str],
    out: str | os.PathLike[str] | None,
    *,
    init: str = "fvt",
    output_init: str | None = None,
    pad_multiple: PadMultiple = "keep",
    hard_link: bool = False,
    seed: int = 0,
    force: bool = False,
    verify: bool = False,
    others: Mapping[str, bytes] | None = None,
    progress: Progress | None = None,
) -> Transplant:
    """Gives a checkpoint the vocabulary of another tokenizer, without loading the model.

    Kept rows are copied bit for bit. New rows are computed from the rows of the tokens that the old tokenizer splits
    them into. Every config that names a token id is rewritten. The result is written beside the target, compared with
    the source, and then renamed into place.

    Args:
        checkpoint: A folder with `config.json`, safetensors files and the old tokenizer. It is not changed.
        new_tokenizer: The new tokenizer, or its folder, file or hub name.
        out: The folder to write. None is a dry run: nothing is written.
        init: Initialiser for new embedding rows: `fvt`, `fvt-norm`, `weighted`, `mean`, `mean-cov`, `random`.
        output_init: Initialiser for new rows of an untied output; by default ``init``. An error if the output is tied.
        pad_multiple: Make the number of rows a multiple of this. `keep` keeps the current padding.
        hard_link: Hard-link unchanged files to the source. Writing to them in place then changes both.
        seed: Seed for random initialisers.
        force: Replace a folder that an earlier transplant wrote.
        verify: Run both models and compare their logits before the result is renamed into place. Needs torch.
        others: Additional files for the folder, by name. They replace files of the source with the same name.
        progress: Called with the bytes written as files are finished.

    Raises:
        SourceNotFoundError: The folder is not a checkpoint.
        CheckpointError: The checkpoint is damaged, its architecture is not supported, or the models differ.
        OptionError: An option has an invalid value or no effect, or torch is not installed.
        OutputError: The folder exists or cannot be written.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> done = tg.transplant("model", new, "adapted")
        >>> done.rows_before, done.rows_after
        (397, 413)
    """
    require_initialisers(init, output_init)
    _require_options(seed, verify=verify, dry=out is None)
    if out is not None:
        require_new(Path(out), force=force)
        require_distinct([checkpoint, None if isinstance(new_tokenizer, Tokenizer) else new_tokenizer], out)
    folder = Path(checkpoint)
    source = open_checkpoint(folder)
    vocabulary = find_vocabulary(source)
    require_untied(output_init, tied=vocabulary.tied)
    old = load_folder(folder)
    new = new_tokenizer if isinstance(new_tokenizer, Tokenizer) else load(new_tokenizer)
    changes = plan(old, new)
    _require_rows(changes, vocabulary)
    rows = padded_rows(changes, vocabulary.rows, pad_multiple)
    files = model_files(source, vocabulary, (old, new), changes, rows)
    writer = _CheckpointWriter(source, vocabulary, changes, rows, (init, output_init or init), seed)
    done = writer.describe(files)
    if out is None:
        return done
    target = Path(out)
    ours = written_before(target) if force else set()
    with new_folder(target, replaceable=(lambda path: path.as_posix() in ours) if force else None) as partial:
        done = replace(done, compared=writer.write_weights(partial, hard_link, progress))
        _write_files(source, files, others or {}, partial)
        if verify:
            done = replace(done, behaviour=compare_models(folder, partial, changes))
        _write_report(done, source, files, seed, partial)
    return done


def _require_options(seed: int, *, verify: bool, dry: bool) -> None:
    if seed < 0:
        raise OptionError(f"--seed is {seed}; it must be 0 or more", hint="pass --seed 0")
    if verify and dry:
        raise OptionError(
            "--verify runs the new model, but --dry-run does not write one", hint="leave out one of the two"
        )
    if verify:
        require_torch()


class RowsNeeded(Protocol):
    """Numbers of rows that the tokens need before and after, such as those of a `VocabPlan`."""

    @property
    def rows_before(self) -> int:
        """Rows that the old tokens need."""

    @property
    def rows_after(self) -> int:
        """Rows that the new tokens need."""


def padded_rows(changes: RowsNeeded, rows: int, multiple: PadMultiple) -> int:
    """The number of rows of the new embedding, padding included.

    With ``"keep"``, the number stays a multiple of the same power of two (at most 1024). It decreases only if the
    tokens need fewer rows than before.

    >>> padded_rows(VocabPlan(100, (None,) * 120, ()), 128, "keep")
    128
    >>> padded_rows(VocabPlan(100, (None,) * 120, ()), 128, 50)
    150
    """
    if multiple != "keep":
        if not isinstance(multiple, int) or not 1 <= multiple <= 1 << 20:
            raise OptionError(
                f"the pad multiple is {multiple!r}; it must be a number from 1 to 1,048,576, or keep",
                hint="pass --pad-multiple 64, 128 or keep",
            )
        return -(-changes.rows_after // multiple) * multiple
    if rows == changes.rows_before:
        return changes.rows_after
    step = min(rows & -rows, 1024)  # the power of two that the old number of rows is a multiple of
    padded = -(-changes.rows_after // step) * step
    return max(padded, rows) if changes.rows_after >= changes.rows_before else padded


def _require_rows(changes: VocabPlan, vocabulary: Vocabulary) -> None:
    if changes.rows_before > vocabulary.rows:
        raise CheckpointError(
            f"the embedding has {vocabulary.rows:,} rows and the tokenizer in its folder needs {changes.rows_before:,}",
            hint="pass the folder with the tokenizer that the model was trained with",
        )


@dataclass(frozen=True)
class _CheckpointWriter:
    source: Checkpoint
    vocabulary: Vocabulary
    plan: VocabPlan
    rows: int
    init: tuple[str, str]
    seed: int

    def describe(self, files: ModelFiles) -> Transplant:
        names = {tensor.file.path.name for tensor in self.vocabulary.tensors}
        tensors = (
            (t.info.name, t.role, t.info.dtype, t.info.size, t.info.row_bytes * self.rows)
            for t in self.vocabulary.tensors
        )
        return Transplant(
            plan=self.plan,
            rows_before=self.vocabulary.rows,
            rows_after=self.rows,
            tensors=tuple(tensors),
            tied=self.vocabulary.tied,
            found_by=self.vocabulary.found_by,
            init=self.init,
            copied=tuple(file.path.name for file in self.source.files if file.path.name not in names),
            carried=files.carried,
            left_out=files.left_out,
        )

    def write_weights(self, folder: Path, hard_link: bool, progress: Progress | None) -> ByteComparison:
        """Writes every weight file and compares it with its source."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="transplant") as pool:
            jobs = [pool.submit(self.write_and_compare, file, folder, hard_link) for file in self.source.files]
            return ByteComparison.total(_finished(jobs, self.source, progress))

    def write_and_compare(self, file: TensorFile, folder: Path, hard_link: bool) -> ByteComparison:
        """Writes one weight file and compares it with its source."""
        self.write(file, folder, hard_link)
        return compare_file(file, self.vocabulary, self.plan, self.rows, folder)

    def write(self, file: TensorFile, folder: Path, hard_link: bool) -> None:
        tensors = {t.info.name: t for t in self.vocabulary.tensors if t.file == file}
        out = folder / file.path.name
        if tensors:
            self._rewrite(file, tensors, out)
        else:
            share_or_copy(file.path.resolve(), out, hard_link=hard_link)

    def _rewrite(self, file: TensorFile, changed: dict[str, VocabTensor], out: Path) -> None:
        """Writes a weight file in which new tables replace the old ones."""
        after = [self._resized(tensor) if tensor.name in changed else tensor for tensor in file.tensors.values()]
        header, _ = header_bytes(after, file.metadata)
        with file.path.open("rb") as old, out.open("wb") as new:
            new.write(header)
            for tensor in file.tensors.values():
                if tensor.name in changed:
                    self._write_table(changed[tensor.name], old, new)
                else:
                    copy_bytes(old, tensor.start, tensor.size, new)

    def _resized(self, tensor: TensorInfo) -> TensorInfo:
        return replace(tensor, shape=(self.rows, *tensor.shape[1:]), size=tensor.row_bytes * self.rows)

    def _write_table(self, tensor: VocabTensor, old: BinaryIO, new: BinaryIO) -> None:
        info = tensor.info
        shape = TableShape(info.shape[0], info.row_bytes, info.dtype)
        rows = RowReader(old, info)
        as_input = tensor.role == "input" or self.vocabulary.tied
        table_info = TableInfo(
            ids=token_rows(self.plan, shape.rows),
            read=reader(rows, info.dtype),
            width=shape.width,
            spread=initializer_range(self.source.text_config),
            seed=self.seed,
            table="input" if as_input else "output",
        )
        spec = TableSpec(self.plan, self.rows, INITIALISERS[self.init[0] if as_input else self.init[1]], table_info)
        for part in new_rows(rows, shape, spec.for_bias() if tensor.role == "bias" else spec):
            if isinstance(part, range):
                copy_bytes(old, info.start + part.start * info.row_bytes, len(part) * info.row_bytes, new)
            else:
                new.write(part.data)


def _finished(
    jobs: list["Future[ByteComparison]"], source: Checkpoint, progress: Progress | None
) -> Iterator[ByteComparison]:
    """The result of each job, in the order of the files. If one fails, the others are cancelled."""
    sizes = [file.path.stat().st_size for file in source.files]
    for job, file, size in zip(jobs, source.files, sizes, strict=True):
        try:
            yield job.result()
        except BaseException:
            for other in jobs:
                other.cancel()
            raise
        if progress:
            progress(file.path.name, size, sum(sizes))


def initializer_range(config: dict[str, Any]) -> float:
    """The standard deviation of a model's initial weights, from its config; 0.02 if the config has none."""
    spread = config.get("initializer_range")
    return float(spread) if isinstance(spread, int | float) and 0 < spread <= sys.float_info.max else 0.02


def share_or_copy(source: Path, out: Path, *, hard_link: bool) -> None:
    """Copies a file: as a hard link if asked for, else by sharing blocks if the file system can, else by its bytes."""
    if hard_link:
        _link(source, out)
        return
    with source.open("rb") as old, out.open("wb") as new:
        if not _share_blocks(old, new):
            copy_bytes(old, 0, source.stat().st_size, new)


def _link(source: Path, out: Path) -> None:
    try:
        os.link(source, out)
    except OSError as error:
        raise OptionError(
            f"cannot link `{source.name}` to `{out.parent.parent}`: {error.strerror}",
            hint="leave out --hard-link, or write to the file system of the source",
        ) from error


def _share_blocks(old: BinaryIO, new: BinaryIO) -> bool:
    if sys.platform != "linux":
        return False
    from fcntl import ioctl

    try:
        ioctl(new.fileno(), _FICLONE, old.fileno())
    except OSError:  # the file system does not support it, or there are two file systems
        return False
    return True


def _write_files(source: Checkpoint, files: ModelFiles, others: Mapping[str, bytes], folder: Path) -> None:
    """Writes every file without weights. ``others`` are written last and replace files of the same name."""
    for name in files.copied:
        shutil.copyfile(source.folder / name, folder / name)
    for name, data in {**files.written, **others}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _write_report(done: Transplant, source: Checkpoint, files: ModelFiles, seed: int, folder: Path) -> None:
    hashed = {name: sha256(files.written[name]).hexdigest() for name in sorted(files.tokenizer)}
    report = {
        "tokengraft": _core.__version__,
        "source": source.folder.name,
        "source_config_sha256": sha256((source.folder / "config.json").read_bytes()).hexdigest(),
        "tokenizer_sha256": hashed,
        "seed": seed,
        "files": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()),
        "transplant": done.as_dict(),
    }
    (folder / REPORT).write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
