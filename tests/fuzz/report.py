"""The result of a run as a table."""

from collections.abc import Mapping

from fuzz.cases import ACCEPTED, EARLY, FINDING, LATE
from fuzz.run import Tally

HEADER = ("target", "cases", "per second", ACCEPTED, LATE, EARLY, "errors", "slowest", "memory", "findings")


def table(tallies: Mapping[str, Tally]) -> str:
    """One line for each target: cases, shares, distinct errors, the slowest case, the largest growth of memory."""
    rows = [HEADER, *(_row(name, tally) for name, tally in tallies.items())]
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    rows.append(_row("all", total))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(name: str, tally: Tally) -> tuple[str, ...]:
    cases = sum(tally.kinds.values())
    shares = (f"{tally.kinds[kind] / max(cases, 1):.1%}" for kind in (ACCEPTED, LATE, EARLY))
    speed = f"{cases / max(tally.seconds, 1e-9):,.0f}"
    slowest, memory = f"{tally.slowest:.2f} s", f"{tally.largest >> 20} MiB"
    return (name, f"{cases:,}", speed, *shares, str(len(tally.reasons)), slowest, memory, str(tally.kinds[FINDING]))


def findings(tallies: Mapping[str, Tally]) -> str:
    """The findings by cause, each with the first folder."""
    causes: dict[str, list[str]] = {}
    for tally in tallies.values():
        for folder, cause in tally.findings:
            causes.setdefault(cause, []).append(folder)
    return "\n".join(f"{len(folders):5}  {cause}\n       {folders[0]}" for cause, folders in causes.items())
