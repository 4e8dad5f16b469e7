"""Reads and writes tokenizer files without loss: `load`, and `save` without verification."""

from tokengraft.formats.sources import load, save

__all__ = ["load", "save"]
