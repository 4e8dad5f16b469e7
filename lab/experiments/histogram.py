"""`histogram`: how often added tokens occur in held-out text."""

from collections import Counter
from collections.abc import Iterator

from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.languages import language_of
from lab.experiments.learn import added_ids, both_ways
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, groups, only, percent, select

METHODS = ("continued", "naive")
RARE = 8
"""A token with fewer occurrences is called rare in the claim."""


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each method, size and bin. Bins are 0, 1, 2 to 3, 4 to 7, and so on."""
    base = setup.tokenizer(cell.model)
    held_out = setup.held_out_counts(cell.model, cell.language)
    for method, tokenizers in both_ways(base, setup.train_counts(cell.model, cell.language), setup.sizes).items():
        for size, tokenizer in tokenizers.items():
            occurring = held_out.tokens(tokenizer)
            bins = Counter(_bin(occurring.get(token_id, 0)) for token_id in added_ids(base, tokenizer))
            for start, tokens in sorted(bins.items()):
                documents = held_out.totals.documents
                yield {"method": method, "size": size, "from": start, "tokens": tokens, "documents": documents}


def _bin(count: int) -> int:
    """The smallest number of the bin: 0, or a power of two."""
    return 1 << count.bit_length() - 1 if count else 0


def tables(rows: Rows) -> list[Table]:
    """A table for each tokenizer, language and size."""
    return [_table(mine, *where) for where, mine in groups(rows, "model", "language", "size")]


def _table(rows: Rows, model: str, language: str, size: int) -> Table:
    lines = []
    for start in sorted(distinct(rows, "from")):
        found = [only(rows, method=method, **{"from": start}) for method in METHODS]
        lines.append((_label(start), *(f"{row['tokens']:,}" if row else 0 for row in found)))
    title = f"{model_name(model)}, {language_of(language).name}, {size:,} added tokens by occurrences"
    note = f"In {rows[0]['documents']:,} held-out documents. The paper has a plot (Figure 7) without numbers."
    return Table(title, ("occurrences", *METHODS), lines, note)


def _label(start: int) -> str:
    return str(start) if start < 2 else f"{start:,}–{2 * start - 1:,}"


def panels(rows: Rows) -> list[Panel]:
    """Numbers of tokens by occurrences."""
    found = []
    for (model, language, size), mine in groups(rows, "model", "language", "size"):
        starts = sorted(distinct(mine, "from"))
        series = []
        for method in METHODS:
            tokens = {row["from"]: row["tokens"] for row in select(mine, method=method)}
            series.append(Series(method, [max(start, 0.5) for start in starts], [tokens.get(s, 0) for s in starts]))
        title = f"{model_name(model)}, {language_of(language).name}, {size:,} added"
        found.append(
            Panel(title, "occurrences in held-out text (left end: none)", "tokens", series, log_x=True, steps=True)
        )
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statement of the paper's Appendix "Analysis of undertrained tokens"."""
    found = []
    for (_, language, size), mine in groups(rows, "model", "language", "size"):
        shares = [_rare(select(mine, method=method)) for method in METHODS]
        text = f"{language_of(language).name}, {size:,}: naive extension gives more tokens of low frequency"
        here = f"fewer than {RARE} occurrences: {percent(shares[0])} against {percent(shares[1])}"
        found.append(Claim(text, shares[1] > shares[0], here))
    return found


def _rare(rows: Rows) -> float:
    total = sum(row["tokens"] for row in rows)
    return sum(row["tokens"] for row in rows if row["from"] < RARE) / total if total else 0.0


EXPERIMENT = Experiment(
    name="histogram",
    title="How often added tokens occur",
    source="Figure 7",
    about="Occurrences of each added token in held-out documents of the same corpus.",
    sizes=(8_000,),
    needs_english=False,
)
