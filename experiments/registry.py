"""All experiments by name. A module is imported when its experiment is used: some need torch."""

from importlib import import_module

import tokengraft as tg
from experiments.experiment import Experiment

MODULES = {
    "extension": "experiments.extension",
    "english-effect": "experiments.english_effect",
    "prune": "experiments.prune",
    "prune-extend": "experiments.prune_extend",
    "order": "experiments.order",
    "naive-methods": "experiments.naive_methods",
    "budget": "experiments.budget",
    "histogram": "experiments.histogram",
    "compression": "experiments.model_compression",
    "pieces": "experiments.pieces",
    "guarantees": "experiments.guarantees",
    "continued-pretraining": "experiments.continued_pretraining",
    "initialisers": "experiments.initialisers",
    "downstream": "experiments.downstream",
}
"""Each module has its `Experiment` as ``EXPERIMENT``."""


def experiment_of(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in MODULES:
        raise tg.TokengraftError(f"there is no experiment {name!r}", hint=f"take one of {', '.join(MODULES)}")
    experiment: Experiment = import_module(MODULES[name]).EXPERIMENT
    return experiment
