"""`extension`: continued training against naive extension, by language, tokenizer and size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import tokengraft as tg
from lab.experiments import paper
from lab.experiments.experiment import FOUR_MODELS, MODEL_NAMES, SIZES, Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.intervals import Interval, gain_columns, gain_of
from lab.experiments.languages import language_of
from lab.experiments.learn import added_ids, extended, naive, tokens_by_line, train_fresh
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, mean, number, only, percent, select, with_paper

SHOWN_SIZE = 8_000
"""The largest size for which every language has enough text."""
LARGE_GAINS = ("Latn", "Cyrl")
"""The scripts for which the paper finds larger gains."""
SCRATCH_SIZES = (*SIZES, 64_000, 128_000)


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each method and size."""
    base = setup.tokenizer(cell.model)
    counts = setup.train_counts(cell.model, cell.language)
    texts = setup.flores_counts(cell.model, cell.language), setup.held_out_counts(cell.model, cell.language)
    largest = max(setup.sizes)
    fresh = train_fresh(base, counts, largest)
    text = {"train_bytes": counts.totals.bytes, "held_out_documents": texts[1].totals.documents}
    yield {"method": "base", "size": 0, **_scores(base, base, *texts), **text}
    ours = extended(base, tg.extend(base, counts, largest), setup.sizes)
    theirs = naive(base, fresh, setup.sizes)
    lines = setup.data.sentences(cell.language)
    for size, tokenizer in ours.items():
        scores = _scores(base, tokenizer, *texts)
        paired = {}
        if size in theirs:
            paired = gain_columns(*(tokens_by_line(t, lines) for t in (tokenizer, theirs[size])))
        yield {"method": "continued", "size": size, **scores, **paired}
    for size, tokenizer in theirs.items():
        yield {"method": "naive", "size": size, **_scores(base, tokenizer, *texts)}
    scratch_sizes = sorted({*setup.sizes, *(size for size in SCRATCH_SIZES if size > largest)})
    for size in scratch_sizes:
        if size <= len(fresh.extension):
            yield {"method": "scratch", "size": size, **_rates(fresh.of_size(size), texts[0])}


def _rates(tokenizer: tg.Tokenizer, flores: tg.PretokenCounts) -> Row:
    score = tg.evaluate({"": tokenizer}, {"": flores})["", ""]
    return {
        "bytes_per_token": score.bytes_per_token,
        "by_merges": score.bytes_per_token_by_merges,
        "renyi": score.renyi_efficiency,
    }


def _scores(
    base: tg.Tokenizer, tokenizer: tg.Tokenizer, flores: tg.PretokenCounts, held_out: tg.PretokenCounts
) -> dict[str, Any]:
    rates = dict(_rates(tokenizer, flores))
    new = added_ids(base, tokenizer)
    if new:
        rates["unreachable_added"] = len(new & set(tokenizer.structure.unreachable)) / len(new)
        rates["unused_added"] = len(new - held_out.tokens(tokenizer).keys()) / len(new)
    return rates


def pairs(rows: Rows, model: str, size: int, *, averaged: bool = True) -> list[tuple[Row, Row]]:
    """The rows of continued training and naive extension of every language that has both."""
    found = []
    for language in distinct(rows, "language"):
        if averaged and not language_of(language).averaged:
            continue
        where = {"model": model, "language": language, "size": size}
        ours, theirs = only(rows, method="continued", **where), only(rows, method="naive", **where)
        if ours and theirs:
            found.append((ours, theirs))
    return found


def gain(ours: Row, theirs: Row, column: str = "bytes_per_token") -> float:
    """The relative difference."""
    return ours[column] / theirs[column] - 1


def _models(rows: Rows) -> list[str]:
    return distinct(rows, "model")


def _sizes(rows: Rows) -> list[int]:
    return sorted(size for size in distinct(rows, "size") if select(rows, size=size, method="continued"))


