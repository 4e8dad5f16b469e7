"""Loading a tokenizer.json, and the structure of its vocabulary, beside `tokenizers.Tokenizer.from_file`.

    python benchmarks/load.py [tokenizer.json]

Without a file it uses Llama-3 out of the PyPI package llama-models. Says nothing about encoding speed. Both loaders
get a warm page cache; each figure is the best of five, the two taken in turn, for machines are shared and noisy.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from machine import print_setting
from tokenizers import Tokenizer

import tokengraft as tg

ROUNDS = 5


def llama3(folder: str) -> Path:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import builders

    path = Path(folder) / "tokenizer.json"
    path.write_text(json.dumps(builders.llama3(), ensure_ascii=False, indent=2), encoding="utf-8")
    return path


def measured(action) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else llama3(folder)
        print_setting("tokengraft", "tokenizers")
        loaded = tg.load(path)
        print(f"input     {path.stat().st_size:,} bytes, {len(loaded.vocab):,} tokens, {len(loaded.merges):,} merges\n")
        upstream, ours, structure, saving = [], [], [], []
        for round_number in range(ROUNDS):
            upstream.append(measured(lambda: Tokenizer.from_file(str(path))))
            fresh = []
            ours.append(measured(lambda kept=fresh: kept.append(tg.load(path))))
            structure.append(measured(lambda kept=fresh: kept[0].structure))
            out = Path(folder) / f"out-{round_number}"
            saving.append(measured(lambda kept=fresh, out=out: tg.save(kept[0], out, verify=False)))
        print(f"{'':34}wall s   CPU s")
        rows = {
            "tokenizers.Tokenizer.from_file": upstream,
            "tokengraft.load": ours,
            "tokengraft structure, all cores": structure,
            "tokengraft.save": saving,
        }
        for name, times in rows.items():
            print(f"{name:<34}{min(wall for wall, _ in times):6.3f}  {min(cpu for _, cpu in times):6.3f}")
        print(f"\nload / from_file, wall: {min(ours)[0] / min(upstream)[0]:.2f} (target: at most 2)")
        print(f"structure, CPU: {min(cpu for _, cpu in structure):.2f} s (target: under 1)")


if __name__ == "__main__":
    main()
