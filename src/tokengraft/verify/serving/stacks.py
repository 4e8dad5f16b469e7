"""The serving stacks by name: what was read in their sources, and what an adaptation can choose for them."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, cast

from tokengraft.errors import OptionError
from tokengraft.verify.finding import EVIDENCE, Finding, Outcome

STACKS = ("transformers", "vllm", "llama.cpp", "ollama", "tiktoken", "mistral-common", "sentencepiece")
_NO_HOLES = {"ollama", "tiktoken", "mistral-common"}


@dataclass(frozen=True)
class Fact:
    """What a stack does with a folder, according to its source."""

    name: str
    """The name of the check."""
    version: str
    """The project and version that it was read from, which every finding prints."""
    cases: Mapping[str, Sequence[str]]
    """For each case: the outcome, the detail, and the fix if one is needed. Both texts are format strings."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, names and hashes of the source."""

    def finding(self, case: str, evidence: Sequence[str] = (), **values: object) -> Finding:
        """The finding for a case, with these values in its texts."""
        outcome, detail, *fix = self.cases[case]
        detail, *fix = (text.format(**self.values, **values) for text in (detail, *fix))
        shown, printed = tuple(evidence[:EVIDENCE]), f"{detail} ({self.version})"
        return Finding(self.name, cast("Outcome", outcome), printed, shown, "".join(fix))

    def of(self, wrong: Sequence[str], **values: object) -> Finding:
        """The finding for the case `wrong` if there is evidence, otherwise for `fine`."""
        return self.finding("wrong" if wrong else "fine", wrong, wrong=len(wrong), **values)


@cache
def facts(stack: str) -> Mapping[str, Fact]:
    """The facts about a stack, by the name of the check."""
    text = resources.files("tokengraft.verify.serving").joinpath("facts.json").read_text(encoding="utf-8")
    return {name: Fact(name, **content) for name, content in json.loads(text)[stack]["facts"].items()}


@dataclass(frozen=True)
class Choices:
    """What to choose for stacks. Everything else works with any choice, or cannot be avoided."""

    no_holes: bool = False
    """Renumber the ids if some have no token: `Tokenizer.compact`."""
    pad_multiple: int | None = None
    """Write a multiple of this many rows: ``pad_multiple`` of `transplant`. None leaves its default."""
    avoided_rows: Collection[int] = ()
    """Numbers of rows that a converter takes for another model, unless the base has that many too."""


def choices_for(stacks: Iterable[str]) -> Choices:
    """What an adaptation can choose so that these stacks can use its result.

    >>> choices_for(["ollama"])
    Choices(no_holes=True, pad_multiple=None, avoided_rows=())
    >>> choices_for(["vllm"]).pad_multiple
    64
    """
    names = [*stacks]
    for name in names:
        require_stack(name)
    sizes = facts("llama.cpp")["special sizes"].values["effects"] if "llama.cpp" in names else ()
    return Choices(
        no_holes=not _NO_HOLES.isdisjoint(names),
        pad_multiple=facts("vllm")["padding"].values["multiple"] if "vllm" in names else None,
        avoided_rows=tuple(map(int, sizes)),
    )


def require_stack(name: str) -> None:
    """Refuses an unknown stack."""
    if name not in STACKS:
        raise OptionError(f"there is no serving stack {name!r}", hint=f"choose one of {', '.join(STACKS)}")
