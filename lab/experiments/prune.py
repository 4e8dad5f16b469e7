"""`prune`: fewer tokens by every method, for each language together with English."""

from collections.abc import Iterator
from fractions import Fraction
from functools import reduce
from operator import add

import tokengraft as tg
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.intervals import extremes, gain_columns, gain_of, gains_of
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.learn import bytes_per_token, reached, tokens_by_line
from lab.experiments.plots import Panel, line
from lab.experiments.tables import Table, distinct, groups, number, only, percent, select, shown_language

SIZES = (16_000, 64_000, 80_000, 112_000)
COUNTED = ("leaf-frequency", "merge", "frequency")
LEAF = "leaf-frequency"
TIE = 0.001
"""A relative difference that is no difference."""
METHODS = (*COUNTED, "last-id-leaf", "last-id", "unreachable")
OTHERS = ("frequency", "last-id", "last-id-leaf")
"""Those that the paper finds worse."""


def mixed(setup: Setup, cell: Cell) -> tg.PretokenCounts:
    """The counts of a language and of English, in equal parts."""
    ours = setup.train_counts(cell.model, cell.language)
    return ours if cell.language == ENGLISH else equal_parts(ours, setup.train_counts(cell.model, ENGLISH))


def equal_parts(*texts: tg.PretokenCounts) -> tg.PretokenCounts:
    """The counts of all texts, each with the weight that gives all the same number of bytes."""
    larger = max(counts.totals.bytes for counts in texts)
    first, *others = (counts.scale(Fraction(larger, counts.totals.bytes)) for counts in texts)
    return reduce(add, others, first)


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each method, way of counting and size.

    `over_leaf` is the gain over `leaf-frequency` with the default counting: the mean of both languages, each by its
    tokens before.
    """
    base, counts = setup.tokenizer(cell.model), mixed(setup, cell)
    texts = {"target": cell.language, "english": ENGLISH}
    flores = {name: setup.flores_counts(cell.model, language) for name, language in texts.items()}
    before, seen = set(base.structure.unreachable), _seen(counts, base)
    rates = {name: bytes_per_token(base, text) for name, text in flores.items()}
    yield {"method": "base", "size": 0, "unreachable": len(before), **rates}
    parts = [setup.data.sentences(language) for language in texts.values()]
    weights = [1 / sum(tokens_by_line(base, lines)) for lines in parts]
    leaf: dict[int, list[float]] = {}
    for method in METHODS:
        for by_merges in (False, True) if method == "leaf-frequency" and base.ignore_merges else (False,):
            order = tg.prune_order(base, counts, method, protection=tg.Protection(defaults=False), by_merges=by_merges)
            sizes = reached(setup.sizes, len(order)) if method != "unreachable" else [len(order)]
            for size in sizes:
                pruned = order[:size].apply(base)
                unreachable = set(pruned.structure.unreachable)
                by_line = [tokens_by_line(pruned, lines) for lines in parts]
                weighted = [[weight * n for n in part] for weight, part in zip(weights, by_line, strict=True)]
                tokens = [sum(line) for line in zip(*weighted, strict=True)]  # the lines of FLORES are parallel
                if method == LEAF and not by_merges:
                    leaf[size] = tokens
                yield {
                    "method": method,
                    "counting": ("by merges" if by_merges else "default") if method in COUNTED else None,
                    "size": size,
                    "unreachable": len(unreachable),
                    "newly_unreachable": len(unreachable - before),
                    "seen": _seen(counts, pruned) / seen - 1 if method == "leaf-frequency" else None,
                    **{name: bytes_per_token(pruned, text) for name, text in flores.items()},
                    **(gain_columns(tokens, leaf[size], "over_leaf") if method != LEAF and size in leaf else {}),
                }


def _seen(counts: tg.PretokenCounts, tokenizer: tg.Tokenizer) -> int:
    """How many tokens the text has that decides the order."""
    return sum(counts.tokens(tokenizer).values())


def tables(rows: Rows) -> list[Table]:
    """By size for Estonian or the first language; all languages at 64,000 or the middle size; and counting."""
    model = distinct(rows, "model")[0]
    first = shown_language(rows)
    found = [_by_size(select(rows, model=model, language=first), first, model)]
    sizes = sorted(distinct(select(rows, method="leaf-frequency"), "size"))
    if sizes:
        size = 64_000 if 64_000 in sizes else sizes[len(sizes) // 2]
        small = 16_000 if 16_000 in sizes else sizes[0]
        found += [_by_language(rows, size), _by_counting(rows, small)]
    return found


def _by_size(rows: Rows, language: str, model: str) -> Table:
    lines = []
    base = only(rows, method="base")
    for row in rows:
        if row.get("counting") != "by merges" and base:
            method = f"`{row['method']}`" if row["method"] != "base" else "–"
            lost = [percent(row[name] / base[name] - 1, 2, signed=True) for name in ("target", "english")]
            rates = [
                f"{number(row[name])} ({change})" for name, change in zip(("target", "english"), lost, strict=True)
            ]
            new = row["newly_unreachable"]
            lines.append((method, f"{row['size']:,}", *rates, NONE if new is None else f"{new:,}"))
    name = language_of(language).name
    return Table(
        f"{model_name(model)} pruned, {name} and English",
        ("method", "removed", name, "English", "newly unreachable"),
        lines,
        "Bytes per token on FLORES, and the change. Newly unreachable: kept tokens that merges made before and do not "
        "make any more.",
    )


NONE = "–"


def _by_language(rows: Rows, size: int) -> Table:
    lines = []
    counted = [row for row in rows if row.get("counting") != "by merges"]
    for (language, model), mine in groups(counted, "language", "model"):
        base, cells = only(mine, method="base"), []
        for method in METHODS[:5]:
            row, changes = only(mine, method=method, size=size), []
            if row and base:
                changes = [percent(row[n] / base[n] - 1, signed=True) for n in ("target", "english")]
            cells.append(f"{' / '.join(changes)}; {row['newly_unreachable']:,}" if row else NONE)
        if any(cell != NONE for cell in cells):
            lines.append((language_of(language).name, model_name(model), *cells))
    return Table(
        f"Every language, {size:,} tokens removed",
        ("language", "tokenizer", *(f"`{method}`" for method in METHODS[:5])),
        lines,
        "Change in bytes per token on FLORES of the language / of English; tokens that became unreachable.",
    )


def _by_counting(rows: Rows, size: int) -> Table:
    lines = []
    for (language, model), mine in groups(rows, "language", "model"):
        base = only(mine, method="base")
        found = [only(mine, method="leaf-frequency", size=size, counting=way) for way in ("by merges", "default")]
        if base and all(found):
            changes = [change for row in found for change in (row["seen"], base["target"] / row["target"] - 1)]
            cells = [percent(change, 3, signed=True) for change in changes]
            lines.append((language_of(language).name, model_name(model), *cells))
    heads = ("by merges: seen", "by merges: FLORES", "default: seen", "default: FLORES")
    return Table(
        f"Counting tokens by merges, {size:,} tokens removed with `leaf-frequency`",
        ("language", "tokenizer", *heads),
        lines,
        "How many more tokens texts need, if the order is decided by counts with merge skipping off (as in the paper) "
        "and by counts as the tokenizer encodes (the default). Seen: the counted mix of the language and English.",
    )


def panels(rows: Rows) -> list[Panel]:
    """Bytes per token of both languages, and unreachable tokens, by number of removed tokens."""
    model = distinct(rows, "model")[0]
    first = shown_language(rows)
    mine = [row for row in select(rows, model=model, language=first) if row.get("counting") != "by merges"]
    labels = {"target": language_of(first).name, "english": "English", "newly_unreachable": "Newly unreachable tokens"}
    found = []
    for column, label in labels.items():
        known = [row for row in mine if row.get(column) is not None]
        chosen = {method: [row for row in known if row["method"] in (method, "base")] for method in METHODS[:5]}
        series = [line(method, part, "size", column) for method, part in chosen.items()]
        unit = "tokens" if column == "newly_unreachable" else "bytes per token, FLORES"
        found.append(Panel(f"{label}, {model_name(model)}", "removed tokens", unit, series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper about pruning without extension."""
    counted = [row for row in rows if row.get("counting") != "by merges"]
    leaf, merge = ([row for row in counted if row["method"] == name] for name in ("leaf-frequency", "merge"))
    if not leaf or not merge:
        return []
    broken = [row["newly_unreachable"] for row in (*leaf, *merge)]
    apart = gains_of(merge, "over_leaf")
    others = [row for row in counted if row["method"] in OTHERS and row.get("over_leaf") is not None]
    if not apart or not others:
        return []
    best = max(others, key=lambda row: row["over_leaf_high"])
    return [
        Claim(
            "`leaf-frequency` and `merge` make no token unreachable",
            max(broken) == 0,
            f"at most {max(broken):,} tokens",
        ),
        most_unreachable(counted, "method", "newly_unreachable"),
        Claim(
            "`leaf-frequency` and `merge` overlap (within 0.5 %)",
            all(gain.within(0.005) for gain in apart),
            extremes(apart, 2),
        ),
        Claim(
            "`frequency` and removing the last ids keep no more bytes per token than `leaf-frequency` (mean of both "
            "languages, within 0.1 %)",
            best["over_leaf_high"] < TIE,
            f"at most {gain_of(best, 'over_leaf').text(2)} ({best['language']} {best['size']:,}, `{best['method']}`)",
        ),
    ]


