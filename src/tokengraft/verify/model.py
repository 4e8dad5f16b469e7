"""What does not fit together in a folder: rows, ids in configs and tied tables of a model, the maps of a draft.

`model_damage` says what edits by hand break. `check_draft` says whether the maps of a draft are what servers read from
them. Verification by the target hides a wrong map: the text is right, and hardly any proposal is accepted.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokengraft.checkpoint.draft import SIZE, TARGET, TIED, DraftFolder, ids_hash
from tokengraft.checkpoint.folder import open_checkpoint
from tokengraft.checkpoint.ids import CONFIG
from tokengraft.checkpoint.layout import VocabTensor, find_vocabulary
from tokengraft.checkpoint.model_files import recorded
from tokengraft.checkpoint.tensors import Ids, same_bytes
from tokengraft.errors import CheckpointError
from tokengraft.formats.sources import load_folder
from tokengraft.pruning.draft_vocabulary import lacking_warning
from tokengraft.tokenizer.known_tokens import RESERVED
from tokengraft.verify.finding import EVIDENCE, NOT_CHECKED, Check, Finding, finding, not_checked, note
from tokengraft.verify.joined_marks import marks_loaded
from tokengraft.verify.model_folder import ModelFolder, model_findings, open_model_folder

_PLACEHOLDER = re.compile("image|video|audio", re.IGNORECASE)
REPAIR = "`tokengraft transplant MODEL MODEL --out NEW` gives every token a row"


def model_damage(source: str | os.PathLike[str]) -> tuple[Finding, ...]:
    """What does not fit together in a model folder; empty without a model."""
    if not os.path.isfile(Path(source) / CONFIG):  # noqa: PTH113 - a name may be too long
        return ()
    try:
        with open_model_folder(source) as folder:
            found = [each for each in model_findings(folder) if each.name != "ids"]
            found += [*_without_row(folder), *_tied(folder), *_untrained(folder)]
            found += marks_loaded(folder.tokenizer, Path(source))
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
        detail = f"`tie_word_embeddings` is true, and `{output.name}` is not the embedding: loaders ignore it"
        fix = 'set "tie_word_embeddings": false in config.json if the output was trained, or take it out of the weights'
        yield Finding("tied tables", "fail", detail, (), fix)


def _untrained(folder: ModelFolder) -> Iterator[Finding]:
    """Rows that no text has trained: zeros, or several equal ones. Reserved tokens have such rows by design."""
    table = next((table for table in folder.tables if table.role == "input" and not table.further), None)
    if table is None:
        return
    used, tokenizer = folder.tokenizer.n_rows, folder.tokenizer
    padding = _state(table, [*range(used, table.rows)])
    if padding:
        last = table.rows - 1
        yield Finding("rows", "note", f"the rows beyond the tokens, {used:,} to {last:,}, are {padding}: untrained")
    added = [t.id for t in tokenizer.added if t.id < table.rows and not RESERVED.fullmatch(t.content)]
    if len(added) > 1 and (state := _state(table, added)):
        yield Finding("rows", "note", f"the rows of all {len(added):,} added tokens are {state}: untrained")


def _state(table: VocabTensor, ids: list[int]) -> str:
    """Whether rows are all zero or all equal; empty if not."""
    if len(ids) < 2:
        return ""
    rows = table.read(np.array(ids, np.int64))
    if not rows.any():
        return "all zero"
    return "all equal" if (rows == rows[0]).all() else ""


_MAKE = "make the map again: `tokengraft draft TARGET --counts COUNTS --size N --cut DRAFT --out NEW`"
_BLOCK = 1024


def check_draft(folder: Path, target: Path | None = None) -> Check:
    """The results of all checks of a draft folder; with the folder of its target, also of those that compare both."""
    draft = DraftFolder.open(folder)
    findings = [*_shapes(draft), *_maps(draft)]
    if target is not None and not any(each.outcome == "fail" for each in findings):
        findings += _against_target(draft, target)
    return Check(tuple(findings))


def _shapes(draft: DraftFolder) -> Iterator[Finding]:
    config, offsets = draft.source.config, draft.maps.get("d2t")
    size = config[SIZE] if type(config.get(SIZE)) is int else draft.rows
    rows = {head.name: head.rows for head in draft.heads} | ({} if offsets is None else {"d2t": len(offsets)})
    wrong = [f"`{name}` has {n:,} rows, and `{SIZE}` is {size:,}" for name, n in rows.items() if n != size]
    if config.get(TIED) and draft.heads:
        wrong.append(f"`{TIED}` is true: SGLang then uses the embedding as head, and not `{draft.heads[0].name}`")
    yield finding("shapes", wrong, f"head and map have {size:,} rows", "{n} do not fit", f"set `{SIZE}`, or {_MAKE}")
    bad = f"the head has {size:,} of {draft.rows:,} ids, and without `d2t` servers take row i for id i"
    lacks = [bad] if offsets is None and min([size, *rows.values()]) < draft.rows else []
    yield finding("missing map", lacks, "there is a map, or the head has all ids", "there is no `d2t`", _MAKE)


def _maps(draft: DraftFolder) -> Iterator[Finding]:
    offsets, mask, ids, rows = draft.maps.get("d2t"), draft.maps.get("t2d"), draft.ids, draft.rows
    if offsets is None:
        return
    marked = None if mask is None else np.flatnonzero(mask)
    # Offsets of ascending ids stay equal where ids follow each other, as those of bytes do. Ids rise at every row.
    is_offset = marked is not None and np.array_equal(marked, ids)
    rises = len(offsets) > 1 and int(offsets[0]) >= 0 and bool((np.diff(offsets) > 0).all())
    wrong = [f"row {len(ids) - 1:,} is read as id {int(ids[-1]):,}, and {int(offsets[-1]):,} seems to be meant"]
    wrong = wrong if rises and not is_offset else []
    bad = "`d2t` has ids, and servers read offsets: id = i + d2t[i]"
    yield finding("absolute ids", wrong, "`d2t` has offsets", bad, "store `d2t - torch.arange(len(d2t))`")
    if wrong:
        return
    first = [f"ids 0 to {len(ids) - 1:,}"] if len(ids) < rows and not offsets.any() else []
    yield finding("first ids", first, "offsets are set", "all offsets are 0, as in a map that was never filled", _MAKE)
    beyond = [f"row {row:,}: id {int(ids[row]):,}" for row in np.flatnonzero((ids < 0) | (ids >= rows))]
    yield finding("ids in range", beyond, f"all are below {rows:,}", "{n} are beyond the table of the target", _MAKE)
    values, counts = np.unique(ids, return_counts=True)
    twice = [f"id {int(i):,}" for i in values[counts > 1]]
    yield finding("duplicate ids", twice, "every id has one row", "{n} ids have several rows", _MAKE)
    falls = [f"row {int(row) + 1:,}" for row in np.flatnonzero(np.diff(ids) < 0)]
    fix = "sort the ids, and the rows of the head with them"
    yield finding("ascending ids", falls, "as training with `t2d` needs them", "{n} rows are not in order", fix)
    if mask is None or marked is None:
        yield note("t2d", "there is none: vLLM and SGLang do not read it, SpecForge and speculators train with it")
        return
    differ = [f"it has {len(mask):,} entries, and the target {rows:,} ids"] if len(mask) != rows else []
    differ += [f"id {int(i):,}" for i in np.setxor1d(marked, ids)]
    yield finding("t2d", differ, "it has the ids of `d2t`", "{n} differences from `d2t`", _MAKE)


def _against_target(draft: DraftFolder, target: Path) -> Iterator[Finding]:
    tokenizer, ids, made_for = load_folder(target), draft.ids, recorded(draft.source.folder, TARGET)
    wrong = [f"id {int(i):,} has no token" for i in np.setdiff1d(ids, [*tokenizer.ids.values()])]
    wrong += ["it was made for other tokens, by its record"] if made_for not in (None, ids_hash(tokenizer)) else []
    vocabulary = find_vocabulary(open_checkpoint(target))
    if draft.rows != vocabulary.rows:
        wrong.append(f"`vocab_size` is {draft.rows:,}, and the target has {vocabulary.rows:,} rows")
    if warning := lacking_warning(tokenizer, ids.tolist()):
        yield note("special tokens", warning)
    yield finding("map of another tokenizer", wrong, "the ids are tokens of the target", "{n} differences", _MAKE)
    tables = [each for each in vocabulary.tensors if each.role != "bias"]
    output = max(tables, key=lambda each: each.role == "output")
    for head in draft.heads if not wrong else ():
        yield _rows_of_target(head, output, ids)


def _rows_of_target(head: VocabTensor, output: VocabTensor, ids: Ids) -> Finding:
    """Whether a head that has rows of the target has them at the mapped ids. Rows of its own are no mistake."""
    name, ours = "rows of the target", [*map(hash, _rows(head, np.arange(head.rows)))]
    same = [one == other for one, other in zip(ours, map(hash, _rows(output, ids)), strict=True)]
    known = {*map(hash, _rows(output, np.arange(output.rows)))} if not all(same) else set()
    moved = [f"row {row:,}, id {int(ids[row]):,}" for row, one in enumerate(ours) if not same[row] and one in known]
    if moved or all(same):
        return finding(name, moved, "the head has them at the mapped ids", "{n} rows are those of other ids", _MAKE)
    return note(name, f"{same.count(True):,} of {len(ids):,} are in `{head.name}`, the others are its own")


def _rows(tensor: VocabTensor, rows: Ids) -> Iterator[bytes]:
    """The bytes of some rows of a table, one after the other."""
    for at in range(0, len(rows), _BLOCK):
        yield from (row.tobytes() for row in tensor.read(rows[at : at + _BLOCK]))
