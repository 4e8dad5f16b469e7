"""Lossless readers and writers of tokenizer files: `load` and `save`."""

from tokengraft.formats.files import save
from tokengraft.formats.sources import load

__all__ = ["load", "save"]
