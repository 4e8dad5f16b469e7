"""`Transplant`: the result of a transplant. Plain data. `describe` gives it before anything is written."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.compare_files import Behaviour, ByteComparison
from tokengraft.checkpoint.model_files import REPORT
from tokengraft.checkpoint.rows import HoleRows, init_name
from tokengraft.checkpoint.table import NewTables
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.representation import Table, sentences, shown
from tokengraft.vocab_plan import VocabPlan


@shown
@dataclass(frozen=True)
class Transplant:
    """The result of a transplant, or what a dry run would do."""

    plan: VocabPlan
    rows_before: int
    rows_after: int
    """Rows of the embedding, padding included."""
    tensors: tuple[tuple[str, str, str, int, int], ...]
    """Tensors with a vocabulary axis: name, role, type, bytes before and after."""
    tied: bool
    found_by: str
    """How those tensors were found: by the names of an architecture, or by their shapes."""
    init: tuple[str, str]
    """The initialisers of input and output."""
    hole_rows: HoleRows
    """What rows without a token get."""
    unused: int
    """Rows without a token that do not keep the row that they had."""
    suppressed: int
    """Ids without a token that are listed as suppressed: these, and padding that keeps its rows."""
    copied: tuple[str, ...] = ()
    """Weight files that are copied unchanged."""
    carried: tuple[str, ...] = ()
    """Tokenizer files of the source that the new tokenizer does not have. They are kept, with the new ids."""
    left_out: tuple[str, ...] = ()
    """Files of the source that are not written because they belong to the old vocabulary, such as weights in other
    formats."""
    compared: ByteComparison | None = None
    """The comparison of the written files with the source; None in a dry run."""
    behaviour: Behaviour | None = None
    """The comparison of the two running models; None without ``verify``."""
    adapter_rows: tuple[int, ...] = ()
    """With ``as_adapter``: the rows that the adapter replaces; empty for a whole model."""
    warnings: tuple[str, ...] = ()
    """What could not be checked, one sentence each."""

    @property
    def growth(self) -> tuple[int, int]:
        """Parameters and bytes that the model has more than before; negative if it is smaller.

        If input and output are tied, they count once, also in a checkpoint that has both.
        """
        once = self.tied and any(role == "input" for _, role, *_ in self.tensors)
        tables = [table[2:] for table in self.tensors if not (once and table[1] == "output")]
        parameters = sum((after - before) // ITEM_BYTES[kind] for kind, before, after in tables if kind in ITEM_BYTES)
        return parameters, sum(after - before for _, before, after in tables)

    def _facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in self.as_dict().items() if name not in ("tensors", "warnings")}

    def _tables(self) -> Iterator[Table]:
        yield Table("tensors", ("name", "role", "type", "bytes before", "bytes after"), self.tensors, len(self.tensors))
        yield from sentences("warnings", self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON-ready data."""
        return {
            **self.plan.summary._asdict(),
            "embedding_rows_before": self.rows_before,
            "embedding_rows_after": self.rows_after,
            "tensors": [list(tensor) for tensor in self.tensors],
            "tied": self.tied,
            "found_by": self.found_by,
            "init": {"input": self.init[0], "output": self.init[1]},
            "hole_rows": self.hole_rows,
            "suppressed": self.suppressed,
            "copied": list(self.copied),
            "carried": list(self.carried),
            "left_out": list(self.left_out),
            "compared": self.compared._asdict() if self.compared else None,
            "behaviour": self.behaviour._asdict() if self.behaviour else None,
            "warnings": list(self.warnings),
        } | ({"adapter_rows": len(self.adapter_rows)} if self.adapter_rows else {})


def describe(tables: NewTables) -> Transplant:
    """The result of a transplant before anything is written, without names of files."""
    vocabulary, unused = tables.vocabulary, tables.unused
    return Transplant(
        plan=tables.plan,
        rows_before=vocabulary.rows,
        rows_after=tables.rows,
        tensors=tuple(
            (t.info.name, t.role, t.info.dtype, t.info.size, t.info.row_bytes * tables.rows_after(t.info))
            for t in vocabulary.tensors
        ),
        tied=vocabulary.tied,
        found_by=vocabulary.found_by,
        init=(init_name(tables.options.inits[0]), init_name(tables.options.inits[1])),
        hole_rows=unused.how,
        unused=len(unused.rows),
        suppressed=len(unused.suppressed),
    )


def write_report(
    done: Transplant, config: Path, facts: Mapping[str, Any], folder: Path, more: Mapping[str, Any] | None = None
) -> None:
    """Writes `tokengraft.json`, with the names of all files in the folder. ``config`` is that of the source.

    ``facts`` are written before what was done, ``more`` after it.
    """
    source = {"source": config.parent.name, "source_config_sha256": sha256(config.read_bytes()).hexdigest()}
    write_record(folder, {**source, **facts}, {"transplant": done.as_dict(), **(more or {})})


def write_record(folder: Path, facts: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Writes `tokengraft.json`: facts, the names of all files in the folder, and what was done."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    report = {"tokengraft": _core.__version__, **facts, "files": files, **result}
    text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
    # A name that is not UTF-8 has surrogates, and this is how JSON escapes them.
    (folder / REPORT).write_text(text, encoding="utf-8", errors="backslashreplace")
