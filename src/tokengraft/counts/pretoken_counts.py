"""`PretokenCounts`: the result of counting a corpus, and the input of all later steps. In memory, and as Parquet.

The file has two columns, `pretoken` (bytes) and `count`, in the order of the bytes, readable by any tool. Totals,
occurrences of added tokens and the fingerprint of the pipeline are in its metadata, as JSON under `tokengraft`.
"""

import copyreg
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tokengraft import _core
from tokengraft.corpus.block import binary_buffers
from tokengraft.corpus.open import paths_of
from tokengraft.corpus.options import Totals
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.counts.weights import as_weight, factors_for
from tokengraft.errors import CountsError, UnreadableFileError, option, require_type
from tokengraft.output.atomic import new_file
from tokengraft.output.json_file import parse_json, require_plain
from tokengraft.representation import ROWS as ROWS_SHOWN
from tokengraft.representation import FrozenDict, Table, quoted, shown
from tokengraft.tokenizer.kind import SPACE
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

METADATA = b"tokengraft"
ROWS = 1 << 20
EVERYTHING = 2**63 - 1
NO_ROWS = _core.Counts(b"", bytes(8), b"")
copyreg.pickle(_core.Counts, lambda table: (_core.Counts, table.columns()))
MOST_ENCODED = 2
"""Tokenizers whose token counts are kept."""
TOP_SHOWN = 3
"""Pretokens that a `repr` has."""