def most_unreachable(rows: Rows, name: str, column: str) -> Claim:
    """Whether `frequency` has more unreachable tokens than all other pruning methods, at every size."""
    naive, behind = select(rows, **{name: "frequency"}), []
    for row in naive:
        beside = select(rows, **{key: row[key] for key in ("model", "language", "size")})
        other = max((other for other in beside if other is not row), key=lambda other: other[column], default=None)
        if other and other[column] >= row[column]:
            behind.append((row["size"], row[column], other[name], other[column]))
    most = max((row[column] for row in naive), default=0)
    found = f"up to {most:,}"
    if behind:
        size, ours, method, theirs = behind[-1]
        found = f"not at {', '.join(f'{x:,}' for x, *_ in behind)} (at {size:,} {ours:,}, `{method}` {theirs:,})"
    return Claim(
        "`frequency` makes more tokens unreachable than every other method, at every size",
        bool(naive) and not behind,
        found,
    )


EXPERIMENT = Experiment(
    name="prune",
    title="Pruning by every method",
    source="Figures 2, 12 and 13 (smaller: Llama-3, eight languages)",
    about=(
        "Tokens are removed by how often they occur in text of a language and of English, in equal parts, or by their "
        "ids. The paper gives its figures for pruning alone only as plots. `unreachable` removes the tokens that "
        "nothing produces, and no others."
    ),
    languages=("et", "de", "fi", "ru", "ar", "ja", "zh", "hi"),
    sizes=SIZES,
)
