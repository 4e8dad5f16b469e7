"""The option `--report` of commands that make or measure a tokenizer."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokengraft.output.atomic import require_distinct, require_new


def add_report(command: argparse.ArgumentParser) -> None:
    """Adds --report, for commands that make or measure a tokenizer."""
    command.add_argument(
        "--report", type=Path, metavar="FILE", help="also write a page about the result, as `tokengraft report` does"
    )


def require_report(options: argparse.Namespace, inputs: Iterable[str], *outputs: str | os.PathLike[str] | None) -> None:
    """Refuses a report that cannot be written, before any work is done."""
    if options.report:
        require_new(options.report, force=getattr(options, "force", False))
        require_distinct(inputs, options.report, *outputs)


def report_if_asked(options: argparse.Namespace, *arguments: Any, **more: Any) -> None:
    """Writes the report of an edited tokenizer if --report was given. The arguments are those of `report_edit`."""
    if options.report:
        from tokengraft.cli.report import report_edit  # and with it most of the package

        report_edit(options, *arguments, **more)