def tables(rows: Rows) -> list[Table]:
    """The paper's tables: averages, scripts, unused tokens, merge skipping; and two with a row for each language."""
    return [_averages(rows), _gains(rows), _by_script(rows), _unused(rows), _skipping(rows), _by_language(rows)]


def _averages(rows: Rows) -> Table:
    lines = []
    for model in _models(rows):
        for size in _sizes(rows):
            both = pairs(rows, model, size)
            if not both:
                continue
            wins = sum(gain(*pair) > 0 for pair in both)
            lines.append(
                (
                    MODEL_NAMES.get(model, model),
                    f"{size:,}",
                    len(both),
                    _beside(percent(mean(gain(*pair) for pair in both), signed=True), paper.GAIN, model, size),
                    with_paper(f"{wins} of {len(both)}", _percent_of(paper.WIN_RATE, model, size)),
                    _beside(
                        percent(mean(gain(*pair, "renyi") for pair in both), signed=True), paper.RENYI_GAIN, model, size
                    ),
                    percent(mean(ours["unreachable_added"] for ours, _ in both)),
                    _beside(
                        percent(mean(theirs["unreachable_added"] for _, theirs in both)), paper.UNREACHABLE, model, size
                    ),
                )
            )
    heads = ("tokenizer", "added", "languages", "gain", "wins", "gain in Rényi efficiency")
    return Table(
        "Continued training against naive extension",
        (*heads, "unreachable, continued", "unreachable, naive"),
        lines,
        "Mean over the languages that are also in the paper and have enough text for this number of tokens. The "
        "paper's mean over 70 languages is in brackets. Gain: bytes per token on FLORES compared with naive extension. "
        "Unreachable: share of the added tokens that no merges produce. The paper has 0.0 % for continued training.",
    )


def _gains(rows: Rows) -> Table:
    models, mine = _models(rows), _cells(rows)
    size = max((size for size in _sizes(rows) if size <= SHOWN_SIZE), default=SHOWN_SIZE)
    groups = [select(mine, language=language) for language in distinct(mine, "language")]
    lines = []
    for cells in sorted(groups, key=lambda cells: -median(row["gain"] for row in cells)):
        shown = [only(cells, model=model, size=size) for model in models]
        gains = [str(gain_of(row)).replace(" %", "") if row else None for row in shown]
        lines.append((language_of(cells[0]["language"]).name, *gains, *_summary(cells)))
    medians = [_short(_median(select(mine, model=model, size=size))) for model in models]
    lines.append(("**median**", *medians, *_summary(mine)))
    heads = ("language", *(f"{MODEL_NAMES.get(m, m)}, {size:,}" for m in models))
    return Table(
        "Gain over naive extension by language",
        (*heads, "median", "largest", "cells", "better", "worse"),
        lines,
        "Percent, with 95 % intervals over all lines of FLORES. Median and largest: of all cells (tokenizers and "
        "sizes). Better, worse: cells with intervals above or below zero. " + _means(rows),
    )


def _means(rows: Rows) -> str:
    """The smallest and the largest mean of the languages beside those of the paper."""
    groups = [group for model in _models(rows) for size in _sizes(rows) if (group := pairs(rows, model, size))]
    gains = [mean(gain(*pair) for pair in group) or 0.0 for group in groups]
    unreachable = [mean(theirs["unreachable_added"] for _, theirs in group) or 0.0 for group in groups]
    if not groups:
        return ""
    return (
        f"Means of the languages, by tokenizer and size: gain {_range(gains)} ({_paper_range(paper.GAIN)}), "
        f"unreachable tokens of naive extension {_range(unreachable)} ({_paper_range(paper.UNREACHABLE)})."
    )


def _range(values: Sequence[float]) -> str:
    return f"{percent(min(values)).removesuffix(' %')} to {percent(max(values))}"


