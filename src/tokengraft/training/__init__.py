"""Trains an adapted model: mix of texts, faster new rows, bits per byte while it trains, blending. Needs torch.

`tokengraft.train` does all of it on `transformers.Trainer`. The pieces here work in other trainers and loops too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.training.callbacks import HeldOutBits, RowRates, row_rates
    from tokengraft.training.options import TrainingSettings, TrainOptions
    from tokengraft.training.result import Training
    from tokengraft.training.text import mix

__all__ = ["HeldOutBits", "RowRates", "TrainOptions", "Training", "TrainingSettings", "mix", "row_rates"]
_MODULE_OF = {
    "HeldOutBits": "callbacks",
    "RowRates": "callbacks",
    "row_rates": "callbacks",
    "TrainingSettings": "options",
    "TrainOptions": "options",
    "Training": "result",
    "mix": "text",
}


def __getattr__(name: str) -> Any:
    """Imports a piece when it is used: the callbacks need transformers, which takes seconds to import."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
