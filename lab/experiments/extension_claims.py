"""The claims of the paper's section "Tokenizer evaluation", on the rows of `extension`."""

from collections.abc import Sequence

from lab.experiments import paper
from lab.experiments.experiment import Claim, Row, Rows, model_name
from lab.experiments.extension_gains import (
    at_rate,
    better_and_worse,
    cells_of,
    drop,
    gain,
    median_gain,
    models_of,
    pairs,
    paper_range,
    range_text,
    renyi_curve,
    sizes_of,
)
from lab.experiments.intervals import Interval, gain_of
from lab.experiments.languages import language_of
from lab.experiments.tables import distinct, mean, percent, select

LARGE_GAINS = {"Latn": "Latin", "Cyrl": "Cyrillic"}
"""The scripts for which the paper finds larger gains. A script with one language here says nothing: it is left out."""


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Section "Tokenizer evaluation"."""
    both = [pair for model in models_of(rows) for size in sizes_of(rows) for pair in pairs(rows, model, size)]
    if not both:
        return []
    unreachable = max(ours["unreachable_added"] for ours, _ in both)
    renyi = [gain(*pair, "renyi") for pair in both]
    unused = [theirs["unused_added"] - ours["unused_added"] for ours, theirs in both]
    drops = [drop(ours) for ours, _ in both]
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
    cells = cells_of(rows)
    if not cells:
        return []
    groups = {(m, s): select(cells, model=m, size=s) for m in models_of(rows) for s in sizes_of(rows)}
    means = {key: _mean_interval(group) for key, group in groups.items() if group}
    certain = sum(interval.above_zero for interval in means.values())
    better, worse = better_and_worse(cells)
    losers = [f"{row['language']} ({row['model']}, {row['size']:,})" for row in cells if gain_of(row).below_zero]
    lowest, largest = min(cells, key=lambda row: row["gain"]), max(cells, key=lambda row: row["gain"])
    values = [interval.value for interval in means.values()]
    return [
        Claim(
            "Continued training gives more bytes per token than naive extension on average, at every size",
            certain == len(means),
            f"by intervals for {certain} of {len(means)} tokenizers and sizes; means {range_text(values)} "
            f"({paper_range(paper.GAIN)})",
        ),
        Claim(
            "It gives more bytes per token for the vast majority of languages",
            better > 0.7 * len(cells),  # the smallest share in the paper is 72.9 %
            f"better in {better}, worse in {worse} of {len(cells)} cells by their intervals; "
            f"median {percent(median_gain(cells), signed=True)}",
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
        f"means of languages {range_text(means)} ({paper_range(paper.UNREACHABLE)}); "
        f"single languages up to {percent(max(map(max, shares.values())))}, which the paper does not list",
    )


def _script_claims(rows: Rows) -> list[Claim]:
    """One for each tokenizer: the paper's own means by script differ between tokenizers."""
    found = []
    for model in models_of(rows):
        groups: dict[str, list[Row]] = {}
        for row in select(cells_of(rows), model=model):
            groups.setdefault(language_of(row["language"]).script, []).append(row)
        means = {script: _mean_interval(cells) for script, cells in groups.items()}
        large = [script for script in LARGE_GAINS if len(distinct(groups.get(script, []), "language")) > 1]
        others = [script for script in means if script not in LARGE_GAINS]
        if large and others:
            lowest, highest = min(large, key=lambda s: means[s].low), max(others, key=lambda s: means[s].high)
            names = " and ".join(LARGE_GAINS[script] for script in large)
            tokenizer = model_name(model)
            text = f"{tokenizer}: the gain is larger for {names} script than for all but Latin and Cyrillic"
            here = f"{lowest} {means[lowest]}, {highest} {means[highest]}"
            found.append(Claim(text, means[lowest].low > means[highest].high, here))
    return found


def _renyi_claims(rows: Rows) -> list[Claim]:
    """The paper's Figure 4, which is of Llama-3; the other tokenizers are counted beside it."""
    found: dict[str, tuple[int, int]] = {}
    for model in models_of(rows):
        theirs = renyi_curve(rows, model, "naive")
        others = [(renyi, at_rate(theirs, rate)) for rate, renyi in renyi_curve(rows, model, "continued")]
        compared = [(renyi, other) for renyi, other in others if other is not None]
        if compared:
            found[model] = sum(renyi > other for renyi, other in compared), len(compared)
    if "llama3" not in found:
        return []
    text = "Llama-3: at equal bytes per token, Rényi efficiency is higher than that of naive extension"
    here = [f"{model_name(model)} {higher} of {n}" for model, (higher, n) in found.items()]
    return [Claim(text, found["llama3"][0] == found["llama3"][1], "sizes with higher efficiency: " + ", ".join(here))]
