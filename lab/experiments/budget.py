"""`budget`: how much text an extension needs."""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments.data import up_to
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.intervals import gain_columns, gain_of
from lab.experiments.languages import language_of
from lab.experiments.learn import both_ways, bytes_per_token, tokens_by_line
from lab.experiments.plots import Panel, line
from lab.experiments.tables import Table, distinct, groups, number, only, select

BUDGETS = (300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000)


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each budget, method and size. The last budget is all text. Gains are over naive extension with it."""
    base = setup.tokenizer(cell.model)
    documents = setup.documents(cell.language).train
    total = sum(map(len, documents))
    flores = setup.flores_counts(cell.model, cell.language)
    yield {"method": "base", "characters": 0, "size": 0, "target": bytes_per_token(base, flores)}
    lines, rows, tokens = setup.data.sentences(cell.language), [], {}
    for budget in [*(characters for characters in BUDGETS if characters < total), total]:
        counts = tg.count(base, up_to(documents, budget))
        for method, tokenizers in both_ways(base, counts, setup.sizes).items():
            for size, tokenizer in tokenizers.items():
                rate = bytes_per_token(tokenizer, flores)
                rows.append({"method": method, "characters": budget, "size": size, "target": rate})
                tokens[method, budget, size] = tokens_by_line(tokenizer, lines)
    for row in rows:
        ours = tokens[row["method"], row["characters"], row["size"]]
        theirs = tokens.get(("naive", total, row["size"])) if row["method"] == "continued" else None
        yield {**row, **(gain_columns(ours, theirs) if theirs else {})}


def tables(rows: Rows) -> list[Table]:
    """A row for each budget."""
    found = []
    for (model, language), mine in groups(rows, "model", "language"):
        sizes = sorted(size for size in distinct(mine, "size") if size)
        lines = [
            (f"{budget:,}", *(number(_rate(mine, m, budget, s)) for s in sizes for m in ("continued", "naive")))
            for budget in distinct(mine, "characters")
            if budget
        ]
        heads = [f"{method}, {size:,}" for size in sizes for method in ("continued", "naive")]
        title = f"{model_name(model)}, {language_of(language).name}: bytes per token on FLORES"
        note = "Dashes mark sizes for which there is too little text. The paper has a plot (Figure 6) without numbers."
        found.append(Table(title, ("characters of text", *heads), lines, note))
    return found


def _rate(rows: Rows, method: str, budget: int, size: int) -> float | None:
    row = only(rows, method=method, characters=budget, size=size)
    return row["target"] if row else None


def panels(rows: Rows) -> list[Panel]:
    """Bytes per token by budget."""
    mine = select(rows, model=rows[0]["model"], language=rows[0]["language"])
    sizes = sorted(size for size in distinct(mine, "size") if size)
    found = []
    for size in sizes:
        parts = {method: select(mine, method=method, size=size) for method in ("continued", "naive")}
        series = [line(method, part, "characters", "target") for method, part in parts.items()]
        title = f"{size:,} added tokens"
        found.append(Panel(title, "characters of text", "bytes per token, FLORES", series, log_x=True))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Appendix "Training dataset size"."""
    found = []
    for size in sorted(size for size in distinct(rows, "size") if size):
        small = only(rows, method="continued", characters=10_000_000, size=size)
        largest = max((row["characters"] for row in select(rows, method="naive", size=size)), default=0)
        all_text = only(rows, method="naive", characters=largest, size=size)
        if small and small.get("gain") is not None and all_text and largest > 10_000_000:
            text = (
                f"{size:,} tokens: continued training on 10 million characters is better than naive extension on all "
                "text (the paper: on 10 billion)"
            )
            gain = gain_of(small)
            here = f"{gain}: {number(small['target'])} against {number(all_text['target'])} on {largest:,}"
            found.append(Claim(text, gain.above_zero, here))
    return found


EXPERIMENT = Experiment(
    name="budget",
    title="Amount of text against gain",
    source="Figure 6",
    about="Tokens are learned from more and more text. A smaller text is part of every larger one.",
    sizes=(8_000, 16_000),
    needs_english=False,
)
