"""Tables, plots and claims of `continued-pretraining`."""

from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np

from lab.experiments.experiment import Claim, Row, Rows
from lab.experiments.intervals import Interval, change_of_runs, points_of_runs
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import NOTHING, Table, distinct, number, percent, select

LABELS = {"base": "unchanged", "swap": "adapted", "naive": "naive"}
PAPER = "paper"


def tables(rows: Rows) -> list[Table]:
    """For each language: bits per byte, tasks, all recipes. Then tokenizers, and rows of new tokens."""
    named = [name for name in distinct(rows, "language") if _chosen(rows, name, "base")]
    found = [make(rows, name) for make in (_bits_table, _tasks_table) for name in named]
    found += [_tokenizer_table(rows), _moved_table(rows)]
    return found + [_recipes_table(rows, name) for name in named]


def _tuned(rows: Rows, language: str) -> list[Row]:
    """Finished runs with text to choose on, of one pass."""
    ends = select(rows, kind="end", language=language)
    return [row for row in ends if row.get("choice") is not None and row["passes"] < 1.5]


def _chosen(rows: Rows, language: str, arm: str, recipe: str | None = None) -> list[Row]:
    """All seeds of the recipe that is best on the text to choose on, with the first seed."""
    mine = [r for r in _tuned(rows, language) if r["arm"] == arm and recipe in (None, r["recipe"] or "")]
    first = min((row for row in mine if row["seed"] == 0), key=lambda row: row["choice"], default=None)
    return [row for row in mine if first and all(row[name] == first[name] for name in ("recipe", "rate"))]


def _arms(rows: Rows, language: str) -> list[tuple[str, list[Row]]]:
    """What is compared: the best recipe of every arm, and the paper's recipe where that is another one."""
    found = [(label, _chosen(rows, language, arm)) for arm, label in LABELS.items()]
    for arm, label in LABELS.items():
        by_paper = _chosen(rows, language, arm, PAPER)
        if by_paper and by_paper != _chosen(rows, language, arm):
            found.append((f"{label}, the paper's recipe", by_paper))
    return [(label, mine) for label, mine in found if mine]


def _lines(rows: Rows, runs: Rows, text: str) -> list[np.ndarray]:
    """The values of every line, for each run; nothing if they are not known."""
    names = [row["run"] for row in runs]
    known = {row["run"]: row["values"] for row in select(rows, kind="lines", text=text, language=runs[0]["language"])}
    return [np.array(str(known[name]).split(), float) for name in names if name in known]


def compared(
    rows: Rows, ours: Rows, theirs: Rows, text: str, by: Callable[..., Interval] = change_of_runs
) -> Interval | None:
    """The change from one group of runs to another on a text."""
    sides = [_lines(rows, runs, text) for runs in (ours, theirs)]
    return by(*sides) if all(sides) else None


DAMAGED = 0.9
"""A run is damaged if it chooses the right continuation of fewer English sentences. Unchanged models: 93 % or more."""


def _recipe(row: Row) -> str:
    """The recipe and the learning rate."""
    name = "the paper's" if row["recipe"] == PAPER else "new rows × 4" if row["row_factor"] == 4 else "linear"
    return f"{name}, {row['rate']:g}"


def interval_rows(rows: Rows) -> list[Row]:
    """All changes against the unchanged model and between arms that tables and claims show."""
    found = []
    for language in [name for name in distinct(rows, "language") if _chosen(rows, name, "base")]:
        arms = dict(_arms(rows, language))
        pairs = [(label, "unchanged") for label in arms if label != "unchanged"] + [("naive", "adapted")]
        for label, other in pairs:
            for by, texts in ((change_of_runs, _texts(language)), (points_of_runs, _tasks(language))):
                for _, text in texts.values():
                    change = compared(rows, arms[label], arms[other], text, by)
                    if change:
                        where = {"language": language, "arm": label, "against": other, "text": text}
                        found.append({**where, "change": change.value, "low": change.low, "high": change.high})
    return found


def _texts(language: str) -> dict[str, tuple[str, str]]:
    """What is scored in bits per byte: by column, its name and the text."""
    return {
        "held_out": ("held out", f"{language}_test"),
        "flores": ("FLORES", f"{language}_flores"),
        "kept_held_out": ("English held out", f"{ENGLISH}_test"),
        "kept_flores": ("English FLORES", f"{ENGLISH}_flores"),
    }