def _paper_range(figures: Mapping[str, Mapping[int, float]]) -> str:
    values = [value for by_size in figures.values() for value in by_size.values()]
    return f"paper: {min(values)} to {max(values)} %"


def _cells(rows: Rows) -> Rows:
    """The rows of the languages of the paper that have a gain over naive extension."""
    return [row for row in rows if row.get("gain") is not None and language_of(row["language"]).averaged]


def _median(cells: Rows) -> float | None:
    return median(row["gain"] for row in cells) if cells else None


def _summary(cells: Rows) -> tuple[str, str, int, int, int]:
    """The median, the largest gain, and how many cells are better or worse by their intervals."""
    largest = max((row["gain"] for row in cells), default=None)
    return (_short(_median(cells)), _short(largest), len(cells), *_certain(cells))


def _certain(cells: Rows) -> tuple[int, int]:
    """How many intervals are above zero, and how many below."""
    intervals = [gain_of(row) for row in cells]
    return sum(one.above_zero for one in intervals), sum(one.below_zero for one in intervals)


def _short(value: float | None) -> str:
    return percent(value, signed=True).removesuffix(" %")


def _percent_of(figures: dict[str, dict[int, float]], model: str, size: int) -> str | None:
    value = figures.get(model, {}).get(size)
    return None if value is None else f"{value} %"


def _beside(ours: str, figures: dict[str, dict[int, float]], model: str, size: int) -> str:
    return with_paper(ours, _percent_of(figures, model, size))


def _by_script(rows: Rows) -> Table:
    models = _models(rows)
    languages = [language_of(code) for code in distinct(rows, "language")]
    lines = []
    for script in dict.fromkeys(language.script for language in languages if language.averaged):
        names = [language for language in languages if language.averaged and language.script == script]
        cells = []
        for model in models:
            gains = [_mean_gain(rows, model, language.code) for language in names]
            cells.append(with_paper(percent(mean(gains), signed=True), _script_figure(script, model)))
        lines.append((script, ", ".join(language.code for language in names), *cells))
    heads = ("script", "languages", *(MODEL_NAMES.get(model, model) for model in models))
    return Table(
        "Gain by script",
        heads,
        lines,
        "Mean of all sizes; in brackets the paper's, of all its languages of the script.",
    )


def _script_figure(script: str, model: str) -> str | None:
    value = paper.BY_SCRIPT.get(script, {}).get(model)
    return None if value is None else f"{value} %"


def _mean_gain(rows: Rows, model: str, language: str) -> float | None:
    mine = select(rows, model=model, language=language)
    return mean(gain(*pair) for size in _sizes(rows) for pair in pairs(mine, model, size, averaged=False))


def _unused(rows: Rows) -> Table:
    lines = []
    for size in _sizes(rows):
        cells: list[str] = []
        for model in _models(rows):
            both = pairs(rows, model, size)
            for place, method in enumerate(("continued", "naive")):
                share = mean(pair[place]["unused_added"] for pair in both)
                figure = paper.UNUSED.get(model, {}).get(method, {}).get(size)
                cells.append(with_paper(percent(share), None if figure is None else f"{figure} %"))
        lines.append((f"{size:,}", *cells))
    heads = [f"{MODEL_NAMES.get(m, m)}, {method}" for m in _models(rows) for method in ("continued", "naive")]
    return Table(
        "Added tokens that do not occur in held-out text",
        ("added", *heads),
        lines,
        "Held-out documents of the same corpus, at most 10,000, and far fewer for most languages here: the paper has "
        "10,000 of each.",
    )


