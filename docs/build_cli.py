"""Writes docs/cli.md from what every command says with --help-all.

python docs/build_cli.py
"""

import argparse
import os
from pathlib import Path

from tokengraft import cli

PAGE = Path(__file__).parent / "cli.md"


def page() -> str:
    """The page, as it should be."""
    os.environ["COLUMNS"] = "100"
    parser = cli.build_parser()
    sections = ["# Command line\n\nWritten by `docs/build_cli.py` from `--help-all`; a test keeps it true.\n"]
    for name, command in parser._subparsers._group_actions[0].choices.items():
        sections += [_section(name, command)]
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                sections += [_section(f"{name} {inner}", part) for inner, part in action.choices.items()]
    return "\n".join(sections)


def _section(name: str, command: argparse.ArgumentParser) -> str:
    return f"## `tokengraft {name}`\n\n```text\n{argparse.ArgumentParser.format_help(command).strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
