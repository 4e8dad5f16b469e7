"""Continued training and the whole `extend` command, beside `wc -w` and Hugging Face's trainer, in one table.

    python benchmarks/extend.py FILE.txt [TOKENIZER_FOLDER] [--tokens 16000] [--peers]

Without a folder it uses Llama-3 out of the PyPI package llama-models. `--peers` also trains Hugging Face's `BpeTrainer`
from scratch on the text (minutes): once for one merge, which is feeding, and once for all, so that the difference is
merging. The paper's toolkit is not on PyPI and is not measured here. The command is timed as a user runs it: starting
Python, loading, counting, learning, saving and loading back included; loading back with transformers, which alone takes
seconds, is timed apart. Memory is that of the process over what it had with the tokenizer loaded. Says nothing about
the quality of the tokens.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from count import timed, words
from load import llama3
from machine import print_setting
from tokenizers import Tokenizer as Upstream
from tokenizers import models, trainers

import tokengraft as tg

ROUNDS = 3


def command(folder: Path, path: Path, tokens: int, out: Path, *, transformers: bool) -> tuple[float, float, int]:
    """Wall and CPU seconds and peak memory of the command."""
    # A module set to None cannot be imported: the command then finds no transformers.
    hide = "" if transformers else "import sys; sys.modules['transformers'] = None\n"
    code = f"{hide}from tokengraft.cli.main import main; main()"
    arguments = [
        sys.executable,
        "-c",
        code,
        "extend",
        folder,
        "--corpus",
        path,
        "--add",
        tokens,
        "--out",
        out,
        "--quiet",
    ]
    return measured(list(map(str, arguments)))


def measured(arguments: list[str]) -> tuple[float, float, int]:
    start = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {arguments}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def peak_growth(folder: Path, path: Path, tokens: int) -> int:
    """Bytes that counting and learning add to the peak of a fresh process."""
    code = (
        "import sys, pyarrow.parquet, tokengraft as tg\n"
        "tok = tg.load(sys.argv[1]); tg.count(tok, iter(['warm']))\n"
        "rss = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1]) * 1024\n"
        "open('/proc/self/clear_refs', 'w').write('5'); before = rss()\n"
        "tg.extend(tok, tg.count(tok, sys.argv[2]), int(sys.argv[3])); print(rss() - before)\n"
    )
    arguments = [sys.executable, "-c", code, str(folder), str(path), str(tokens)]
    return int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def hugging_face(folder: Path, path: Path, tokens: int) -> tuple[float, float]:
    """Wall and CPU seconds of training a tokenizer of so many merges from scratch with the base's pipeline."""
    base = Upstream.from_file(str(folder / "tokenizer.json"))
    fresh = Upstream(models.BPE())
    fresh.normalizer, fresh.pre_tokenizer = base.normalizer, base.pre_tokenizer
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + tokens, initial_alphabet=alphabet, show_progress=False)
    with path.open(encoding="utf-8", errors="replace") as lines:
        return timed(lambda: fresh.train_from_iterator(lines, trainer))


def row(name: str, wall: float, cpu: float | None, note: str = "") -> None:
    print(f"{name:<50}{wall:8.2f}{'' if cpu is None else f'{cpu:8.2f}':>8}  {note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--tokens", type=int, default=16_000)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or llama3(scratch).parent
        benchmark(folder, options.file, options.tokens, Path(scratch), peers=options.peers)


def benchmark(folder: Path, path: Path, tokens: int, scratch: Path, *, peers: bool) -> None:
    print_setting("tokengraft", "tokenizers", "transformers")
    print(f"input     {path.name}, {path.stat().st_size:,} bytes; base {folder.name}, {tokens:,} new tokens\n")
    print(f"{'':50}  wall s   CPU s")
    base = tg.load(folder)
    counts = tg.count(base, path)
    wc, plain, learning = [], [], []
    for number in range(ROUNDS):
        wc.append(timed(lambda: words(path))[0])
        plain.append(command(folder, path, tokens, scratch / f"plain-{number}", transformers=False))
        learning.append(timed(lambda: tg.extend(base, counts, tokens)))
    row("wc -w (UTF-8)", min(wc), None)
    wall, cpu, peak = min(plain)
    row("tokengraft extend, the whole command", wall, cpu, f"{wall / min(wc):.1f} of wc (target 1.5 from 500 MB on)")
    full = command(folder, path, tokens, scratch / "full", transformers=True)
    row("  the same, loaded back with transformers too", *full[:2])
    row("  learning alone, from counts", *min(learning))
    growth = peak_growth(folder, path, tokens)
    each = f"{growth / len(counts):.0f} bytes for each of {len(counts):,} distinct pretokens (target 500)"
    print(f"memory: {peak / 1e6:,.0f} MB at the peak; counting and learning add {growth / 1e6:,.0f} MB, {each}")
    if peers:
        compare(folder, path, tokens, wall, min(cpu for _, cpu in learning))


def compare(folder: Path, path: Path, tokens: int, wall: float, cpu: float) -> None:
    feeding = hugging_face(folder, path, 1)
    training = hugging_face(folder, path, tokens)
    merging = training[1] - feeding[1]
    row("Hugging Face BpeTrainer, feeding and one merge", *feeding)
    row("Hugging Face BpeTrainer, all", *training, f"{training[0] / wall:.0f} times our command (target 12)")
    print(f"merging alone: {merging:.1f} CPU s, {merging / cpu:.0f} times ours (target 10)")


if __name__ == "__main__":
    main()
