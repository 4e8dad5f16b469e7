"""`GgufJob`: gives a GGUF file the vocabulary of another tokenizer, without loading the model.

Only the keys of the tokenizer and the tables of tokens change. All other keys and tensors are copied byte for byte.
"""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from tokengraft.checkpoint.byte_ranges import copy_bytes
from tokengraft.checkpoint.compare_files import ByteComparison, comparisons
from tokengraft.checkpoint.gguf.file import GgufFile, GgufKey, wrong_file
from tokengraft.checkpoint.gguf.keys import VocabularyChange
from tokengraft.checkpoint.gguf.vocabulary import GgufVocabulary, base_tokenizer, pre_tokenizer, require_base
from tokengraft.checkpoint.layout import Role, VocabTensor, Vocabulary
from tokengraft.checkpoint.other_tables import require_no_other_tables
from tokengraft.checkpoint.padding import padded_rows
from tokengraft.checkpoint.result import Transplant, describe
from tokengraft.checkpoint.rows import DEFAULT_HOLE_ROWS, require_untied, unused_rows
from tokengraft.checkpoint.table import NewTables, TransplantOptions, write_table
from tokengraft.checkpoint.tensors import ITEM_BYTES, Q8_0
from tokengraft.errors import CheckpointError
from tokengraft.output.atomic import new_file
from tokengraft.tokenizer.known_tokens import require_unbroken
from tokengraft.tokenizer.llama_cpp import skipping_warning
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import plan

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
class GgufJob:
    """Everything that is decided before a byte is written."""

    file: GgufFile
    tables: NewTables
    keys: Mapping[str, GgufKey]
    """Those that change."""
    warnings: tuple[str, ...]

    @classmethod
    def prepare(cls, path: Path, new: Tokenizer, base: Tokenizer | None, options: TransplantOptions) -> "GgufJob":
        """The job for a file and a tokenizer, after refusing what cannot be done.

        ``base`` is the tokenizer that the file was converted with and ``new`` was made from. It is compared with both.
        """
        file = GgufFile.open(path)
        count = file.keys.get("split.count")
        if count is not None and count.value != 1:
            raise CheckpointError(
                f"`{file.path.name}` is one of {count.text} parts of a model",
                hint="join them first: `llama-gguf-split --merge FIRST_PART OUT.gguf`",
            )
        tokens = GgufVocabulary.of(file)
        vocabulary = find_tables(file, len(tokens.tokens))
        require_untied(options.output_init, tied=vocabulary.tied)
        inside = base_tokenizer(tokens, new)
        if base is not None:
            require_base(tokens, inside, new, base)
        require_unbroken(new, inside)
        pre, warnings = (tokens.pre, ()) if base else pre_tokenizer(tokens, inside, new)
        skipping = skipping_warning(new, pre) if new.kind == "byte-level" else None
        warnings += (skipping,) if skipping else ()
        changes = plan(inside, new)
        rows = padded_rows(changes.rows_before, changes.rows_after, vocabulary.rows, options.pad_multiple)
        change = VocabularyChange(tokens, inside, new, changes, rows)
        fixed = [tensor.info for tensor in vocabulary.tensors if tensor.info.dtype not in WRITABLE]
        unused = unused_rows(changes, (vocabulary.rows, rows), options.hole_rows or DEFAULT_HOLE_ROWS, change.id_fields)
        if options.hole_rows is None and fixed:
            warnings += (_KEPT_HOLES.format(len(unused.rows)),) if unused.rows else ()
            unused = replace(unused, rows=frozenset(), how="keep")
        embeds = any(key.endswith(".pooling_type") for key in file.keys)
        tables = NewTables(vocabulary, changes, rows, options, unused, has_output=not embeds)
        n_new = int((tables.copies < 0).sum())
        if fixed and n_new:
            raise CheckpointError(
                f"`{fixed[0].name}` is of the type {fixed[0].dtype}, and {n_new:,} rows are new; new rows can be "
                f"written in {', '.join(WRITABLE)}",
                hint="quantise again with tables of that type, best from the unquantised model: `llama-quantize "
                "--token-embedding-type q8_0 --output-tensor-type q8_0 IN.gguf OUT.gguf Q4_K_M`",
            )
        return cls(file, tables, change.keys(pre, unused.suppressed), warnings)

    def describe(self) -> Transplant:
        """The result before anything is written."""
        return replace(describe(self.tables), warnings=self.warnings)

    def write(self, out: Path, *, force: bool) -> Transplant:
        """Writes the file, and compares it with the source."""
        tables = self.tables
        names = (tensor.info.name for tensor in tables.vocabulary.tensors)
        target = self.file.with_changes(self.keys, dict.fromkeys(names, tables.rows))
        with new_file(out, force=force) as partial:
            _write(self.file, target, tables, partial)
            compared = _compared(self.file, target, tables, partial)
        return replace(self.describe(), compared=compared)