@shown
@dataclass(frozen=True)
class PretokenCounts:
    """How often each distinct pretoken of a corpus occurs. Counts add up across shards, languages and machines.

    Examples:
        >>> tok = tg.load("model")
        >>> estonian, english = tg.count(tok, "et.txt"), tg.count(tok, "en.txt")
        >>> estonian.top(2)
        [(b' ja', 400), (b' jooksevad', 400)]
        >>> path = (estonian + english.scale(2)).save("mix.parquet")
        >>> tg.PretokenCounts.load(path).top(2)
        [(b' cat', 2000), (b' the', 2000)]
    """

    table: _core.Counts
    totals: Totals
    added: Mapping[str, int]
    """Occurrences of added tokens."""
    fingerprint: Fingerprint
    min_count: int = 1
    """Pretokens that occur less often were left out."""
    normalize: str | None = None
    """The normalization before the tokenizer's own pipeline."""

    def __len__(self) -> int:
        return len(self.table)

    def __add__(self, other: "PretokenCounts") -> "PretokenCounts":
        """The counts of both corpora together, which must be of one pipeline."""
        require_type("counts to add", other, PretokenCounts)
        self.fingerprint.require_counts(other.fingerprint)
        other.fingerprint.require_counts(self.fingerprint)
        if self.normalize != other.normalize:
            raise CountsError(
                f"one text was normalized by {self.normalize}, the other by {other.normalize}",
                hint=f"count both with the same {option('normalize')}",
            )
        both = replace(
            self,
            table=self.table.plus(other.table),
            totals=self.totals + other.totals,
            added=FrozenDict(_sums(self.added, other.added)),
            min_count=max(self.min_count, other.min_count),
        )
        for key in self._encoded.keys() & other._encoded.keys():
            model, tokens = self._encoded[key]
            both._keep(key, model, _sums(tokens, other._encoded[key][1]))
        return both

    def __radd__(self, other: Any) -> "PretokenCounts":
        """The same counts, if ``other`` is 0: ``sum`` of several counts begins with it."""
        return self if type(other) is int and other == 0 else self + other

    def scale(self, weight: int | Fraction | str) -> "PretokenCounts":
        """Every count times a weight, rounded to the nearest whole number, halves up.

        Pretokens whose count rounds to 0 are removed. The totals do not change. To weigh several texts against each
        other, scale each by a whole number: 3 and 1, not 1 and 1/3.

        Args:
            weight: A whole number or a ratio, as ``2``, ``Fraction(1, 3)`` or ``"1/3"``.
        """
        numerator, denominator = as_weight(weight).as_integer_ratio()
        scaled = {name: (2 * n * numerator + denominator) // (2 * denominator) for name, n in self.added.items()}
        weighted = replace(self, table=self.table.scaled(numerator, denominator), added=FrozenDict(scaled))
        if denominator == 1:  # no count was rounded
            for key, (model, tokens) in self._encoded.items():
                weighted._keep(key, model, {token_id: n * numerator for token_id, n in tokens.items()})
        return weighted

    def top(self, most: int) -> list[tuple[bytes, int]]:
        """The most frequent pretokens, equal counts in the order of their bytes."""
        return self.table.top(min(max(most, 0), len(self)))

    def tokens(self, tokenizer: Tokenizer, *, by_merges: bool = False, uses: bool = False) -> dict[int, int]:
        """How often each token of a tokenizer occurs in the corpus, by ascending id, without tokens that never occur.

        The corpus is not read again. The tokenizer may be any one with the same pipeline, such as an extended one.

        Args:
            tokenizer: The tokenizer.
            by_merges: Turn merge skipping (`ignore_merges`) off.
            uses: Also count every use of a token in a merge.
        """
        require_type("tokenizer", tokenizer, Tokenizer)
        model, key = tokenizer.core_model, (id(tokenizer.core_model), by_merges, uses)
        if key in self._encoded:
            return dict(self._encoded[key][1])
        self.require(tokenizer)
        total = dict(self.table.tokens(model, by_merges=by_merges, uses=uses))
        for token in tokenizer.added:
            if self.added.get(token.content):
                total[token.id] = total.get(token.id, 0) + self.added[token.content]
        found = dict(sorted(total.items()))
        self._keep(key, model, found)
        return dict(found)

    @cached_property
    def _encoded(self) -> dict[tuple[int, bool, bool], tuple[_core.Model, dict[int, int]]]:
        """The last results of `tokens`, each with its model: the base and the new one are asked for several times.

        Those of sums and multiples of counts follow from the results of the parts.
        """
        return {}

    def _keep(self, key: tuple[int, bool, bool], model: _core.Model, tokens: dict[int, int]) -> None:
        while len(self._encoded) >= MOST_ENCODED:
            self._encoded.pop(next(iter(self._encoded)))
        if max(tokens.values(), default=0) <= EVERYTHING:  # the core adds up to twice that
            self._encoded[key] = (model, tokens)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def lost(self, tokenizer: Tokenizer, *, by_merges: bool = False) -> dict[bytes, int]:
        """How often each character occurs that a tokenizer drops or replaces by its unknown token, by its bytes.

        Empty for every vocabulary that spells all text. ``by_merges`` turns merge skipping (`ignore_merges`) off.
        """
        self.require(tokenizer)
        if tokenizer.spells_everything:
            return {}
        byte_level = tokenizer.kind == "byte-level"
        lost = self.table.lost(tokenizer.core_model, by_merges=by_merges)
        return {text if byte_level else text.replace(SPACE.encode(), b" "): count for text, count in lost}

    def changed(self, before: Tokenizer, after: Tokenizer) -> "PretokenCounts":
        """The pretokens that two tokenizers of this pipeline encode to different tokens. Ids are not compared."""
        self.require(before)
        self.require(after)
        return replace(self, table=self.table.changed(before.core_model, after.core_model))

    def require(self, tokenizer: Tokenizer) -> None:
        """Refuses a tokenizer with a different pipeline, with a `CountsError` that lists every difference."""
        require_type("tokenizer", tokenizer, Tokenizer)
        ours = Fingerprint.of(tokenizer, self.fingerprint.rules)
        # An added token that does not occur in the text has no effect: the tokenizer may have been pruned of it.
        names = {token for token, _ in ours.added} | {token for token, count in self.added.items() if count}
        added = tuple(entry for entry in self.fingerprint.added if entry[0] in names)
        ours.require_counts(replace(self.fingerprint, added=added))

    def require_unchanged(self) -> None:
        """Refuses counts that do not give bytes per token of the text.

        They were weighted, lack rare pretokens, or are of text that was normalized as the tokenizer never gets it.
        """
        if self.table.total() != self.totals.pretokens:
            raise CountsError(
                f"the counts add up to {self.table.total():,} pretokens, and the text had {self.totals.pretokens:,}: "
                "they were weighted or lack rare pretokens, and cannot be used for evaluation",
                hint=f"count the evaluation text without {option('weight')} and {option('min_count')}",
            )
        if self.normalize is not None and not self.fingerprint.normalizes_first(self.normalize):
            raise CountsError(
                f"the counted text was normalized by {self.normalize}, which the tokenizer does not do: the counts "
                "cannot be used for evaluation",
                hint=f"count the evaluation text without {option('normalize')}",
            )

    @property
    def is_unchanged(self) -> bool:
        """Whether the counts give bytes per token of the text, as `require_unchanged` decides."""
        try:
            self.require_unchanged()
        except CountsError:
            return False
        return True

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes a Parquet file and returns its path."""
        return write_counts([self.table], self, Path(out), force=force)

    def _shown(self) -> dict[str, Any]:
        top = {quoted(pretoken.decode(errors="backslashreplace")): n for pretoken, n in self.top(TOP_SHOWN)}
        totals = {name: getattr(self.totals, name) for name in ("documents", "bytes", "pretokens")}
        return totals | {"distinct": len(self), "top": top}

    def _facts(self) -> dict[str, Any]:
        facts = {"distinct pretokens": len(self)} | asdict(self.totals)
        return facts | {"min_count": self.min_count, "normalize": self.normalize}

    def _tables(self) -> Iterator[Table]:
        yield Table("most frequent pretokens", ("pretoken", "count"), self.top(ROWS_SHOWN), len(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PretokenCounts":
        """The counts in a file."""
        metadata, tables = open_counts(Path(path), rows=EVERYTHING)
        # Several tables if the pretokens have more than 2 GiB. Neighbours are added up, so that sizes stay alike.
        filled = [table for table in tables if len(table)] or [metadata.table]
        while len(filled) > 1:
            pairs = zip(filled[::2], filled[1::2], strict=False)
            filled = [*(left.plus(right) for left, right in pairs), *filled[len(filled) // 2 * 2 :]]
        return replace(metadata, table=filled[0])


_Key = TypeVar("_Key", str, int)


def _sums(one: Mapping[_Key, int], other: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in sorted({**one, **other})}


def load_weighted(
    paths: Sequence[str | os.PathLike[str]], weights: Sequence[int | Fraction | str] | None
) -> PretokenCounts:
    """The sum of files of counts, each multiplied by its weight."""
    return weighted_sum([PretokenCounts.load(path) for path in paths], weights or [1] * len(paths))


def weighted_sum(parts: Sequence[PretokenCounts], weights: Sequence[int | Fraction | str]) -> PretokenCounts:
    """The sum of counts, each multiplied by its weight."""
    factors = factors_for(len(parts), weights)
    first, *others = (part.scale(factor) for part, factor in zip(parts, factors, strict=True))
    return sum(others, first)


def chosen_rows(table: _core.Counts, mask: "npt.NDArray[np.bool_]") -> _core.Counts:
    """The rows of a table for which a mask is true."""
    import numpy as np

    data, offsets, numbers = table.columns()
    lengths = np.diff(np.frombuffer(offsets, "<u8"))
    kept = np.frombuffer(data, np.uint8)[np.repeat(mask, lengths.astype(np.int64))]
    ends = np.cumsum(lengths[mask], dtype="<u8")
    return _core.Counts(kept.tobytes(), bytes(8) + ends.tobytes(), np.frombuffer(numbers, "<u8")[mask].tobytes())


def write_counts(tables: Iterable[_core.Counts], metadata: PretokenCounts, out: Path, *, force: bool = False) -> Path:
    """Writes consecutive tables, all but the last of `ROWS` rows, as one file with this metadata."""
    description = {
        "tokengraft": _core.__version__,
        "fingerprint": metadata.fingerprint.as_dict(),
        "totals": asdict(metadata.totals),
        "added": dict(sorted(metadata.added.items())),
        "min_count": metadata.min_count,
        "normalize": metadata.normalize,
    }
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [pa.field("pretoken", pa.large_binary(), nullable=False), pa.field("count", pa.uint64(), nullable=False)]
    schema = pa.schema(columns, metadata={METADATA: json.dumps(description, ensure_ascii=False)})
    options = {
        # Pretokens are distinct, so a dictionary does not help, and sorted, so each begins as the one before it.
        "use_dictionary": False,
        "column_encoding": {"pretoken": "DELTA_BYTE_ARRAY", "count": "DELTA_BINARY_PACKED"},
        "write_statistics": False,
    }
    with new_file(out, force=force) as unfinished, pq.ParquetWriter(unfinished, schema, **options) as writer:
        for table in filter(len, tables):  # no row group without rows
            writer.write_table(arrow_table(table, schema), row_group_size=ROWS // 4)
    return out


def arrow_table(table: _core.Counts, schema: "pa.Schema") -> "pa.Table":
    """A table for Arrow, without a copy. The schema has the names of the columns, and counts of 64 bits."""
    import pyarrow as pa

    data, offsets, numbers = map(pa.py_buffer, table.columns())
    pretokens = pa.Array.from_buffers(pa.large_binary(), len(table), [None, offsets, data])
    counts = pa.Array.from_buffers(schema.types[1], len(table), [None, numbers])
    return pa.Table.from_arrays([pretokens, counts], schema=schema)


def open_counts(path: Path, *, rows: int = ROWS) -> tuple[PretokenCounts, Iterator[_core.Counts]]:
    """The metadata of a file of counts, with an empty table, and an iterator over its rows as tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        description = parse_json((file.schema_arrow.metadata or {})[METADATA], str(path))
        require_plain(description, str(path))
        if (normalize := description["normalize"]) not in (None, "nfkc"):
            raise TypeError(f"there is no normalization {normalize!r:.80}")
        counts = PretokenCounts(
            table=NO_ROWS,
            totals=Totals(**{name: _number(value) for name, value in description["totals"].items()}),
            added=FrozenDict({name: _number(value) for name, value in description["added"].items()}),
            fingerprint=Fingerprint.from_dict(description["fingerprint"]),
            min_count=_number(description["min_count"]),
            normalize=normalize,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UnreadableFileError, pa.ArrowException) as error:
        raise CountsError(
            f"`{path}` is not a file of counts: {type(error).__name__}: {error}",
            hint="make one: `tokengraft count`; or, of partial counts: `tokengraft counts merge --tokenizer`",
        ) from error
    return counts, _tables(file, path, rows)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.80} is not a number of occurrences")
    return value


