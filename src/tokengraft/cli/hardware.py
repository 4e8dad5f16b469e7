"""The options for where models run, shared by `probe` and `distill`."""

import argparse

from tokengraft.train.models import DEVICES, DTYPES


def add_hardware(command: argparse.ArgumentParser) -> None:
    """Adds --device and --dtype."""
    command.add_argument(
        "--device", choices=DEVICES, default="auto", help="where to run (default: auto, a GPU if there is one)"
    )
    command.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="type to compute in (default: auto, bfloat16 on a GPU and float32 on a CPU)",
    )
