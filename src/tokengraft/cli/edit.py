"""`tokengraft extend` and `tokengraft prune`; what they and `adapt` show about their result, as a table and as JSON."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokengraft.checkpoint.table import model_rows
from tokengraft.cli.commands import print_columns, print_note, print_result, print_warnings, say
from tokengraft.learn.extension import Extension
from tokengraft.learn.preserve import PreserveCost
from tokengraft.learn.special import given_rows
from tokengraft.measure.choose_size import SizeChoice
from tokengraft.measure.compare import MOST, NAMED, SampleChange
from tokengraft.options.option import given_options
from tokengraft.options.table import options_of
from tokengraft.pipeline.edit import edit, extension_curve
from tokengraft.pipeline.request import Request, Step, commanded, shown_steps
from tokengraft.pipeline.result import Vocabulary
from tokengraft.pruning.cost import PrunePoint, RemovedTokens, removed_summary
from tokengraft.representation import quoted, visible
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.kind import readable
from tokengraft.tokenizer.tokenizer import Tokenizer

SHOWN = 8
"""Tokens, and words that are left out, that the table shows."""
LARGEST_SHARE = 0.8
"""If one language gets a larger share of the tokens, there is a warning."""
_SCRIPTS = 5
"""How many scripts are shown."""
Rows = Iterator[tuple[str, str]]


def run_extend(options: argparse.Namespace) -> int:
    """Runs the command."""
    return _run("extend", options)


def run_prune(options: argparse.Namespace) -> int:
    """Runs the command."""
    return _run("prune", options)


def _run(step: Step, options: argparse.Namespace) -> int:
    given = given_options(options_of(step), options)
    with shown_steps(commanded(step, options.source, given)) as request:
        if request.edit.curve:
            return _show_curve(request, options)
        result = edit(request)
    show_edit(result, request, options)
    return 0


def _show_curve(request: Request, options: argparse.Namespace) -> int:
    """Prints the gain by number of new tokens, and how often the new tokens occur in the training text."""
    result, curve = extension_curve(request)
    print_warnings(result.warnings)
    if options.json:
        points = [point._asdict() for point in curve.points]
        print(json.dumps({"text": curve.text, "knee": curve.knee, "points": points, "warnings": [*result.warnings]}))
        return 0
    heads = ["new tokens", "bytes/token", "gain", "below 10", "below 100", "below 1,000"]
    rows = list[list[str]]()
    for point in curve.points:
        rare = (
            f"{share:.1%}" if share is not None else "" for share in (point.below_10, point.below_100, point.below_1000)
        )
        rows.append([f"{point.tokens:,}", f"{point.bytes_per_token:.3f}", f"{point.gain:+.1%}", *rare])
    print_columns(heads, rows)
    knee = f"{curve.knee:,} tokens (1,000 more gain less than 1 %)" if curve.knee is not None else "not reached"
    print(f"knee: {knee}")
    trained = options.training_text
    where = f"{trained:,} bytes of training text" if trained else "the text they were learned from"
    say(f"below N: the share of new tokens that occur fewer than N times in {where}", options)
    if result.extension and len(result.extension) < result.extension.asked:
        say(f"note: {result.extension.stopped}", options)
    return 0


def show_edit(result: Vocabulary, request: Request, options: argparse.Namespace) -> None:
    """Prints the result of `extend` or `prune`."""
    data = {"out": options.out, **_edit_data(result, request)} if options.json else {}  # searches the whole vocabulary
    print_result(options, data, _edit_rows(result, request))
    if not options.json and result.prune_curve:
        print_curve(result.prune_curve, len(result.order or ()))
    print_warnings(result.warnings)
    if not options.json:
        say(f"wrote `{options.out}`", options)
    if request.edit.report:
        say(f"wrote `{request.edit.report}`", options)


def _edit_data(result: Vocabulary, request: Request) -> dict[str, Any]:
    """The result of `extend` or `prune` as JSON-ready data."""
    extension, order, verified = result.extension, result.order, result.verified
    data: dict[str, Any] = {
        "tokens": len(result.tokenizer),
        "rows": rows_of(result, request)[1],
        "newly_unreachable": len(_unreachable(result.tokenizer) - _unreachable(result.base)),
        "left_out": [*left_out(result.base, result.tokenizer)],
        "loaded_by": verified.loaders if verified else [],
        "notes": verified.notes if verified else [],
        "warnings": result.warnings,
        "special": {t.content: t.id for t in result.tokenizer.added if t.content not in result.base.ids},
    }
    if extension is not None:
        data |= {
            "added": len(extension),
            "asked": extension.asked,
            "characters": len(extension.characters),
            "merges": len(extension.merges),
            "size": result.choice.as_dict() if result.choice else None,
            "included": [word._asdict() for word in extension.included],
            "intermediates": len(extension.intermediates),
            "refused": len(extension.refused),
            "not_preserved": extension.provenance.get("not_preserved"),
            "preserve_cost": result.cost.as_dict() if result.cost else None,
            "languages": learned_for(extension),
        }
    elif order is not None:
        data |= {
            "method": order.method,
            "by_merges": order.provenance["by_merges"],
            "removed": len(order),
            "tokens_in_text": result.text_tokens,
            "curve": [point.as_dict() for point in result.prune_curve],
            "kept": dict(order.kept),
            "removed_tokens": removed_summary(result.base, (removal.id for removal in order.removals)).as_dict(),
            "samples": [sample._asdict() for sample in result.samples],
        }
    else:
        data |= {"added": len(_new(result)), "unreachable": len(_new(result) & _unreachable(result.tokenizer))}
    return data


def _edit_rows(result: Vocabulary, request: Request) -> Rows:
    """The result of `extend` or `prune` as rows of a table."""
    base, new, extension, order = result.base, result.tokenizer, result.extension, result.order
    if result.covered:
        yield "size", result.covered
    if extension is not None:
        yield "learned", extension.stopped
        if base.kind == "sentencepiece":
            yield from _sentencepiece(base, extension)
        yield "first tokens", " ".join(readable(token, base.kind) for token in extension.tokens[:SHOWN]) or "none"
        if base.algorithm == "BPE":
            yield "merges", f"{len(extension.merges):,} new, {new.core_vocabulary.n_merges:,} in all"
    elif order is not None:
        yield "tokens", f"{len(order):,} removed by {order.method}, {len(new):,} kept"
        yield from removed_rows(removed_summary(base, (removal.id for removal in order.removals)), order.kept)
        yield "unreachable", f"{len(_unreachable(new) - _unreachable(base)):,} kept tokens became unreachable"
    elif request.edit.method not in (None, "continued"):
        added, never = _new(result), _new(result) & _unreachable(new)
        yield "added", f"{len(added):,} tokens by {request.edit.method}, a baseline for comparison"
        share = len(never) / max(len(added), 1)
        yield "unreachable", f"{len(never):,} of them ({share:.1%}) are never produced by merges"
    rows = rows_of(result, request)
    yield "embedding rows", f"{rows[0]:,} → {rows[1]:,}"
    model = model_rows(request.source)
    yield from given_rows(base, new, model.rows if model else None)
    if result.verified:
        yield "loaded back by", ", ".join(result.verified.loaders) + ": the same ids"
    if extension is not None:
        yield from guarantees(extension, result.choice)
        if result.cost:
            yield from preserved_rows(extension, result.cost)
    if result.text_tokens and result.text_tokens[0]:
        before, after = result.text_tokens
        more = "" if result.prune_curve else "; measure held-out text with --held-out or `tokengraft evaluate`"
        yield "tokens in text", f"{before:,} → {after:,} ({after / before - 1:+.2%}){more}"
    if order is not None:
        yield from sample_rows(result.samples)
    yield from (("warning", f"left out `{name}`: {reason}") for name, reason in left_out(base, new).items())
    yield from (("warning", note) for note in (result.verified.notes if result.verified else ()))
    if extension is not None and len(extension) < extension.asked:
        count = extension.min_count
        yield "hint", f"pass --add {max(len(extension), 1)}, lower --min-count from {count}, or give more text"
    if order and request.edit.ids == "compact":
        yield "note", "ids have changed: adapt the checkpoint with `tokengraft transplant`"


def rows_of(result: Vocabulary, request: Request) -> tuple[int, int]:
    """Embedding rows before and after: for `prune`, those of the model with its padding; else those of the tokens."""
    base, new = result.base, result.tokenizer
    model = model_rows(request.source) if request.step == "prune" else None
    before, after = (model.left(base.n_rows, one.n_rows)[0] if model else one.n_rows for one in (base, new))
    return before, after


def _new(result: Vocabulary) -> set[str]:
    return {*result.tokenizer.ids} - {*result.base.ids}


def _unreachable(tokenizer: Tokenizer) -> set[str]:
    return {tokenizer.strings[token_id] for token_id in tokenizer.structure.unreachable}


def learned_for(extension: Extension) -> dict[str, int]:
    """How many new tokens were learned for each language, with `Parity`."""
    learned = (name for name, merge in zip(extension.languages, extension.merges, strict=False) if name and merge.new)
    return dict(sorted(Counter(learned).items()))


def preserved_rows(extension: Extension, cost: PreserveCost, same: str = "ids") -> Iterator[tuple[str, str]]:
    """What was preserved, what was not, and the cost of it. ``same`` says what did not change: `ids` or `tokens`."""
    left_out = extension.provenance.get("not_preserved")
    joined = extension.provenance.get("joined")
    is_part = left_out or (joined and joined["pretokens"])
    yield "preserved", f"all {'other ' if is_part else ''}pretokens of the preserved text have the same {same}"
    if left_out:
        yield (
            "not preserved",
            f"{left_out['pretokens']:,} pretokens ({left_out['occurrences']:,} occurrences) in "
            f"{', '.join(left_out['scripts'])}: scripts of the targets with less than 1 % of the letters of the text",
        )
        yield "hint", "--preserve-exactly preserves these too"
    if joined and joined["pretokens"]:
        numbers = f"{joined['pretokens']:,} pretokens ({joined['occurrences']:,} occurrences)"
        yield "not preserved", f"{numbers}: words that are not cut at combining marks any more"
    yield "refused", f"{len(extension.refused):,} candidates that occur in the preserved text"
    yield (
        "cost",
        f"{cost.preserved - cost.free:,} more tokens of the training text ({cost.share:+.2%}) than without preserved "
        f"text: a gain of {cost.gain:+.1%} instead of {cost.possible_gain:+.1%}"
        f"{', both against the base with joined marks' if joined else ''}",
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
        learned = learned_for(extension)
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
