"""Reads text: finds the inputs (`open`), reads them in blocks for the core (`blocks`) or by document (`read`).

Every command reads text with this package, so that all see the same documents.
"""

from tokengraft.corpus.arrow import arrow_block, binary_buffers, require_column, require_text
from tokengraft.corpus.block import Block, Cut
from tokengraft.corpus.blocks import whole_documents
from tokengraft.corpus.input import Input
from tokengraft.corpus.open import Corpus, files_at, open_corpus, open_paths
from tokengraft.corpus.options import COMPRESSIONS, FORMATS, UNSUPPORTED, Format, ReadOptions
from tokengraft.corpus.read import documents, input_documents, read_documents
from tokengraft.corpus.remote import input_without_credentials, is_url, local_name, without_credentials
from tokengraft.corpus.strings import only_paths, paths_of
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
    "arrow_block",
    "binary_buffers",
    "documents",
    "files_at",
    "input_documents",
    "input_without_credentials",
    "is_url",
    "local_name",
    "only_paths",
    "open_corpus",
    "open_paths",
    "paths_of",
    "read_documents",
    "require_column",
    "require_text",
    "whole_documents",
    "without_credentials",
]