def _skipping(rows: Rows) -> Table:
    models = [model for model in _models(rows) if any(_drop(row) for row in select(rows, model=model))]
    lines = []
    for size in _sizes(rows):
        cells = []
        for model in models:
            both = pairs(rows, model, size)
            for place, method in enumerate(("continued", "naive")):
                figure = paper.WITHOUT_SKIPPING.get(model, {}).get(method, {}).get(size)
                drop = percent(mean(_drop(pair[place]) for pair in both), signed=True)
                cells.append(with_paper(drop, None if figure is None else f"{figure} %"))
        lines.append((f"{size:,}", *cells))
    heads = [f"{MODEL_NAMES.get(m, m)}, {method}" for m in models for method in ("continued", "naive")]
    note = "Change in bytes per token on FLORES. Only tokenizers that skip merges are listed."
    return Table("Merge skipping turned off", ("added", *heads), lines, note)


def _drop(row: Row) -> float:
    return row["by_merges"] / row["bytes_per_token"] - 1


def _by_language(rows: Rows) -> Table:
    lines = []
    for language in distinct(rows, "language"):
        for model in _models(rows):
            mine = select(rows, language=language, model=model)
            base = only(mine, method="base")
            sizes = [row["size"] for row in select(mine, method="continued")]
            size = next((s for s in (8_000, 4_000, 2_000, 1_000) if s in sizes), max(sizes, default=None))
            if base is None or size is None:
                continue
            found = [only(mine, method=method, size=size) for method in ("continued", "naive", "scratch")]
            rates = [number(row["bytes_per_token"] if row else None) for row in found]
            name, label = language_of(language).name, MODEL_NAMES.get(model, model)
            learned = f"{max(sizes):,}"
            lines.append((name, label, number(base["bytes_per_token"]), learned, f"{size:,}", *rates))
    heads = ("language", "tokenizer", "base", "largest size", "size", "continued", "naive", "from scratch")
    note = (
        "Bytes per token on FLORES: the base, and after adding this number of tokens. From scratch: a tokenizer "
        "trained on this text alone, with this number of learned tokens. All sizes are in `results.csv`."
    )
    return Table("Every language", heads, lines, note)


def panels(rows: Rows) -> list[Panel]:
    """The gain by size beside the paper's, for each tokenizer; and the curves of Estonian or the first language."""
    sizes, models = _sizes(rows), _models(rows)
    ours = [Series(MODEL_NAMES.get(model, model), sizes, _mean_gains(rows, model, sizes)) for model in models]
    theirs = [
        Series(f"{MODEL_NAMES[model]}, paper", paper.SIZES, [*paper.GAIN[model].values()], dashed=True, colour=place)
        for place, model in enumerate(models)
        if model in paper.GAIN
    ]
    gains = Panel("Gain over naive extension, mean", "added tokens", "percent", [*ours, *theirs], log_x=True)
    languages = distinct(rows, "language")
    return [
        gains,
        _renyi_panel(rows),
        *(_curves(rows, model, "et" if "et" in languages else languages[0]) for model in models),
    ]


def renyi_curve(rows: Rows, model: str, method: str) -> list[tuple[float, float]]:
    """Bytes per token and Rényi efficiency by size, means of the languages that have all sizes."""
    sizes = _sizes(rows)
    place = ("continued", "naive").index(method)
    found = {size: {pair[place]["language"]: pair[place] for pair in pairs(rows, model, size)} for size in sizes}
    common = set.intersection(*map(set, found.values())) if found else set()
    columns = ("bytes_per_token", "renyi")
    return [tuple(mean(found[s][x][c] for x in sorted(common)) for c in columns) for s in sizes] if common else []


def at_rate(curve: list[tuple[float, float]], rate: float) -> float | None:
    """The value of a curve at a rate, between its points; None outside of it.

    >>> at_rate([(2.0, 0.6), (3.0, 0.5)], 2.5), at_rate([(2.0, 0.6), (3.0, 0.5)], 3.5)
    (0.55, None)
    """
    points = sorted(curve)
    for (left, low), (right, high) in pairwise(points):
        if left <= rate <= right and right > left:
            return low + (high - low) * (rate - left) / (right - left)
    return None


