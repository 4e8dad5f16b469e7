"""`transplant_gguf`: gives a GGUF file the vocabulary of another tokenizer, without loading the model.

Only the keys of the tokenizer and the tables of tokens change. All other keys and tensors are copied byte for byte.
"""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.byte_ranges import copy_bytes
from tokengraft.checkpoint.compare_files import ByteComparison, comparisons
from tokengraft.checkpoint.gguf_base import Tokenizers, pre_tokenizer, require_base, require_kind
from tokengraft.checkpoint.gguf_file import GgufFile, GgufKey
from tokengraft.checkpoint.gguf_keys import VocabularyChange
from tokengraft.checkpoint.gguf_vocabulary import GgufVocabulary, base_tokenizer
from tokengraft.checkpoint.layout import Role
from tokengraft.checkpoint.other_tables import require_no_other_tables
from tokengraft.checkpoint.padding import PadMultiple, padded_rows
from tokengraft.checkpoint.q8_0 import Q8_0
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import (
    DEFAULT,
    INITIALISERS,
    TableInfo,
    chosen_initialisers,
    require_untied,
    rescaling_warnings,
)
from tokengraft.checkpoint.table import TableShape, TableSpec, copied_rows, new_rows, reader, token_rows
from tokengraft.checkpoint.tensors import ITEM_BYTES, RowReader
from tokengraft.checkpoint.unused import DEFAULT_HOLE_ROWS, HoleRows, Unused, unused_rows
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CheckpointError, Progress
from tokengraft.output.atomic import new_file
from tokengraft.plan import VocabPlan, plan
from tokengraft.tokenizer.llama_cpp import skipping_warning
from tokengraft.tokenizer.tokenizer import Tokenizer

INPUT, OUTPUT = "token_embd.weight", "output.weight"
_TABLES: tuple[tuple[re.Pattern[str], Role], ...] = (
    (re.compile(re.escape(INPUT)), "input"),
    (re.compile(re.escape(OUTPUT)), "output"),
    (re.compile(r"output\.bias"), "bias"),
    (re.compile(r"per_layer_token_embd\.weight"), "input"),
    (re.compile(r"blk\.\d+\.nextn\.embed_tokens\.weight"), "input"),
    (re.compile(r"blk\.\d+\.nextn\.shared_head_head\.weight"), "output"),
)
"""Names of tensors with a vocabulary axis: also tables for each layer, and those of multi-token prediction."""
WRITABLE = (*ITEM_BYTES, Q8_0)
"""Types in which new rows can be written."""
_KEPT_HOLES = (
    "{:,} ids without a token keep the rows of removed tokens, because no rows can be written in a table of this type: "
    "the model may choose such an id. They are listed as suppressed, which llama.cpp honours from b10217 on"
)


@dataclass(frozen=True)
class GgufOptions:
    """How new rows are made, and how many there are."""

    init: str = DEFAULT
    output_init: str | None = None
    pad_multiple: PadMultiple = "keep"
    seed: int = 0
    hole_rows: HoleRows | None = None
    """What rows without a token get; by default `lowest`, or `keep` if rows cannot be written in a table."""
    counts: PretokenCounts | None = None
    """Counted text, for the initialiser `context`."""


