"""The command line: one module for each command; each parses options, calls the library and prints."""

from tokengraft.cli.main import build_parser, main

__all__ = ["build_parser", "main"]
