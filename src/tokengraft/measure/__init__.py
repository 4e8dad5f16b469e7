"""Measures tokenizers on text: `evaluate` returns an `Evaluation`."""

from tokengraft.measure.choose_size import SizeChoice, SizeOptions, choose_size
from tokengraft.measure.compare import Comparison
from tokengraft.measure.scores import Score
from tokengraft.measure.sizes import Curve, curve

__all__ = ["Comparison", "Curve", "Score", "SizeChoice", "SizeOptions", "choose_size", "curve"]
