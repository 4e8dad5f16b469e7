"""The results of the matrix as a file, with the versions of the libraries."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.compatibility.libraries import versions
from lab.compatibility.matrix import Result, Row


def update_results(path: Path, rows: Sequence[Row], order: Sequence[str]) -> None:
    """Writes rows to a file, beside those of other tokenizers that it has, in some order of their names."""
    known = read_results(path)[1] if path.exists() else []
    merged = {row.name: row for row in (*known, *rows)}
    names = [*dict.fromkeys(name for name in (*order, *merged) if name in merged)]
    content = {"libraries": versions(), "rows": [merged[name].as_dict() for name in names]}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_results(path: Path) -> tuple[dict[str, str], list[Row]]:
    """The versions and the rows in a file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["libraries"], [_row(**row) for row in content["rows"]]


def _row(results: dict[str, Any], converted: dict[str, Any] | None = None, **row: Any) -> Row:
    ours, other = ({step: Result(**each) for step, each in found.items()} for found in (results, converted or {}))
    return Row(**row, results=ours, converted=other)
