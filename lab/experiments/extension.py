"""`extension`: continued training against naive extension, by language, tokenizer and size."""

from collections.abc import Iterator
from typing import Any

import tokengraft as tg
from lab.experiments import paper
from lab.experiments.experiment import FOUR_MODELS, MODEL_NAMES, SIZES, Cell, Experiment, Row, Rows, Setup, model_name
from lab.experiments.extension_claims import claims
from lab.experiments.extension_gains import gain, models_of, pairs, renyi_curve, sizes_of
from lab.experiments.extension_tables import tables
from lab.experiments.intervals import gain_columns
from lab.experiments.languages import language_of
from lab.experiments.learn import added_ids, extended, naive, tokens_by_line, train_fresh
from lab.experiments.plots import Panel, Series, line
from lab.experiments.tables import mean, select, shown_language

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


def panels(rows: Rows) -> list[Panel]:
    """The gain by size beside the paper's, for each tokenizer; and the curves of Estonian or the first language."""
    sizes, models = sizes_of(rows), models_of(rows)
    ours = [Series(model_name(model), sizes, _mean_gains(rows, model, sizes)) for model in models]
    theirs = [
        Series(f"{MODEL_NAMES[model]}, paper", paper.SIZES, [*paper.GAIN[model].values()], dashed=True, colour=place)
        for place, model in enumerate(models)
        if model in paper.GAIN
    ]
    gains = Panel("Gain over naive extension, mean", "added tokens", "percent", [*ours, *theirs], log_x=True)
    return [gains, _renyi_panel(rows), *(_curves(rows, model, shown_language(rows)) for model in models)]


def _renyi_panel(rows: Rows) -> Panel:
    series = []
    for place, model in enumerate(models_of(rows)):
        for method in ("continued", "naive"):
            curve = renyi_curve(rows, model, method)
            label, dashed = f"{model_name(model)}, {method}", method == "naive"
            series.append(Series(label, [x for x, _ in curve], [y for _, y in curve], dashed=dashed, colour=place))
    return Panel("Rényi efficiency, mean (naive: dashed)", "bytes per token, FLORES", "Rényi efficiency", series)


def _mean_gains(rows: Rows, model: str, sizes: list[int]) -> list[float | None]:
    means = [mean(gain(*pair) for pair in pairs(rows, model, size)) for size in sizes]
    return [None if value is None else 100 * value for value in means]


def _curves(rows: Rows, model: str, language: str) -> Panel:
    mine = select(rows, model=model, language=language)
    methods = ("continued", "naive", "scratch")
    series = [line(method, select(mine, method=method), "size", "bytes_per_token") for method in methods]
    title = f"{model_name(model)}, {language_of(language).name}"
    return Panel(title, "added tokens", "bytes per token, FLORES", series, log_x=True)


EXPERIMENT = Experiment(
    name="extension",
    title="Continued training against naive extension",
    source="Figures 1 and 4, Tables 1, 2, 3 and 7",
    about=(
        "New tokens are learned by continued training, and by the paper's baseline: the tokens of a tokenizer trained "
        "from scratch on the same text, with merges made for them (`naive-regen`)."
    ),
    tables=tables,
    claims=claims,
    models=FOUR_MODELS,
    languages=None,
    needs_english=False,
)
