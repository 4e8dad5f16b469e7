"""`padded_rows`: how many rows a new embedding has. `model_rows`: the size of a row, and what fewer rows save."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokengraft.checkpoint.ids import CONFIG, id_fields, read_config
from tokengraft.checkpoint.layout import Checkpoint, find_vocabulary, has_weights, open_checkpoint
from tokengraft.errors import CheckpointError, option, require, whole_number
from tokengraft.tokenizer.kind import spell, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan, token_length

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


def plan_of_rows(changes: VocabPlan, old: Tokenizer, rows: int, configs: Mapping[str, Any]) -> VocabPlan:
    """The plan for a table that may lack rows for the last added tokens of its tokenizer.

    Gemma-3's models for text lack the row of `<image_soft_token>`. Such a token has a hole in the new table, whose row
    is never generated, or again no row if the number of ids does not change.

    Raises:
        CheckpointError: Another token lacks a row, or one that is used: by a config, or as a part of a new token.
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
            tables = [tensor for tensor in vocabulary.tensors if tensor.info.rows == vocabulary.rows]
            infos = [tensor.info for tensor in tables if not (vocabulary.tied and tensor.role == "output")]
            return ModelRows(vocabulary.rows, sum(info.width for info in infos), sum(info.row_bytes for info in infos))
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
