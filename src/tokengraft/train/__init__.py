"""Runs and trains models: bits per byte, a short training, and rows learned by distillation. Needs torch."""
