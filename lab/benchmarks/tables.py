"""Results as Markdown tables."""

from collections.abc import Iterable, Mapping
from typing import Any

HEADS = {"wall": "wall s", "cpu": "CPU s", "peak": "peak memory", "rate": "MB/s"}
SERIES = {
    "wc": "`wc -w`",
    "count": "`tokengraft count`",
    "learn": "learning alone",
    "extend": "`tokengraft extend`",
    "adapt": "`tokengraft adapt --swap auto`",
}
PEAKS = ("count", "extend", "adapt")


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table(found: Mapping[str, Any]) -> str:
    """A table of `rows`."""
    heads = [f"times {found['ratio_to']}" if key == "ratio" else HEADS[key] for key in found["columns"]]
    rows = ([row["name"], *(_cell(key, row.get(key)) for key in found["columns"])] for row in found["rows"])
    return markdown(["", *heads], rows)


def scaling_table(found: Mapping[str, Any]) -> str:
    """The table of `scaling`, with the exponents as its last row."""
    rows = [
        [_bytes(row["bytes"]), f"{row['distinct']:,}", *(_seconds(row, name) for name in SERIES),
         *(_bytes(row[name]["peak"]) if name in row else "" for name in PEAKS)]
        for row in found["rows"]
    ]  # fmt: skip
    powers = [*(power_text(found["exponents"][name]) for name in ("distinct", *SERIES)), *("" for _ in PEAKS)]
    heads = ["text", "distinct pretokens", *(f"{name}, s" for name in SERIES.values())]
    heads += [f"{SERIES[name]}, peak memory" for name in PEAKS]
    return markdown(heads, [*rows, ["exponent", *powers]])


def power_text(exponent: float | None) -> str:
    """An exponent as text."""
    return "" if exponent is None else f"{exponent:.2f}"


def _seconds(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return ""
    wall = row[name]["wall"]
    ratio = f" ({wall / row['wc']['wall']:.2f})" if name in ("count", "extend", "adapt") else ""
    return f"{_number(wall)}{ratio}"


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "peak":
        return _bytes(value)
    if key == "rate":
        return f"{value / 1e6:.0f}" if value >= 1e7 else f"{value / 1e6:.1f}"
    return f"{value:.2f}" if key == "ratio" else _number(value)


def _number(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}"


def _bytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 999e6 else f"{size / 1e6:.0f} MB"


def setting_text(result: Mapping[str, Any]) -> str:
    """The machine, the versions and the input, in sentences."""
    setting, text = result["setting"], result["input"]
    versions = ", ".join(f"{name} {version}" for name, version in setting["versions"].items() if version)
    return (
        f"Machine: {setting['cores']} cores of {setting['processor']}, {setting['memory_bytes'] / 2**30:.0f} GiB of "
        f"memory, {setting['system']}. {versions}. Input: {text['bytes'] / 1e6:.0f} MB of text, "
        f"{text['distinct']:,} distinct pretokens. Base: {text['tokenizer']}, {text['tokens']:,} new tokens. Each "
        f"figure is the best of {text['rounds']} runs that take turns."
    )


def memory_text(found: Mapping[str, Any]) -> str:
    """The memory of counting and learning, for each distinct pretoken."""
    memory = found["memory"]
    each = {name: memory[name] / memory["distinct"] for name in ("counting", "learning")}
    return (
        f"Counting and then learning raises the memory of a process by {memory['learning'] / 1e6:,.0f} MB at its peak, "
        f"**{each['learning']:.0f} bytes for each of {memory['distinct']:,} distinct pretokens**; counting alone by "
        f"{each['counting']:.0f} bytes for each."
    )


def blocks(result: Mapping[str, Any]) -> dict[str, str]:
    """Every part of the page that is made from numbers, by name."""
    found = {part["key"]: part for part in result["tables"]}
    parts = {"setting": setting_text(result)} | {key: table(part) for key, part in found.items()}
    if "learning" in found:
        parts["memory"] = memory_text(found["learning"])
    if "scaling" in result:
        parts["scaling"] = scaling_table(result["scaling"])
    return parts
