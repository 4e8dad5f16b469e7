"""Runs and trains models: bits per byte, and a short training. Needs torch."""

from tokengraft.train.probe import Probe, ProbeOptions, ProbeScore, probe

__all__ = ["Probe", "ProbeOptions", "ProbeScore", "probe"]
