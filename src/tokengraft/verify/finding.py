"""The results of checks: `Finding` is one, `Check` has all of them. Plain data.

`facts`: what serving stacks do with a folder, as it was read in their sources. `serving_facts.json` has each fact with
the version, and its findings print that version. `choices_for`: what an adaptation can choose for them.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, cast

from tokengraft.errors import InvalidTokenizerError, OptionError
from tokengraft.representation import Table, shown

Outcome = Literal["pass", "fail", "note"]
NOT_CHECKED = "not checked"
EVIDENCE = 8
"""Examples that a finding shows."""


@shown
@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    outcome: Outcome
    """`note` is information, not a failure."""
    detail: str
    evidence: tuple[str, ...] = ()
    """A few examples, if there are any."""
    fix: str = ""
    """What to do about it, if something is known that helps."""


@shown
@dataclass(frozen=True)
class Check:
    """The results of all checks."""

    findings: tuple[Finding, ...]

    def _facts(self) -> dict[str, bool]:
        return {"passed": self.passed}

    def _tables(self) -> Iterator[Table]:
        rows = ((each.outcome, each.name, each.detail, ", ".join(each.evidence), each.fix) for each in self.findings)
        yield Table("findings", ("outcome", "check", "detail", "evidence", "what to do"), rows, len(self.findings))

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The checks that failed."""
        return tuple(finding for finding in self.findings if finding.outcome == "fail")

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    def raise_for_failures(self) -> None:
        """Raises an error if a check failed.

        Raises:
            InvalidTokenizerError: A check failed. The message has every failure with its first example.
        """
        if self.failures:
            lines = [f"{f.name}: {', such as '.join((f.detail, *f.evidence[:1]))}" for f in self.failures]
            raise InvalidTokenizerError(
                "the tokenizer fails its check:\n  " + "\n  ".join(lines),
                hint="see `tokengraft check` for all evidence",
            )


def finding(name: str, wrong: list[str], fine: str, bad: str, fix: str = "") -> Finding:
    """A finding that fails if there is evidence. ``{n}`` in ``bad`` is replaced by its amount."""
    if not wrong:
        return Finding(name, "pass", fine)
    return Finding(name, "fail", bad.format(n=f"{len(wrong):,}"), tuple(wrong[:EVIDENCE]), fix)


def note(name: str, detail: str, evidence: Sequence[str] = (), fix: str = "") -> Finding:
    """Information with a few examples."""
    return Finding(name, "note", detail, tuple(evidence[:EVIDENCE]), fix)


def as_notes(check: Check, names: Collection[str], detail: str) -> Check:
    """The check with failures of some names as notes. ``{}`` in ``detail`` is what was found."""

    def noted(finding: Finding) -> Finding:
        if finding.outcome != "fail" or finding.name not in names:
            return finding
        return replace(finding, outcome="note", detail=detail.format(finding.detail))

    return Check(tuple(map(noted, check.findings)))


def not_checked(name: str, reason: str) -> Finding:
    """A note that something could not be checked."""
    return note(name, f"{NOT_CHECKED}: {reason}")


def named_token(string: str, token_id: int) -> str:
    """A token as evidence.

    >>> named_token("<s>", 1000)
    "'<s>' (1,000)"
    """
    return f"{string!r} ({token_id:,})"


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
    text = resources.files("tokengraft.verify").joinpath("serving_facts.json").read_text(encoding="utf-8")
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
