"""`order`: prune then extend, against extend then prune."""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments import paper
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.intervals import extremes, gain_columns, gains_of
from lab.experiments.languages import ENGLISH
from lab.experiments.learn import bytes_per_token, tokens_by_line
from lab.experiments.plots import Panel, Series, line
from lab.experiments.prune import mixed
from lab.experiments.tables import Table, distinct, groups, number, only, select, with_paper

ADDED = 16_000
WAYS = ("prune-extend", "extend-prune")


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each order and number of removed tokens. Gains are over the other order."""
    base, mix = setup.tokenizer(cell.model), mixed(setup, cell)
    counts = setup.train_counts(cell.model, cell.language)
    texts = {"target": cell.language, "english": ENGLISH}
    flores = {name: setup.flores_counts(cell.model, language) for name, language in texts.items()}
    first = tg.extend(base, counts, ADDED)
    larger = first.apply(base)
    bare = tg.Protection(defaults=False)  # as in the paper
    starts = {"prune-extend": base, "extend-prune": larger}
    orders = {way: tg.prune_order(start, mix, "leaf-frequency", protection=bare) for way, start in starts.items()}
    for size in (size for size in setup.sizes if size <= min(map(len, orders.values()))):
        pruned = orders["prune-extend"][:size].apply(base)
        made = {
            "prune-extend": tg.extend(pruned, counts, len(first)).apply(pruned),
            "extend-prune": orders["extend-prune"][:size].apply(larger),
        }
        first_way, other = made.values()
        paired = {}
        for name, language in texts.items():
            lines = setup.data.sentences(language)
            paired |= gain_columns(*(tokens_by_line(t, lines) for t in (first_way, other)), f"{name}_gain")
        for way, tokenizer in made.items():
            rates = {name: bytes_per_token(tokenizer, text) for name, text in flores.items()}
            yield {"way": way, "size": size, "added": len(first), **rates, **(paired if way == WAYS[0] else {})}


def tables(rows: Rows) -> list[Table]:
    """The paper's table."""
    return [_table(mine, *where) for where, mine in groups(rows, "model", "language")]


def _table(rows: Rows, model: str, language: str) -> Table:
    lines = []
    for size in sorted(distinct(rows, "size")):
        cells = []
        for way in WAYS:
            row = only(rows, way=way, size=size) or {}
            of_paper = paper.ORDER.get(size, {}) if (model, language) == ("llama3", "et") else {}
            names = zip(("target", "english"), of_paper.get(way, (None, None)), strict=True)
            cells += [with_paper(number(row.get(name)), figure and f"{figure:.3f}") for name, figure in names]
        lines.append((f"{size:,}", *cells))
    heads = [f"{way.replace('-', ', then ')}: {name}" for way in WAYS for name in (language, ENGLISH)]
    title = f"{model_name(model)}, {rows[0]['added']:,} tokens added: bytes per token on FLORES"
    return Table(title, ("removed", *heads), lines)


def panels(rows: Rows) -> list[Panel]:
    """Both orders, for both languages."""
    model, language = rows[0]["model"], rows[0]["language"]
    mine = select(rows, model=model, language=language)
    found = []
    for place, (column, code) in enumerate((("target", language), ("english", ENGLISH))):
        series = [line(way, select(mine, way=way), "size", column) for way in WAYS]
        if (model, language) == ("llama3", "et"):
            ys = [figures["prune-extend"][place] for figures in paper.ORDER.values()]
            series.append(Series("prune-extend, paper", [*paper.ORDER], ys, dashed=True, colour=0))
        found.append(Panel(code, "removed tokens", "bytes per token, FLORES", series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statement of the paper's Appendix "Order of pruning/extension"."""
    gains = gains_of(rows, "target_gain", "english_gain")
    if not gains:
        return []
    text = "The order makes no difference (less than 0.5 %)"
    return [Claim(text, all(gain.within(0.005) for gain in gains), extremes(gains, 2))]


EXPERIMENT = Experiment(
    name="order",
    title="Prune then extend, or extend then prune",
    source="Table 8",
    about=(
        f"{ADDED:,} tokens are added, before or after tokens are removed by `leaf-frequency`. The paper's caption says "
        f"that N tokens are pruned and N added. Its figures do not change with N, so they must be those of {ADDED:,} "
        "added tokens at every N; that is what is measured here. In brackets the paper's figures."
    ),
    sizes=(16_000, 32_000, 64_000, 96_000),
)