def transplant_gguf(
    path: Path,
    new: Tokenizer,
    out: Path | None,
    *,
    base: Tokenizer | None = None,
    options: GgufOptions | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Transplant:
    """Gives a GGUF file the vocabulary of another tokenizer.

    Args:
        path: The file. It is not changed.
        new: The new tokenizer.
        out: The file to write. None is a dry run.
        base: The tokenizer that the file was converted with and ``new`` was made from. Compared with both.
        options: How new rows are made.
        force: Replace a file at ``out``.
        progress: Called with the bytes written.

    Raises:
        CheckpointError: The file is damaged or not supported, or its tokenizer is not the base of the new one.
        OptionError: The `gguf` package is not installed, or an initialiser does not apply.
        OutputError: The file exists or cannot be written.
    """
    writer = _writer(GgufFile.open(path), new, base, options or GgufOptions())
    if out is None:
        return writer.describe()
    with new_file(out, force=force) as partial:
        writer.write(partial, progress)
        compared = writer.compare(partial)
    return replace(writer.describe(), compared=compared)


def _writer(file: GgufFile, new: Tokenizer, base: Tokenizer | None, options: GgufOptions) -> "GgufWriter":
    """Everything that is decided before a byte is written."""
    _require_whole(file)
    vocabulary = GgufVocabulary.of(file)
    tables = find_tables(file, len(vocabulary.tokens))
    require_untied(options.output_init, tied=OUTPUT not in file.tensors)
    require_kind(file, vocabulary, new)
    inside = base_tokenizer(vocabulary, new)
    tokenizers = Tokenizers(inside, new)
    if base is not None:
        require_base(file, vocabulary, tokenizers, base)
    pre, warnings = (vocabulary.pre, ()) if base else pre_tokenizer(file, vocabulary, tokenizers)
    skipping = skipping_warning(new, pre) if new.kind == "byte-level" else None
    warnings += (skipping,) if skipping else ()
    changes = plan(inside, new, counts=options.counts)
    rows = padded_rows(changes, len(vocabulary.tokens), options.pad_multiple)
    change = VocabularyChange(file, vocabulary, inside, new, changes, rows)
    lowest = unused_rows(changes, (len(vocabulary.tokens), rows), "lowest", change.used_ids)
    unused = _unused(file, tables, lowest, options.hole_rows)
    suppressed = () if options.hole_rows == "keep" else lowest.rows
    if suppressed and unused.how == "keep":
        warnings += (_KEPT_HOLES.format(len(suppressed)),)
    writer = GgufWriter(file, tables, changes, rows, change.keys(pre, suppressed), options, unused, warnings)
    writer.require_writable()
    return writer


def _unused(file: GgufFile, tables: Mapping[str, Role], lowest: Unused, how: HoleRows | None) -> Unused:
    """The rows without a token, and what they get. By default they keep their rows if none can be written."""
    writable = all(file.tensors[name].dtype in WRITABLE for name in tables)
    chosen = how or (DEFAULT_HOLE_ROWS if writable else "keep")
    return Unused() if chosen == "keep" else replace(lowest, how=chosen)


def find_tables(file: GgufFile, rows: int) -> dict[str, Role]:
    """The tensors with a vocabulary axis, by name, with their roles.

    Raises:
        CheckpointError: A table is missing, has another number of rows than there are tokens, or is unknown.
    """
    tables: dict[str, Role] = {
        name: role for name in file.tensors for pattern, role in _TABLES if pattern.fullmatch(name)
    }
    if INPUT not in tables:
        raise CheckpointError(
            f"`{file.path.name}` has no tensor `{INPUT}`; it has {len(file.tensors):,} tensors",
            hint="pass the GGUF file of a language model, not one with its vocabulary or a projector only",
        )
    for name, role in tables.items():
        shape = file.tensors[name].shape
        if shape[0] != rows or len(shape) != (1 if role == "bias" else 2) or not file.tensors[name].size:
            raise CheckpointError(
                f"`{name}` has the shape {list(shape)}, and the file has {rows:,} tokens",
                hint="convert the model again with a current llama.cpp",
            )
    others = ((name, tensor.shape) for name, tensor in file.tensors.items() if name not in tables)
    numbers = {key.name.rsplit(".", 1)[-1]: key.value for key in file.keys.values() if type(key.value) is int}
    require_no_other_tables(others, rows, numbers)
    return tables


def _require_whole(file: GgufFile) -> None:
    count = file.keys.get("split.count")
    if count is not None and count.value != 1:
        raise CheckpointError(
            f"`{file.path.name}` is one of {count.text} parts of a model",
            hint="join them first: `llama-gguf-split --merge FIRST_PART OUT.gguf`",
        )


@dataclass(frozen=True)
class GgufWriter:
    """Writes a GGUF file with new keys and tables, and compares it with its source."""

    source: GgufFile
    tables: Mapping[str, Role]
    plan: VocabPlan
    rows: int
    changed: Mapping[str, GgufKey]
    options: GgufOptions
    unused: Unused
    warnings: tuple[str, ...]

    @property
    def tied(self) -> bool:
        """Whether the output uses the rows of the input."""
        return OUTPUT not in self.tables

    @property
    def init(self) -> tuple[str, str]:
        """The initialisers of input and output."""
        return chosen_initialisers(self.options.init, self.options.output_init, tied=self.tied)

    @cached_property
    def target(self) -> GgufFile:
        """The file to write: its keys, and where its tensors are."""
        return self.source.with_changes(self.changed, dict.fromkeys(self.tables, self.rows))

    @cached_property
    def copies(self) -> npt.NDArray[np.int64]:
        """For every new row the old row that it copies, or -1."""
        return copied_rows(self.plan, self._old_rows, self.rows, self.unused.rows)

    @property
    def _old_rows(self) -> int:
        return self.source.tensors[INPUT].shape[0]

    def require_writable(self) -> None:
        """Refuses new rows in tables of quantisations that cannot be written.

        Raises:
            CheckpointError: With the tensor and its type.
        """
        wrong = [self.source.tensors[name] for name in self.tables if self.source.tensors[name].dtype not in WRITABLE]
        if wrong and (self.copies < 0).any():
            raise CheckpointError(
                f"`{wrong[0].name}` is of the type {wrong[0].dtype}, and {int((self.copies < 0).sum()):,} rows are "
                f"new; new rows can be written in {', '.join(WRITABLE)}",
                hint="quantise again with tables of that type, best from the unquantised model: `llama-quantize "
                "--token-embedding-type q8_0 --output-tensor-type q8_0 IN.gguf OUT.gguf Q4_K_M`",
            )

    def describe(self) -> Transplant:
        """The result before anything is written."""
        before, after, added = self.source.tensors, self.target.tensors, self.plan.summary.added
        return Transplant(
            plan=self.plan,
            rows_before=self._old_rows,
            rows_after=self.rows,
            tensors=tuple(
                (name, role, before[name].dtype, before[name].size, after[name].size)
                for name, role in self.tables.items()
            ),
            tied=self.tied,
            found_by="the names of GGUF",
            init=self.init,
            hole_rows=self.unused.how,
            unused=len(self.unused.rows),
            copied=(),
            carried=(),
            left_out=(),
            warnings=(*self.warnings, *(rescaling_warnings(self.init, tied=self.tied) if added else ())),
        )

    def write(self, out: Path, progress: Progress | None) -> None:
        """Writes the file."""
        total = sum(tensor.size for tensor in self.source.tensors.values())
        # numpy warns of numbers that are not finite; the comparison refuses new rows with such numbers
        with np.errstate(all="ignore"), self.source.path.open("rb", buffering=0) as old, out.open("wb") as new:
            new.write(self.target.head())
            for name, tensor in self.target.as_tensor_file().tensors.items():
                self._write_tensor(name, old, new)
                new.write(b"\0" * (-(tensor.start + tensor.size) % self.source.alignment))
                if progress:
                    progress(self.source.path.name, self.source.tensors[name].size, total)

    def _write_tensor(self, name: str, old: BinaryIO, new: BinaryIO) -> None:
        tensor, stop = self.source.tensors[name], Event()
        if name not in self.tables:
            copy_bytes(old, tensor.start, tensor.size, new, stop)
            return
        rows = RowReader(old, tensor)
        for part in new_rows(rows, TableShape(tensor.shape[0], tensor.row_bytes, tensor.dtype), self._spec(name, rows)):
            if isinstance(part, range):
                copy_bytes(old, tensor.start + part.start * tensor.row_bytes, len(part) * tensor.row_bytes, new, stop)
            else:
                new.write(part.data)

    def _spec(self, name: str, rows: RowReader) -> TableSpec:
        tensor, role = self.source.tensors[name], self.tables[name]
        as_input = role == "input" or self.tied
        info = TableInfo(
            ids=token_rows(self.plan, self._old_rows),
            read=reader(rows, tensor.dtype),
            width=TableShape(tensor.shape[0], tensor.row_bytes, tensor.dtype).width,
            seed=self.options.seed,
            table="input" if as_input else "output",
            plan=self.plan,
        )
        init = self.init[0] if as_input else self.init[1]
        spec = TableSpec(self.plan, self.copies, INITIALISERS[init], info, self.unused)
        return spec.for_bias() if role == "bias" else spec

    def compare(self, out: Path) -> ByteComparison:
        """Reads the written file back and compares it with the source.

        Raises:
            CheckpointError: They differ where they must be equal, or a key was not written as intended.
        """
        written = GgufFile.open(out)
        if [*_facts(written)] != [*_facts(self.target)]:
            raise CheckpointError(
                "after writing, the keys or the places of tensors are not as intended",
                hint="check the disk and try again; please report this",
            )
        parts = comparisons(self.source.as_tensor_file(), written.as_tensor_file(), self.tables, self.copies)
        with ThreadPoolExecutor(2, thread_name_prefix="compare") as pool:
            return ByteComparison.total(pool.map(lambda part: part(), parts))


def _facts(file: GgufFile) -> Iterator[Any]:
    """Everything of a file except the data of tensors."""
    yield file.version, file.alignment
    for key in file.keys.values():
        yield key.name, key.type, key.raw
    for tensor in file.tensors.values():
        yield tensor, file.type_numbers[tensor.name]
