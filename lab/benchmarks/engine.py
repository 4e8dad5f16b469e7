"""Counting on Ray against the local engine.

    python -m lab.benchmarks.engine --text all.txt --tokenizer llama3 [--out result.json]

The text has one document per line. Each run is a process of its own. The start of Ray is measured apart. Rates on one
machine say nothing about the network of a cluster. On a machine that does other work, only CPU seconds mean something.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from lab.benchmarks.machine import setting, version_of
from lab.benchmarks.measure import in_python, script

WORKERS = (1, 2)
TIMES = 4
COUNT = """
import os, time
from pathlib import Path
import tokengraft as tg

def cpu_seconds():
    \"\"\"User and system time of this process and its descendants: Ray's workers are no direct children.\"\"\"
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in stats.items() if parent in ours} - ours
        ours, grown = ours | more, bool(more)
    return sum(stats[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")

path, text, engine, workers = arguments
tok, start = tg.load(path), time.perf_counter()
if engine == "ray":
    import logging, ray
    ray.init(num_cpus=int(workers), include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL)
ready, used = time.perf_counter(), cpu_seconds()
lines, options = tg.ReadOptions(documents="lines"), tg.CountOptions(workers=int(workers))
counts = tg.count(tok, text, read_options=lines, count_options=options, engine=engine)
done = time.perf_counter()
used = cpu_seconds() - used
print(json.dumps({"start": ready - start, "count": done - ready, "cpu": used, "distinct": len(counts)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="text with one document per line")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each engine; the fastest counts")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measured(options.text, options.tokenizer, Path(scratch), options.rounds)
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measured(text: Path, tokenizer: Path, scratch: Path, rounds: int) -> dict[str, Any]:
    """All figures."""
    return {
        "machine": setting() | {"ray": version_of("ray")},
        "command": " ".join(["python -m lab.benchmarks.engine", "--text", text.name, "--tokenizer", tokenizer.name]),
        "text": {"name": text.name, "bytes": text.stat().st_size},
        "rates": _rates(text, tokenizer, scratch, rounds),
    }


def _rates(text: Path, tokenizer: Path, scratch: Path, rounds: int) -> list[dict[str, Any]]:
    """Each engine on the text, and on one `TIMES` as large, whose further copies have other words."""
    larger = scratch / "larger.txt"
    script("texts", text, TIMES * text.stat().st_size, larger)
    rows = [_rate((text, larger), tokenizer, engine, n, rounds) for engine in ("local", "ray") for n in WORKERS]
    larger.unlink()
    if len({row["distinct"] for row in rows}) != 1:
        raise SystemExit(f"the engines disagree: {rows}")
    return rows


def _rate(texts: tuple[Path, Path], tokenizer: Path, engine: str, workers: int, rounds: int) -> dict[str, Any]:
    """The fastest runs. The rate is that of the bytes which the larger text has more: without what every run needs."""
    small, large = (
        min((in_python(COUNT, tokenizer, text, engine, workers) for _ in range(rounds)), key=lambda run: run["count"])
        for text in texts
    )
    sizes = [text.stat().st_size for text in texts]
    rate = (sizes[1] - sizes[0]) / (large["count"] - small["count"])
    return {
        "engine": engine,
        "workers": workers,
        "start": small["start"],
        "seconds": small["count"],
        "seconds_of_larger": large["count"],
        "bytes": sizes[0],
        "bytes_of_larger": sizes[1],
        "bytes_per_second": rate,
        "cpu_seconds": small["cpu"],
        "cpu_seconds_of_larger": large["cpu"],
        "bytes_per_cpu_second": (sizes[1] - sizes[0]) / (large["cpu"] - small["cpu"]),
        "fixed_seconds": max(small["count"] - sizes[0] / rate, 0),
        "distinct": large["distinct"],
    }


if __name__ == "__main__":
    main()
