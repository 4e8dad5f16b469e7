"""Measures tokenizers on text: `evaluate` returns an `Evaluation`."""
