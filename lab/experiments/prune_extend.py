"""`prune-extend`: N tokens are removed and N new ones added, by every pair of methods."""

from collections.abc import Iterator, Mapping

import tokengraft as tg
from lab.experiments import paper
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.intervals import extremes, gain_columns, gains_of
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.learn import Fresh, bytes_per_token, tokens_by_line, train_fresh
from lab.experiments.plots import Panel, Series
from lab.experiments.prune import LEAF, TIE, mixed, most_unreachable
from lab.experiments.tables import NOTHING, Table, distinct, groups, number, only, select, with_paper

BY_MERGES = ("leaf-frequency", "merge")
"""The methods for which the paper's toolkit counts tokens with merge skipping off. For `frequency` it is on."""
OVER_LEAF = ("target_over_leaf", "english_over_leaf")


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each pruning method, extension method and size. Tokens are counted as by the paper's toolkit.

    Gains of continued training: `over_naive` in the language, and in both languages over pruning by `leaf-frequency`.
    """
    base, mix = setup.tokenizer(cell.model), mixed(setup, cell)
    counts = setup.train_counts(cell.model, cell.language)
    texts = {"target": cell.language, "english": ENGLISH}
    flores = {name: setup.flores_counts(cell.model, language) for name, language in texts.items()}
    fresh = train_fresh(base, counts, max(setup.sizes))
    lines = {name: setup.data.sentences(language) for name, language in texts.items()}
    rows: list[Row] = []
    tokens: dict[tuple[str, str, int, str], list[int]] = {}
    for prune in paper.PRUNE_METHODS:
        order = tg.prune_order(base, mix, prune, protection=tg.Protection(defaults=False), by_merges=prune in BY_MERGES)
        for size in (size for size in setup.sizes if size <= len(order)):
            pruned = order[:size].apply(base)
            for method, tokenizer in _extended(pruned, counts, fresh, size):
                rates = {name: bytes_per_token(tokenizer, text) for name, text in flores.items()}
                unreachable = len(tokenizer.structure.unreachable)
                rows.append({"prune": prune, "method": method, "size": size, "unreachable": unreachable, **rates})
                tokens |= {(prune, method, size, name): tokens_by_line(tokenizer, lines[name]) for name in lines}
    for row in rows:
        yield {**row, **(_paired(row, tokens) if row["method"] == "continued" else {})}


def _paired(row: Row, tokens: Mapping[tuple[str, str, int, str], list[int]]) -> dict[str, float]:
    """The gains of a row with continued training over naive extension, and over `leaf-frequency`."""
    prune, size = row["prune"], row["size"]
    ours = {name: tokens[prune, "continued", size, name] for name in ("target", "english")}
    found = {}
    if (naive := tokens.get((prune, "naive", size, "target"))) is not None:
        found |= gain_columns(ours["target"], naive, "over_naive")
    for name in ours:
        leaf = tokens.get((LEAF, "continued", size, name))
        if prune != LEAF and leaf is not None:
            found |= gain_columns(ours[name], leaf, f"{name}_over_leaf")
    return found


def _extended(
    pruned: tg.Tokenizer, counts: tg.PretokenCounts, fresh: Fresh, size: int
) -> Iterator[tuple[str, tg.Tokenizer]]:
    extension = tg.extend(pruned, counts, size)
    if len(extension) == size:
        yield "continued", extension.apply(pruned)
    if fresh.new_to(pruned) >= size:
        yield "naive", tg.learn.extend_naively(pruned, None, size, donor=fresh.donor)


def tables(rows: Rows) -> list[Table]:
    """The paper's table: three parts for each extension method."""
    found = []
    for (model, language), mine in groups(rows, "model", "language"):
        for method in ("continued", "naive"):
            parts = (("target", language), ("english", ENGLISH), ("unreachable", ""))
            found += [_table(mine, method, column, code, model) for column, code in parts]
    return found


