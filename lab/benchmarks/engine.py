"""Counting on Ray against the local engine, what partial counts weigh, and what a corpus of 10 TB would need.

    python -m lab.benchmarks.engine --text all.txt --tokenizer llama3 [--out result.json]

The text has one document per line. Each run is a process of its own. The start of Ray is measured apart. Rates on one
machine say nothing about the network of a cluster. On a machine that does other work, only CPU seconds mean something.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.benchmarks.machine import setting
from lab.benchmarks.measure import in_python, script
from lab.benchmarks.scaling import exponent

DOUBLINGS = 7
TARGET = 10 * 10**12
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
PARTIAL = """
import pyarrow as pa
import pyarrow.parquet as pq
import tokengraft as tg
path, text, out = arguments
tok = tg.load(path)
lines = (line.rstrip("\\n") for line in open(text, encoding="utf-8", errors="replace", newline="\\n"))
counter = tg.distributed.BatchCounter(tok)
def batches():
    import itertools
    while texts := list(itertools.islice(lines, 20_000)):
        yield pa.record_batch({"text": texts})
partial = pa.Table.from_batches(counter.count_batches(batches()))
pq.write_table(partial, out, compression="zstd")
print(json.dumps({"rows": len(partial), "arrow_bytes": partial.nbytes}))
"""
DISTINCT = """
import time
import tokengraft as tg
path, text, out = arguments
lines = tg.ReadOptions(documents="lines")
counts = tg.count(tg.load(path), text, read_options=lines)
counts.save(out, force=True)
print(json.dumps({"distinct": len(counts), "pretokens": counts.totals.pretokens, "bytes": counts.totals.bytes}))
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
    print(summary(result))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measured(text: Path, tokenizer: Path, scratch: Path, rounds: int) -> dict[str, Any]:
    """All figures."""
    size = text.stat().st_size
    growth = _growth(text, tokenizer, scratch)
    return {
        "machine": setting() | {"ray": _version("ray")},
        "command": " ".join(["python -m lab.benchmarks.engine", "--text", text.name, "--tokenizer", tokenizer.name]),
        "text": {"name": text.name, "bytes": size},
        "rates": _rates(text, tokenizer, scratch, rounds),
        "partial": _partial(text, tokenizer, scratch),
        "growth": growth,
        "projection": projection(growth["rows"]),
    }


def _version(package: str) -> str | None:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


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


def _partial(text: Path, tokenizer: Path, scratch: Path) -> list[dict[str, Any]]:
    """What the partial counts of parts of several sizes weigh: in memory as Arrow, and as Parquet with zstd."""
    rows = []
    for share in (16, 4, 1):
        part, out = scratch / "part.txt", scratch / "partial.parquet"
        size = _sample(text, part, 1 / share)
        run = in_python(PARTIAL, tokenizer, part, out)
        rows.append({"bytes": size, **run, "parquet_bytes": out.stat().st_size})
    return rows


def _growth(text: Path, tokenizer: Path, scratch: Path) -> dict[str, Any]:
    """Distinct pretokens of random samples of the lines, each twice as large as the one before."""
    rows = []
    for doubling in range(DOUBLINGS, -1, -1):
        part, out = scratch / "part.txt", scratch / "counts.parquet"
        size = _sample(text, part, 0.5**doubling)
        run = in_python(DISTINCT, tokenizer, part, out)
        rows.append({"file_bytes": size, **run, "counts_bytes": out.stat().st_size})
    points = [(row["bytes"], row["distinct"]) for row in rows]
    steps = [exponent(points[at : at + 2]) for at in range(len(points) - 1)]
    return {"rows": rows, "exponent": exponent(points), "exponents_of_doublings": steps}


def _sample(text: Path, out: Path, share: float, seed: int = 7) -> int:
    """Writes a share of the lines, chosen at random and always the same. A larger share has all lines of a smaller."""
    chosen = random.Random(seed)
    with text.open("rb") as lines, out.open("wb") as file:
        file.writelines(line for line in lines if chosen.random() < share)
    return out.stat().st_size


def projection(rows: list[dict[str, Any]], target: int = TARGET) -> dict[str, Any]:
    """Distinct pretokens of a corpus of ``target`` bytes, if they grow as over the last two doublings, and over all.

    >>> rows = [{"bytes": 10**n, "distinct": 10**n, "counts_bytes": 10 * 10**n} for n in range(1, 4)]
    >>> round(projection(rows, 10**6)["distinct"] / 10**6, 6)
    1.0
    """
    points = [(row["bytes"], row["distinct"]) for row in rows]
    last, (size, distinct) = exponent(points[-3:]), points[-1]
    overall = exponent(points)
    bytes_each = rows[-1]["counts_bytes"] / distinct
    expected, most = (distinct * (target / size) ** power for power in (last, overall))
    return {
        "bytes": target,
        "exponent": last,
        "distinct": expected,
        "distinct_by_overall_exponent": most,
        "counts_bytes": expected * bytes_each,
        "bytes_per_pretoken": bytes_each,
    }


def summary(result: dict[str, Any]) -> str:
    """The figures as text."""
    machine = result["machine"]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f}, {machine['system']}",
        ", ".join(f"{name} {number}" for name, number in {**machine["versions"], "ray": machine["ray"]}.items()),
        f"{result['text']['name']}: {result['text']['bytes']:,} bytes",
        "",
        "engine  workers  MB/s  seconds  of the larger text  fixed  start of Ray  MB per CPU second",
    ]
    lines += [
        f"{row['engine']:6}  {row['workers']:7}  {row['bytes_per_second'] / 1e6:4.0f}  {row['seconds']:7.1f}  "
        f"{row['seconds_of_larger']:.1f}  {row['fixed_seconds']:.1f}  {row['start']:.1f}  "
        f"{row['bytes_per_cpu_second'] / 1e6:.0f}"
        for row in result["rates"]
    ]
    lines += ["", "part MB  rows  Arrow MB per GB  Parquet MB per GB"]
    lines += [
        f"{row['bytes'] / 1e6:7.0f}  {row['rows']:,}  {1000 * row['arrow_bytes'] / row['bytes']:.0f}  "
        f"{1000 * row['parquet_bytes'] / row['bytes']:.0f}"
        for row in result["partial"]
    ]
    lines += ["", "MB  distinct pretokens  exponent of the doubling"]
    steps = [None, *result["growth"]["exponents_of_doublings"]]
    lines += [
        f"{row['bytes'] / 1e6:.1f}  {row['distinct']:,}  {step and round(step, 3)}"
        for row, step in zip(result["growth"]["rows"], steps, strict=True)
    ]
    end = result["projection"]
    lines += [
        f"exponent over all: {result['growth']['exponent']:.3f}; over the last two doublings: {end['exponent']:.3f}",
        f"{end['bytes'] / 1e12:.0f} TB: {end['distinct']:,.0f} distinct pretokens "
        f"({end['distinct_by_overall_exponent']:,.0f} by the exponent over all), {end['counts_bytes'] / 1e9:.1f} GB as "
        f"Parquet at {end['bytes_per_pretoken']:.1f} bytes each",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