def _tasks(language: str) -> dict[str, tuple[str, str]]:
    """The same for tasks."""
    return {
        "continuation": (f"continuation, {language_of(language).name}", f"continuation-{language}"),
        "to": ("translation from English", f"to-{language}"),
        "from": ("translation to English", f"from-{language}"),
        "kept_continuation": ("continuation, English", f"continuation-{ENGLISH}"),
    }


def _bits_table(rows: Rows, language: str) -> Table:
    base = _chosen(rows, language, "base")
    lines = []
    for label, mine in _arms(rows, language):
        cells = []
        for column, (_, text) in _texts(language).items():
            change = compared(rows, mine, base, text) if mine != base else None
            cells.append(number(mean(row[column] for row in mine)) + (f" ({change})" if change else ""))
        tokens, steps = (round(mean(row[name] for row in mine)) for name in ("tokens", "steps"))
        n_damaged = sum((row.get("kept_continuation") or 1) < DAMAGED for row in mine)
        seeds = f"{len(mine)} seeds" + f", **{n_damaged} damaged**" * bool(n_damaged)
        lines.append((label, f"{_recipe(mine[0])} ({seeds})", number(tokens / 1e6, 1), steps, *cells))
    return Table(
        f"{language_of(language).name}: bits per byte after training",
        ("", "recipe", "tokens, M", "steps", *(head for head, _ in _texts(language).values())),
        lines,
        "Means of the seeds, and the change against the unchanged model with its 95 % interval. Steps have whole "
        "sequences, so their number differs. Damaged: the run chooses the right continuation of fewer than 90 % of the "
        "English sentences.",
    )


def _tasks_table(rows: Rows, language: str) -> Table:
    base = _chosen(rows, language, "base")
    lines = []
    for label, mine in _arms(rows, language):
        cells = []
        for column, (_, text) in _tasks(language).items():
            change = compared(rows, mine, base, text, points_of_runs) if mine != base else None
            known = all(row.get(column) is not None for row in mine)
            after = f" ({change.points()})" if change else ""
            cells.append(_points(mean(row[column] for row in mine)) + after if known else NOTHING)
        lines.append((label, *cells))
    return Table(
        f"{language_of(language).name}: right choices among four texts",
        ("", *(head for head, _ in _tasks(language).values())),
        lines,
        "Percent of 1,012 items made from FLORES: the second half of a sentence, or its translation, among those of "
        "three sentences of similar length (`training/choices.py`). Chance is 25. The change is in percentage points.",
    )


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _tokenizer_table(rows: Rows) -> Table:
    lines = []
    for language in distinct(rows, "language"):
        for arm, label in LABELS.items():
            row = next(iter(select(rows, kind="tokenizer", language=language, arm=arm)), None)
            if row:
                tokens = number(row["tokens"] / 1e6, 1), percent(row["target_share"])
                rates = [number(row[name], 2) for name in ("flores", "kept_flores")]
                numbers = f"{row['size']:,}", f"{row['unreachable']:,}"
                lines.append((language_of(language).name, label, *numbers, *rates, *tokens))
    heads = ("language", "", "tokens", "unreachable", "bytes per token", "English", "training text, M tokens", "target")
    note = "The paper's Table 9. Bytes per token on FLORES. The last column is the target's share of these tokens."
    return Table("The tokenizers", heads, lines, note)


def _moved_table(rows: Rows) -> Table:
    shown = (1, 5, 25, 50, 75, 95)
    lines = []
    for language in distinct(rows, "language"):
        for arm in ("swap", "naive"):
            for text, label in (("distance", "distance"), ("norm", "change of the norm")):
                values = _moved(rows, language, arm, text)
                if values is not None:
                    shrunk = percent(float(np.mean(values < 0)), 0) if text == "norm" else NOTHING
                    cells = [f"{values[at]:+.2f}" if text == "norm" else number(values[at], 2) for at in shown]
                    lines.append((language_of(language).name, LABELS[arm], label, *cells, shrunk))
    heads = ("language", "", "", *(f"{percentile} %" for percentile in shown), "below 0")
    return Table(
        "How far rows of new tokens moved",
        heads,
        lines,
        "Percentiles over the new tokens, one pass by the paper's recipe with its weight decay, means of the seeds: L2 "
        "distance from the first value, and change of the L2 norm (the paper's Figure 8, which has no numbers).",
    )


