"""Compares tools on one task: a model of 135 million parameters gets 8,000 tokens of Estonian, with rows.

    python -m lab.comparison MODEL_FOLDER CORPUS.parquet FLORES_FOLDER   # measures, and writes `results.csv`
    python -m lab.comparison.scripts ...                                 # the tokens of other languages
    python -m lab.comparison.page                                        # writes the tables of `docs/comparison.md`

The input is the first documents of the corpus, 8 MB. Every tool runs in processes of its own, in turns. A tool that is
not installed gives a row that says so. mergekit and skeletoken are on PyPI. tokenizer-extension is not: clone it and
name its folder in `PYTHONPATH`.
"""

import ast
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from lab.benchmarks.machine import setting
from lab.benchmarks.measure import Run, command
from lab.comparison import tools
from lab.comparison.page import RESULTS

TOKENS, TEXT_BYTES, ROUNDS = 8_000, 8_000_000, 2
PACKAGES = {
    "tokengraft": "tokengraft",
    "tokenizer_extension": "tokenizer_extension",
    "skeletoken": "skeletoken",
    "add_tokens": "transformers",
    "add_words": "transformers",
    "train_new": "transformers",
    "tokensurgeon": "mergekit",
}


def lines_of_code(name: str) -> int:
    """Lines of the function and of the functions of the module that it calls, without blank lines and comments."""
    source = Path(tools.__file__).read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    todo, seen = [name], set[str]()
    while todo:
        seen.add(current := todo.pop())
        called = {node.id for node in ast.walk(functions[current]) if isinstance(node, ast.Name)}
        todo += (called & functions.keys()) - seen
    written = (line.strip() for found in seen for line in ast.get_source_segment(source, functions[found]).split("\n"))
    return sum(bool(line) and not line.startswith(("#", "def ")) for line in written)


def package_version(package: str) -> str:
    if not (found := find_spec(package)):
        return ""
    try:
        return version(package)
    except PackageNotFoundError:  # a clone
        words = ["git", "-C", str(Path(found.origin).parent), "log", "-1", "--format=%h of %cs"]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def until(documents: Iterable[str], size: float) -> Iterator[str]:
    """The first documents, until they have so many bytes."""
    for document in documents:
        if size <= 0:
            return
        size -= len(document.encode())
        yield document


def first_documents(corpus: Path, out: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(corpus, columns=["text"])
    n_documents = sum(1 for _ in until((text.as_py() for text in table["text"]), TEXT_BYTES))
    pq.write_table(table.slice(0, n_documents), out)


def run(name: str, model: Path, text: Path, out: Path) -> Run:
    environment = {"HF_HUB_OFFLINE": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = (sys.executable, "-m", "lab.comparison.tools", name, model, text, TOKENS, out)
    return command(*words, environment=environment)


def score(model: Path, out: Path, flores: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "lab.comparison.score", str(model), str(out), str(flores)]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def measure(model: Path, corpus: Path, flores: Path) -> list[dict[str, object]]:
    rows = {name: {"tool": name, "version": package_version(package)} for name, package in PACKAGES.items()}
    rows = {"unchanged": {"tool": "unchanged"}} | rows
    found = [name for name, package in PACKAGES.items() if find_spec(package)]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.parquet")
        subprocess.run([sys.executable, "-m", "lab.comparison", "--text", str(corpus), str(text)], check=True)
        runs = dict[str, list[Run]]()
        for turn in range(ROUNDS):
            for name in found:
                out = Path(folder, f"{name}-{turn}", "out")
                out.parent.mkdir()
                runs.setdefault(name, []).append(run(name, model, text, out))
                print(name, runs[name][-1], file=sys.stderr)
        for name in found:
            best = {
                "cpu_seconds": round(min(done.cpu for done in runs[name]), 1),
                "wall_seconds": round(min(done.wall for done in runs[name]), 1),
                "megabytes": round(max(done.peak for done in runs[name]) / 1e6),
            }
            rows[name] |= best | {"lines": lines_of_code(name)} | score(model, Path(folder, f"{name}-0", "out"), flores)
    rows["unchanged"] |= score(model, model, flores)
    machine = setting()
    where = f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.0f}, {machine['system']}"
    versions = ", ".join(f"{package} {value}" for package, value in machine["versions"].items() if value)
    return [row | {"machine": where, "versions": versions} for row in rows.values()]


def write(rows: list[dict[str, object]], path: Path) -> None:
    columns = dict.fromkeys(column for row in [*rows[1:], rows[0]] for column in row)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if sys.argv[1] == "--text":
        first_documents(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        write(measure(*map(Path, sys.argv[1:])), RESULTS)
