"""What `tokengraft extend` shows about a finished extension, as a table and as JSON.

What commands that remove tokens show about them: the removed tokens, the protected ones, and the sample texts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tokengraft.cli.display import print_columns, print_note
from tokengraft.learn.extension import Extension
from tokengraft.learn.preserve import PreserveCost
from tokengraft.measure.choose_size import SizeChoice
from tokengraft.measure.prune_curve import PrunePoint
from tokengraft.measure.sample_texts import MOST, NAMED, SampleChange
from tokengraft.pruning.summary import RemovedTokens
from tokengraft.representation import quoted, visible
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.kind import readable
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.loaders import Verification

SHOWN = 8
"""Tokens, and words that are left out, that the table shows."""


LARGEST_SHARE = 0.8
"""If one language gets a larger share of the tokens, there is a warning."""


class Learned(NamedTuple):
    """A finished extension, with what it was learned from."""

    base: Tokenizer
    extended: Tokenizer
    extension: Extension
    verified: Verification
    choice: SizeChoice | None
    cost: PreserveCost | None
    """Of the preserved text, if there is any."""


def summary_of(learned: Learned) -> dict[str, Any]:
    """The result as JSON-ready data."""
    extension = learned.extension
    return {
        "added": len(extension),
        "asked": extension.asked,
        "characters": len(extension.characters),
        "merges": len(extension.merges),
        "rows": learned.extended.n_rows,
        "left_out": [*left_out(learned.base, learned.extended)],
        "loaded_by": learned.verified.loaders,
        "notes": learned.verified.notes,
        "size": learned.choice.as_dict() if learned.choice else None,
        "included": [word._asdict() for word in extension.included],
        "intermediates": len(extension.intermediates),
        "refused": len(extension.refused),
        "not_preserved": extension.provenance.get("not_preserved"),
        "preserve_cost": learned.cost.as_dict() if learned.cost else None,
        "languages": learned_for(extension),
    }


def learned_for(extension: Extension) -> dict[str, int]:
    """How many new tokens were learned for each language, with `Parity`."""
    learned = (name for name, merge in zip(extension.languages, extension.merges, strict=False) if name and merge.new)
    return dict(sorted(Counter(learned).items()))


def rows_of(learned: Learned) -> list[tuple[str, str]]:
    """The result as rows of a table."""
    base, extended, extension = learned.base, learned.extended, learned.extension
    rows = [("learned", extension.stopped)]
    if base.kind == "sentencepiece":
        rows += _sentencepiece(base, extension)
    rows.append(("first tokens", " ".join(readable(token, base.kind) for token in extension.tokens[:SHOWN]) or "none"))
    if base.algorithm == "BPE":
        rows.append(("merges", f"{len(extension.merges):,} new, {len(extended.merges):,} in all"))
    rows += [
        ("embedding rows", f"{base.n_rows:,} → {extended.n_rows:,}"),
        ("loaded back by", ", ".join(learned.verified.loaders) + ": the same ids"),
    ]
    rows += guarantees(extension, learned.choice)
    if learned.cost:
        rows += preserved_rows(extension, learned.cost)
    rows += [("warning", f"left out `{name}`: {reason}") for name, reason in left_out(base, extended).items()]
    rows += [("warning", note) for note in learned.verified.notes]
    if len(extension) < extension.asked:
        hint = f"pass --add {max(len(extension), 1)}, lower --min-count from {extension.min_count}, or give more text"
        rows.append(("hint", hint))
    return rows


def preserved_rows(extension: Extension, cost: PreserveCost, same: str = "ids") -> Iterator[tuple[str, str]]:
    """What was preserved, what was not, and the cost of it. ``same`` says what did not change: `ids` or `tokens`."""
    left_out = extension.provenance.get("not_preserved")
    yield "preserved", f"all {'other ' * bool(left_out)}pretokens of the preserved text have the same {same}"
    if left_out:
        yield (
            "not preserved",
            f"{left_out['pretokens']:,} pretokens ({left_out['occurrences']:,} occurrences) in "
            f"{', '.join(left_out['scripts'])}: scripts of the targets with less than 1 % of the letters of the text",
        )
        yield "hint", "--preserve-exactly preserves these too"
    yield "refused", f"{len(extension.refused):,} candidates that occur in the preserved text"
    yield (
        "cost",
        f"{cost.preserved - cost.free:,} more tokens of the training text ({cost.share:+.2%}) than without preserved "
        f"text: a gain of {cost.gain:+.1%} instead of {cost.possible_gain:+.1%}",
    )


def _sentencepiece(base: Tokenizer, extension: Extension) -> list[tuple[str, str]]:
    """The added characters and the rules for new pieces."""
    shown = " ".join(extension.characters[:16]) or "none were missing"
    origin = f"of {base.piece_file}" if base.piece_file else "Llama's, because there is no tokenizer.model"
    rules = dict(extension.provenance["rules"])
    length = rules.pop("max_sentencepiece_length")
    names = ", ".join(name for name, on in rules.items() if on)
    return [
        ("characters", f"{len(extension.characters):,} of the new tokens: {shown}"),
        ("piece rules", f"{origin}; {names}; at most {length} characters"),
    ]


def guarantees(extension: Extension, choice: SizeChoice | None) -> Iterator[tuple[str, str]]:
    """What was asked for, and what was done: the chosen size, the words of a list, the languages."""
    if choice:
        yield "size", choice.reason
    if extension.included:
        yield from _included(extension)
    if extension.languages:
        yield from _balance(learned_for(extension))


def _balance(learned: dict[str, int]) -> Iterator[tuple[str, str]]:
    yield "learned for", ", ".join(f"{name} {number:,}" for name, number in learned.items())
    most, total = max(learned, key=learned.__getitem__, default=""), sum(learned.values())
    if total and learned[most] > LARGEST_SHARE * total:
        yield "warning", f"{most} got {learned[most] / total:.0%} of the tokens: it gains little from each of them"
        yield "hint", "pass --max-share 0.5, leave it out, or pass --balance weights"


def _included(extension: Extension) -> Iterator[tuple[str, str]]:
    left_out = [word for word in extension.included if word.token is None]
    words = len(extension.included) - len(left_out)
    between = len(extension.intermediates)
    listed, forms = len({word.word for word in extension.included}), len(extension.included)
    several = " (most have two: after a space, and at the start of a text)" if forms > listed else ""
    yield "included", f"{words:,} of {forms:,} forms of {listed:,} words are tokens{several}"
    yield "included", f"{between:,} of the new tokens are parts of them"
    yield from (("left out", f"{word.word!r}: {word.reason}") for word in left_out[:SHOWN])
    if len(left_out) > SHOWN:
        yield "left out", f"{len(left_out) - SHOWN:,} more; --json or --extension list all"


_SCRIPTS = 5
"""How many scripts are shown."""

Rows = Iterator[tuple[str, str]]


def print_curve(curve: Sequence[PrunePoint], chosen: int) -> None:
    """Prints what it costs to remove more or fewer tokens, and what it saves."""
    texts, known = [*curve[0].cost], curve[0].parameters is not None
    heads = ["removed", "rows", *texts, *(["parameters saved", "MB saved"] if known else []), ""]

    def cells(point: PrunePoint) -> Iterator[str]:
        yield from (f"{point.removed:,}", f"{point.rows:,}", *(f"{point.cost[name]:+.2%}" for name in texts))
        if point.parameters is not None and point.bytes is not None:
            yield from (f"{point.parameters:,}", f"{point.bytes / 1e6:,.1f}")
        yield "chosen" if point.removed == chosen else ""

    print()
    print_columns(heads, [[*cells(point)] for point in curve])
    print_note(f"{', '.join(texts)}: the increase of the tokens of held-out text")


def removed_rows(removed: RemovedTokens, kept: Mapping[str, int]) -> Rows:
    """Rows of (label, text): removed tokens by kind and script, and why others are never removed."""
    for kind in removed.kinds:
        yield "removed", f"{kind.tokens:,} {kind.name}, such as {' '.join(map(quoted, kind.examples))}"
    if removed.scripts:
        shown = [f"{script.tokens:,} {script.name}" for script in removed.scripts[:_SCRIPTS]]
        others = sum(script.tokens for script in removed.scripts[_SCRIPTS:])
        yield "by script", ", ".join([*shown, *([f"{others:,} in other scripts"] if others else [])])
    reasons = [f"{count:,} {reason}" for reason, count in kept.items() if count and reason != "others"]
    if reasons:
        yield "never removed", "; ".join(reasons)
    if lost := removed.characters:
        shown_characters = " ".join(map(visible, lost[:12])) + " …" * (len(lost) > 12)
        yield "characters", f"{len(lost):,} can no longer be written: {shown_characters}"


def sample_rows(samples: Sequence[SampleChange]) -> Rows:
    """One row of (label, text) about the built-in sample texts: those with clearly more tokens, or all of them."""
    if not samples:
        return
    worse = [each for each in samples if each.is_worse]
    if not worse:
        least, most = min(each.change for each in samples), max(each.change for each in samples)
        names = ", ".join(sorted(each.name for each in samples))
        yield "sample texts", f"{least:+.1%} to {most:+.1%} tokens for {names}"
        return
    shown = [f"{each.name} {each.before:,} → {each.after:,} tokens ({each.change:+.1%})" for each in worse[:NAMED]]
    others = {f"above {MOST:.0%}": len(worse) - len(shown), f"at most {MOST:+.0%}": len(samples) - len(worse)}
    yield "sample texts", ", ".join([*shown, *(f"{count} more {what}" for what, count in others.items() if count)])
