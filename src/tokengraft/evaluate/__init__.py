"""Measures tokenizers on text: `evaluate` returns an `Evaluation`."""

from tokengraft.evaluate.evaluation import Evaluation, Score
from tokengraft.evaluate.measure import evaluate

__all__ = ["Evaluation", "Score", "evaluate"]
