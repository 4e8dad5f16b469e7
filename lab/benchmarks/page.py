"""Puts measured numbers into the documentation: the tables of `docs/benchmarks.md`, and its plot.

    python -m lab.benchmarks.page [RESULT.json]

Without a file it uses `docs/benchmarks.json`; another file is copied there. A part that the result does not have stays
as it is.
"""

import json
import sys
from pathlib import Path

from lab.benchmarks import plot, tables
from lab.page_parts import filled

DOCS = Path(__file__).parents[2] / "docs"
PAGE, RESULT, PLOT = DOCS / "benchmarks.md", DOCS / "benchmarks.json", DOCS / "benchmarks-scaling.svg"
HEADINGS = {
    "setting": "Benchmarks",
    "commands": "Whole commands",
    "small": "Small texts",
    "adapting": "Large vocabularies",
    "learning": "Learning",
    "memory": "Learning",
    "scaling": "Growth with the text",
    "loading": "Loading",
    "pipelines": "Pipelines",
    "encoders": "Unigram and WordPiece",
    "japanese": "Japanese",
    "transplant": "Transplant",
}
"""The heading under which the page has each part."""


def parts(result: dict) -> list[tuple[str, str]]:
    """The generated parts of the page, with their headings."""
    return [(HEADINGS[key], text) for key, text in tables.blocks(result).items()]


def main() -> None:
    if len(sys.argv) > 1:
        RESULT.write_text(Path(sys.argv[1]).read_text(encoding="utf-8"), encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, parts(result)), encoding="utf-8")
    if len(result.get("scaling", {}).get("rows", ())) > 1:
        PLOT.write_text(plot.plot(result["scaling"]), encoding="utf-8")


if __name__ == "__main__":
    main()
