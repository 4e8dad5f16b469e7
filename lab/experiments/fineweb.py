"""The paper's own text: FineWeb-2, and FineWeb for English, streamed from the hub within the paper's budget."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lab.experiments.data import HELD_OUT_DOCUMENTS, Documents, up_to
from lab.experiments.languages import PAPER_70, language_of

FINEWEB_2 = "HuggingFaceFW/fineweb-2"
FINEWEB = "HuggingFaceFW/fineweb"
FINEWEB_SAMPLE = "sample-10BT"
"""The configuration of FineWeb for English. It has no test split: its first documents are held out."""
Load = Callable[..., Iterable[Mapping[str, Any]]]
"""`datasets.load_dataset`, or what a test puts in its place."""


@dataclass(frozen=True)
class FineWeb:
    """Text of the hub. Documents are read in the order of the stream, and nothing is written to disk."""

    load: Load | None = None
    held_out_documents: int = HELD_OUT_DOCUMENTS

    def languages(self) -> Sequence[str]:
        """The paper's 70, by their codes in FineWeb-2."""
        return PAPER_70

    def documents(self, language: str, budget: int) -> Documents:
        """The first documents of a language, as many as fit into the budget, and the first ones of its test split."""
        if language_of(language).fineweb == "eng_Latn":
            stream = self._texts(FINEWEB, FINEWEB_SAMPLE, "train")
            held_out = tuple(islice(stream, self.held_out_documents))
            return Documents(tuple(up_to(stream, budget)), held_out)
        name = language_of(language).fineweb
        held_out = tuple(islice(self._texts(FINEWEB_2, name, "test"), self.held_out_documents))
        return Documents(tuple(up_to(self._texts(FINEWEB_2, name, "train"), budget)), held_out)

    def identity(self, language: str, budget: int) -> dict[str, object]:
        """The names of the data set and its configuration. A hash would need the text itself."""
        english = language_of(language).fineweb == "eng_Latn"
        names = (FINEWEB, FINEWEB_SAMPLE) if english else (FINEWEB_2, language_of(language).fineweb)
        return {"dataset": names[0], "configuration": names[1], "characters": budget}

    def _texts(self, dataset: str, name: str, split: str) -> Iterator[str]:
        load = self.load
        if load is None:
            from datasets import load_dataset as load
        return (row["text"] for row in load(dataset, name=name, split=split, streaming=True) if row["text"].strip())
