"""The command line: one module for each command; each parses options, calls the library and prints."""

from tokengraft.cli.main import main
from tokengraft.cli.parser import build_parser

__all__ = ["build_parser", "main"]
