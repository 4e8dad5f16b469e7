"""Reads and writes tokenizer files without loss: `load`, and `save` without verification."""

from tokengraft.formats.files import save
from tokengraft.formats.sources import load

__all__ = ["load", "save"]
