"""The frozen `Tokenizer`, and everything that explains or changes one. Reads and writes no files: `formats` does."""

from tokengraft.tokenizer.added import AddedToken
from tokengraft.tokenizer.content import MergeStructure, Token
from tokengraft.tokenizer.inspect import Inspection
from tokengraft.tokenizer.marks import join_marks
from tokengraft.tokenizer.piece_model import PieceRules

__all__ = ["AddedToken", "Inspection", "MergeStructure", "PieceRules", "Token", "join_marks"]
