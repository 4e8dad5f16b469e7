"""The frozen `Tokenizer`, and everything that explains or changes one. Reads and writes no files: `formats` does."""

from tokengraft.tokenizer.added import AddedToken
from tokengraft.tokenizer.inspect import Inspection, inspect
from tokengraft.tokenizer.merge_tree import MergeStructure
from tokengraft.tokenizer.sentencepiece import PieceRules
from tokengraft.tokenizer.tokenizer import Token, Tokenizer

__all__ = ["AddedToken", "Inspection", "MergeStructure", "PieceRules", "Token", "Tokenizer", "inspect"]
