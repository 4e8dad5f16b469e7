"""`tokengraft inspect`."""

import argparse
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokengraft.cli.commands import print_table
from tokengraft.formats import load
from tokengraft.tokenizer.inspect import Engine, Inspection, inspect
from tokengraft.tokenizer.kind import readable, token_bytes

MAX_RUNS = 10
ENGINES: dict[Engine, str] = {
    "hand-written scanner": "a hand-written scanner for this pipeline",
    "automata": "automata made from the steps of this pipeline",
    "tokenizers crate": "the `tokenizers` crate, about ten times slower: a step is one that no faster engine knows",
}


def run_inspect(options: argparse.Namespace) -> int:
    """Runs the command."""
    inspection, damage = inspect(load(options.source)), list[Any]()
    if os.path.isfile(Path(options.source) / "config.json"):  # noqa: PTH113 - a name may be too long
        from tokengraft.verify.model import model_damage  # a tokenizer alone does not need it

        damage = [each for each in model_damage(options.source) if each.outcome != "pass"]
    if options.json:
        found = {"model": [asdict(each) for each in damage]} if damage else {}
        print(json.dumps(inspection.as_dict() | found, ensure_ascii=False, indent=2))
    else:
        print_table([*_described(inspection), *(("warning", f"{each.name}: {each.detail}") for each in damage)])
    return 0


def _described(inspection: Inspection) -> list[tuple[str, str]]:
    """An inspection as rows of (label, text)."""
    kind, runs = inspection.kind, inspection.id_layout
    ranges = [f"{run.first:,}–{run.last:,} {run.use}" for run in runs[:MAX_RUNS]]
    more = [f"and {len(runs) - MAX_RUNS:,} more ranges"] if len(runs) > MAX_RUNS else []
    rows = [
        ("kind", kind if inspection.algorithm == "WordPiece" else f"{kind} {inspection.algorithm}"),
        ("pipeline", f"normalizer: {_steps(inspection.normalizer)}; pre-tokenizer: {_steps(inspection.pre_tokenizer)}"),
        ("counted with", ENGINES[inspection.engine]),
        (
            "tokens",
            f"{inspection.tokens:,}: {inspection.learned:,} learned (of them {inspection.atomic:,} atomic), "
            f"{inspection.added:,} added ({inspection.special:,} special)",
        ),
        *_flags(inspection),
        ("ids", ", ".join(ranges + more)),
        ("embedding rows", f"{inspection.rows:,} (highest id + 1), {inspection.holes:,} of them without a token"),
        ("unreachable", _unreachable(inspection)),
        ("not UTF-8", f"{inspection.not_utf8:,} tokens are not valid UTF-8 by themselves"),
        ("shared bytes", f"{inspection.shared_bytes:,} tokens have the same bytes as another token"),
        ("longest", " ".join(f"{readable(s, kind)} ({len(token_bytes(s, kind))})" for s in inspection.longest)),
        ("other files", ", ".join(inspection.files) or "none"),
    ]
    return rows + list(_warnings(inspection))


def _flags(inspection: Inspection) -> Iterable[tuple[str, str]]:
    fallback = f"byte_fallback {_on(inspection.byte_fallback)}"
    if inspection.algorithm == "BPE":
        yield "merges", f"{inspection.merges:,}"
        yield "flags", f"ignore_merges {_on(inspection.ignore_merges)}, {fallback}"
    elif inspection.algorithm == "Unigram":
        yield "flags", fallback


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _steps(names: Iterable[str]) -> str:
    return " → ".join(names) or "none"


def _unreachable(inspection: Inspection) -> str:
    if not inspection.unreachable:
        return "0: " + ("merges" if inspection.algorithm == "BPE" else "the model") + " can produce every learned token"
    whole = f", {inspection.usable_whole:,} of them usable as a whole pretoken" if inspection.ignore_merges else ""
    shown = " ".join(readable(string, inspection.kind) for string in inspection.unreachable_examples)
    how = " by merges" * (inspection.algorithm == "BPE")
    return f"{inspection.unreachable:,}{how}{whole}: {shown}"


def _warnings(inspection: Inspection) -> Iterable[tuple[str, str]]:
    if inspection.missing_bytes:
        yield "warning", f"{inspection.missing_bytes} of the 256 bytes have no token: text with them is lost"
    if inspection.ignored_ids:
        token, listed, real = inspection.ignored_ids[0]
        yield (
            "warning",
            f"{len(inspection.ignored_ids):,} added tokens do not have the id that added_tokens lists: "
            f"{readable(token, inspection.kind)} is {real:,}, not {listed:,}. Loaders use the id in "
            "model.vocab, or the next free one",
        )
