"""Trains an adapted model: mix of texts, faster new rows, bits per byte while it trains, blending. Needs torch.

`tokengraft.train` does all of it on `transformers.Trainer`. The pieces here work in other trainers and loops too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.training.held_out import HeldOutBits
    from tokengraft.training.new_rows import FasterNewRows, faster_new_rows
    from tokengraft.training.options import TrainingSettings, TrainOptions
    from tokengraft.training.result import Training
    from tokengraft.training.text import mix

__all__ = ["FasterNewRows", "HeldOutBits", "TrainOptions", "Training", "TrainingSettings", "faster_new_rows", "mix"]
_MODULE_OF = {
    "HeldOutBits": "held_out",
    "FasterNewRows": "new_rows",
    "faster_new_rows": "new_rows",
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
