"""`GgufJob`: gives a GGUF file the vocabulary of another tokenizer, without loading the model.

Only the keys of the tokenizer (`VocabularyChange`) and the tables of tokens change. All other keys and tensors are
copied byte for byte.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from tokengraft.checkpoint.folder import Role
from tokengraft.checkpoint.gguf_file import (
    INT32,
    GgufFile,
    GgufKey,
    number_key,
    numbers_key,
    string_key,
    strings_key,
    wrong_file,
)
from tokengraft.checkpoint.gguf_vocabulary import (
    MERGES,
    PRE,
    SCORES,
    TOKENS,
    TYPES,
    GgufVocabulary,
    base_tokenizer,
    new_scores,
    pre_tokenizer,
    require_base,
    require_same_rule,
)
from tokengraft.checkpoint.ids import SUPPRESSED, Renumbering, suppressing
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary, require_no_other_tables
from tokengraft.checkpoint.result import ByteComparison, Transplant, comparisons, describe
from tokengraft.checkpoint.rows import unused_rows
from tokengraft.checkpoint.table import NewTables, TransplantOptions, renumbering_of
from tokengraft.checkpoint.tensors import ITEM_BYTES, Q8_0, Part, ReadBack, write_parts
from tokengraft.errors import CheckpointError, option
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.formats.sources import load
from tokengraft.output.atomic import new_file
from tokengraft.tokenizer.kind import SPACE, byte_token
from tokengraft.tokenizer.known_tokens import require_unbroken
from tokengraft.tokenizer.llama_cpp import skipping_warning
from tokengraft.tokenizer.marks import joined_scripts
from tokengraft.tokenizer.piece_model import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
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
    def prepare(cls, path: Path, given: Tokenizer | Any, base: Tokenizer | None, options: TransplantOptions) -> Self:
        """The job for a file and a tokenizer, after refusing what cannot be done.

        ``base`` is the tokenizer that the file was converted with and the new one was made from. It is compared with
        both.
        """
        new = given if isinstance(given, Tokenizer) else load(given)
        if scripts := joined_scripts(new):
            raise CheckpointError(
                f"the new tokenizer keeps words in {', '.join(scripts)} whole, and llama.cpp cuts them at combining "
                "marks: its new tokens would hardly be used",
                hint=f"make the tokenizer without {option('join_marks')}",
            )
        file = GgufFile.open(path)
        count = file.keys.get("split.count")
        if count is not None and count.value != 1:
            raise CheckpointError(
                f"`{file.path.name}` is one of {count.text} parts of a model",
                hint="join them first: `llama-gguf-split --merge FIRST_PART OUT.gguf`",
            )
        tokens = GgufVocabulary.of(file)
        vocabulary = find_tables(file, len(tokens.tokens))
        inside = base_tokenizer(tokens, new)
        if base is not None:
            require_base(tokens, inside, new, base)
        require_unbroken(new, inside)
        pre, warnings = (tokens.pre, ()) if base else pre_tokenizer(tokens, inside, new)
        skipping = skipping_warning(new, pre) if new.kind == "byte-level" else None
        warnings += (skipping,) if skipping else ()
        changes = plan(inside, new)
        renumbering = renumbering_of(changes, vocabulary.rows, options.pad_multiple)
        change = VocabularyChange(tokens, inside, new, renumbering)
        fixed = [tensor for tensor in vocabulary.tensors if tensor.dtype not in WRITABLE]
        unused = unused_rows(renumbering, options.hole_rows, change.id_fields)
        if options.hole_rows is None and fixed:
            warnings += (_KEPT_HOLES.format(len(unused.rows)),) if unused.rows else ()
            unused = replace(unused, rows=frozenset(), how="keep")
        embeds = any(key.endswith(".pooling_type") for key in file.keys)
        tables = NewTables(vocabulary, renumbering, options, unused, has_output=not embeds)
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
        names = (tensor.name for tensor in tables.vocabulary.tensors)
        target = self.file.with_changes(self.keys, dict.fromkeys(names, tables.rows))
        with new_file(out, force=force) as partial:
            read_back = write_parts(partial, _parts(self.file, target, tables))
            compared = _compared(self.file, target, tables, partial, read_back)
        return replace(self.describe(), compared=compared)


def find_tables(file: GgufFile, rows: int) -> Vocabulary:
    """The tensors with a vocabulary axis, if they all have a row for each token."""
    tensors = {name: file.tensors[name] for name in file.type_numbers}
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
    tables = tuple(VocabTensor.of(tensors[name], role) for name, role in roles.items())
    return Vocabulary(tables, rows, OUTPUT not in roles, "the names of GGUF")


def _parts(source: GgufFile, target: GgufFile, tables: NewTables) -> Iterator[Part]:
    """What the file ``target`` consists of: its keys, and its tensors where they are."""
    changed = {tensor.name: tensor for tensor in tables.vocabulary.tensors}
    total, progress = sum(tensor.size for tensor in source.tensors.values()), tables.options.progress
    yield target.head()
    for name, tensor in target.tensors.items():
        before = source.tensors[name]
        yield from tables.parts(changed[name]) if name in changed else [before.extent]
        yield b"\0" * (-(tensor.start + tensor.size) % source.alignment)
        if progress:
            progress(source.path.name, before.size, total)


def _compared(source: GgufFile, target: GgufFile, tables: NewTables, out: Path, read_back: ReadBack) -> ByteComparison:
    """Reads the written file back, but for what was read back already, and compares it with the source."""
    written, head = GgufFile.open(out), target.head()
    with out.open("rb") as stream:
        is_intended = stream.read(len(head)) == head
    if not is_intended:
        raise CheckpointError(
            "after writing, the keys or the places of tensors are not as intended",
            hint="check the disk and try again; please report this",
        )
    parts = comparisons(source, written, tables.copies_by_table, read_back)
    with ThreadPoolExecutor(2, thread_name_prefix="compare") as pool:
        return ByteComparison.total(pool.map(lambda part: part(), parts))


ADDED_SCORE, UNUSED_SCORE = -1000.0, -10000.0
"""Scores of added tokens and of placeholders, as the converter writes them."""
_IDS = re.compile(r"token_ids?(_|$)|^suppress_tokens$")
"""The last part of the name of a key that holds ids."""
_SIZE = "vocab_size"
_SUPPRESSED = f"tokenizer.ggml.{SUPPRESSED}"
_HUGGINGFACE = "tokenizer.huggingface.json"
_BYTES = frozenset(map(byte_token, range(256)))
_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL)
"""Added tokens that the converter makes control tokens, special or not (`does_token_look_special`)."""


class GgufToken(NamedTuple):
    """A token as a GGUF file has it."""

    string: bytes
    type: int
    score: float


@dataclass(frozen=True)
class VocabularyChange:
    """The old and the new vocabulary of a GGUF file."""

    vocabulary: GgufVocabulary
    base: Tokenizer
    """The tokenizer of the file."""
    new: Tokenizer
    renumbering: Renumbering

    @property
    def file(self) -> GgufFile:
        """The file with the old vocabulary."""
        return self.vocabulary.file

    @cached_property
    def _added(self) -> dict[str, bool]:
        """Added tokens, and whether they are special."""
        return {token.content: token.special for token in self.new.added}

    @cached_property
    def _scores(self) -> dict[str, float]:
        return new_scores(self.vocabulary, self.base, self.new) if self.vocabulary.kind == "sentencepiece" else {}

    @cached_property
    def tokens(self) -> list[GgufToken]:
        """A token for every new row."""
        tokens = [self._token(token_id) for token_id in range(self.renumbering.rows[1])]
        if len({token.string for token in tokens}) < len(tokens):
            raise CheckpointError(
                "two tokens would have the same string, which llama.cpp does not load: a token has the name of a "
                "placeholder such as [PAD7], or of an added token with spaces",
                hint="rename the token in the new tokenizer",
            )
        return tokens

    def _token(self, token_id: int) -> GgufToken:
        plan = self.renumbering.plan
        source = plan.sources[token_id] if token_id < plan.rows_after else None
        if source is None:  # as the converter: that of the SentencePiece model, if there is one
            model = self.new.piece_model
            if model is None or token_id not in model.holes:
                return GgufToken(f"[PAD{token_id}]".encode(), UNUSED, UNUSED_SCORE)
            return GgufToken(model.pieces[token_id].string.encode(), UNUSED, model.pieces[token_id].score)
        string, old = self.new.strings[token_id], self.vocabulary
        if not isinstance(source, int):
            kind = self._type(string)
            text = string.replace(SPACE, " ") if kind == USER_DEFINED else string
            score = self._scores.get(string, ADDED_SCORE if string in self._added else 0.0)
            return GgufToken(text.encode(), kind, score)
        kind, score = int(old.types[source]), 0.0 if old.scores is None else float(old.scores[source])
        if kind == NORMAL:
            score = self._scores.get(string, score)
        if kind in (NORMAL, UNUSED) and string in self._added:  # it became an added token
            kind = self._type(string)
        return GgufToken(old.tokens[source], kind, score)

    def _type(self, string: str) -> int:
        """The type that the converter gives a token."""
        if string in self._added:
            return CONTROL if self._added[string] or _SPECIAL.fullmatch(string) else USER_DEFINED
        if self.new.kind == "sentencepiece":
            return BYTE if string in _BYTES else UNKNOWN if string == self.new.model.get("unk_token") else NORMAL
        return NORMAL

    @property
    def id_fields(self) -> list[tuple[str, int]]:
        """The new ids that keys name, with the last part of the key."""
        keys = [(key.name.rsplit(".", 1)[-1], key) for key in self._numbers()]
        return [(name, int(i)) for name, key in keys if name != _SIZE for i in np.atleast_1d(key.value)]

    def keys(self, pre: str | None, suppressed: Collection[int] = ()) -> dict[str, GgufKey]:
        """The changed keys by name, with a type of pre-tokenizer, and ids without a token that must not be chosen."""
        strings, types, scores = zip(*self.tokens, strict=True)
        keys = {TOKENS: strings_key(TOKENS, [*strings])}
        for name, values in ((TYPES, types), (SCORES, scores)):
            if name in self.file.keys:
                keys[name] = numbers_key(name, self.file.keys[name].item_type or 0, values)
        if MERGES in self.file.keys:  # as the converter does, a space within a token is written as Ġ
            pairs = ((left.replace(" ", "Ġ"), right.replace(" ", "Ġ")) for left, right in self.new.merge_strings())
            keys[MERGES] = strings_key(MERGES, [f"{left} {right}".encode() for left, right in pairs])
        if _HUGGINGFACE in self.file.keys:
            keys[_HUGGINGFACE] = string_key(_HUGGINGFACE, write_tokenizer_json(self.new))
        if pre is not None:
            keys[PRE] = string_key(PRE, pre.encode())
        if self.vocabulary.kind == "sentencepiece":
            normal = {token.string.decode(): token.score for token in self.tokens if token.type == NORMAL}
            require_same_rule(self.new, normal)
        keys |= {key.name: key for key in self._numbers()}
        if suppressed:
            listed = {SUPPRESSED: [*map(int, keys[_SUPPRESSED].value)]} if _SUPPRESSED in keys else {}
            ids = suppressing(listed, suppressed)[SUPPRESSED]
            keys[_SUPPRESSED] = numbers_key(_SUPPRESSED, INT32, ids)  # the type that llama.cpp reads
        return keys

    def _numbers(self) -> Iterator[GgufKey]:
        """Keys that hold ids or the size of the vocabulary."""
        before, after = self.renumbering.rows
        for name, key in self.file.keys.items():
            last = name.rsplit(".", 1)[-1]
            if _IDS.search(last):
                yield _renumbered(key, self.renumbering, self.file.path.name)
            elif last == _SIZE:
                if key.value != before:
                    raise wrong_file(f"`{name}` is {key.text}, and the file has {before:,} tokens")
                yield number_key(key, after)


def _renumbered(key: GgufKey, renumbering: Renumbering, file: str) -> GgufKey:
    """A key with the new ids of those that it has."""
    listed = key.value.tolist() if isinstance(key.value, np.ndarray) else [key.value]
    if any(type(value) is not int for value in listed):
        raise wrong_file(f"`{key.name}` is {key.text}; a token id is a whole number")
    ids = [i for value in listed if (i := renumbering.new_id(value, key.name, file)) is not None]
    if key.item_type is not None:
        return numbers_key(key.name, key.item_type, ids)
    return number_key(key, ids[0]) if ids else key
