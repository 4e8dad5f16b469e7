"""`naive-methods`: the ways to insert the tokens of a newly trained tokenizer, beside continued training."""

from collections.abc import Iterator, Mapping, Sequence

import tokengraft as tg
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.intervals import Interval, extremes, gain_columns, gains_of
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.learn import added_ids, reached, tokens_by_line, train_fresh
from lab.experiments.plots import Panel, line
from lab.experiments.tables import Table, distinct, groups, number, only, percent, select

METHODS = ("continued", "naive-regen", "naive-append", "naive-prepend", "add-tokens", "two-piece", "scaffold")
REGEN = "naive-regen"
"""The method that the others are compared with."""


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each method and size. `add-tokens` changes what is split, so that sentences are encoded, not counts.

    Gains are over `naive-regen` of the same size, and `english_change` is against the base.
    """
    base = setup.tokenizer(cell.model)
    counts = setup.train_counts(cell.model, cell.language)
    texts = {"target": setup.data.sentences(cell.language), "english": setup.data.sentences(ENGLISH)}
    fresh = train_fresh(base, counts, max(setup.sizes))
    extension, donor = tg.extend(base, counts, max(setup.sizes)), fresh.donor
    before = _tokens(base, texts)
    rows, tokens = {("base", 0): _scores(base, base, texts, before)}, {}
    for method in METHODS:
        available = len(extension) if method == "continued" else fresh.new_to(base)
        for size in reached(setup.sizes, available):
            tokenizer = _made(base, extension, donor, size, method)
            if tokenizer is not None:
                key = method, size
                tokens[key] = _tokens(tokenizer, texts)
                rows[key] = _scores(base, tokenizer, texts, tokens[key])
    for (method, size), row in rows.items():
        paired: dict[str, float] = {}
        if method not in ("base", REGEN) and (REGEN, size) in tokens:
            ours, theirs = tokens[method, size], tokens[REGEN, size]
            for name in texts:
                paired |= gain_columns(ours[name], theirs[name], f"{name}_gain")
            paired |= gain_columns(ours["english"], before["english"], "english_change")
        yield {"method": method, "size": size, **row, **paired}


def _made(
    base: tg.Tokenizer, extension: tg.Extension, donor: tg.Tokenizer, size: int, method: str
) -> tg.Tokenizer | None:
    if method == "continued":
        return extension[:size].apply(base)
    try:
        return tg.learn.extend_naively(base, None, size, method, donor=donor)
    except tg.TokengraftError as error:  # the donor has too few tokens of two pieces
        print(f"  {method} {size:,}: {error.message}")
        return None


def _tokens(tokenizer: tg.Tokenizer, texts: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    return {name: tokens_by_line(tokenizer, lines) for name, lines in texts.items()}


def _scores(
    base: tg.Tokenizer, tokenizer: tg.Tokenizer, texts: Mapping[str, Sequence[str]], tokens: Mapping[str, list[int]]
) -> Row:
    new = added_ids(base, tokenizer)
    unreachable = new & set(tokenizer.structure.unreachable)
    rates = {name: sum(len(line.encode()) for line in lines) / sum(tokens[name]) for name, lines in texts.items()}
    return {**rates, "added": len(new), "unreachable_added": len(unreachable) / len(new) if new else None}


def tables(rows: Rows) -> list[Table]:
    """A table for each tokenizer and language."""
    return [_table(mine, *where) for where, mine in groups(rows, "model", "language")]


def _table(rows: Rows, model: str, language: str) -> Table:
    sizes = sorted(size for size in distinct(rows, "size") if size)
    lines = []
    for method in METHODS:
        found = [only(rows, method=method, size=size) for size in sizes]
        if any(found):
            cells = [f"{number(r['target'])}, {number(r['english'])}, {_unreachable(r)}" if r else "–" for r in found]
            lines.append((f"`{method}`", *cells))
    base = only(rows, method="base") or {}
    name = language_of(language).name
    return Table(
        f"{model_name(model)}: {name}, English, unreachable",
        ("method", *(f"{size:,}" for size in sizes)),
        lines,
        f"Bytes per token of {name} and of English on FLORES (before: {number(base.get('target'))} and "
        f"{number(base.get('english'))}), and the share of the added tokens that merges never make. The paper has a "
        "plot (Figure 9) without numbers.",
    )


def _unreachable(row: Row) -> str:
    return "no merges" if row["method"] == "add-tokens" else percent(row["unreachable_added"])


def panels(rows: Rows) -> list[Panel]:
    """The three panels of the paper's figure."""
    model, language = rows[0]["model"], rows[0]["language"]
    mine = select(rows, model=model, language=language)
    found = []
    titles = (("target", language_of(language).name), ("english", "English"), ("unreachable_added", "Unreachable"))
    for column, title in titles:
        shown = [name for name in METHODS if column != "unreachable_added" or name != "add-tokens"]
        series = [line(method, select(mine, method=method), "size", column) for method in shown]
        unit = "share of added tokens" if column == "unreachable_added" else "bytes per token, FLORES"
        found.append(Panel(title, "added tokens", unit, series, log_x=True))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Appendix "Naive extension methods"."""

    def gains(method: str, column: str) -> list[Interval]:
        return gains_of(select(rows, method=method), column)

    append, prepend = gains("naive-append", "target_gain"), gains("naive-prepend", "target_gain")
    added = {name: gains("add-tokens", f"{name}_gain") for name in ("target", "english")}
    english = gains("naive-prepend", "english_change")
    if not (append and prepend and all(added.values())):
        return []
    return [
        _worse("`naive-regen` works better than `naive-append`", append),
        _worse("`add-tokens` is worse than `naive-regen` for the language", added["target"]),
        _worse("`add-tokens` is worse than `naive-regen` for English", added["english"]),
        Claim(
            "`naive-prepend` gives more bytes per token than `naive-regen`",
            all(interval.above_zero for interval in prepend),
            extremes(prepend),
        ),
        _unreachable_claim(rows),
        _worse("`naive-prepend` changes English", english, digits=2),
    ]


def _worse(text: str, gains: Sequence[Interval], digits: int = 1) -> Claim:
    return Claim(text, all(interval.below_zero for interval in gains), extremes(gains, digits))


def _unreachable_claim(rows: Rows) -> Claim:
    """Of tokens, not of text: there is nothing to draw again."""
    prepend, regen = (select(rows, method=method) for method in ("naive-prepend", REGEN))
    shares = [(row["unreachable_added"], other["unreachable_added"]) for row in prepend if (other := _same(regen, row))]
    more = [ours - theirs for ours, theirs in shares]
    text = "`naive-prepend` makes more of the added tokens unreachable than `naive-regen`"
    return Claim(text, min(more) > 0, f"difference {min(more):+.3f} to {max(more):+.3f}")


def _same(rows: Rows, row: Row) -> Row | None:
    return only(rows, model=row["model"], language=row["language"], size=row["size"])


EXPERIMENT = Experiment(
    name="naive-methods",
    title="Ways to insert tokens of another tokenizer",
    source="Figure 9",
    about=(
        "A tokenizer is trained from scratch on the text, and its tokens are added to the base. The methods differ in "
        "the merges that make them. `two-piece` and `scaffold` are not in the paper's figure. Only added tokens are "
        "counted as unreachable, not those of the base; the paper does not say which it counts in this figure."
    ),
)
