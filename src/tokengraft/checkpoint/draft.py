"""Folders of draft models for speculative decoding: their maps, and the same drafts with other rows in their heads.

The head of an EAGLE-3 draft has rows for a part of the target's ids. `d2t` has an offset for each row (int64): row i is
the target's id i + d2t[i]. `t2d` says of every id of the target whether the head has it (bool). This is the arithmetic
of vLLM (a014e35, `llama_eagle3.py`), SGLang (cce0a12, `llama_eagle3.py`), SpecForge (a6b6b02, `compact_teacher.py`),
speculators (c05b95b, `vocab_mapping.py`) and EAGLE (cb7e084, `cnets.py`). vLLM and SGLang read only `d2t`. SpecForge
and speculators train with `t2d`, which gives the rows in ascending order, so ids must ascend.
"""

import io
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.folder import INDEX, Checkpoint, initializer_range, open_checkpoint
from tokengraft.checkpoint.ids import CONFIG, Renumbering, model_configs, read_config
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary, find_vocabulary
from tokengraft.checkpoint.model_files import is_old, written_before
from tokengraft.checkpoint.result import ByteComparison, Transplant, describe, write_report, write_weights
from tokengraft.checkpoint.rows import Unused, unused_rows
from tokengraft.checkpoint.table import NewTables, TransplantOptions, plan_of_rows, renumbering_of
from tokengraft.checkpoint.tensors import Ids, TensorFile
from tokengraft.errors import CheckpointError, OptionError, TokengraftError, option
from tokengraft.formats.sources import folder_files, is_tokenizer_file, load, load_folder
from tokengraft.output.atomic import new_folder, write_files
from tokengraft.output.json_file import JsonStyle
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import Source, VocabPlan, plan

SIZE, TIED, TARGET = "draft_vocab_size", "tie_word_embeddings", "target_ids_sha256"
IDS, PLOT = "token_ids.json", "coverage.svg"
_MAP = re.compile(r"(?:^|.*\.)(d2t|t2d)")
_HEAD = re.compile(r"(?:^|.*\.)(?:lm_head|shared_head\.head)\.weight")
_EMBEDDING = re.compile(r"(?:^|.*\.)embed_tokens\.weight")
_TYPES = {"I64": "<i8", "I32": "<i4", "BOOL": "?"}
_FOUND = "the names of a draft"


def maps_of(ids: Iterable[int], rows: int) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """`d2t` and `t2d` of ascending ids of a target with so many embedding rows.

    >>> maps_of([0, 2, 3], 5)
    (array([0, 1, 1]), array([ True, False,  True,  True, False]))
    """
    chosen, t2d = np.array([*ids], np.int64), np.zeros(rows, np.bool_)
    t2d[chosen] = True
    return chosen - np.arange(len(chosen), dtype=np.int64), t2d


def map_files(ids: Iterable[int], rows: int) -> dict[str, bytes]:
    """The ids as a list, and their maps as speculators reads them for training, by file name."""
    chosen = [int(i) for i in ids]
    files = {IDS: json.dumps(chosen).encode() + b"\n"}
    for name, array in zip(("d2t.npy", "t2d.npy"), maps_of(chosen, rows), strict=True):
        np.save(stream := io.BytesIO(), array)
        files[name] = stream.getvalue()
    return files


def ids_hash(tokenizer: Tokenizer) -> str:
    """A hash of the tokens and their ids: a map fits all tokenizers with the same."""
    return sha256(json.dumps(sorted(tokenizer.ids.items())).encode()).hexdigest()


def is_draft(folder: Path) -> bool:
    """Whether a folder has a draft model with a vocabulary of its own, by its config."""
    try:
        config = read_config(folder / CONFIG)
    except TokengraftError:  # it is something else, or will be refused as such
        return False
    return isinstance(config, dict) and (SIZE in config or "eagle" in str(config.get("architectures")).lower())


