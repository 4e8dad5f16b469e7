"""Verifies a tokenizer: what must hold for any (`check`), against its base, and in other loaders (`verify`)."""

from tokengraft.check.check import Check, Finding, check

__all__ = ["Check", "Finding", "check"]
