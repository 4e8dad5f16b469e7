"""`NewTables`: builds new tables by a plan, one block of rows at a time, so that no table has to fit into memory.

Used for files and for tensors in memory. Both provide their rows as bytes. `padded_rows` and `plan_of_rows` say how
many rows a new table has, `model_rows` what fewer rows save.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from tokengraft.checkpoint.folder import Checkpoint, has_weights, open_checkpoint
from tokengraft.checkpoint.ids import CONFIG, Renumbering, id_fields, read_config
from tokengraft.checkpoint.layout import PER_LAYER, VocabTensor, Vocabulary, find_vocabulary
from tokengraft.checkpoint.rows import (
    DEFAULT,
    INITIALISERS,
    HoleRows,
    Init,
    NewTokens,
    TableInfo,
    Unused,
    init_name,
    rows_by,
)
from tokengraft.checkpoint.tensors import Extent, Ids, Raw, Tensor, all_finite, long_runs, narrow, widen
from tokengraft.errors import CheckpointError, OptionError, Progress, option, require, require_type, seed, whole_number
from tokengraft.representation import set_fields, shown
from tokengraft.tokenizer.kind import spell, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan, token_length

BLOCK_BYTES = 1 << 18
"""Bytes of rows that are computed at a time. As 64-bit floats they still fit into the cache of a core."""
PadMultiple = int | Literal["keep"]
_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def pad_multiple(name: str, value: Any) -> PadMultiple:
    """A multiple to pad to."""
    if value == "keep":
        return "keep"
    multiple = whole_number(name, value, "'keep'")
    require(
        1 <= multiple <= 1 << 20,
        f"the pad multiple is {multiple!r}; it must be a number from 1 to 1,048,576, or keep",
        f"pass {option('pad_multiple', 64)}, 128 or keep",
    )
    return multiple


def row_step(needed: int, rows: int) -> int:
    """The power of two, at most 1024, that the number of rows is a multiple of; 1 if tokens need all of them.

    >>> row_step(100, 104), row_step(100, 100)
    (8, 1)
    """
    return min(rows & -rows, 1024) if rows > needed else 1


def padded_rows(before: int, after: int, rows: int, multiple: PadMultiple) -> int:
    """The number of rows of the new embedding, padding included, if tokens needed and now need so many of ``rows``.

    With ``"keep"``, the number stays a multiple of the same power of two (at most 1024). It decreases only if the
    tokens need fewer rows than before. There may have been fewer rows than tokens need: see `plan_of_rows`.

    >>> padded_rows(100, 120, 128, "keep"), padded_rows(100, 120, 128, 50)
    (128, 150)
    """
    if multiple != "keep":
        return -(-after // multiple) * multiple
    if rows <= before:
        return rows if after == before else after
    step = row_step(before, rows)
    padded = -(-after // step) * step
    return max(padded, rows) if after >= before else padded


def renumbering_of(plan: VocabPlan, rows: int, multiple: PadMultiple) -> Renumbering:
    """The change of ids in a table with so many rows, and with the padding that was asked for."""
    return Renumbering(plan, (rows, padded_rows(plan.rows_before, plan.rows_after, rows, multiple)))


def plan_of_rows(changes: VocabPlan, old: Tokenizer, rows: int, configs: Mapping[str, Any]) -> VocabPlan:
    """The plan for a table that may lack rows for the last added tokens of its tokenizer.

    Gemma-3's models for text lack the row of `<image_soft_token>`. Such a token has a hole in the new table, whose row
    is never generated, or again no row if the number of ids does not change. Refused if another token lacks a row, or
    one that is used: by a config, or as a part of a new token.
    """
    if changes.rows_before <= rows:
        return changes
    lacking = {token_id for token_id in old.ids.values() if token_id >= rows}
    if not lacking.issubset(token.id for token in old.added):
        raise CheckpointError(
            f"the embedding has {rows:,} rows and the tokenizer in its folder needs {changes.rows_before:,}",
            hint="pass the folder with the tokenizer that the model was trained with",
        )
    used = {i: f"`{field}` of `{name}`" for name, config in configs.items() for field, i in id_fields(config)}
    used |= {i: "a new token" for source in changes.sources if isinstance(source, tuple) for i in source}
    for token_id in sorted(lacking & used.keys()):
        raise CheckpointError(
            f"the embedding has {rows:,} rows, and {used[token_id]} needs that of {token_id:,}",
            hint="give the model a row for every token first: `resize_token_embeddings` in transformers",
        )
    sources = tuple(None if isinstance(source, int) and source >= rows else source for source in changes.sources)
    if changes.rows_after == changes.rows_before and not any(source is not None for source in sources[rows:]):
        sources = sources[:rows]
    removed = tuple(token_id for token_id in changes.removed if token_id < rows)
    return replace(changes, rows_before=rows, sources=sources, removed=removed, lengths=changes.lengths[:rows])


def repaired(changes: VocabPlan, old: Tokenizer, rows: int) -> VocabPlan:
    """The plan that gives a model the rows that its own tokenizer needs, for a table with fewer ``rows``."""
    sources, lengths = [*changes.sources], [*changes.lengths[:rows]]
    for token_id in (token_id for token_id in old.ids.values() if token_id >= rows):
        data = token_bytes(old.strings[token_id], old.kind)
        pieces = old.core_model.encode(spell(data, old.kind) or old.strings[token_id], by_merges=True)
        known = tuple(piece for piece in pieces if piece < rows)
        sources[token_id] = known
        for piece in known:
            lengths[piece] = token_length(token_bytes(old.strings[piece], old.kind))
    return replace(changes, rows_before=rows, sources=tuple(sources), lengths=tuple(lengths))


@shown
@dataclass(frozen=True)
class TransplantOptions:
    """How the rows of new tables are made, and how files are written."""

    init: Init | None = None
    """The initialiser for new embedding rows, also an argument of `transplant` and `transplant_model`."""
    output_init: Init | None = None
    """The initialiser for new rows of an untied output; by default that of ``init``. An error if the output is
    tied."""
    hole_rows: HoleRows | None = None
    """What rows get whose ids have no token: `lowest`, a row that is never the most likely, `zero`, or `keep`, the row
    that they had. By default `lowest`; for a GGUF file with tables in which rows cannot be written, `keep`. Except with
    `keep`, all ids without a token are listed as suppressed in the generation config, padding included."""
    pad_multiple: PadMultiple = "keep"
    """Make the number of rows a multiple of this. `keep` keeps the current padding."""
    seed: int = 0
    """Seed for random initialisers, and for functions."""
    hard_link: bool = False
    """Hard-link unchanged files to the source. Writing to them in place then changes both. Only for model folders."""
    verify: bool = False
    """Run both models and compare their logits before the result is renamed into place. Needs torch. Only for model
    folders."""
    progress: Progress | None = None
    """Called with the bytes written."""

    def __post_init__(self) -> None:
        for init in (self.init, self.output_init):
            known = init is None or callable(init) or init in [*INITIALISERS]
            hint = f"pass one of {', '.join(INITIALISERS)}, or a function"
            require(known, f"there is no initialiser {init!r}", hint=hint)
        if self.hole_rows not in (None, *get_args(HoleRows)):
            hint = f"pass one of {', '.join(get_args(HoleRows))}"
            raise OptionError(f"there are no hole rows {self.hole_rows!r}", hint=hint)
        set_fields(self, seed, "seed")
        set_fields(self, pad_multiple, "pad_multiple")

    @classmethod
    def of(cls, options: "TransplantOptions | None", init: Init | None) -> "TransplantOptions":
        """The options with the initialiser that was given beside them."""
        require_type("options", options, cls, NoneType)
        options = options or cls()
        if init is None:
            return options
        twice = f"two initialisers are given: `init` {init!r}, and `options` with {options.init!r}"
        require(options.init in (None, init), twice, hint="leave out one of the two")
        return replace(options, init=init)

    @property
    def inits(self) -> tuple[Init, Init]:
        """The initialisers of input and output."""
        init = self.init or DEFAULT
        return init, self.output_init or init


def require_absent(options: Mapping[str, Any], what: str) -> None:
    """Refuses options that have a value and do not apply."""
    for name, given in options.items():
        require(not given, f"{option(name)} does not apply to {what}", hint=f"leave out {option(name)}")


@dataclass(frozen=True)
class NewTables:
    """What decides the new tables of a model, in files or in memory."""

    vocabulary: Vocabulary
    renumbering: Renumbering
    options: TransplantOptions
    unused: Unused
    spread: float = 0.02
    """The standard deviation of the model's initial weights."""
    has_output: bool = True
    """Whether the model computes logits of tokens; an encoder of texts does not."""
    of_changes: bool = False
    """Whether the tables are those of an adapter."""

    def __post_init__(self) -> None:
        init = self.options.output_init
        if self.vocabulary.tied and init is not None:
            raise OptionError(
                f"an initialiser for the output ({init_name(init)}) was given, but the model's output is tied to its "
                "input",
                hint=f"leave out {option('output_init')}",
            )

    @property
    def plan(self) -> VocabPlan:
        """From the old to the new tokens."""
        return self.renumbering.plan

    @property
    def rows(self) -> int:
        """Rows of the new embedding, padding included."""
        return self.renumbering.rows[1]

    @cached_property
    def copies(self) -> Ids:
        """For every new row the old row that it copies, or -1."""
        return copied_rows(self.plan, self.vocabulary.rows, self.rows, self.unused.rows)

    @property
    def copies_by_table(self) -> dict[str, Ids]:
        """The same for each table, by its name."""
        return {tensor.name: self.copies[: self.rows_after(tensor)] for tensor in self.vocabulary.tensors}

    @cached_property
    def token_rows(self) -> Ids:
        """The old rows that belong to tokens."""
        ids = {*self.plan.moved, *self.plan.removed}
        return np.array(sorted(i for i in ids if i < self.vocabulary.rows), np.int64)

    def rows_after(self, table: Tensor) -> int:
        """Rows of the new table. A table for the first ids only keeps its rows; see `require_fixed_ids`."""
        return self.rows if table.rows == self.vocabulary.rows else table.rows

    def resized(self, tensor: VocabTensor) -> VocabTensor:
        """A table with the rows that it will have."""
        return tensor.with_rows(self.rows_after(tensor))

    def parts(self, tensor: VocabTensor) -> Iterator[Extent | Raw]:
        """The rows of one new table, in order: runs of old rows to copy, and blocks of new bytes."""
        table, copies, begin = _NewTable(self, tensor), self.copies[: self.rows_after(tensor)], 0
        for start, end in [*long_runs(copies), (len(copies), len(copies))]:
            yield from table.blocks(np.arange(begin, start))
            if start < end:
                yield tensor.run(int(copies[start]), int(copies[end - 1]) + 1)
            begin = end

    def blocks(self, tensor: VocabTensor, ids: Ids) -> Iterator[Raw]:
        """Some rows of one new table."""
        return _NewTable(self, tensor).blocks(ids)


