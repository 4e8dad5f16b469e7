"""How well tokenizers do on text: `evaluate` measures, `Evaluation` is what it found."""

from tokengraft.evaluate.evaluation import Evaluation, Score
from tokengraft.evaluate.measure import evaluate

__all__ = ["Evaluation", "Score", "evaluate"]
