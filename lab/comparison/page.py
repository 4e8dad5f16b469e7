"""Writes the tables of `docs/comparison.md` from `results.csv`, `scripts.csv`, and for pruning `lab/trim_peers.csv`.

python -m lab.comparison.page
"""

import csv
import re
from pathlib import Path
from statistics import mean

from lab.page_parts import filled, markdown

HERE = Path(__file__).parent
RESULTS, SCRIPTS, PRUNING = HERE / "results.csv", HERE / "scripts.csv", HERE.parent / "trim_peers.csv"
PAGE = HERE.parents[1] / "docs" / "comparison.md"
Row = dict[str, str]

LABELS = {
    "unchanged": "unchanged model",
    "tokengraft": "tokengraft",
    "tokenizer_extension": "the paper's toolkit",
    "skeletoken": "skeletoken",
    "add_tokens": "`add_tokens`, learned",
    "add_words": "`add_tokens`, words",
    "train_new": "`train_new_from_iterator`",
    "tokensurgeon": "the same, tokensurgeon",
}
COLUMNS = {
    "CPU s": "{cpu_seconds:.1f}",
    "MB": "{megabytes:.0f}",
    "code": "{lines:.0f}",
    "bytes/token": "{target:.2f}/{english:.2f}",
    "unreachable": "{unreachable:.0f}",
    "lines changed": "{changed_english_percent:.1f}/{changed_code_percent:.1f}%",
    "decoded wrong": "{decoded_wrong:.0f}",
    "rows kept": "{kept_rows_percent:.1f}%",
    "bits/byte": "{target_bits_per_byte:.2f}/{english_bits_per_byte:.2f}",
}
LANGUAGES = {"ell_Grek": "Greek", "rus_Cyrl": "Russian", "arb_Arab": "Arabic", "hin_Deva": "Hindi"}
ARMS = {
    "unchanged": "unchanged tokenizer",
    "tokengraft": "tokengraft",
    "limited": "tokengraft `--scripts`",
    "limited_16": "the same, `--max-token-bytes 16`",
    "skeletoken": "skeletoken",
    "add_tokens": "`add_tokens`, learned",
    "add_words": "`add_tokens`, words",
    "whole_words": "the same, `single_word=True`",
    "train_new": "`train_new_from_iterator`",
}
"""The rows of the table of scripts."""
TEXTS = ("tool", "version", "machine", "versions")


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells(row: Row) -> list[str]:
    if not row["rows"]:
        return ["not installed", *[""] * (len(COLUMNS) - 1)]
    numbers = {name: float(value) for name, value in row.items() if value and name not in TEXTS}
    return [form.format(**numbers) if numbers.keys() >= _fields(form) else "" for form in COLUMNS.values()]


def _fields(form: str) -> set[str]:
    return {*re.findall(r"{(\w+)", form)}


def tools() -> str:
    lines = [[LABELS[row["tool"]], *cells(row)] for row in rows_of(RESULTS)]
    return markdown(["", *COLUMNS], lines, right=True)


def scripts() -> str:
    """Of every tool, the languages, and what changes in all of them."""
    rows, lines = rows_of(SCRIPTS), list[list[str]]()
    for arm, label in ARMS.items():
        found = {row["language"]: row for row in rows if row["tool"] == arm}
        pairs = [f"{float(found[name]['target']):.2f}/{float(found[name]['held_out']):.2f}" for name in LANGUAGES]
        changed = [float(row["changed_english_percent"]) for row in found.values()]
        wrong = sum(int(row["decoded_wrong"]) for row in found.values())
        lines.append([label, *pairs, f"{mean(changed):.1f}%", f"{wrong}"])
    return markdown(["", *LANGUAGES.values(), "English lines changed", "decoded wrong"], lines, right=True)


def pruning() -> str:
    """Of all tokenizers together, by tool."""
    arms = dict[str, list[Row]]()
    for row in rows_of(PRUNING):
        arms.setdefault(row["arm"], []).append(row)
    heads = ["", "seconds", "MB", "more tokens", "new unknown", "lines changed"]
    return markdown(heads, [[f"`{arm}`", *_summed(rows)] for arm, rows in arms.items()], right=True)


def _summed(rows: list[Row]) -> list[str]:
    def column(name: str) -> list[float]:
        return [float(row[name]) for row in rows]

    lost = [f"{sum(column(name)):.0f}" for name in ("new_unknown", "changed_lines")]
    more = f"{mean(column('tokens_percent')):.1f}%"
    return [f"{sum(column('seconds')):.0f}", f"{max(column('megabytes')):.0f}", more, *lost]


def parts() -> list[tuple[str, str]]:
    """The generated parts of the page, with their headings."""
    return [("How it compares", tools()), ("Other scripts", scripts()), ("Pruning", pruning())]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts()), encoding="utf-8")
