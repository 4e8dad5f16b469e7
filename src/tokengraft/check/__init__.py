"""Verifies a tokenizer: alone and against its base (`check`), in other loaders (`verify`), when written (`save`)."""

from tokengraft.check.check import Check, Finding, check
from tokengraft.check.save import save

__all__ = ["Check", "Finding", "check", "save"]
