"""The option for serving stacks, shared by `adapt` and `check`."""

import argparse

from tokengraft.check.serving.stacks import STACKS


def add_stacks(command: argparse.ArgumentParser, what: str) -> None:
    """Adds --for."""
    command.add_argument(
        "--for",
        dest="stacks",
        action="append",
        choices=STACKS,
        default=[],
        metavar="STACK",
        help=f"{what}: {', '.join(STACKS)}; may be repeated",
    )
