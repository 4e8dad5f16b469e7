"""Puts measured numbers into the documentation: the tables of `docs/benchmarks.md`, and its plot.

    python lab/benchmarks/page.py [RESULT.json]

Without a file it uses `docs/benchmarks.json`; another file is copied there. Text between `<!-- benchmark NAME -->` and
`<!-- end -->` is replaced, the rest of the page stays. A part that the result does not have stays as it is.
"""

import json
import re
import sys
from pathlib import Path

import plot
import tables

DOCS = Path(__file__).parents[2] / "docs"
PAGE, RESULT, PLOT = DOCS / "benchmarks.md", DOCS / "benchmarks.json", DOCS / "benchmarks-scaling.svg"
PART = re.compile(r"(<!-- benchmark (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with its parts replaced.

    >>> filled("a\\n<!-- benchmark b -->\\nold\\n<!-- end -->\\nc", {"b": "new"})
    'a\\n<!-- benchmark b -->\\n\\nnew\\n\\n<!-- end -->\\nc'
    """
    return PART.sub(
        lambda found: f"{found[1]}\n{parts[found[2]]}\n\n{found[3]}" if found[2] in parts else found[0], page
    )


def main() -> None:
    if len(sys.argv) > 1:
        RESULT.write_text(Path(sys.argv[1]).read_text(encoding="utf-8"), encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, tables.blocks(result)), encoding="utf-8")
    if len(result.get("scaling", {}).get("rows", ())) > 1:
        PLOT.write_text(plot.plot(result["scaling"]), encoding="utf-8")


if __name__ == "__main__":
    main()
