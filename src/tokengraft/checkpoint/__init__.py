"""Gives a checkpoint the vocabulary of another tokenizer: `transplant` for files, `transplant_model` in memory."""

from tokengraft.checkpoint.in_memory import transplant_model
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.transplant import transplant

__all__ = ["Transplant", "transplant", "transplant_model"]
