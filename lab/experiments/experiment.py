"""`Experiment`: what a module of this package declares, and the values that experiments share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokengraft as tg
from lab.experiments.data import BUDGET, Data, Documents
from lab.experiments.plots import Panel
from lab.experiments.tables import Table

Row = Mapping[str, Any]
"""One line of `results.csv`: numbers, strings, or None for what was not measured."""
Rows = Sequence[Row]
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
FOUR_MODELS = ("llama3", "qwen2_5", "mistral_nemo", "llama2")
MODEL_NAMES = {"llama3": "Llama-3", "qwen2_5": "Qwen-2.5", "mistral_nemo": "Mistral Nemo", "llama2": "Llama-2"}
CAVEAT = (
    "The text differs from the paper's, which is 100 million characters of FineWeb-2 for each language, and "
    "one billion for Estonian. Here it is smaller, of narrower domains, with near-duplicates; `run.json` has its "
    "hashes. The evaluation text, FLORES-200 devtest, is the same."
)


def model_name(model: str) -> str:
    """As the paper writes it."""
    return MODEL_NAMES.get(model, model)


@dataclass(frozen=True)
class Cell:
    """The part of an experiment that is run and kept at once."""

    model: str
    language: str
    part: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.model, self.language, self.part) if part)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether it holds on this data."""

    text: str
    holds: bool
    here: str
    """What was measured."""


@dataclass(frozen=True)
class Setup:
    """What the user asked for."""

    data: Data
    sizes: tuple[int, ...]
    budget: int = BUDGET
    model_folder: Path | None = None
    """A model in the format of transformers, for experiments that run one."""

    def tokenizer(self, name: str) -> tg.Tokenizer:
        """A tokenizer by its name."""
        return self.data.tokenizer(name)

    def documents(self, language: str) -> Documents:
        """The text of a language; the last few are kept."""
        return _documents(self.data, language, self.budget)

    def train_counts(self, model: str, language: str) -> tg.PretokenCounts:
        """The counts of the text to learn from; the last few are kept."""
        return _train_counts(self, model, language)

    def held_out_counts(self, model: str, language: str) -> tg.PretokenCounts:
        """The counts of the documents that nothing is learned from."""
        return tg.count(self.tokenizer(model), iter(self.documents(language).held_out))

    def flores_counts(self, model: str, language: str) -> tg.PretokenCounts:
        """The counts of the evaluation sentences."""
        return tg.count(self.tokenizer(model), iter(self.data.sentences(language)))


@dataclass(frozen=True)
class Experiment:
    """An experiment: what is measured, and how it is shown."""

    name: str
    title: str
    source: str
    """Where the paper has it."""
    about: str
    """What the tables show, in Markdown."""
    models: tuple[str, ...] = ("llama3",)
    languages: tuple[str, ...] | None = ("et",)
    """Those that are run by default; None: all that the data has."""
    parts: tuple[str, ...] = ("",)
    sizes: tuple[int, ...] = SIZES
    needs: tuple[str, ...] = ()
    """Packages beside tokengraft and matplotlib."""
    needs_model: bool = False
    needs_english: bool = True
    """Whether every cell reads English text too."""
    other_texts: tuple[str, ...] = ()
    """Corpora without evaluation sentences that are read too, if the data has them."""
    gpu: bool = False
    """Experiments that need a GPU are not run by `all`."""
    caveat: str = CAVEAT
    measure: Callable[[Setup, Cell], Iterable[Row]] = lambda *_: ()
    """Runs a cell. This and the others are the functions of these names in the module (`registry.py`)."""
    tables: Callable[[Rows], Sequence[Table]] = lambda _: ()
    panels: Callable[[Rows], Sequence[Panel]] = lambda _: ()
    claims: Callable[[Rows], Sequence[Claim]] = lambda _: ()

    def cells(self, models: Sequence[str], languages: Sequence[str], parts: Sequence[str] = ()) -> list[Cell]:
        """All cells, languages outermost: the text of a language is read once."""
        unknown = sorted(set(parts) - set(self.parts))
        if unknown:
            known = ", ".join(part for part in self.parts if part) or "none"
            raise tg.TokengraftError(f"{self.name} has no part {unknown[0]!r}", hint=f"its parts are: {known}")
        return [Cell(m, language, part) for language in languages for m in models for part in parts or self.parts]


@lru_cache(maxsize=3)
def _documents(data: Data, language: str, budget: int) -> Documents:
    return data.source.documents(language, budget)


@lru_cache(maxsize=6)
def _train_counts(setup: Setup, model: str, language: str) -> tg.PretokenCounts:
    return tg.count(setup.tokenizer(model), iter(setup.documents(language).train))
