"""The option for rows without a token, shared by `transplant` and `adapt`."""

import argparse
from typing import get_args

from tokengraft.checkpoint.unused import HoleRows


def add_hole_rows(command: argparse.ArgumentParser) -> None:
    """Adds --hole-rows."""
    command.add_argument(
        "--hole-rows",
        choices=get_args(HoleRows),
        help="rows whose ids have no token. lowest: a row that is never the most likely; zero: zeros; both with the "
        "ids suppressed in the generation config; keep: the row that they had (default: lowest)",
    )
