"""`docs/compatibility.md` from the results of the matrix."""

import re
from collections.abc import Sequence
from pathlib import Path

from lab.compatibility.matrix import Row
from lab.compatibility.steps import STEPS

TEMPLATE = Path(__file__).parent / "page.md"
FAILURES = {"different": "**differs**", "failed": "**fails**"}
FORMATS = {"tokenizers": "`tokenizer.json`", "sentencepiece": "`.model`", "tiktoken": "tiktoken"}
VALUES = re.compile(r"`[^`]*`|'[^']*'|[\d,]+")
"""What differs between two messages of the same kind: file names, tokens and numbers."""


def page(libraries: dict[str, str], rows: Sequence[Row]) -> str:
    """The text of the page."""
    edited = [row for row in rows if row.facts]
    refusals = _refusals(edited)
    return TEMPLATE.read_text(encoding="utf-8").format(
        n_tokenizers=len(edited),
        n_vocabularies=len({row.facts["vocabulary"] for row in edited}),
        n_rejected=len(rows) - len(edited),
        n_own=sum(row.passes and not row.converted for row in edited),
        n_converted=sum(row.passes and bool(row.converted) for row in edited),
        n_steps=len(STEPS),
        n_cells=sum(
            result.outcome == "equal" for row in edited for step, result in row.results.items() if step in STEPS
        ),
        n_refused=sum(result.outcome == "refused" for row in edited for result in row.results.values()),
        n_bugs=sum(len(row.bugs) for row in rows),
        differences="\n".join(_differences(rows)) or "None.",
        versions=", ".join(f"{name} {version}" for name, version in libraries.items()),
        tokenizers="\n".join(_described(row, [*refusals]) for row in edited),
        refusals="\n".join(f"{n}. {message}" for n, message in enumerate(refusals.values(), start=1)) or "None.",
        rejected="\n".join(_rejected(row) for row in rows if not row.facts),
    )


def _differences(rows: Sequence[Row]) -> list[str]:
    found = [(row, step, result) for row in rows for step, result in row.bugs.items()]
    return [f"- {row.name}, {step}: {result.detail} ([known problems](footguns.md))" for row, step, result in found]


def _described(row: Row, kinds: Sequence[str]) -> str:
    facts = row.facts
    format_ = "GGUF" if row.note.startswith("GGUF") else FORMATS.get(facts["library"], f"`{facts['file']}`")
    unreachable = row.results["inspect"].detail.removesuffix(" unreachable")
    note = "" if format_ == "GGUF" else row.note
    cells = [row.name, row.source, format_, facts["kind"], f"{facts['tokens']:,}", unreachable, _outcome(row, kinds)]
    return _line([*cells, note])


def _outcome(row: Row, kinds: Sequence[str]) -> str:
    """A tick if every step was equal, else the steps that were not, and how the converted tokenizer did."""
    found = []
    for step in STEPS:
        result = row.results[step]
        if result.outcome == "refused":
            found.append(f"{step} refused ({kinds.index(_kind(result.detail)) + 1})")
        elif result.outcome in FAILURES:
            found.append(f"{step} {FAILURES[result.outcome]}")
    return ", ".join([*found, *["converted: ✓"] * (row.passes and bool(found))]) or "✓"


def _refusals(rows: Sequence[Row]) -> dict[str, str]:
    """The first message of every kind of refusal."""
    found: dict[str, str] = {}
    for row in rows:
        for result in row.results.values():
            if result.outcome == "refused":
                found.setdefault(_kind(result.detail), _sentence(result.detail))
    return found


def _kind(message: str) -> str:
    return VALUES.sub("…", message)


def _rejected(row: Row) -> str:
    return _line([row.name, row.source, _sentence(row.results["load"].detail)])


def _sentence(message: str) -> str:
    """A message as it is shown in a table."""
    return message.replace("\n", " ").replace("|", "\\|")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
