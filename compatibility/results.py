"""The results of the matrix as a file, with the versions of the libraries."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compatibility.libraries import versions
from compatibility.matrix import Result, Row


def write_results(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows, and the versions of the libraries that they were compared with."""
    content = {"libraries": versions(), "rows": [row.as_dict() for row in rows]}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_results(path: Path) -> tuple[dict[str, str], list[Row]]:
    """The versions and the rows in a file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["libraries"], [_row(**row) for row in content["rows"]]


def _row(results: dict[str, dict[str, str]], **row: Any) -> Row:
    return Row(**row, results={step: Result(**result) for step, result in results.items()})