@dataclass(frozen=True)
class DraftFolder:
    """The files of a draft model, and its tensors with a vocabulary axis."""

    source: Checkpoint
    heads: tuple[VocabTensor, ...]
    """One, or one for each step of multi-token prediction; empty if the draft uses the head of its target."""
    embedding: VocabTensor | None
    rows: int
    """Embedding rows of the target."""
    maps: Mapping[str, npt.NDArray[Any]]
    """`d2t` and `t2d` as they are stored, if they are."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The draft in a folder."""
        source, maps = open_checkpoint(folder), dict[str, npt.NDArray[Any]]()
        held = {tensor.name: VocabTensor.of(tensor, "output") for tensor in source.tensors}
        heads = {name: tensor for name, tensor in held.items() if _HEAD.fullmatch(name)}
        bases = tuple(name.removesuffix("weight") for name in heads)
        if beside := [name for name in held if bases and name.startswith(bases) and name not in heads]:
            raise CheckpointError(f"the head has `{beside[0]}` beside its weight", hint="pass an unquantised draft")
        inputs = [replace(tensor, role="input") for name, tensor in held.items() if _EMBEDDING.fullmatch(name)]
        for tensor in source.tensors:
            if found := _MAP.fullmatch(tensor.name):
                if tensor.dtype not in _TYPES or len(tensor.shape) != 1:
                    what = f"`{tensor.name}` is of the type {tensor.dtype} and the shape {tensor.shape}"
                    raise CheckpointError(what, hint="store one row: of int64 as d2t, of bool as t2d")
                maps[found[1]] = tensor.extent.read().view(_TYPES[tensor.dtype])
        nested = (source.config.get(name) for name in ("transformer_layer_config", "text_config"))
        sizes = [part.get("vocab_size") for part in (source.config, *nested) if isinstance(part, dict)]
        rows = next((size for size in sizes if type(size) is int), inputs[0].rows if inputs else None)
        if rows is None:
            raise CheckpointError(f"`{folder / CONFIG}` has no `vocab_size`", hint="add that of the target")
        return cls(source, tuple(heads.values()), inputs[0] if inputs else None, rows, maps)

    @property
    def ids(self) -> Ids:
        """The target's id of every row of the head."""
        offsets, n = self.maps.get("d2t"), self.heads[0].rows if self.heads else self.rows
        return np.arange(n) if offsets is None else np.arange(len(offsets)) + offsets.astype(np.int64)

    def require_sound(self) -> None:
        """Refuses a draft whose head, embedding and maps do not fit each other: rows would go to the wrong ids."""
        ids, mask, rows = np.unique(self.ids), self.maps.get("t2d"), [head.rows for head in self.heads]
        is_whole = "d2t" in self.maps or not rows or rows[0] == self.rows
        fits = len(ids) == len(self.ids) and not len(ids[(ids < 0) | (ids >= self.rows)]) and {*rows} <= {len(ids)}
        embeds = self.embedding is None or self.embedding.rows == self.rows
        if not (is_whole and fits and embeds and (mask is None or np.array_equal(np.flatnonzero(mask), ids))):
            folder = self.source.folder
            what = f"the head, the embedding and the maps of `{folder}` do not fit each other, or `vocab_size`"
            raise CheckpointError(what, hint=f"see `tokengraft check {folder}`")


