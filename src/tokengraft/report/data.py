"""`page_data`: everything that the report shows, as JSON-ready data. Only `page` knows HTML."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from tokengraft.adapt.result import Adaptation
from tokengraft.evaluate.curve import default_sizes
from tokengraft.evaluate.curves import curves
from tokengraft.evaluate.segments import Text
from tokengraft.tokenizer.alphabet import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

MOST_TOKENS = 20_000
"""The maximum number of added, and of removed, tokens that the page lists. It also shows the total numbers."""
SAMPLES = 12
SAMPLE_CHARACTERS = 1_200


def page_data(adaptation: Adaptation, held_out: Mapping[str, list[str]]) -> dict[str, Any]:
    """Everything that the page shows, as JSON-ready data."""
    summary = adaptation.plan.summary
    return {
        "summary": summary._asdict(),
        "rows": list(adaptation.rows),
        "warnings": list(adaptation.warnings),
        "checks": [asdict(finding) for finding in adaptation.check.findings],
        "scores": [asdict(score) for score in adaptation.evaluation.scores],
        "targets": {name: asdict(target) for name, target in adaptation.targets.items()},
        "size": adaptation.choice.reason if adaptation.choice else None,
        "curve": [*_curve(adaptation, held_out)],
        "added": [*_added(adaptation)],
        "removed": [*islice(_removed(adaptation), MOST_TOKENS)],
        "totals": {"added": len(adaptation.extension or ()), "removed": sum(1 for _ in _removed(adaptation))},
        "frequencies": [*_frequencies(adaptation).values()],
        "samples": [*_samples(adaptation, held_out)],
        "weights": [list(tensor) for tensor in adaptation.transplant.tensors] if adaptation.transplant else [],
    }


def _curve(adaptation: Adaptation, held_out: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Bytes per token of each target by number of new tokens, from one training run, and how far the gains differ."""
    if not adaptation.extension or not len(adaptation.extension):
        return
    pruned = adaptation.order.apply(adaptation.base) if adaptation.order else adaptation.base
    texts = {name: Text(name, tuple(documents)) for name, documents in held_out.items() if name in adaptation.targets}
    if not texts:
        return
    sizes = default_sizes(len(adaptation.extension))
    for point in curves(pruned, adaptation.extension, texts, sizes).points:
        yield {"tokens": point.tokens, "rates": dict(point.bytes_per_token), "spread": point.gain_spread}


def _added(adaptation: Adaptation) -> Iterator[list[Any]]:
    """New tokens: text, id, frequency of the pair when it was learned, tokens of the base for the same text."""
    if not adaptation.extension:
        return
    learned, base = _frequencies(adaptation), adaptation.base
    for token in adaptation.extension.tokens[:MOST_TOKENS]:
        token_id = adaptation.tokenizer.ids[token]
        source = adaptation.plan.sources[token_id]
        pieces = [_text(base, base.strings[i]) for i in source] if isinstance(source, tuple) else []
        yield [_text(adaptation.tokenizer, token), token_id, learned.get(token, 0), pieces]


def _frequencies(adaptation: Adaptation) -> dict[str, int]:
    """The frequency of each new token's pair when it was learned."""
    merges = adaptation.extension.merges if adaptation.extension else ()
    return {merge.left + merge.right: merge.frequency for merge in merges if merge.new}


def _removed(adaptation: Adaptation) -> Iterator[list[Any]]:
    """Removed tokens: text, old id, the count that decided the removal."""
    back = adaptation.tokenizer.ids
    for removal in adaptation.order.removals if adaptation.order else ():
        if removal.token not in back:
            yield [_text(adaptation.base, removal.token), removal.id, removal.decided_by]


def _samples(adaptation: Adaptation, held_out: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Held-out documents, split by both tokenizers."""
    names = [{token.id: token.bytes for token in tok.tokens} for tok in (adaptation.base, adaptation.tokenizer)]
    for name, documents in held_out.items():
        short = [document[:SAMPLE_CHARACTERS] for document in documents if len(document) > 40] or documents[:1]
        for document in short[:SAMPLES]:
            sides = (adaptation.base.encode(document), adaptation.tokenizer.encode(document))
            before, after = ([_shown(table[i]) for i in ids] for table, ids in zip(names, sides, strict=True))
            yield {"text": name, "before": before, "after": after}


def _text(tokenizer: Tokenizer, string: str) -> str:
    return _shown(token_bytes(string, tokenizer.kind))


def _shown(data: bytes) -> str:
    return data.decode(errors="replace")
