"""The scaling of time with text as an SVG: both axes are logarithmic.

It has no background, and colours of middle lightness, so that it can be read on light and dark pages.
"""

import math
from collections.abc import Mapping
from typing import Any

from lab.benchmarks.tables import SERIES, power_text

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 20, 36
GREY = "#7d828c"
COLOURS = {"wc": GREY, "count": "#2f9e6e", "learn": "#d9822b", "extend": "#4c7fe0", "adapt": "#a45fc4"}
FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif'"


class Axis:
    """A logarithmic axis from one value to another, drawn from one coordinate to another."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)


def plot(found: Mapping[str, Any]) -> str:
    """The SVG of a scaling table."""
    rows = found["rows"]
    times = [row[name]["wall"] for row in rows for name in SERIES if name in row]
    ticks = _ticks(min(times), max(times))
    x = Axis([row["bytes"] for row in rows], LEFT, WIDTH - RIGHT)
    y = Axis(ticks, HEIGHT - BOTTOM, TOP)
    lines = [*_grid(x, y, [row["bytes"] for row in rows], ticks)]
    for name in SERIES:
        points = [(x(row["bytes"]), y(row[name]["wall"])) for row in rows if name in row]
        lines += _line(name, points) if points else []
    lines += _labels(found, y)
    title = "Seconds by size of text"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{title}'"
    return "\n".join([f"{head} {FONT} font-size='14' fill='{GREY}'>", f"<title>{title}</title>", *lines, "</svg>", ""])


def _ticks(low: float, high: float) -> list[float]:
    """The numbers 1 and 3 times a power of ten from just below ``low`` to just above ``high``."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [digit * 10.0**power for power in powers for digit in (1, 3)]
    return [step for step in steps if low / 3.4 < step < high * 3.4]


def _grid(x: Axis, y: Axis, sizes: list[float], ticks: list[float]) -> list[str]:
    style = f"stroke='{GREY}' stroke-opacity='0.35'"
    lines = []
    for tick in ticks:
        at = y(tick)
        lines.append(f"<line x1='{LEFT}' y1='{at}' x2='{WIDTH - RIGHT}' y2='{at}' {style}/>")
        lines.append(f"<text x='{LEFT - 8}' y='{at + 5}' text-anchor='end'>{tick:g} s</text>")
    for size in sizes:
        at, name = x(size), f"{size / 1e9:.3g} GB" if size >= 995e6 else f"{size / 1e6:.0f} MB"
        lines.append(f"<line x1='{at}' y1='{TOP}' x2='{at}' y2='{HEIGHT - BOTTOM}' {style}/>")
        lines.append(f"<text x='{at}' y='{HEIGHT - BOTTOM + 22}' text-anchor='middle'>{name}</text>")
    return lines


def _line(name: str, points: list[tuple[float, float]]) -> list[str]:
    path = " ".join(f"{px},{py}" for px, py in points)
    dashes = " stroke-dasharray='6 5'" if name == "wc" else ""
    style = f"fill='none' stroke='{COLOURS[name]}' stroke-width='2.5'{dashes}"
    dots = [f"<circle cx='{px}' cy='{py}' r='3.5' fill='{COLOURS[name]}'/>" for px, py in points]
    return [f"<polyline points='{path}' {style}/>", *dots]


def _labels(found: Mapping[str, Any], y: Axis) -> list[str]:
    """Names beside the ends of the lines, at least a line of text apart."""
    last = found["rows"][-1]
    wanted = sorted((y(last[name]["wall"]), name) for name in SERIES if name in last)
    lines, below = [], TOP - 18.0
    for at, name in wanted:
        below = max(at, below + 18)
        label = SERIES[name].replace("`", "").replace("tokengraft ", "").replace(" --swap auto", "")
        power = power_text(found["exponents"][name])
        lines.append(
            f"<text x='{WIDTH - RIGHT + 12}' y='{below + 5}' fill='{COLOURS[name]}' font-weight='600'>{label}"
            f"<tspan font-weight='400' fill='{GREY}'> ∝ n<tspan dy='-5' font-size='10'>{power}</tspan></tspan></text>"
        )
    return lines
