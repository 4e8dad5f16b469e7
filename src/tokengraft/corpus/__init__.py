"""Corpora: what to read (`open`), how (`options`), in blocks (`blocks`) for the core, or by document (`read`).

The only reader of text: every command that reads text reads it here, so that all agree on each document.
"""

from tokengraft.corpus.blocks import Block, Cut, binary_buffers, whole_documents
from tokengraft.corpus.open import COMPRESSIONS, FORMATS, UNSUPPORTED, Corpus, Input, open_corpus
from tokengraft.corpus.options import Format, ReadOptions
from tokengraft.corpus.read import documents, read_documents
from tokengraft.corpus.totals import Totals

__all__ = [
    "COMPRESSIONS",
    "FORMATS",
    "UNSUPPORTED",
    "Block",
    "Corpus",
    "Cut",
    "Format",
    "Input",
    "ReadOptions",
    "Totals",
    "binary_buffers",
    "documents",
    "open_corpus",
    "read_documents",
    "whole_documents",
]
