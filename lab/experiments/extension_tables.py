"""The tables of `extension`: averages, scripts, unused tokens, merge skipping; and two with a row for each language."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from lab.experiments import paper
from lab.experiments.experiment import Row, Rows, model_name
from lab.experiments.extension_gains import (
    better_and_worse,
    cells_of,
    drop,
    gain,
    median_gain,
    models_of,
    pairs,
    paper_range,
    range_text,
    sizes_of,
)
from lab.experiments.intervals import gain_of
from lab.experiments.languages import language_of
from lab.experiments.tables import Table, distinct, groups, mean, number, only, percent, select, with_paper

SHOWN_SIZE = 8_000
"""The largest size for which every language has enough text."""


def tables(rows: Rows) -> list[Table]:
    """The paper's tables: averages, scripts, unused tokens, merge skipping; and two with a row for each language."""
    return [_averages(rows), _gains(rows), _by_script(rows), _unused(rows), _skipping(rows), _by_language(rows)]


def _averages(rows: Rows) -> Table:
    lines = []
    for model in models_of(rows):
        for size in sizes_of(rows):
            both = pairs(rows, model, size)
            if not both:
                continue
            wins = sum(gain(*pair) > 0 for pair in both)

            def beside(
                ours: str, figures: Mapping[str, Mapping[int, float]], at: tuple[str, int] = (model, size)
            ) -> str:
                return with_paper(ours, _percents(figures.get(at[0], {}).get(at[1])))

            lines.append(
                (
                    model_name(model),
                    f"{size:,}",
                    len(both),
                    beside(_signed(mean(gain(*pair) for pair in both)), paper.GAIN),
                    beside(f"{wins} of {len(both)}", paper.WIN_RATE),
                    beside(_signed(mean(gain(*pair, "renyi") for pair in both)), paper.RENYI_GAIN),
                    percent(mean(ours["unreachable_added"] for ours, _ in both)),
                    beside(percent(mean(theirs["unreachable_added"] for _, theirs in both)), paper.UNREACHABLE),
                )
            )
    heads = ("tokenizer", "added", "languages", "gain", "wins", "gain in Rényi efficiency")
    return Table(
        "Continued training against naive extension",
        (*heads, "unreachable, continued", "unreachable, naive"),
        lines,
        "Mean over the languages that are also in the paper and have enough text for this number of tokens. The "
        "paper's mean over 70 languages is in brackets. Gain: bytes per token on FLORES compared with naive extension. "
        "Unreachable: share of the added tokens that no merges produce; a tokenizer that takes whole words before "
        "merges still produces some of them. The paper has 0.0 % for continued training.",
    )


def _gains(rows: Rows) -> Table:
    models, mine = models_of(rows), cells_of(rows)
    size = max((size for size in sizes_of(rows) if size <= SHOWN_SIZE), default=SHOWN_SIZE)
    groups = [select(mine, language=language) for language in distinct(mine, "language")]
    lines = []
    for cells in sorted(groups, key=lambda cells: -median(row["gain"] for row in cells)):
        shown = [only(cells, model=model, size=size) for model in models]
        gains = [str(gain_of(row)).replace(" %", "") if row else None for row in shown]
        lines.append((language_of(cells[0]["language"]).name, *gains, *_summary(cells)))
    medians = [_short(median_gain(select(mine, model=model, size=size))) for model in models]
    lines.append(("**median**", *medians, *_summary(mine)))
    heads = ("language", *(f"{model_name(m)}, {size:,}" for m in models))
    return Table(
        "Gain over naive extension by language",
        (*heads, "median", "largest", "cells", "better", "worse"),
        lines,
        "Percent, with 95 % intervals over all lines of FLORES. Median and largest: of all cells (tokenizers and "
        "sizes). Better, worse: cells with intervals above or below zero. " + _means(rows),
    )


def _means(rows: Rows) -> str:
    """The smallest and the largest mean of the languages beside those of the paper."""
    groups = [group for model in models_of(rows) for size in sizes_of(rows) if (group := pairs(rows, model, size))]
    gains = [mean(gain(*pair) for pair in group) or 0.0 for group in groups]
    unreachable = [mean(theirs["unreachable_added"] for _, theirs in group) or 0.0 for group in groups]
    if not groups:
        return ""
    return (
        f"Means of the languages, by tokenizer and size: gain {range_text(gains)} ({paper_range(paper.GAIN)}), "
        f"unreachable tokens of naive extension {range_text(unreachable)} ({paper_range(paper.UNREACHABLE)})."
    )


