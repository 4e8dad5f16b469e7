"""All experiments by name. A module is imported when its experiment is used: some need torch."""

from dataclasses import replace
from importlib import import_module

import tokengraft as tg
from lab.experiments.experiment import Experiment

MODULES = {
    "extension": "lab.experiments.extension",
    "english-effect": "lab.experiments.english_effect",
    "prune": "lab.experiments.prune",
    "prune-extend": "lab.experiments.prune_extend",
    "order": "lab.experiments.order",
    "naive-methods": "lab.experiments.naive_methods",
    "budget": "lab.experiments.budget",
    "histogram": "lab.experiments.histogram",
    "compression": "lab.experiments.model_compression",
    "domain": "lab.experiments.domain",
    "pieces": "lab.experiments.pieces",
    "guarantees": "lab.experiments.guarantees",
    "continued-pretraining": "lab.experiments.continued_pretraining",
    "initialisers": "lab.experiments.initialisers",
}
"""Each module has its `Experiment` as ``EXPERIMENT``, and the functions that measure and show."""


def experiment_of(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in MODULES:
        raise tg.TokengraftError(f"there is no experiment {name!r}", hint=f"take one of {', '.join(MODULES)}")
    module = import_module(MODULES[name])
    experiment: Experiment = module.EXPERIMENT
    found = {part: getattr(module, part) for part in ("measure", "tables", "panels", "claims") if hasattr(module, part)}
    return replace(experiment, **found)
