"""Naive extension by the English in its text, and the tokens that merges do not make.

    python -m lab.experiments.naive_text --data DIR --flores FLORES --tokenizers TOKENIZERS

Llama-3 with 8,000 new tokens, learned by continued training and inserted by `naive-regen`: from all text of each
language, then from Estonian prose with some English. Writes `naive-methods/text.csv`. `unreachable` is the share of
the inserted tokens that merges do not make, `produced` of those that still occur: Llama-3 takes whole words first.
"""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments import cli
from lab.experiments.data import up_to
from lab.experiments.domain import PROSE, by_source
from lab.experiments.experiment import Row, Setup
from lab.experiments.learn import added_ids, bytes_per_token, train_fresh

MODEL, SIZE = "llama3", 8_000
LANGUAGES = ("et", "fi", "de", "ru", "ja", "ar", "hi", "zh")
ENGLISH = (0, 20, 40, 50)
"""Percent of English in the characters of the text."""


def texts(setup: Setup, base: tg.Tokenizer) -> Iterator[tuple[str, str, int, tg.PretokenCounts]]:
    """Language, name of the text, percent of English, counts."""
    for language in LANGUAGES:
        yield language, "all", 0, setup.train_counts(MODEL, language)
    parts = by_source(setup, "et")
    prose = [text for name, documents in parts.items() if name in PROSE for text in documents]
    characters, english = sum(map(len, prose)), setup.documents("en").train
    for percent in ENGLISH:
        added = up_to(english, characters * percent // (100 - percent)) if percent else []
        yield "et", "prose", percent, tg.count(base, iter([*prose, *added]))


def row(setup: Setup, base: tg.Tokenizer, language: str, counts: tg.PretokenCounts) -> dict[str, object]:
    """Bytes per token of FLORES by both ways, and the inserted tokens that merges do not make."""
    flores = setup.flores_counts(MODEL, language)
    continued = tg.extend(base, counts, SIZE).apply(base)
    naive = tg.learn.extend_naively(base, None, SIZE, donor=train_fresh(base, counts, SIZE).donor)
    rates = bytes_per_token(continued, flores), bytes_per_token(naive, flores)
    unreachable = added_ids(base, naive) & {*naive.structure.unreachable}
    produced = len(unreachable & counts.tokens(naive).keys())
    found = {"bytes": counts.totals.bytes, "continued": rates[0], "naive": rates[1], "gain": rates[0] / rates[1] - 1}
    return found | {"unreachable": len(unreachable) / SIZE, "produced": produced / SIZE}


def rows(setup: Setup) -> Iterator[Row]:
    """A row for each text."""
    base = setup.tokenizer(MODEL)
    for language, name, percent, counts in texts(setup, base):
        yield {"language": language, "text": name, "english": percent / 100, **row(setup, base, language, counts)}


if __name__ == "__main__":
    cli.write_rows({"naive-methods/text.csv": rows})
