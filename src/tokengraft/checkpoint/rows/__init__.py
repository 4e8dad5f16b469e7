"""Initialisers for new embedding rows: one file with one function each, listed in `INITIALISERS`."""

from collections.abc import Mapping
from types import MappingProxyType

from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.rows.fvt_norm import fvt_norm
from tokengraft.checkpoint.rows.interface import Initialiser, NewTokens, TableInfo
from tokengraft.checkpoint.rows.mean import mean
from tokengraft.checkpoint.rows.mean_cov import mean_cov
from tokengraft.checkpoint.rows.random import random
from tokengraft.checkpoint.rows.weighted import weighted
from tokengraft.errors import OptionError

INITIALISERS: Mapping[str, Initialiser] = MappingProxyType(
    {
        "fvt": fvt,
        "fvt-norm": fvt_norm,
        "weighted": weighted,
        "mean": mean,
        "mean-cov": mean_cov,
        "random": random,
    }
)

__all__ = ["INITIALISERS", "Initialiser", "NewTokens", "TableInfo", "require_initialisers", "require_untied"]


def require_initialisers(*names: str | None) -> None:
    """Refuses names of initialisers that do not exist. None is accepted.

    Raises:
        OptionError: A name does not exist. The hint lists those that do.
    """
    for name in names:
        if name is not None and name not in INITIALISERS:
            raise OptionError(f"there is no initialiser {name!r}", hint=f"pass one of {', '.join(INITIALISERS)}")


def require_untied(output_init: str | None, *, tied: bool) -> None:
    """Refuses an initialiser for the output of a model whose output shares its rows with the input.

    Raises:
        OptionError: ``output_init`` is given for a tied output.
    """
    if tied and output_init is not None:
        raise OptionError(
            f"an initialiser for the output ({output_init}) was given, but the model's output is tied to its input",
            hint="leave out --output-init (output_init)",
        )
