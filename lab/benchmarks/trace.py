"""Where the seconds of one command go: wall and CPU seconds of its steps, of its imports and of its child processes.

    python -m lab.benchmarks.trace extend MODEL --corpus TEXT --add 16000 --out OUT

A step is indented under the step that calls it, and its seconds include those of the steps under it. CPU seconds are
those of all threads of the process. Where they are less than the wall seconds, the step waits; where they are more,
it uses several cores. Child processes, such as the one that loads transformers, are in the last line alone.
"""

import functools
import importlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = """
pipeline.prepare:prepare formats.sources:load pruning.removable:removable_tokens counts.count:count
counts.threads:count_inputs pipeline.texts:texts_of pipeline.vocabulary:new_vocabulary pruning.order:prune_order
learn.continued:extend learn.trainer:learned_merges tokenizer.edit:add_tokens tokenizer.edit:remove_tokens
measure.choose_size:choose_size verify.check:check verify.against_base:learned verify.against_base:merges
verify.check:save_verified verify.loaders:verify_folder verify.loaders:sample_texts
verify.transformers_loader:load_with_transformers formats.huggingface:write_tokenizer_json measure.evaluate:evaluate
page.report:report_page page.pack:packed_tokenizers page.pack:compressed output.atomic:write_folder
""".split()  # noqa: SIM905 (short lines)

Row = list[Any]
"""Depth, name, calls, wall seconds, CPU seconds."""


def traced(function: Callable[..., Any], name: str, rows: dict[tuple[str, ...], Row], path: list[str]) -> Any:
    """The function, which adds its seconds to the row of the steps that led to it."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        path.append(name)
        row = rows.setdefault(tuple(path), [len(path) - 1, name, 0, 0.0, 0.0])
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return function(*arguments, **options)
        finally:
            row[2:] = [row[2] + 1, row[3] + time.perf_counter() - wall, row[4] + time.process_time() - cpu]
            path.pop()

    return wrapper


def main() -> None:
    """Runs the command with its steps traced, and prints a table to stderr."""
    start, rows, path = time.perf_counter(), dict[tuple[str, ...], Row](), list[str]()
    from tokengraft.cli import build_parser
    from tokengraft.cli import main as run

    build_parser(sys.argv[1:2])
    imported = time.perf_counter() - start, time.process_time()
    for step in STEPS:
        module, name = step.split(":")
        function = getattr(importlib.import_module(f"tokengraft.{module}"), name)
        wrapper = traced(function, name, rows, path)
        for other in [module for name, module in sys.modules.items() if name.startswith("tokengraft")]:
            for known in [known for known, value in vars(other).items() if value is function]:
                setattr(other, known, wrapper)
    status = traced(run, "the command", rows, path)(sys.argv[1:])
    shown = [(0, "start and imports", 1, *imported), *rows.values()]
    for depth, name, calls, wall, cpu in shown:
        print(f"{wall:8.2f} s wall {cpu:8.2f} s CPU {calls:4} x  {'  ' * depth}{name}", file=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{'':15}{used.ru_utime + used.ru_stime:8.2f} s CPU         child processes", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