@dataclass(frozen=True)
class _NewTable:
    """One new table, and the old one that it is made from."""

    tables: NewTables
    tensor: VocabTensor

    @property
    def _as_input(self) -> bool:
        return self.tensor.role == "input" or self.tables.vocabulary.tied

    @cached_property
    def old_table(self) -> TableInfo:
        """What initialisers know of the old table."""
        tables, tensor, tied = self.tables, self.tensor, self.tables.vocabulary.tied
        # Logits are computed from an output, and from an input that is tied to it; a table for each layer is only read.
        of_output = tensor.role != "input" or (tied and PER_LAYER not in tensor.name)
        return TableInfo(
            ids=tables.token_rows[tables.token_rows < tensor.rows],
            read=lambda rows: widen(tensor.read(rows), tensor.dtype),
            width=tensor.width,
            spread=tables.spread,
            seed=tables.options.seed,
            table="input" if self._as_input else "output",
            plan=tables.plan,
            predicts=tables.has_output and of_output,
            of_changes=tables.of_changes,
        )

    def blocks(self, ids: Ids) -> Iterator[Raw]:
        """The new rows with some ids, a block at a time."""
        size = max(1, BLOCK_BYTES // max(self.tensor.row_bytes, 1))
        return (self._block(ids[at : at + size]) for at in range(0, len(ids), size))

    def _block(self, ids: Ids) -> Raw:
        sources, holes = self.tables.copies[ids], self.tables.unused
        kept = sources >= 0
        if kept.all():
            return self.tensor.read(sources)
        unused = ~kept & [i in holes.rows for i in ids.tolist()]
        new = ~(kept | unused)
        block = np.empty((len(ids), self.tensor.row_bytes), np.uint8)
        block[kept] = self.tensor.read(sources[kept])
        if unused.any():
            row = holes.row(self.old_table, is_bias=self.tensor.role == "bias")
            block[unused] = narrow(row[None], self.tensor.dtype)
        if new.any():
            block[new] = self._token_rows(ids[new].tolist())
        return block

    def _token_rows(self, ids: list[int]) -> Raw:
        """Rows for new tokens, from the old rows of their pieces. Every row is read once."""
        plan, dtype, width = self.tables.plan, self.tensor.dtype, self.tensor.width
        init = self.tables.options.inits[0 if self._as_input else 1]
        if self.tensor.role == "bias" and init != DEFAULT:
            init = "fvt"
        initialiser = INITIALISERS[init] if isinstance(init, str) else init
        sources = [plan.sources[i] if i < plan.rows_after else None for i in ids]
        pieces = [source if isinstance(source, tuple) else () for source in sources]
        wanted, places = np.unique(np.array([row for rows in pieces for row in rows], np.int64), return_inverse=True)
        counts = [*map(len, pieces)]
        values = widen(self.tensor.read(wanted), dtype).reshape(len(wanted), width)
        tokens = NewTokens(ids, np.array(counts, np.int64), places, values, wanted)
        rows = narrow(rows_by(initialiser, tokens, self.old_table), dtype)
        # Rows of the package's own initialisers are not finite only if the model's are not, which is found later.
        if initialiser not in INITIALISERS.values() and not all_finite(rows, dtype):
            raise OptionError(
                f"the initialiser `{init_name(initialiser)}` gave rows with infinite numbers or NaN as {dtype}",
                hint="return finite numbers that the type of the table can hold",
            )
        return rows


def copied_rows(plan: VocabPlan, old_rows: int, rows: int, unused: Collection[int] = ()) -> Ids:
    """For every new row the old row to copy, or -1 if it must be initialised.

    A hole keeps its old row unless it is among the ``unused``. Padding stays padding: the first row after the old
    tokens becomes the first row after the new tokens.

    >>> copied_rows(VocabPlan(3, (2, (0, 1), None), (0, 1)), 4, 5)
    array([ 2, -1,  2,  3, -1])
    >>> copied_rows(VocabPlan(3, (2, (0, 1), None), (0, 1)), 4, 5, unused=[2, 4])
    array([ 2, -1, -1,  3, -1])
    """
    tokens = [
        source if isinstance(source, int) else new_id if source is None and new_id < old_rows else -1
        for new_id, source in enumerate(plan.sources)
    ]
    padding = np.arange(plan.rows_before, plan.rows_before + rows - plan.rows_after)
    copies: Ids = np.concatenate([np.array(tokens, np.int64), np.where(padding < old_rows, padding, -1)])
    copies[np.fromiter(unused, np.int64, len(unused))] = -1
    return copies


class ModelRows(NamedTuple):
    """The tables of a model that have a row for each token."""

    rows: int
    """Rows of the embedding, padding included."""
    parameters: int
    """Parameters of one row in all tables; tied ones count once."""
    bytes: int

    def left(self, before: int, after: int, multiple: PadMultiple = "keep") -> tuple[int, int, int]:
        """The rows of the model after a change of those that tokens need, and the parameters and bytes saved."""
        rows = padded_rows(before, after, self.rows, multiple)
        return rows, (self.rows - rows) * self.parameters, (self.rows - rows) * self.bytes


def model_rows(source: str | os.PathLike[str]) -> ModelRows | None:
    """The rows of a model: by its tables; by its config if it has none that can be read; None without a model."""
    folder = Path(source)
    try:
        if has_weights(source):
            vocabulary = find_vocabulary(open_checkpoint(folder))
            # A table for the first ids only keeps its rows.
            whole = [tensor for tensor in vocabulary.tensors if tensor.rows == vocabulary.rows]
            tables = [tensor for tensor in whole if not (vocabulary.tied and tensor.role == "output")]
            row = sum(table.width for table in tables), sum(table.row_bytes for table in tables)
            return ModelRows(vocabulary.rows, *row)
    except CheckpointError:  # `transplant` refuses it, and says why
        pass
    config = read_config(folder / CONFIG) if os.path.isfile(folder / CONFIG) else None  # noqa: PTH113 - a name may be too long
    if not isinstance(config, dict):
        return None
    text = Checkpoint(folder, config, (), None).text_config
    rows, width = text.get("vocab_size"), text.get("hidden_size")
    types = (some.get(name) for some in (text, config) for name in ("dtype", "torch_dtype"))
    item = _ITEM_BYTES.get(str(next(filter(None, types), None)))
    if type(rows) is not int or type(width) is not int or min(rows, width) < 1 or item is None:
        return None
    # Saved by transformers without the field, it is tied.
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", True))
    width *= 1 if tied else 2
    return ModelRows(rows, width, width * item)
