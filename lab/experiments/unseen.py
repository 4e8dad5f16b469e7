"""How many tokens are unreachable after pruning by `frequency`, by how many tokens the text lacks.

    python -m lab.experiments.unseen --data DIR --flores FLORES --tokenizers TOKENIZERS

Tokens are removed from Llama-3 by text of Estonian and English in equal parts: 1 or 10 million characters of each, then
all text, then with the text of other languages, then with all languages of FLORES. Tokens count as the tokenizer
encodes, as in the paper's toolkit. Writes `prune-extend/unseen.csv`.
"""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments import cli
from lab.experiments.data import Data, up_to
from lab.experiments.experiment import Row, Setup
from lab.experiments.prune import equal_parts

LANGUAGES = ("et", "en")
OTHERS = ("de", "fi", "ru", "ar", "ja", "zh", "hi")
SIZES = (8_000, 16_000, 32_000, 64_000)


def texts(data: Data, base: tg.Tokenizer) -> Iterator[tuple[str, tg.PretokenCounts]]:
    """The texts, narrow ones first."""
    documents = {name: data.source.documents(name, 10**9).train for name in LANGUAGES + OTHERS}
    for characters in (10**6, 10**7):
        parts = (tg.count(base, up_to(documents[name], characters)) for name in LANGUAGES)
        yield f"{characters // 10**6} MB each", equal_parts(*parts)
    counts = equal_parts(*(tg.count(base, iter(documents[name])) for name in LANGUAGES))
    yield "all", counts
    for name in OTHERS:
        counts += tg.count(base, iter(documents[name]))
    yield "and seven languages", counts
    sentences = (path.read_text(encoding="utf-8") for path in sorted(data.flores.glob("*.devtest")))
    yield "and all languages of FLORES", counts + tg.count(base, sentences)


def row(name: str, base: tg.Tokenizer, counts: tg.PretokenCounts) -> dict[str, object]:
    """Unseen tokens, and unreachable ones by number of removed tokens."""
    order = tg.prune_order(base, counts, "frequency", protection=tg.Protection(defaults=False))
    unseen = sum(removal.decided_by == 0 for removal in order.removals)
    found = {f"removed {size}": len(order[:size].apply(base).structure.unreachable) for size in SIZES}
    return {"text": name, "unseen": unseen, **found}


def rows(setup: Setup) -> Iterator[Row]:
    """A row for each text."""
    base = setup.tokenizer("llama3")
    for name, counts in texts(setup.data, base):
        yield row(name, base, counts)


if __name__ == "__main__":
    cli.write_rows({"prune-extend/unseen.csv": rows})