def _summary(cells: Rows) -> tuple[str, str, int, int, int]:
    """The median, the largest gain, and how many cells are better or worse by their intervals."""
    largest = max((row["gain"] for row in cells), default=None)
    return (_short(median_gain(cells)), _short(largest), len(cells), *better_and_worse(cells))


def _percents(figure: float | None) -> str | None:
    return None if figure is None else f"{figure} %"


def _signed(value: float | None) -> str:
    return percent(value, signed=True)


def _short(value: float | None) -> str:
    return _signed(value).removesuffix(" %")


def _by_script(rows: Rows) -> Table:
    models = models_of(rows)
    languages = [language_of(code) for code in distinct(rows, "language")]
    lines = []
    for script in dict.fromkeys(language.script for language in languages if language.averaged):
        names = [language for language in languages if language.averaged and language.script == script]
        cells = []
        for model in models:
            gains = [_mean_gain(rows, model, language.code) for language in names]
            cells.append(with_paper(_signed(mean(gains)), _percents(paper.BY_SCRIPT.get(script, {}).get(model))))
        lines.append((script, ", ".join(language.code for language in names), *cells))
    heads = ("script", "languages", *(model_name(model) for model in models))
    return Table(
        "Gain by script",
        heads,
        lines,
        "Mean of all sizes; in brackets the paper's, of all its languages of the script.",
    )


def _mean_gain(rows: Rows, model: str, language: str) -> float | None:
    mine = select(rows, model=model, language=language)
    return mean(gain(*pair) for size in sizes_of(rows) for pair in pairs(mine, model, size, averaged=False))


def _unused(rows: Rows) -> Table:
    return _by_method(
        "Added tokens that do not occur in held-out text",
        rows,
        models_of(rows),
        lambda share: percent(mean(row["unused_added"] for row in share)),
        paper.UNUSED,
        "Held-out documents of the same corpus, at most 10,000, and far fewer for most languages here: the paper has "
        "10,000 of each.",
    )


def _skipping(rows: Rows) -> Table:
    return _by_method(
        "Merge skipping turned off",
        rows,
        [model for model in models_of(rows) if any(drop(row) for row in select(rows, model=model))],
        lambda share: _signed(mean(map(drop, share))),
        paper.WITHOUT_SKIPPING,
        "Change in bytes per token on FLORES. Only tokenizers that skip merges are listed.",
    )


def _by_method(
    title: str,
    rows: Rows,
    models: Sequence[str],
    shown: Callable[[Sequence[Row]], str],
    figures: Mapping[str, Mapping[str, Mapping[int, float]]],
    note: str,
) -> Table:
    """A row for each size, with a cell for each tokenizer and method, beside the paper's figure."""
    columns = [(model, place, method) for model in models for place, method in enumerate(("continued", "naive"))]
    lines = []
    for size in sizes_of(rows):
        cells = [f"{size:,}"]
        for model, place, method in columns:
            figure = figures.get(model, {}).get(method, {}).get(size)
            cells.append(with_paper(shown([pair[place] for pair in pairs(rows, model, size)]), _percents(figure)))
        lines.append(cells)
    heads = ("added", *(f"{model_name(model)}, {method}" for model, _, method in columns))
    return Table(title, heads, lines, note)


def _by_language(rows: Rows) -> Table:
    lines = []
    for (language, model), mine in groups(rows, "language", "model"):
        base = only(mine, method="base")
        sizes = [row["size"] for row in select(mine, method="continued")]
        size = next((s for s in (8_000, 4_000, 2_000, 1_000) if s in sizes), max(sizes, default=None))
        if base is None or size is None:
            continue
        found = [only(mine, method=method, size=size) for method in ("continued", "naive", "scratch")]
        rates = [number(row["bytes_per_token"] if row else None) for row in found]
        name, label = language_of(language).name, model_name(model)
        lines.append((name, label, number(base["bytes_per_token"]), f"{max(sizes):,}", f"{size:,}", *rates))
    heads = ("language", "tokenizer", "base", "largest size", "size", "continued", "naive", "from scratch")
    note = (
        "Bytes per token on FLORES: the base, and after adding this number of tokens. From scratch: a tokenizer "
        "trained on this text alone, with this number of learned tokens. All sizes are in `results.csv`."
    )
    return Table("Every language", heads, lines, note)
