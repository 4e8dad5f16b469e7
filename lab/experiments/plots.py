"""Plots as SVG. The same values give the same bytes."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import tokengraft as tg

COLOURS = ("#3185ff", "#ef6650", "#4db6ac", "#7268d8", "#e0b12b", "#9b9b9b", "#282828", "#b5547f")
COLUMNS = 2


@dataclass(frozen=True)
class Series:
    """A line of a panel."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    """None is a gap."""
    dashed: bool = False
    """As the paper's figures are drawn."""
    colour: int | None = None
    """The place of the line whose colour it has; by default its own."""


def line(label: str, rows: Iterable[Mapping[str, Any]], x: str, y: str) -> Series:
    """Two columns of some rows."""
    points = [(row[x], row[y]) for row in rows]
    return Series(label, [x for x, _ in points], [y for _, y in points])


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    steps: bool = False


def require_matplotlib() -> None:
    """Refuses to start without matplotlib."""
    if find_spec("matplotlib") is None:
        raise tg.TokengraftError("matplotlib is not installed", hint="pip install 'tokengraft[experiments]'")


def to_svg(panels: Sequence[Panel]) -> bytes:
    """The panels, two in a row."""
    require_matplotlib()
    panels = panels or [Panel("nothing to show", "", "", [])]
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context({"svg.hashsalt": "tokengraft", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(5.2 * columns, 3.4 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for axis, panel in zip(axes, panels, strict=False):
            _draw(axis, panel)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _draw(axis, panel: Panel) -> None:
    for place, series in enumerate(panel.series):
        colour = COLOURS[(place if series.colour is None else series.colour) % len(COLOURS)]
        points = [(x, y) for x, y in zip(series.xs, series.ys, strict=True) if y is not None]
        style = {"linestyle": "--" if series.dashed else "-", "marker": "x" if series.dashed else "o", "markersize": 3}
        if panel.steps:
            style |= {"drawstyle": "steps-mid", "marker": ""}
        axis.plot([x for x, _ in points], [y for _, y in points], color=colour, label=series.label, **style)
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.log_x:
        axis.set_xscale("log")
    axis.grid(visible=True, alpha=0.3)
    if panel.series:
        axis.legend(fontsize=7)