def find_tables(file: GgufFile, rows: int) -> Vocabulary:
    """The tensors with a vocabulary axis, if they all have a row for each token."""
    held, tensors = file.as_tensor_file(), file.tensors
    roles: dict[str, Role] = {name: role for name in tensors for pattern, role in _TABLES if pattern.fullmatch(name)}
    if INPUT not in roles:
        raise CheckpointError(
            f"`{file.path.name}` has no tensor `{INPUT}`; it has {len(tensors):,} tensors",
            hint="pass the GGUF file of a language model, not one with its vocabulary or a projector only",
        )
    for name, role in roles.items():
        shape = tensors[name].shape
        if shape[0] != rows or len(shape) != (1 if role == "bias" else 2) or not tensors[name].size:
            raise wrong_file(f"`{name}` has the shape {list(shape)}, and the file has {rows:,} tokens")
    others = ((name, tensor.shape) for name, tensor in tensors.items() if name not in roles)
    numbers = {key.name.rsplit(".", 1)[-1]: key.value for key in file.keys.values() if type(key.value) is int}
    require_no_other_tables(others, rows, numbers)
    tables = tuple(VocabTensor(tensors[name], held, role) for name, role in roles.items())
    return Vocabulary(tables, rows, OUTPUT not in roles, "the names of GGUF")


def _write(source: GgufFile, target: GgufFile, tables: NewTables, out: Path) -> None:
    """Writes the file ``target``: its keys, and its tensors where they are."""
    changed = {tensor.info.name: tensor for tensor in tables.vocabulary.tensors}
    total, progress = sum(tensor.size for tensor in source.tensors.values()), tables.options.progress
    # numpy warns of numbers that are not finite; the comparison refuses new rows with such numbers
    with np.errstate(all="ignore"), source.path.open("rb", buffering=0) as old, out.open("wb") as new:
        new.write(target.head())
        for name, tensor in target.as_tensor_file().tensors.items():
            before = source.tensors[name]
            if name in changed:
                write_table(tables, changed[name], old, new, Event())
            else:
                copy_bytes(old, before.start, before.size, new, Event())
            new.write(b"\0" * (-(tensor.start + tensor.size) % source.alignment))
            if progress:
                progress(source.path.name, before.size, total)


def _compared(source: GgufFile, target: GgufFile, tables: NewTables, out: Path) -> ByteComparison:
    """Reads the written file back and compares it with the source."""
    written = GgufFile.open(out)
    if [*_facts(written)] != [*_facts(target)]:
        raise CheckpointError(
            "after writing, the keys or the places of tensors are not as intended",
            hint="check the disk and try again; please report this",
        )
    parts = comparisons(source.as_tensor_file(), written.as_tensor_file(), tables.copies_by_table)
    with ThreadPoolExecutor(2, thread_name_prefix="compare") as pool:
        return ByteComparison.total(pool.map(lambda part: part(), parts))


def _facts(file: GgufFile) -> Iterator[Any]:
    """Everything of a file except the data of tensors."""
    yield file.version, file.alignment
    for key in file.keys.values():
        yield key.name, key.type, key.raw
    for tensor in file.tensors.values():
        yield tensor, file.type_numbers[tensor.name]