def _tables(file: Any, path: Path, rows: int) -> Iterator[_core.Counts]:
    import pyarrow as pa

    try:
        for batch in file.iter_batches(min(rows, max(file.metadata.num_rows, 1)), columns=["pretoken", "count"]):
            if batch.num_columns != 2 or any(column.null_count for column in batch.columns):
                raise CountsError(
                    f"`{path}` lacks a column `pretoken` or `count`, or a value in one", hint="count the corpus again"
                )
            data, offsets = binary_buffers(batch.column(0).cast(pa.large_binary()))
            yield _core.Counts(data, offsets, batch.column(1).cast(pa.uint64()).to_numpy().astype("<u8").tobytes())
    except (OSError, pa.ArrowException) as error:
        raise CountsError(f"`{path}` is damaged: {error}", hint="count the corpus again") from error


def split_counts(corpus: object) -> tuple[list[str | os.PathLike[str]], Any]:
    """The files of counts among the paths of a corpus, and the rest of the corpus, which is text; None if none."""
    paths = paths_of(corpus) or []
    counted = [path for path in paths if is_counts_file(path)]
    return counted, ([path for path in paths if path not in counted] or None) if counted else corpus


def is_counts_file(source: str | os.PathLike[str]) -> bool:
    """Whether a path is a file of counts: a Parquet file with their metadata, whatever its name."""
    try:
        with Path(source).open("rb") as file:
            if file.read(4) != b"PAR1":  # checked first: importing pyarrow takes as long as counting 10 MB of text
                return False
    except (OSError, ValueError):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return METADATA in (pq.read_schema(source).metadata or {})
    except (OSError, ValueError, pa.ArrowException):
        return False
