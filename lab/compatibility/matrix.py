"""Runs all steps on all tokenizers and gives one row of results for each."""

import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import tokengraft as tg
from lab.compatibility.collect import Entry
from lab.compatibility.steps import NEEDS, STEPS, Case, DifferenceError, convert
from lab.compatibility.texts import Texts
from tokengraft import TokengraftError, Tokenizer

Outcome = Literal["equal", "refused", "different", "failed", "not run"]


@dataclass(frozen=True)
class Result:
    """The result of one step."""

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """A tokenizer and the results of all steps."""

    name: str
    source: str
    note: str
    facts: dict[str, Any]
    """File, library, kind, engine, number of tokens and hash of the vocabulary; empty if it is refused."""
    results: dict[str, Result]
    converted: dict[str, Result] = field(default_factory=dict)
    """The results of the tokenizer as a `tokenizer.json`, if its own format cannot express new tokens."""

    @property
    def bugs(self) -> dict[str, Result]:
        """Everything that is neither equal to the library nor a clear refusal."""
        found = {**self.results, **{f"{step} after conversion": result for step, result in self.converted.items()}}
        return {step: result for step, result in found.items() if result.outcome in ("different", "failed")}

    @property
    def passes(self) -> bool:
        """Whether all steps were run and are equal, if need be after a conversion."""
        return all((self.converted or self.results)[step].outcome == "equal" for step in STEPS)

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON-ready data."""
        return {name: value for name, value in asdict(self).items() if value or name != "converted"}


def run(entry: Entry, texts: Texts) -> Row:
    """The row of a tokenizer."""
    with tempfile.TemporaryDirectory(prefix="compatibility-") as work:
        case = Case(entry, texts, Path(work) / "own")
        results = _results(case)
        facts = _facts(case) if results["encode"].outcome in ("equal", "different") else {}
        converted = {}
        if results["swap"].outcome == "refused" and case.base.rank_file:
            other = Case(entry._replace(folder=Path(work) / "folder", encoding=""), texts, Path(work) / "converted")
            converted = {"convert": _outcome(lambda: convert(case, other.entry.folder)), **_results(other)}
    return Row(entry.name, entry.source, entry.note, facts, results, converted)


def _results(case: Case) -> dict[str, Result]:
    """The results of all steps."""
    results = {"load": _outcome(lambda: case.base and "")}
    for name, step in STEPS.items():
        usable = results[NEEDS.get(name, "load")].outcome == "equal"
        results[name] = _outcome(lambda step=step: step(case)) if usable else Result("not run")
    folder = f"{case.entry.folder}/"
    return {step: replace(each, detail=each.detail.replace(folder, "")) for step, each in results.items()}


def _outcome(step: Callable[[], str]) -> Result:
    try:
        return Result("equal", step())
    except TokengraftError as error:
        return Result("refused", error.message)
    except DifferenceError as error:
        return Result("different", str(error))
    except BaseException as error:  # a panic of a library is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return Result("failed", "".join(traceback.format_exception(error)[-3:]))


def _facts(case: Case) -> dict[str, Any]:
    base = case.base
    return {
        "file": base.main,
        "library": case.library.name,
        "kind": base.kind,
        "engine": tg.inspect(base).engine,
        "tokens": len(base.tokens),
        "vocabulary": vocabulary_hash(base),
    }


def vocabulary_hash(tokenizer: Tokenizer) -> str:
    """A hash of the learned tokens: the same for all formats of one vocabulary."""
    added = {token.id for token in tokenizer.added}
    learned = sorted(token.bytes for token in tokenizer.tokens if token.id not in added)
    return sha256(b"\n".join(token.hex().encode() for token in learned)).hexdigest()[:12]