def _recipes_table(rows: Rows, language: str) -> Table:
    lines = []
    for arm, label in LABELS.items():
        mine = [row for row in _tuned(rows, language) if row["arm"] == arm]
        for row in sorted(mine, key=lambda row: (row["seed"], row["choice"])):
            values = [number(row[name]) for name in ("choice", "held_out", "flores", "kept_held_out")]
            tasks = [_points(row[name]) for name in ("continuation", "to", "from", "kept_continuation")]
            lines.append((label, _recipe(row), row["seed"], *values, *tasks))
    heads = ("", "recipe", "seed", "to choose on", "held out", "FLORES", "English held out")
    return Table(
        f"{language_of(language).name}: every run",
        (*heads, "continuation", "from English", "to English", "continuation, English"),
        lines,
    )


def panels(rows: Rows) -> list[Panel]:
    """Bits per byte on the way by text and by tokens, and how far rows of new tokens moved."""
    found = []
    for language in [name for name in distinct(rows, "language") if _chosen(rows, name, "base")]:
        for column, label, scale in (("read_mb", "MB of text read", 1.0), ("tokens", "million tokens read", 1e-6)):
            series = []
            for arm, name in LABELS.items():
                end = next(iter(_chosen(rows, language, arm)), None)
                way = [] if end is None else select(rows, kind="way", language=language, run=end["run"])[1:]
                if way:
                    series.append(Series(name, [scale * row[column] for row in way], [row["held_out"] for row in way]))
            title = f"{language_of(language).name}, text to choose on"
            found.append(Panel(title, label, "bits per byte", series))
        for text, label in (("distance", "L2 distance"), ("norm", "change of the L2 norm")):
            series = _moved_series(rows, language, text)
            found.append(
                Panel(f"{language_of(language).name}, new rows", "percentile of the new tokens", label, series)
            )
    return found


def _moved_series(rows: Rows, language: str, text: str) -> list[Series]:
    found = []
    for arm in ("swap", "naive"):
        values = _moved(rows, language, arm, text)
        if values is not None:
            found.append(Series(LABELS[arm], range(len(values)), [*values]))
    return found


def _moved(rows: Rows, language: str, arm: str, text: str) -> np.ndarray | None:
    """The percentiles of new tokens by the paper's recipe, means of the seeds."""
    runs = [row["run"] for row in _chosen(rows, language, arm, PAPER)]
    found = [row["values"] for row in select(rows, kind="moved", text=text) if row["run"] in runs]
    return np.mean([np.array(str(values).split(), float) for values in found], axis=0) if found else None


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Section "Continued pre-training" and of its analysis of undertrained tokens."""
    found = []
    for language in distinct(rows, "language"):
        arms = [_chosen(rows, language, arm) for arm in LABELS]
        if not all(arms):
            continue
        base, ours, naive = arms
        name, texts = language_of(language).name, (f"{language}_test", f"{language}_flores")
        against = [compared(rows, ours, base, text) for text in texts]
        beside = [compared(rows, naive, ours, text) for text in texts]
        if None in (*against, *beside):
            continue
        tokens = [mean(row["tokens"] for row in runs) for runs in arms]
        found += [
            Claim(
                f"{name}: after training, naive and continued tokenizers are within 1 %",
                all(change.within(0.01) for change in beside),
                f"bits per byte of naive: {_both(beside)}",
            ),
            Claim(
                f"{name}: at equal text, the adapted model is within 1 % of the unchanged one",
                all(change.high < 0.01 for change in against),
                f"bits per byte: {_both(against)}",
            ),
            Claim(
                f"{name}: the same text is fewer tokens to train on (26 % fewer in the paper, with half English)",
                tokens[1] < tokens[0],
                f"{percent(1 - tokens[1] / tokens[0])} fewer; naive {percent(1 - tokens[2] / tokens[0])}",
            ),
            *_moved_claims(rows, language),
        ]
    return found


def _both(changes: Sequence[Interval | None]) -> str:
    return f"held out {changes[0]}, FLORES {changes[1]}"


def _moved_claims(rows: Rows, language: str) -> list[Claim]:
    distances = [_moved(rows, language, arm, "distance") for arm in ("swap", "naive")]
    norms = [_moved(rows, language, arm, "norm") for arm in ("swap", "naive")]
    if any(found is None for found in (*distances, *norms)):
        return []
    (ours, naive), (shrunk, naive_shrunk) = distances, [float(np.mean(found < 0)) for found in norms]
    return [
        Claim(
            f"{language_of(language).name}: rows of naive tokens move less, and more of them shrink",
            naive[5] < ours[5] and naive_shrunk > shrunk,
            f"5th percentile of the distance {naive[5]:.2f} against {ours[5]:.2f}; {percent(naive_shrunk, 0)} shrink "
            f"against {percent(shrunk, 0)}",
        )
    ]
