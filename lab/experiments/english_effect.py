"""`english-effect`: how much an extension for another language changes the tokens of English."""

from collections.abc import Iterator, Sequence

from lab.experiments import paper
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup, model_name
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.learn import both_ways
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, groups, mean, number, percent, select, with_paper


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each method and size. Added tokens keep the ids of all others, so that ids can be compared."""
    from rapidfuzz.distance import Levenshtein

    base = setup.tokenizer(cell.model)
    sentences = setup.data.sentences(ENGLISH)
    before = [base.encode(sentence) for sentence in sentences]
    for method, tokenizers in both_ways(base, setup.train_counts(cell.model, cell.language), setup.sizes).items():
        for size, tokenizer in tokenizers.items():
            after = [tokenizer.encode(sentence) for sentence in sentences]
            edits = [Levenshtein.distance(old, new) for old, new in zip(before, after, strict=True)]
            yield {
                "method": method,
                "size": size,
                "edits_per_sentence": sum(edits) / len(edits),
                "exact_match": edits.count(0) / len(edits),
            }


def _measured(rows: Rows, method: str, size: int) -> list[Row]:
    """The rows of the languages that the paper has too."""
    found = select(rows, method=method, size=size)
    return [row for row in found if language_of(row["language"]).averaged]


def tables(rows: Rows) -> list[Table]:
    """The paper's table, for each tokenizer; and the exact match of every language."""
    return [*(_averages(select(rows, model=model), model) for model in distinct(rows, "model")), _by_language(rows)]


def _averages(rows: Rows, model: str) -> Table:
    lines = []
    for size in sorted(distinct(rows, "size")):
        cells: list[str] = []
        for method in ("continued", "naive"):
            found = _measured(rows, method, size)
            edits = [row["edits_per_sentence"] for row in found]
            figure = _figures(model, method, size)
            worst = max(edits, default=None)
            cells.append(with_paper(f"{number(mean(edits))}, worst {number(worst)}", figure and figure[0]))
            cells.append(with_paper(percent(mean(row["exact_match"] for row in found)), figure and figure[1]))
        lines.append((f"{size:,}", len(_measured(rows, "continued", size)), *cells))
    heads = ("added", "languages", "edits, continued", "exact match, continued", "edits, naive", "exact match, naive")
    return Table(
        f"English sentences, {model_name(model)}",
        heads,
        lines,
        "Token edits per sentence of English FLORES, mean and worst language; and the share of sentences with "
        "unchanged segmentation. In brackets the paper's, over 70 languages.",
    )


def _figures(model: str, method: str, size: int) -> tuple[str, str] | None:
    if model != "llama3" or size not in paper.EDITS[method]:
        return None
    edits, worst = paper.EDITS[method][size], paper.WORST_EDITS[method][size]
    return f"{edits:.3f}, worst {worst:.3f}", f"{paper.EXACT[method][size]} %"


def _by_language(rows: Rows) -> Table:
    sizes = sorted(distinct(rows, "size"))
    lines = []
    for (language, model), found in groups(select(rows, method="continued"), "language", "model"):
        shares = {row["size"]: row["exact_match"] for row in found}
        label = model_name(model)
        lines.append((language_of(language).name, label, *(percent(shares.get(size)) for size in sizes)))
    heads = ("language", "tokenizer", *(f"{size:,}" for size in sizes))
    return Table("English sentences with unchanged segmentation, continued training", heads, lines)


def panels(rows: Rows) -> list[Panel]:
    """Exact match by size, beside the paper's for Llama-3."""
    return [_panel(select(rows, model=model), model) for model in distinct(rows, "model")]


def _panel(rows: Rows, model: str) -> Panel:
    sizes = sorted(distinct(rows, "size"))
    series = [Series(method, sizes, _exact(rows, method, sizes)) for method in ("continued", "naive")]
    if model == "llama3":
        figures = [(method, [*paper.EXACT[method].values()]) for method in ("continued", "naive")]
        series += [Series(f"{m}, paper", paper.SIZES, ys, dashed=True, colour=i) for i, (m, ys) in enumerate(figures)]
    title = f"English with unchanged segmentation, {model_name(model)}"
    return Panel(title, "added tokens", "percent of sentences", series, log_x=True)


def _exact(rows: Rows, method: str, sizes: Sequence[int]) -> list[float | None]:
    means = [mean(row["exact_match"] for row in _measured(rows, method, size)) for size in sizes]
    return [None if value is None else 100 * value for value in means]


def claims(rows: Rows) -> list[Claim]:
    """The statement of the paper's Appendix "Extension effect on English"."""
    found = []
    for model in distinct(rows, "model"):
        mine = [row for row in select(rows, model=model, method="continued") if language_of(row["language"]).averaged]
        sizes = sorted(distinct(mine, "size"))
        lowest = min((_exact(mine, "continued", [size])[0] for size in sizes), default=None)
        worst = min(mine, key=lambda row: row["exact_match"], default=None)
        if lowest is None or worst is None:
            continue
        here = f"{lowest:.1f} % on average at the worst size; {percent(worst['exact_match'])} for {worst['language']}"
        text = f"{model_name(model)}: almost no effect, 97.7 % or more of the sentences are unchanged"
        found.append(Claim(text, lowest >= 97.7, here))
    return found


EXPERIMENT = Experiment(
    name="english-effect",
    title="The effect of an extension on English",
    source="Table 6",
    about="Tokens of another language are added. The tokens of English sentences should stay as they are.",
    languages=("et", "de", "fi", "ru", "ar", "ja", "zh", "hi"),
    needs=("rapidfuzz",),
)
