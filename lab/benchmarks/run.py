"""Measures tokengraft beside `wc -w` and `cp`, prints Markdown tables, and writes the raw numbers as JSON.

    python -m lab.benchmarks.run TEXT [--json FILE] [--tokenizers FOLDER] [--model FOLDER] [--japanese FILE]
                                  [--keep FILE] [--encoders TEXT FOLDER ...] [--only NAME ...]

TEXT is one document per line, 100 MB or more. All commands are timed from start to end, as a user runs them. Files are
in the page cache. Needs about 30 GB of disk in the folder for temporary files and 10 GB of memory for the page cache.
Says nothing about the quality of tokens.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.benchmarks import rows, tables
from lab.benchmarks.folders import Folders
from lab.benchmarks.machine import setting
from lab.benchmarks.measure import ROUNDS, in_python, script, words
from lab.benchmarks.scaling import DISTINCT, SIZES, scaling

NAMES = (
    *("commands", "small", "adapting", "learning", "loading"),
    *("pipelines", "encoders", "japanese", "transplant", "scaling"),
)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokengraft-benchmark-") as scratch:
        folders = Folders(options.tokenizers, Path(scratch))
        setup = rows.Setup(options.text, folders, options.tokens, Path(scratch), options.rounds)
        for result in measure(setup, options):
            if options.json and (result["tables"] or "scaling" in result):
                result = _with_earlier(result, options.json)
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\n{tables.blocks(result)['setting']}")


def _with_earlier(result: dict[str, Any], path: Path) -> dict[str, Any]:
    """The result, with the tables of an earlier one that were not measured again (`--only`)."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"tables": []}
    measured = {table["key"] for table in result["tables"]}
    tables_before = [table for table in earlier["tables"] if table["key"] not in measured]
    return {**earlier, **result, "tables": [*tables_before, *result["tables"]]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers")
    known = "with folders llama3, llama2, gemma3 and qwen2_5"
    parser.add_argument("--tokenizers", type=Path, metavar="FOLDER", help=known)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a small model, for `adapt`")
    parser.add_argument("--japanese", type=Path, metavar="FILE", help="Japanese text, about 20 MB")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="English text, about 6 MB, for `adapt`")
    pieces = "24 MB of text that is not close to the vocabularies, and tokenizers of Unigram or WordPiece"
    parser.add_argument("--encoders", type=Path, nargs="+", default=[], metavar=("TEXT", "FOLDER"), help=pieces)
    parser.add_argument("--tokens", type=int, default=16_000, metavar="N", help="new tokens (default: 16000)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"runs of each (default: {ROUNDS})")
    parser.add_argument("--largest", type=int, default=SIZES[-1], metavar="BYTES", help="largest text of the scaling")
    parser.add_argument("--layers", type=int, default=8, metavar="N", help="layers of the checkpoint (default: 8)")
    parser.add_argument("--width", type=int, default=4096, metavar="N", help="its width (default: 4096)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--folder", type=Path, help="folder for temporary files")
    options = parser.parse_args()
    if not options.text.is_file():
        parser.error(f"{options.text} is not a file")
    return options


def measure(setup: rows.Setup, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Runs everything that is asked for, and prints each table when it is finished. Yields the result so far."""
    words(setup.text)  # into the page cache
    counts = setup.scratch / "counts.parquet"
    setup.count(setup.llama3, setup.text, counts)
    result: dict[str, Any] = {"setting": setting(), "input": _input(setup, in_python(DISTINCT, counts)), "tables": []}
    yield result
    for name, run in _measurements(setup, options).items():
        if name in options.only:
            start = time.perf_counter()
            result["tables"].append(run())
            print(f"\n## {name} ({time.perf_counter() - start:.0f} s)\n\n{tables.blocks(result)[name]}", flush=True)
            if name == "learning":
                print(f"\n{tables.blocks(result)['memory']}", flush=True)
            yield result
    if "scaling" in options.only:
        start = time.perf_counter()
        result["scaling"] = scaling(setup, tuple(size for size in SIZES if size <= options.largest), options.keep)
        print(f"\n## scaling ({time.perf_counter() - start:.0f} s)\n\n{tables.blocks(result)['scaling']}", flush=True)
        yield result


def _measurements(setup: rows.Setup, options: argparse.Namespace) -> dict[str, Callable[[], rows.Table]]:
    found: dict[str, Callable[[], rows.Table]] = {
        "commands": lambda: rows.commands(setup),
        "small": lambda: rows.small(setup, _part(setup, 10_000_000), options.model),
        "adapting": lambda: rows.adapting(setup, _part(setup, 8_000_000), options.keep),
        "learning": lambda: rows.learning(setup),
        "loading": lambda: rows.loading(setup),
        "pipelines": lambda: rows.pipelines(setup, _part(setup, setup.text.stat().st_size // 6)),
        "encoders": lambda: rows.encoders(setup, *options.encoders),
        "japanese": lambda: rows.japanese(setup, options.japanese),
        "transplant": lambda: rows.transplant(setup, options.width, options.layers),
    }
    if options.japanese is None:
        del found["japanese"]
    if options.keep is None:
        del found["adapting"]
    if not options.encoders:
        del found["encoders"]
    return found


def _part(setup: rows.Setup, size: int) -> Path:
    """A part of the text, of about so many bytes."""
    out = setup.scratch / "part.txt"
    script("texts", setup.text, size, out)
    return out


def _input(setup: rows.Setup, distinct: int) -> dict[str, Any]:
    return {
        "bytes": setup.text.stat().st_size,
        "distinct": distinct,
        "tokenizer": setup.folders.name("llama3"),
        "tokens": setup.tokens,
        "rounds": setup.rounds,
    }


if __name__ == "__main__":
    main()
