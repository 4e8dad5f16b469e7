"""Verifies a tokenizer: alone and against its base (`check`), in other loaders (`verify`), when written (`save`)."""

from tokengraft.verify.finding import Finding

__all__ = ["Finding"]
