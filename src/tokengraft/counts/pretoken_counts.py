"""`PretokenCounts`: the result of counting a corpus, and the input of all later steps. In memory, and as Parquet.

The file has two columns, `pretoken` (bytes) and `count`, in the order of the bytes, readable by any tool. Totals,
occurrences of added tokens and the fingerprint of the pipeline are in its metadata, as JSON under `tokengraft`.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeGuard

from tokengraft import _core
from tokengraft.arguments import checked, wrong_type
from tokengraft.corpus.arrow import binary_buffers
from tokengraft.corpus.totals import Totals
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.errors import CountsError, OptionError, UnreadableFileError
from tokengraft.frozen import FrozenDict
from tokengraft.output.atomic import new_file
from tokengraft.output.json_file import parse_json, require_plain
from tokengraft.representation import ROWS as ROWS_SHOWN
from tokengraft.representation import Table, shown
from tokengraft.tokenizer.alphabet import SPACE
from tokengraft.tokenizer.tokenizer import Tokenizer

METADATA = b"tokengraft"
ROWS = 1 << 20
EVERYTHING = 2**63 - 1


@shown
@checked
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

    @checked
    def __add__(self, other: "PretokenCounts") -> "PretokenCounts":
        """The counts of both corpora together.

        Raises:
            CountsError: They were made for different pipelines.
        """
        self.fingerprint.require_counts(other.fingerprint)
        other.fingerprint.require_counts(self.fingerprint)
        if self.normalize != other.normalize:
            raise CountsError(
                f"one text was normalized by {self.normalize}, the other by {other.normalize}",
                hint="count both with the same `--normalize`",
            )
        names = {**self.added, **other.added}
        return replace(
            self,
            table=self.table.plus(other.table),
            totals=self.totals + other.totals,
            added=FrozenDict({n: self.added.get(n, 0) + other.added.get(n, 0) for n in sorted(names)}),
            min_count=max(self.min_count, other.min_count),
        )

    def __radd__(self, other: object) -> "PretokenCounts":
        """The same counts, if ``other`` is 0: ``sum`` of several counts begins with it."""
        if type(other) is int and other == 0:
            return self
        raise wrong_type("what is added to counts", other, ["a PretokenCounts"])

    def scale(self, weight: int | Fraction | str) -> "PretokenCounts":
        """Every count times a weight, rounded to the nearest whole number, halves up.

        Pretokens whose count rounds to 0 are removed. The totals do not change.

        Args:
            weight: A whole number or a ratio, as ``2``, ``Fraction(1, 3)`` or ``"1/3"``.
        """
        ratio = as_weight(weight)
        scaled = {
            name: (2 * count * ratio.numerator + ratio.denominator) // (2 * ratio.denominator)
            for name, count in self.added.items()
        }
        table = self.table.scaled(ratio.numerator, ratio.denominator)
        return replace(self, table=table, added=FrozenDict(scaled))

    @checked
    def top(self, most: int) -> list[tuple[bytes, int]]:
        """The most frequent pretokens, equal counts in the order of their bytes."""
        return self.table.top(min(max(most, 0), len(self)))

    @checked
    def tokens(self, tokenizer: Tokenizer, *, by_merges: bool = False, uses: bool = False) -> dict[int, int]:
        """How often each token of a tokenizer occurs in the corpus, by ascending id, without tokens that never occur.

        The corpus is not read again. The tokenizer may be any one with the same pipeline, such as a pruned or extended
        one.

        Args:
            tokenizer: The tokenizer.
            by_merges: Turn merge skipping (`ignore_merges`) off.
            uses: Also count every use of a token in a merge.

        Raises:
            CountsError: The counts were made for another pipeline.
        """
        self.require(tokenizer)
        occurrences = self.table.tokens(
            tokenizer.bpe, byte_level=tokenizer.kind == "byte-level", by_merges=by_merges, uses=uses
        )
        total = dict(occurrences)
        for token in tokenizer.added:
            if self.added.get(token.content):
                total[token.id] = total.get(token.id, 0) + self.added[token.content]
        return dict(sorted(total.items()))

    @checked
    def lost(self, tokenizer: Tokenizer, *, by_merges: bool = False) -> dict[bytes, int]:
        """How often each character occurs that a tokenizer drops or replaces by its unknown token, by its bytes.

        Empty for every vocabulary that spells all text.

        Args:
            tokenizer: The tokenizer.
            by_merges: Turn merge skipping (`ignore_merges`) off.

        Raises:
            CountsError: The counts were made for another pipeline.
        """
        self.require(tokenizer)
        if tokenizer.spells_everything:
            return {}
        byte_level = tokenizer.kind == "byte-level"
        lost = self.table.lost(tokenizer.bpe, byte_level=byte_level, by_merges=by_merges)
        return {text if byte_level else text.replace(SPACE.encode(), b" "): count for text, count in lost}

    @checked
    def changed(self, before: Tokenizer, after: Tokenizer) -> "PretokenCounts":
        """The pretokens that two tokenizers of this pipeline encode to different tokens. Ids are not compared.

        Raises:
            CountsError: The counts were made for another pipeline.
        """
        self.require(before)
        self.require(after)
        table = self.table.changed(before.bpe, after.bpe, byte_level=before.kind == "byte-level")
        return replace(self, table=table)

    @checked
    def require(self, tokenizer: Tokenizer) -> None:
        """Refuses a tokenizer with a different pipeline.

        Raises:
            CountsError: The pipelines differ. The message lists every difference.
        """
        ours = Fingerprint.of(tokenizer, self.fingerprint.rules)
        # An added token that does not occur in the text has no effect: the tokenizer may have been pruned of it.
        names = {token for token, _ in ours.added} | {token for token, count in self.added.items() if count}
        added = tuple(entry for entry in self.fingerprint.added if entry[0] in names)
        ours.require_counts(replace(self.fingerprint, added=added))

    def require_unchanged(self) -> None:
        """Refuses counts that were weighted or lack rare pretokens: they do not give bytes per token of the text.

        Raises:
            CountsError: The counts do not add up to the pretokens of the text.
        """
        if self.table.total() != self.totals.pretokens:
            raise CountsError(
                f"the counts add up to {self.table.total():,} pretokens, and the text had {self.totals.pretokens:,}: "
                "they were weighted or lack rare pretokens, and cannot be used for evaluation",
                hint="count the evaluation text without --weight and --min-count",
            )

    @checked
    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes a Parquet file and returns its path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        return write_counts([self.table], self, Path(out), force=force)

    def _facts(self) -> dict[str, Any]:
        facts = {"distinct pretokens": len(self)} | asdict(self.totals)
        return facts | {"min_count": self.min_count, "normalize": self.normalize}

    def _tables(self) -> Iterator[Table]:
        yield Table("most frequent pretokens", ("pretoken", "count"), self.top(ROWS_SHOWN), len(self))

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> "PretokenCounts":
        """The counts in a file.

        Raises:
            CountsError: It is not a file of counts.
        """
        summary, tables = open_counts(Path(path), rows=EVERYTHING)
        return replace(summary, table=_sum([summary.table, *tables]))


def _sum(tables: list[_core.Counts]) -> _core.Counts:
    """The sum of all tables. A file has several if its pretokens have more than 2 GiB."""
    filled = [table for table in tables if len(table)] or tables[:1]
    while len(filled) > 1:
        pairs = zip(filled[::2], filled[1::2], strict=False)
        filled = [*(left.plus(right) for left, right in pairs), *filled[len(filled) // 2 * 2 :]]
    return filled[0]


def as_weight(weight: int | Fraction | str) -> Fraction:
    """A weight as a ratio of whole numbers.

    Raises:
        OptionError: It is not a number above 0.
    """
    text = str(weight)
    # The length is checked first: `Fraction("1e9999999")` would take minutes.
    if (
        isinstance(weight, bool)
        or not re.fullmatch(r"\d{1,15}(/\d{1,15}|\.\d{1,15})?", text)
        or not re.search(r"[1-9]", text)
    ):
        raise OptionError(
            f"the weight {weight!r} is not a number above 0 with at most 15 digits",
            hint="pass a whole number or a ratio: 2, 1/3",
        )
    try:
        ratio = Fraction(text)
    except ZeroDivisionError as error:
        raise OptionError(
            f"the weight {weight!r} divides by 0", hint="pass a whole number or a ratio: 2, 1/3"
        ) from error
    if not ratio:
        raise OptionError(f"the weight {weight!r} is 0", hint="pass a whole number or a ratio: 2, 1/3")
    return ratio


def write_counts(tables: Iterable[_core.Counts], summary: PretokenCounts, out: Path, *, force: bool = False) -> Path:
    """Writes consecutive tables, all but the last of `ROWS` rows, as one file with the metadata of ``summary``."""
    encoder = _core.ParquetEncoder(METADATA.decode(), _description(summary))
    with new_file(out, force=force) as partial, partial.open("wb") as file:
        for table in tables:
            file.write(encoder.rows(table))
        file.write(encoder.finish())
    return out


def open_counts(path: Path, *, rows: int = ROWS) -> tuple[PretokenCounts, Iterator[_core.Counts]]:
    """The metadata of a file of counts, with an empty table, and an iterator over its rows as tables.

    Raises:
        CountsError: It is not a file of counts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        summary = parse_json((file.schema_arrow.metadata or {})[METADATA], str(path))
        require_plain(summary, str(path))
        counts = PretokenCounts(
            table=_core.Counts(b"", bytes(8), b""),
            totals=Totals(**{name: _number(value) for name, value in summary["totals"].items()}),
            added=FrozenDict({name: _number(value) for name, value in summary["added"].items()}),
            fingerprint=Fingerprint.from_dict(summary["fingerprint"]),
            min_count=_number(summary["min_count"]),
            normalize=summary.get("normalize"),
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
            pretokens = batch.column(0).cast(pa.large_binary())
            data, offsets = binary_buffers(pretokens)
            counts = batch.column(1).cast(pa.uint64())
            raw = counts.buffers()[1].to_pybytes()[8 * counts.offset : 8 * (counts.offset + len(counts))]
            yield _core.Counts(data, offsets, raw)
    except (OSError, pa.ArrowException) as error:
        raise CountsError(f"`{path}` is damaged: {error}", hint="count the corpus again") from error


def is_counts_file(source: object) -> "TypeGuard[str | os.PathLike[str]]":
    """Whether a path is a file of counts: a Parquet file with their metadata, whatever its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(source, str | os.PathLike):
        return False
    try:
        return Path(source).is_file() and METADATA in (pq.read_schema(source).metadata or {})
    except (OSError, ValueError, pa.ArrowException):
        return False


def _description(counts: PretokenCounts) -> str:
    summary = {
        "tokengraft": _core.__version__,
        "fingerprint": counts.fingerprint.as_dict(),
        "totals": asdict(counts.totals),
        "added": dict(sorted(counts.added.items())),
        "min_count": counts.min_count,
        "normalize": counts.normalize,
    }
    return json.dumps(summary, ensure_ascii=False)