def _table(rows: Rows, method: str, column: str, language: str, model: str) -> Table:
    lines = []
    for size in sorted(distinct(rows, "size")):
        cells = []
        for prune in paper.PRUNE_METHODS:
            row = only(rows, prune=prune, method=method, size=size)
            value = row and (f"{row[column]:,}" if column == "unreachable" else number(row[column]))
            cells.append(with_paper(value or NOTHING, _figure(method, column, language, model, size, prune)))
        lines.append((f"{size:,}", *cells))
    what = "unreachable tokens" if column == "unreachable" else f"bytes per token of {language_of(language).name}"
    heads = ("N", *(f"`{prune}`" for prune in paper.PRUNE_METHODS))
    return Table(f"{model_name(model)}, {method} extension: {what}", heads, lines)


def _figure(method: str, column: str, language: str, model: str, size: int, prune: str) -> str | None:
    if model != "llama3" or size not in paper.SWAP_SIZES:
        return None
    if column == "unreachable":
        return f"{paper.PRUNE_EXTEND_UNREACHABLE[method][size][prune]:,.0f}"
    figures = paper.PRUNE_EXTEND.get((method, language))
    return f"{figures[size][prune]:.3f}" if figures else None


def panels(rows: Rows) -> list[Panel]:
    """Both languages and unreachable tokens with `leaf-frequency` and `frequency`, beside the paper's."""
    model, language = rows[0]["model"], rows[0]["language"]
    mine = select(rows, model=model, language=language)
    found = []
    for column, code in (("target", language), ("english", ENGLISH), ("unreachable", "")):
        series, paper_series = [], []
        for method in ("continued", "naive"):
            for prune in ("leaf-frequency", "frequency"):
                chosen = select(mine, method=method, prune=prune)
                xs = [row["size"] for row in chosen]
                figures = [_figure(method, column, code, model, size, prune) for size in xs]
                if any(figures):
                    ys = [float(figure.replace(",", "")) if figure else None for figure in figures]
                    label = f"{method}, {prune}, paper"
                    paper_series.append(Series(label, xs, ys, dashed=True, colour=len(series)))
                series.append(Series(f"{method}, {prune}", xs, [row[column] for row in chosen]))
        title = "Unreachable tokens" if column == "unreachable" else language_of(code).name
        unit = "tokens" if column == "unreachable" else "bytes per token, FLORES"
        found.append(Panel(title, "tokens replaced", unit, [*series, *paper_series], log_x=True))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Section "Pruning"."""
    ours = select(rows, method="continued")
    gains = gains_of(ours, "over_naive")
    by_id, merge = (gains_of(select(ours, prune=prune), *OVER_LEAF) for prune in ("last-id", "merge"))
    if not (gains and by_id and merge):
        return []
    largest = max(by_id, key=lambda gain: gain.high)
    return [
        Claim(
            "Continued training gives more bytes per token than naive extension with every pruning method and size",
            all(gain.above_zero for gain in gains),
            extremes(gains),
        ),
        Claim(
            "Counting tokens is at least as good as removing the last ids, in both languages (within 0.1 %)",
            largest.high < TIE,
            f"`last-id` is ahead by at most {largest.text(2)}",
        ),
        Claim(
            "Merge-based pruning is comparable to leaf-based (within 0.5 %)",
            all(gain.within(0.005) for gain in merge),
            extremes(merge, 2),
        ),
        most_unreachable(ours, "prune", "unreachable"),
    ]


EXPERIMENT = Experiment(
    name="prune-extend",
    title="Replacing tokens: prune N, then add N",
    source="Table 4 (whole, on other text)",
    about=(
        "N tokens are removed by text of the language and of English in equal parts, then N are added from text of the "
        "language alone. Tokens are counted as by the paper's toolkit: by merges, but for `frequency` as the tokenizer "
        "encodes. In brackets the paper's figures. Sizes that the text is too small for have a dash."
    ),
    sizes=paper.SWAP_SIZES,
)
