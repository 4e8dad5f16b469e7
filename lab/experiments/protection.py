"""What protection costs when a model is pruned to few rows: tokens of text, and of what the text lacks.

    python -m lab.experiments.protection --data DIR --flores FLORES --tokenizers TOKENIZERS

SmolLM2 is pruned by its English text with and without the default protection, which keeps white space, digits, ASCII
punctuation, source code and chat templates. Writes `protection/results.csv`: more tokens than the unpruned tokenizer
needs, for English held-out documents, FLORES and Python's library; and the kept tokens that the text lacks.
`protection/auto.csv` has the same for the size that `--remove auto` chooses.
"""

from collections.abc import Iterator, Mapping

import tokengraft as tg
from lab.experiments import cli
from lab.experiments.experiment import Setup
from lab.experiments.guarantees import python_library

MODEL, LANGUAGE = "smollm2", "en"
AUTO = ("smollm2", "llama3", "gemma3")
COVERAGE = 0.9995
"""The share of the occurrences that `--remove auto` keeps by default."""
ROWS = (40_000, 30_000, 20_000, 15_000, 10_000)


def rows(setup: Setup) -> Iterator[dict[str, object]]:
    """One for each number of rows, with and without protection."""
    base = setup.tokenizer(MODEL)
    counts = setup.train_counts(MODEL, LANGUAGE)
    texts = {"held_out": setup.held_out_counts(MODEL, LANGUAGE), "flores": setup.flores_counts(MODEL, LANGUAGE)}
    texts["python"] = tg.count(base, iter(python_library()))
    seen = counts.tokens(base)
    for protected in (True, False):
        order = tg.prune_order(base, counts, protection=tg.Protection(defaults=protected))
        for size in ROWS:
            if (n := len(base.tokens) - size) > len(order):
                continue
            pruned = order[:n].apply(base)
            unseen = sum(base.ids[token.string] not in seen for token in pruned.tokens)
            yield {"protected": int(protected), "rows": size, "unseen": unseen, **_changes(base, pruned, texts)}


def auto_rows(setup: Setup) -> Iterator[dict[str, object]]:
    """What `--remove auto` removes from each model, with and without protection."""
    for model in AUTO:
        base, counts = setup.tokenizer(model), setup.train_counts(model, LANGUAGE)
        texts = {"flores": setup.flores_counts(model, LANGUAGE), "python": tg.count(base, iter(python_library()))}
        for protected in (True, False):
            order = tg.prune_order(base, counts, protection=tg.Protection(defaults=protected))
            chosen = order.covering(base, COVERAGE, counts, setup.documents(LANGUAGE).held_out)
            sizes = {"removed": len(chosen), "of": len(base.tokens)}
            yield {"model": model, "protected": int(protected), **sizes, **_changes(base, chosen.apply(base), texts)}


def _changes(base: tg.Tokenizer, pruned: tg.Tokenizer, texts: Mapping[str, tg.PretokenCounts]) -> dict[str, float]:
    """How many more tokens each text needs."""
    totals = {name: [sum(text.tokens(t).values()) for t in (pruned, base)] for name, text in texts.items()}
    return {name: after / before - 1 for name, (after, before) in totals.items()}


if __name__ == "__main__":
    cli.write_rows({"protection/results.csv": rows, "protection/auto.csv": auto_rows})
