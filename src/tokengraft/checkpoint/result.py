"""`Transplant`: the result of a transplant. Plain data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokengraft.arguments import checked
from tokengraft.checkpoint.behaviour import Behaviour
from tokengraft.checkpoint.compare_files import ByteComparison
from tokengraft.checkpoint.unused import HoleRows
from tokengraft.plan import VocabPlan
from tokengraft.representation import Table, sentences, shown


@shown
@checked
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
    """Rows without a token that do not keep the row that they had. They are listed as suppressed."""
    copied: tuple[str, ...]
    """Weight files that are copied unchanged."""
    carried: tuple[str, ...]
    """Tokenizer files of the source that the new tokenizer does not have. They are kept, with the new ids."""
    left_out: tuple[str, ...]
    """Files of the source that are not written because they belong to the old vocabulary, such as weights in other
    formats."""
    compared: ByteComparison | None = None
    """The comparison of the written files with the source; None in a dry run."""
    behaviour: Behaviour | None = None
    """The comparison of the two running models; None without ``verify``."""
    warnings: tuple[str, ...] = ()
    """What could not be checked, one sentence each."""

    def _facts(self) -> dict[str, Any]:
        hidden = ("tensors", "warnings")
        return {name: fact for name, fact in self.as_dict().items() if name not in hidden}

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
            "suppressed": self.unused,
            "copied": list(self.copied),
            "carried": list(self.carried),
            "left_out": list(self.left_out),
            "compared": self.compared._asdict() if self.compared else None,
            "behaviour": self.behaviour._asdict() if self.behaviour else None,
            "warnings": list(self.warnings),
        }
