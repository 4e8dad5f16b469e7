"""What the page shows, as JSON-ready data. Left of it nothing knows HTML."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from tokengraft.adapt.result import Adaptation
from tokengraft.evaluate.curve import default_sizes
from tokengraft.evaluate.segments import Text, segment
from tokengraft.tokenizer.alphabet import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

MOST_TOKENS = 20_000
"""Tokens that the page lists, added and removed each. It says how many there are in all."""
SAMPLES = 12
SAMPLE_CHARACTERS = 1_200


def page_data(found: Adaptation, held_out: Mapping[str, list[str]]) -> dict[str, Any]:
    """Everything that the page shows."""
    summary = found.plan.summary
    return {
        "summary": summary._asdict(),
        "rows": list(found.rows),
        "warnings": list(found.warnings),
        "checks": [asdict(finding) for finding in found.check.findings],
        "scores": [asdict(score) for score in found.evaluation.scores],
        "served": {name: asdict(target) for name, target in found.targets.items()},
        "curve": [*_curve(found, held_out)],
        "added": [*_added(found)],
        "removed": [*islice(_removed(found), MOST_TOKENS)],
        "totals": {"added": len(found.extension or ()), "removed": sum(1 for _ in _removed(found))},
        "frequencies": [*_frequencies(found).values()],
        "samples": [*_samples(found, held_out)],
        "weights": [list(tensor) for tensor in found.transplant.tensors] if found.transplant else [],
    }


def _curve(found: Adaptation, held_out: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Bytes per token of each target by the number of new tokens, from the one training run."""
    if not found.extension or not len(found.extension):
        return
    pruned = found.order.apply(found.base) if found.order else found.base
    texts = [Text(name, tuple(documents)) for name, documents in held_out.items() if name in found.targets]
    sizes = [size for size in default_sizes(len(found.extension)) if size <= len(found.extension)]
    for size in (0, *sizes):
        tokenizer = found.extension[:size].apply(pruned) if size else pruned
        rates = {text.name: text.n_bytes / max(sum(segment(tokenizer, text).lengths), 1) for text in texts}
        yield {"tokens": size, "rates": rates}


def _added(found: Adaptation) -> Iterator[list[Any]]:
    """New tokens: text, id, how often the pair occurred when it was learned, pieces under the base."""
    if not found.extension:
        return
    learned = _frequencies(found)
    for token in found.extension.tokens[:MOST_TOKENS]:
        token_id = found.tokenizer.ids[token]
        source = found.plan.sources[token_id]
        pieces = [_text(found.base, found.base.strings[i]) for i in source] if isinstance(source, tuple) else []
        yield [_text(found.tokenizer, token), token_id, learned.get(token, 0), pieces]


def _frequencies(found: Adaptation) -> dict[str, int]:
    """How often the pair of each new token occurred when it was learned."""
    merges = found.extension.merges if found.extension else ()
    return {merge.left + merge.right: merge.frequency for merge in merges if merge.new}


def _removed(found: Adaptation) -> Iterator[list[Any]]:
    """Tokens that are gone: text, old id, the count that decided it."""
    back = found.tokenizer.ids
    for removal in found.order.removals if found.order else ():
        if removal.token not in back:
            yield [_text(found.base, removal.token), removal.id, removal.decided_by]


def _samples(found: Adaptation, held_out: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Documents as both tokenizers split them."""
    names = [{token.id: token.bytes for token in tok.tokens} for tok in (found.base, found.tokenizer)]
    for name, documents in held_out.items():
        short = [document[:SAMPLE_CHARACTERS] for document in documents if len(document) > 40] or documents[:1]
        for document in short[:SAMPLES]:
            sides = (found.base.encode(document), found.tokenizer.encode(document))
            before, after = ([_shown(table[i]) for i in ids] for table, ids in zip(names, sides, strict=True))
            yield {"text": name, "before": before, "after": after}


def _text(tokenizer: Tokenizer, string: str) -> str:
    return _shown(token_bytes(string, tokenizer.kind))


def _shown(data: bytes) -> str:
    return data.decode(errors="replace")
