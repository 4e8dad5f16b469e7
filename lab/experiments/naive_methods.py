"""`naive-methods`: the ways to insert the tokens of a newly trained tokenizer, beside continued training."""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments.experiment import MODEL_NAMES, Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.learn import added_ids, reached, train_fresh
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, number, only, percent, select

METHODS = ("continued", "naive-regen", "naive-append", "naive-prepend", "add-tokens", "two-piece", "scaffold")


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each method and size. `add-tokens` changes what is split, so that sentences are encoded, not counts."""
    base = setup.tokenizer(cell.model)
    counts = setup.train_counts(cell.model, cell.language)
    texts = {"target": setup.data.sentences(cell.language), "english": setup.data.sentences(ENGLISH)}
    fresh = train_fresh(base, counts, max(setup.sizes))
    extension, donor = tg.extend(base, counts, max(setup.sizes)), fresh.donor
    yield {"method": "base", "size": 0, **_scores(base, base, texts)}
    for method in METHODS:
        available = len(extension) if method == "continued" else fresh.new_to(base)
        for size in reached(setup.sizes, available):
            tokenizer = _made(base, extension, donor, size, method)
            if tokenizer is not None:
                yield {"method": method, "size": size, **_scores(base, tokenizer, texts)}


def _made(
    base: tg.Tokenizer, extension: tg.Extension, donor: tg.Tokenizer, size: int, method: str
) -> tg.Tokenizer | None:
    if method == "continued":
        return extension[:size].apply(base)
    try:
        return tg.learn.extend_naively(base, None, size, method, donor=donor)
    except tg.TokengraftError as error:  # the donor has too few tokens of two pieces
        print(f"  {method} {size:,}: {error.message}")
        return None


def _scores(base: tg.Tokenizer, tokenizer: tg.Tokenizer, texts: dict[str, tuple[str, ...]]) -> Row:
    new = added_ids(base, tokenizer)
    unreachable = new & set(tokenizer.structure.unreachable)
    rates = {
        name: sum(len(text.encode()) for text in sentences) / sum(len(tokenizer.encode(text)) for text in sentences)
        for name, sentences in texts.items()
    }
    return {**rates, "added": len(new), "unreachable_added": len(unreachable) / len(new) if new else None}


def tables(rows: Rows) -> list[Table]:
    """A table for each tokenizer and language."""
    return [
        _table(select(rows, model=model, language=language), model, language)
        for model in distinct(rows, "model")
        for language in distinct(rows, "language")
    ]


def _table(rows: Rows, model: str, language: str) -> Table:
    sizes = sorted(size for size in distinct(rows, "size") if size)
    lines = []
    for method in METHODS:
        found = [only(rows, method=method, size=size) for size in sizes]
        if any(found):
            cells = [f"{number(r['target'])}, {number(r['english'])}, {_unreachable(r)}" if r else "–" for r in found]
            lines.append((f"`{method}`", *cells))
    base = only(rows, method="base") or {}
    name = language_of(language).name
    return Table(
        f"{MODEL_NAMES.get(model, model)}: {name}, English, unreachable",
        ("method", *(f"{size:,}" for size in sizes)),
        lines,
        f"Bytes per token of {name} and of English on FLORES (before: {number(base.get('target'))} and "
        f"{number(base.get('english'))}), and the share of the added tokens that merges never make. The paper has a "
        "plot (Figure 9) without numbers.",
    )


def _unreachable(row: Row) -> str:
    return "no merges" if row["method"] == "add-tokens" else percent(row["unreachable_added"])


def panels(rows: Rows) -> list[Panel]:
    """The three panels of the paper's figure."""
    model, language = rows[0]["model"], rows[0]["language"]
    mine = select(rows, model=model, language=language)
    found = []
    titles = (("target", language_of(language).name), ("english", "English"), ("unreachable_added", "Unreachable"))
    for column, title in titles:
        series = []
        for method in METHODS:
            chosen = select(mine, method=method)
            if column != "unreachable_added" or method != "add-tokens":
                series.append(Series(method, [r["size"] for r in chosen], [r[column] for r in chosen]))
        unit = "share of added tokens" if column == "unreachable_added" else "bytes per token, FLORES"
        found.append(Panel(title, "added tokens", unit, series, log_x=True))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Appendix "Naive extension methods"."""
    regen = select(rows, method="naive-regen")
    if not regen:
        return []

    def against(method: str, column: str = "target") -> list[float]:
        others = [(row, _match(rows, row, method)) for row in regen]
        return [other[column] - row[column] for row, other in others if other]

    base = only(rows, method="base") or {}
    english = [row["english"] / base["english"] - 1 for row in select(rows, method="naive-prepend")]
    found = [
        _claim("`naive-regen` works better than `naive-append`", against("naive-append"), below=True),
        _claim("`add-tokens` is worse than `naive-regen` for the language", against("add-tokens"), below=True),
        _claim("`add-tokens` is worse than `naive-regen` for English", against("add-tokens", "english"), below=True),
        _claim("`naive-prepend` gives more bytes per token than `naive-regen`", against("naive-prepend"), below=False),
        _claim(
            "`naive-prepend` makes more of the added tokens unreachable than `naive-regen`",
            against("naive-prepend", "unreachable_added"),
            below=False,
        ),
    ]
    if english:
        here = f"bytes per token {percent(min(english), 2, signed=True)} to {percent(max(english), 2, signed=True)}"
        found.append(Claim("`naive-prepend` changes English", min(english) < -0.001, here))
    return [claim for claim in found if claim]


def _claim(text: str, differences: list[float], *, below: bool) -> Claim | None:
    if not differences:
        return None
    holds = all(value < 0 if below else value > 0 for value in differences)
    return Claim(text, holds, f"difference {min(differences):+.3f} to {max(differences):+.3f}")


def _match(rows: Rows, row: Row, method: str) -> Row | None:
    return only(rows, model=row["model"], language=row["language"], size=row["size"], method=method)


EXPERIMENT = Experiment(
    name="naive-methods",
    title="Ways to insert tokens of another tokenizer",
    source="Figure 9",
    about=(
        "A tokenizer is trained from scratch on the text, and its tokens are added to the base. The methods differ in "
        "the merges that make them. `two-piece` and `scaffold` are not in the paper's figure. Only added tokens are "
        "counted as unreachable, not those of the base; the paper does not say which it counts in this figure."
    ),
    measure=lambda setup, cell: [*measure(setup, cell)],
    tables=tables,
    panels=panels,
    claims=claims,
)
