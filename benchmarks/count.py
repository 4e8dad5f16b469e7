"""Counting pretokens, beside `wc -w` and beside the paper's way: pre-tokenise in Python, then count.

    python benchmarks/count.py FILE.txt [TOKENIZER_FOLDER ...]

Without folders it uses Llama-3 out of the PyPI package llama-models. FILE should have at least 100 MB. Each figure is
the best of three, taken in turn. Our times are of counting alone, from the file to counts in memory: starting Python
and loading the tokenizer are not in them. The Python way is measured on the first megabytes and scaled, for it would
take minutes. Memory is the growth of the process over what it had before counting. Says nothing about text in which
hardly any pretoken repeats.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from load import llama3
from machine import print_setting
from tokenizers import Tokenizer as Upstream

import tokengraft as tg

ROUNDS = 3
SAMPLE = 4_000_000
GENERIC_SAMPLE = 10_000_000


def cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def timed(action) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), cpu_seconds()
    action()
    return time.perf_counter() - wall, cpu_seconds() - cpu


def words(path: Path) -> None:
    subprocess.run(["wc", "-w", path], env={"LC_ALL": "C.UTF-8"}, check=True, stdout=subprocess.DEVNULL)


def in_python(folder: Path, text: str) -> None:
    """A line at a time through the library's pre-tokenizer, then a Counter."""
    upstream = Upstream.from_file(str(folder / "tokenizer.json"))
    counts = Counter()
    for line in text.splitlines(keepends=True):
        normalized = upstream.normalizer.normalize_str(line) if upstream.normalizer else line
        pieces = upstream.pre_tokenizer.pre_tokenize_str(normalized) if upstream.pre_tokenizer else [(normalized, None)]
        counts.update(piece for piece, _ in pieces)


def row(name: str, wall: float, cpu: float | None, size: int, note: str = "") -> None:
    shown = f"{cpu:8.2f}" if cpu is not None else " " * 8
    print(f"{name:<44}{wall:8.2f}{shown}{size / 1e6 / wall:9.0f}  {note}")


def write_variants(path: Path, folder: Path) -> dict[str, Path]:
    """The lines of the file as documents in Parquet and compressed JSON lines."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    groups = ["\n".join(lines[at : at + 20]) for at in range(0, len(lines), 20)]
    found = {"Parquet (zstd)": folder / "c.parquet", ".jsonl.zst": folder / "c.jsonl.zst"}
    pq.write_table(pa.table({"text": groups}), found["Parquet (zstd)"], compression="zstd", row_group_size=5000)
    with pa.CompressedOutputStream(str(found[".jsonl.zst"]), "zstd") as stream:
        for text in groups:
            stream.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
    return found


def peak_growth(folder: Path, path: Path) -> tuple[int, int]:
    """Bytes that counting adds to the peak of a fresh process, and the number of distinct pretokens."""
    code = (
        "import sys, resource, pyarrow.parquet, tokengraft as tg\n"
        "tok = tg.load(sys.argv[1]); tg.count(tok, iter(['warm']))\n"
        "rss = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1]) * 1024\n"
        "open('/proc/self/clear_refs', 'w').write('5'); before = rss()\n"
        "counts = tg.count(tok, sys.argv[2]); print(rss() - before, len(counts))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder, path], capture_output=True, text=True, check=True)
    growth, distinct = map(int, done.stdout.split())
    return growth, distinct


def benchmark(folder: Path, path: Path, scratch: Path, *, full: bool) -> None:
    tokenizer, size = tg.load(folder), path.stat().st_size
    print(f"\n{folder.name}\n{'':44}  wall s   CPU s     MB/s")
    peers, ours = [], []
    for _ in range(ROUNDS):
        peers.append(timed(lambda: words(path)))
        ours.append(timed(lambda: tg.count(tokenizer, path)))
    row("wc -w (UTF-8)", min(peers)[0], None, size)
    (wall, _), cpu = min(ours), min(cpu for _, cpu in ours)
    row("tokengraft.count, plain text", wall, cpu, size, f"{wall / min(peers)[0]:.2f} of wc (target 0.6)")
    text = path.open(encoding="utf-8", errors="replace").read(SAMPLE)
    slow = timed(lambda: in_python(folder, text))[1] * size / len(text.encode())
    row("pre_tokenize_str + Counter, scaled", slow, slow, size, f"{slow / cpu:.0f} times our CPU (target 60)")
    sample = scratch / "sample.txt"
    sample.write_text(path.open(encoding="utf-8", errors="replace").read(GENERIC_SAMPLE), encoding="utf-8")
    generic = tg.CountOptions(through_upstream=True)
    lines = tg.ReadOptions(documents="lines")
    at = timed(lambda: tg.count(tokenizer, sample, read_options=lines, count_options=generic))
    row("tokengraft.count, generic path, a sample", *at, sample.stat().st_size)
    if not full:
        return
    for name, variant in write_variants(path, scratch).items():
        best = min(timed(lambda variant=variant: tg.count(tokenizer, variant)) for _ in range(ROUNDS))
        row(f"tokengraft.count, {name}", *best, size, f"{best[0] / wall:.2f} of plain text (target 1.5)")
    growth, distinct = peak_growth(folder, path)
    each = f"{growth / distinct:.0f} bytes each (target 250)"
    print(f"memory: {growth / 1e6:,.0f} MB for {distinct:,} distinct pretokens, {each}")


def main() -> None:
    path = Path(sys.argv[1])
    print_setting("tokengraft", "tokenizers", "pyarrow")
    print(f"input     {path.name}, {path.stat().st_size:,} bytes; {len(os.sched_getaffinity(0))} workers")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(name) for name in sys.argv[2:]] or [llama3(scratch).parent]
        for place, folder in enumerate(folders):
            benchmark(folder, path, Path(scratch), full=place == 0)


if __name__ == "__main__":
    main()
