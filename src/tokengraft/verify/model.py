"""`model_damage`: what edits by hand break in a model folder: rows, ids in configs, tied tables. Nothing is changed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokengraft.checkpoint.ids import CONFIG
from tokengraft.checkpoint.layout import VocabTensor, same_bytes
from tokengraft.checkpoint.tensors import read_rows
from tokengraft.errors import CheckpointError
from tokengraft.tokenizer.known_tokens import RESERVED
from tokengraft.verify.finding import EVIDENCE, NOT_CHECKED, Finding, not_checked
from tokengraft.verify.serving.model_folder import ModelFolder, model_findings, open_model_folder

_PLACEHOLDER = re.compile("image|video|audio", re.IGNORECASE)
REPAIR = "`tokengraft transplant MODEL MODEL --out NEW` gives every token a row"


def model_damage(source: str | os.PathLike[str]) -> tuple[Finding, ...]:
    """What does not fit together in a model folder; empty without a model.

    Tokens without a row, ids in configs without a token, rows that no text has trained, and two different tables that
    the config says are tied.
    """
    if not os.path.isfile(Path(source) / CONFIG):  # noqa: PTH113 - a name may be too long
        return ()
    try:
        with open_model_folder(source) as folder:
            found = [each for each in model_findings(folder) if each.name != "ids"]
            found += [*_without_row(folder), *_tied(folder), *_untrained(folder)]
    except CheckpointError as error:
        return (not_checked("model", error.message),)
    damage = tuple(each for each in found if each.outcome != "pass" and not each.detail.startswith(NOT_CHECKED))
    return damage or (Finding("model", "pass", "rows, ids in configs and tied tables fit the tokenizer"),)


def _without_row(folder: ModelFolder) -> Iterator[Finding]:
    """Tokens without a row. A note if they are placeholders of images or sound: Gemma-3 for text has such a one."""
    rows, tokenizer = folder.rows, folder.tokenizer
    if rows is None or tokenizer.n_rows <= rows:
        return
    lacking = [string for string, token_id in tokenizer.ids.items() if token_id >= rows]
    detail = f"{len(lacking):,} have none: the highest id is {tokenizer.n_rows - 1:,}, and there are {rows:,} rows"
    spare = all(_PLACEHOLDER.search(string) for string in lacking)
    yield Finding("tokens without a row", "note" if spare else "fail", detail, tuple(lacking[:EVIDENCE]), REPAIR)


def _tied(folder: ModelFolder) -> Iterator[Finding]:
    by_role = {table.role: table for table in folder.tables if not table.further}
    embedding, output = by_role.get("input"), by_role.get("output")
    if folder.config.get("tie_word_embeddings") is not True or embedding is None or output is None:
        return
    if not same_bytes(embedding, output):
        detail = f"`tie_word_embeddings` is true, and `{output.info.name}` is not the embedding: loaders ignore it"
        fix = 'set "tie_word_embeddings": false in config.json if the output was trained, or take it out of the weights'
        yield Finding("tied tables", "fail", detail, (), fix)


def _untrained(folder: ModelFolder) -> Iterator[Finding]:
    """Rows that no text has trained: zeros, or several equal ones. Reserved tokens have such rows by design."""
    table = next((table for table in folder.tables if table.role == "input" and not table.further), None)
    if table is None:
        return
    used, tokenizer = folder.tokenizer.n_rows, folder.tokenizer
    padding = _state(table, [*range(used, table.info.rows)])
    if padding:
        last = table.info.rows - 1
        yield Finding("rows", "note", f"the rows beyond the tokens, {used:,} to {last:,}, are {padding}: untrained")
    added = [t.id for t in tokenizer.added if t.id < table.info.rows and not RESERVED.fullmatch(t.content)]
    if len(added) > 1 and (state := _state(table, added)):
        yield Finding("rows", "note", f"the rows of all {len(added):,} added tokens are {state}: untrained")


def _state(table: VocabTensor, ids: list[int]) -> str:
    """Whether rows are all zero or all equal; empty if not."""
    if len(ids) < 2:
        return ""
    with table.file.path.open("rb", buffering=0) as stream:
        rows = read_rows(stream, table.info, np.array(ids, np.int64))
    if not rows.any():
        return "all zero"
    return "all equal" if (rows == rows[0]).all() else ""
