"""How many rows a new embedding has, padding included."""

from typing import Literal, NamedTuple, Protocol

from tokengraft.errors import OptionError, whole_number

PadMultiple = int | Literal["keep"]


class RowsNeeded(Protocol):
    """Numbers of rows that the tokens need before and after, such as those of a `VocabPlan`."""

    @property
    def rows_before(self) -> int:
        """Rows that the old tokens need."""

    @property
    def rows_after(self) -> int:
        """Rows that the new tokens need."""


class Needed(NamedTuple):
    """`RowsNeeded` without a plan."""

    rows_before: int
    rows_after: int


def padded_rows(changes: RowsNeeded, rows: int, multiple: PadMultiple) -> int:
    """The number of rows of the new embedding, padding included.

    With ``"keep"``, the number stays a multiple of the same power of two (at most 1024). It decreases only if the
    tokens need fewer rows than before. There may have been fewer rows than tokens need: see `plan_of_rows`.

    >>> from tokengraft.vocab_plan import VocabPlan
    >>> padded_rows(VocabPlan(100, (None,) * 120, ()), 128, "keep")
    128
    >>> padded_rows(VocabPlan(100, (None,) * 120, ()), 128, 50)
    150
    """
    if multiple != "keep":
        multiple = whole_number("pad_multiple", multiple, "'keep'")
        if not 1 <= multiple <= 1 << 20:
            raise OptionError(
                f"the pad multiple is {multiple!r}; it must be a number from 1 to 1,048,576, or keep",
                hint="pass --pad-multiple 64, 128 or keep",
            )
        return -(-changes.rows_after // multiple) * multiple
    if rows <= changes.rows_before:
        return rows if changes.rows_after == changes.rows_before else changes.rows_after
    step = min(rows & -rows, 1024)  # the power of two that the old number of rows is a multiple of
    padded = -(-changes.rows_after // step) * step
    return max(padded, rows) if changes.rows_after >= changes.rows_before else padded
