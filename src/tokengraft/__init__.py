"""Teach the BPE tokenizer of a finished language model new words."""

from tokengraft._core import __version__
from tokengraft.errors import TokengraftError
from tokengraft.formats import load, save
from tokengraft.inspection import Inspection, inspect
from tokengraft.structure import MergeStructure
from tokengraft.tokenizer import AddedToken, Token, Tokenizer

__all__ = [
    "AddedToken",
    "Inspection",
    "MergeStructure",
    "Token",
    "TokengraftError",
    "Tokenizer",
    "__version__",
    "inspect",
    "load",
    "save",
]