def _renyi_panel(rows: Rows) -> Panel:
    series = []
    for place, model in enumerate(_models(rows)):
        for method in ("continued", "naive"):
            curve = renyi_curve(rows, model, method)
            label, dashed = f"{MODEL_NAMES.get(model, model)}, {method}", method == "naive"
            series.append(Series(label, [x for x, _ in curve], [y for _, y in curve], dashed=dashed, colour=place))
    return Panel("Rényi efficiency, mean (naive: dashed)", "bytes per token, FLORES", "Rényi efficiency", series)


def _mean_gains(rows: Rows, model: str, sizes: Iterable[int]) -> list[float | None]:
    means = [mean(gain(*pair) for pair in pairs(rows, model, size)) for size in sizes]
    return [None if value is None else 100 * value for value in means]


def _curves(rows: Rows, model: str, language: str) -> Panel:
    mine = select(rows, model=model, language=language)
    series = []
    for method in ("continued", "naive", "scratch"):
        found = select(mine, method=method)
        series.append(Series(method, [row["size"] for row in found], [row["bytes_per_token"] for row in found]))
    title = f"{MODEL_NAMES.get(model, model)}, {language_of(language).name}"
    return Panel(title, "added tokens", "bytes per token, FLORES", series, log_x=True)


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Section "Tokenizer evaluation"."""
    both = [pair for model in _models(rows) for size in _sizes(rows) for pair in pairs(rows, model, size)]
    if not both:
        return []
    unreachable = max(ours["unreachable_added"] for ours, _ in both)
    renyi = [gain(*pair, "renyi") for pair in both]
    unused = [theirs["unused_added"] - ours["unused_added"] for ours, theirs in both]
    drops = [_drop(ours) for ours, _ in both]
    found = [
        *_gain_claims(rows),
        Claim("No token of continued training is unreachable", unreachable == 0, percent(unreachable, 2)),
        _unreachable_claim(both),
        Claim(
            "Rényi efficiency is lower than that of naive extension at equal size",
            (mean(renyi) or 0) < 0,
            f"mean {percent(mean(renyi), signed=True)}; lower in {sum(x < 0 for x in renyi)} of {len(renyi)} cells",
        ),
        Claim(
            "Fewer of the added tokens are unused",
            min(unused) >= 0,
            f"difference {percent(min(unused), signed=True)} to {percent(max(unused), signed=True)}",
        ),
        Claim(
            "Without merge skipping, continued training loses less than 0.1 % on average",
            (mean(drops) or 0) > -0.001,
            f"mean {percent(mean(drops), 2, signed=True)}, worst {percent(min(drops), 2, signed=True)}",
        ),
    ]
    found += _renyi_claims(rows)
    return found + _script_claims(rows)


def _gain_claims(rows: Rows) -> list[Claim]:
    """Those about bytes per token. The mean of lower limits is below the lower limit of the mean."""
    cells = _cells(rows)
    if not cells:
        return []
    groups = {(m, s): select(cells, model=m, size=s) for m in _models(rows) for s in _sizes(rows)}
    means = {key: _mean_interval(group) for key, group in groups.items() if group}
    certain = sum(interval.above_zero for interval in means.values())
    better, worse = _certain(cells)
    losers = [f"{row['language']} ({row['model']}, {row['size']:,})" for row in cells if gain_of(row).below_zero]
    lowest, largest = min(cells, key=lambda row: row["gain"]), max(cells, key=lambda row: row["gain"])
    values = [interval.value for interval in means.values()]
    return [
        Claim(
            "Continued training gives more bytes per token than naive extension on average, at every size",
            certain == len(means),
            f"by intervals for {certain} of {len(means)} tokenizers and sizes; means {_range(values)} "
            f"({_paper_range(paper.GAIN)})",
        ),
        Claim(
            "It gives more bytes per token for the vast majority of languages",
            better > 0.7 * len(cells),  # the smallest share in the paper is 72.9 %
            f"better in {better}, worse in {worse} of {len(cells)} cells by their intervals; "
            f"median {percent(_median(cells), signed=True)}",
        ),
        Claim(
            "There are no notable losses",
            all(row["gain_low"] > -0.01 for row in cells),
            f"lowest {gain_of(lowest)}; worse by their intervals: {', '.join(losers) or 'none'}",
        ),
        Claim("The gain can exceed 20 %", largest["gain_low"] > 0.2, f"largest {gain_of(largest)}"),
    ]


def _mean_interval(cells: Rows) -> Interval:
    """The mean gain. Its limits are the means of the limits, so the interval is too wide rather than too narrow."""
    return Interval(*(mean(row[name] for row in cells) or 0.0 for name in ("gain", "gain_low", "gain_high")))


def _unreachable_claim(both: Sequence[tuple[Row, Row]]) -> Claim:
    shares: dict[tuple[str, int], list[float]] = {}
    for _, theirs in both:
        shares.setdefault((theirs["model"], theirs["size"]), []).append(theirs["unreachable_added"])
    means = [mean(group) or 0.0 for group in shares.values()]
    return Claim(
        "Naive extension adds unreachable tokens at every size",
        min(means) > 0,
        f"means of languages {_range(means)} ({_paper_range(paper.UNREACHABLE)}); "
        f"single languages up to {percent(max(map(max, shares.values())))}, which the paper does not list",
    )


def _script_claims(rows: Rows) -> list[Claim]:
    """One for each tokenizer: the paper's own means by script differ between tokenizers."""
    found = []
    for model in _models(rows):
        groups: dict[str, list[Row]] = {}
        for row in select(_cells(rows), model=model):
            groups.setdefault(language_of(row["language"]).script, []).append(row)
        means = {script: _mean_interval(cells) for script, cells in groups.items()}
        large = [script for script in means if script in LARGE_GAINS]
        others = [script for script in means if script not in LARGE_GAINS]
        if large and others:
            lowest, highest = min(large, key=lambda s: means[s].low), max(others, key=lambda s: means[s].high)
            text = f"{MODEL_NAMES.get(model, model)}: the gain is larger for Latin and Cyrillic scripts than for others"
            here = f"{lowest} {means[lowest]}, {highest} {means[highest]}"
            found.append(Claim(text, means[lowest].low > means[highest].high, here))
    return found


