"""The results of checks: `Finding` is one, `Check` has all of them. Plain data."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tokengraft.errors import InvalidTokenizerError
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


def note(name: str, detail: str, evidence: Sequence[str] = ()) -> Finding:
    """Information with a few examples."""
    return Finding(name, "note", detail, tuple(evidence[:EVIDENCE]))


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
