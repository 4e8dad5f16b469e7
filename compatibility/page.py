"""`docs/compatibility.md` from the results of the matrix."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from compatibility.matrix import Row
from compatibility.steps import STEPS

TEMPLATE = Path(__file__).parent / "page.md"
MARKS = {"equal": "✓", "not run": "–", "different": "**differs**", "failed": "**fails**"}
FORMATS = {"tokenizers": "`tokenizer.json`", "sentencepiece": "`.model`", "tiktoken": "tiktoken"}


def page(libraries: dict[str, str], rows: Sequence[Row]) -> str:
    """The text of the page."""
    edited = [row for row in rows if row.facts]
    notes = [*dict.fromkeys(_notes(edited))]
    return TEMPLATE.read_text(encoding="utf-8").format(
        n_tokenizers=len(edited),
        n_vocabularies=len({row.facts["vocabulary"] for row in edited}),
        n_rejected=len(rows) - len(edited),
        n_steps=len(STEPS),
        n_cells=sum(
            result.outcome == "equal" for row in edited for step, result in row.results.items() if step in STEPS
        ),
        n_refused=sum(result.outcome == "refused" for row in edited for result in row.results.values()),
        n_bugs=sum(len(row.bugs) for row in rows),
        differences="\n".join(_differences(rows)) or "None.",
        versions=", ".join(f"{name} {version}" for name, version in libraries.items()),
        tokenizers="\n".join(_described(row) for row in edited),
        heads=" | ".join(STEPS),
        rules="|".join("---" for _ in STEPS),
        steps="\n".join(_marked(row, notes) for row in edited),
        notes="\n".join(f"{number}. {note}" for number, note in enumerate(notes, start=1)) or "No step was refused.",
        rejected="\n".join(_rejected(row) for row in rows if not row.facts),
    )


def _differences(rows: Sequence[Row]) -> list[str]:
    found = [(row, step, result) for row in rows for step, result in row.bugs.items()]
    return [f"- {row.name}, {step}: {result.detail} ([known problems](footguns.md))" for row, step, result in found]


def _described(row: Row) -> str:
    facts = row.facts
    format_ = FORMATS.get(facts["library"], f"`{facts['file']}`")
    unreachable = row.results["inspect"].detail.removesuffix(" unreachable")
    cells = [row.name, row.source, format_, facts["library"], facts["kind"], facts["engine"], f"{facts['tokens']:,}"]
    return _line([*cells, unreachable, row.note])


def _marked(row: Row, notes: Sequence[str]) -> str:
    def cell(step: str) -> str:
        result = row.results[step]
        return (
            f"refused ({notes.index(_sentence(result.detail)) + 1})"
            if result.outcome == "refused"
            else MARKS[result.outcome]
        )

    return _line([row.name, *map(cell, STEPS)])


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield from (_sentence(result.detail) for result in row.results.values() if result.outcome == "refused")


def _rejected(row: Row) -> str:
    return _line([row.name, row.source, _sentence(row.results["load"].detail)])


def _sentence(message: str) -> str:
    """A message as it is shown in a table."""
    return message.replace("\n", " ").replace("|", "\\|")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