def _renyi_claims(rows: Rows) -> list[Claim]:
    """The paper's Figure 4, which is of Llama-3; the other tokenizers are counted beside it."""
    found: dict[str, tuple[int, int]] = {}
    for model in _models(rows):
        theirs = renyi_curve(rows, model, "naive")
        others = [(renyi, at_rate(theirs, rate)) for rate, renyi in renyi_curve(rows, model, "continued")]
        compared = [(renyi, other) for renyi, other in others if other is not None]
        if compared:
            found[model] = sum(renyi > other for renyi, other in compared), len(compared)
    if "llama3" not in found:
        return []
    text = "Llama-3: at equal bytes per token, Rényi efficiency is higher than that of naive extension"
    here = [f"{MODEL_NAMES.get(model, model)} {higher} of {n}" for model, (higher, n) in found.items()]
    return [Claim(text, found["llama3"][0] == found["llama3"][1], "sizes with higher efficiency: " + ", ".join(here))]


EXPERIMENT = Experiment(
    name="extension",
    title="Continued training against naive extension",
    source="Figures 1 and 4, Tables 1, 2, 3 and 7",
    about=(
        "New tokens are learned by continued training, and by the paper's baseline: the tokens of a tokenizer trained "
        "from scratch on the same text, with merges made for them (`naive-regen`)."
    ),
    measure=lambda setup, cell: [*measure(setup, cell)],
    tables=tables,
    panels=panels,
    claims=claims,
    models=FOUR_MODELS,
    languages=None,
    needs_english=False,
)
