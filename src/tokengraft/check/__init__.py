"""Verifies a tokenizer: alone and against its base (`check`), in other loaders (`verify`), when written (`save`)."""

from tokengraft.check.check import check
from tokengraft.check.finding import Check, Finding
from tokengraft.check.save import save

__all__ = ["Check", "Finding", "check", "save"]