@dataclass(frozen=True)
class DraftJob:
    """A draft folder with other rows in its head. Everything is decided, and nothing is written."""

    draft: DraftFolder
    plan: VocabPlan
    tables: tuple[NewTables, ...]
    ids: Ids | None
    """The target's ids of the new head; None if it has all of them."""
    rows: int
    """Embedding rows of the target."""
    written: Mapping[str, bytes]
    facts: Mapping[str, Any]
    """For the record of the folder."""

    @classmethod
    def cut(cls, folder: Path, target: Path, rows: int, ids: tuple[int, ...], facts: Mapping[str, Any]) -> Self:
        """The draft with some of the rows of its head. Without a head of its own, with rows of the target's."""
        draft = DraftFolder.open(folder)
        draft.require_sound()
        if draft.rows != rows:
            raise CheckpointError(
                f"the draft `{folder}` is for a target of {draft.rows:,} ids, and `{target}` has {rows:,}",
                hint="pass the folder of its target, with its config",
            )
        heads, config, row_of = draft.heads, dict(draft.source.config), {int(i): n for n, i in enumerate(draft.ids)}
        if not heads:
            own = [draft.embedding] if config.get(TIED) and draft.embedding else []
            tensors = own or find_vocabulary(open_checkpoint(target)).tensors
            found = max((each for each in tensors if each.role != "bias"), key=lambda each: each.role == "output")
            heads = (VocabTensor.of(replace(found, name="lm_head.weight"), "output"),)
        if lacking := [i for i in ids if row_of.get(i, heads[0].rows) >= heads[0].rows]:
            raise CheckpointError(
                f"the head of `{folder}` has {heads[0].rows:,} rows, and none for {len(lacking):,} of the "
                f"{len(ids):,} chosen ids, such as {lacking[0]:,}",
                hint=f"pass the draft before its head was cut, that of this model, or other {option('ids')}",
            )
        tables = _head_tables(heads, [row_of[i] for i in ids], TransplantOptions())
        config |= {SIZE: len(ids)} | ({TIED: False} if config.get(TIED) else {})
        written = {CONFIG: JsonStyle.of((folder / CONFIG).read_bytes()).dump(config)}
        return cls(draft, tables.plan, (tables,), np.array(ids, np.int64), draft.rows, written, facts)

    @classmethod
    def prepare(cls, folder: Path, given: Tokenizer | Any, base: Tokenizer | None, options: TransplantOptions) -> Self:
        """The draft with the vocabulary of another tokenizer. A new token has a row if all of its pieces have one."""
        draft, own = DraftFolder.open(folder), any(is_tokenizer_file(Path(path.name)) for path in folder.iterdir())
        if base is None and not own:
            raise OptionError(
                f"the draft `{folder}` has no tokenizer", hint=f"pass that of its target: {option('base', 'OLD')}"
            )
        draft.require_sound()
        old, new = base or load_folder(folder), given if isinstance(given, Tokenizer) else load(given)
        changes = plan_of_rows(plan(old, new), old, draft.rows, model_configs(folder))
        renumbering, has_map = renumbering_of(changes, draft.rows, options.pad_multiple), bool(draft.maps)
        full = (*([draft.embedding] if draft.embedding else []), *(() if has_map else draft.heads))
        unused = replace(unused_rows(renumbering, options.hole_rows), suppressed=frozenset())
        vocabulary = Vocabulary(full, draft.rows, tied=False, found_by=_FOUND)
        spread, rows = initializer_range(draft.source.text_config), renumbering.rows[1]
        tables = [NewTables(vocabulary, renumbering, options, unused, spread)]
        config, ids = renumbering.config(draft.source.config, CONFIG), None
        if has_map:
            row_of, sources = {int(i): row for row, i in enumerate(draft.ids)}, dict[int, Source]()
            for new_id, source in enumerate(changes.sources):
                pieces = source if isinstance(source, tuple) else (source,)
                if pieces and all(piece in row_of for piece in pieces):
                    found = tuple(row_of[piece] for piece in pieces if piece is not None)
                    sources[new_id] = found if isinstance(source, tuple) else found[0]
            lengths = [changes.lengths[i] if i < len(changes.lengths) else 0 for i in row_of]
            tables.append(_head_tables(draft.heads, sources.values(), options, lengths))
            ids, config[SIZE] = np.array([*sources], np.int64), len(sources)
        written = {CONFIG: JsonStyle.of((folder / CONFIG).read_bytes()).dump(config)}
        written |= (folder_files(new) if own else {}) | (map_files(ids, rows) if ids is not None else {})
        return cls(draft, changes, tuple(tables), ids, rows, written, {TARGET: ids_hash(new)})

    def describe(self) -> Transplant:
        """The result before anything is written."""
        first, *others = map(describe, self.tables)
        tensors = first.tensors + tuple(tensor for other in others for tensor in other.tensors)
        weights = {file.path.name for file in self.draft.source.files}
        left_out = (path.name for path in sorted(self.draft.source.folder.iterdir()) if is_old(path))
        done = replace(first, tensors=tensors, plan=self.plan, rows_before=self.draft.rows, rows_after=self.rows)
        return replace(done, left_out=tuple(name for name in left_out if name not in {*weights, INDEX}))

    def write(self, out: Path, *, force: bool, others: Mapping[str, bytes] | None = None) -> Transplant:
        """Writes the folder, and compares it with the source. ``others`` are further files."""
        written, folder = {**self.written, **(others or {})}, self.draft.source.folder
        replaced = {*written, *(file.path.name for file in self.draft.source.files), INDEX, PLOT}
        has_tokenizer = any(is_tokenizer_file(Path(name)) for name in written)
        with new_folder(out, replaceable=written_before(out) if force else None) as partial:
            done = replace(self.describe(), compared=self._write_weights(partial))
            for path in sorted(folder.iterdir()):
                is_tokenizer = has_tokenizer and is_tokenizer_file(Path(path.name))
                if not (path.name in replaced or path.name.startswith(".") or is_old(path) or is_tokenizer):
                    shutil.copyfile(path, partial / path.name)
            write_files(written, partial)
            write_report(done, folder / CONFIG, self.facts, partial)
        return done

    def _write_weights(self, out: Path) -> ByteComparison:
        """Writes every weight file: new tables and maps, and all other tensors as they are."""
        source, arrays = self.draft.source, dict[str, npt.NDArray[Any]]()
        if self.ids is not None:
            named = {found[1]: tensor.name for tensor in source.tensors if (found := _MAP.fullmatch(tensor.name))}
            d2t, t2d = maps_of(self.ids, self.rows)
            arrays = {named.get("d2t", "d2t"): d2t, named.get("t2d", "t2d"): t2d}
        compared = write_weights(source, self.tables, out, arrays)
        if source.index is not None:
            files = [TensorFile.open(out / file.path.name) for file in source.files]
            sizes = {"total_size": sum(tensor.size for file in files for tensor in file.tensors.values())}
            places = {name: file.path.name for file in files for name in file.tensors}
            index = {"metadata": sizes, "weight_map": dict(sorted(places.items()))}
            (out / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
        return compared


def _head_tables(
    heads: tuple[VocabTensor, ...], sources: Iterable[Source], options: TransplantOptions, lengths: Iterable[int] = ()
) -> NewTables:
    """Heads whose new rows are given by rows of the old ones."""
    rows, new = heads[0].rows, tuple(sources)
    changes = VocabPlan(rows, new, tuple(sorted({*range(rows)}.difference(new))), tuple(lengths))
    vocabulary = Vocabulary(heads, rows, tied=False, found_by=_FOUND)
    return NewTables(vocabulary, Renumbering(changes, (rows, len(new))), options, Unused())
