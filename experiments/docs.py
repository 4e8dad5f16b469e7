"""Writes docs/reproduce.md from the results."""

from pathlib import Path


def write_docs(results: Path) -> list[Path]:
    return []
