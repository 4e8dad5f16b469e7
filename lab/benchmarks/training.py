"""What `train` adds to a bare `transformers.Trainer`: the CPU and wall seconds of both, with the same steps.

    python -m lab.benchmarks.training ADAPTED --text TEXT --keep TEXT --max-bytes 60000 --json FILE

`tokengraft.train` runs. When it starts its Trainer, a Trainer without callbacks of tokengraft reads the same sequences
with the same arguments, before it and after it. The bare time is the mean of these two. Scoring before training and
blending come on top: they are printed as the rest.
"""

import argparse
import json
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

import tokengraft as tg
from tokengraft.training import TrainOptions


def main() -> None:
    """Trains and prints the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("adapted")
    for name in ("--text", "--keep"):
        parser.add_argument(name, required=True)
    parser.add_argument("--max-bytes", type=int, default=60_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    own, runs, steps = Trainer.train, list[tuple[float, float]](), list[int]()

    def timed(trainer: Any, **options: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = own(trainer, **options)
        runs.append((time.perf_counter() - wall, time.process_time() - cpu))
        steps.append(trainer.state.global_step)
        return result

    def bare(trainer: Any) -> None:
        parts = {"train_dataset": trainer.train_dataset, "data_collator": trainer.data_collator}
        timed(Trainer(model=trainer.model, args=trainer.args, **parts))

    def between(trainer: Any, **options: Any) -> Any:
        trainer.args.save_strategy = "no"
        state = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        bare(trainer)
        trainer.model.load_state_dict(state)
        result = timed(trainer, **options)
        bare(trainer)
        return result

    Trainer.train = between
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        options = TrainOptions(max_bytes=given.max_bytes, blend=0.0)
        tg.train(given.adapted, given.text, keep=given.keep, out=Path(folder, "out"), options=options, quiet=True)
        whole = time.perf_counter() - start
    (before, ours, after) = runs
    rest = whole - sum(wall for wall, _ in runs)
    figures = {
        "steps": steps[1],
        "bare_wall": (before[0] + after[0]) / 2,
        "bare_cpu": (before[1] + after[1]) / 2,
        "train_wall": ours[0],
        "train_cpu": ours[1],
        "more_cpu": ours[1] / ((before[1] + after[1]) / 2) - 1,
        "rest_wall": rest,
        "runs": runs,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
        "inputs": [Path(given.adapted).name, Path(given.text).name, Path(given.keep).name, given.max_bytes],
    }
    text = json.dumps(figures, indent=1) + "\n"
    print(text, end="")
    if given.json:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
