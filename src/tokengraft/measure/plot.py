"""`line_plot`: curves as SVG, without a library."""

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
WIDTH, HEIGHT, LEFT, BELOW = 640, 320, 56, 36
Curve = Sequence[tuple[float, float]]


def line_plot(curves: Mapping[str, Sequence[Curve]], ends: tuple[float, float], title: str, last: str) -> str:
    """Curves by name, as SVG. Each name has one colour; of its curves, all but the first are dashed.

    ``ends`` are the first and the last place of the axis, and ``last`` is the label of the last one.
    """
    values: list[float] = [0.0, *(value for some in curves.values() for curve in some for _, value in curve)]
    low, high = min(values), max(values)
    span = max(high - low, 0.01)

    def x(place: float) -> float:
        return round(LEFT + (place - ends[0]) / max(ends[1] - ends[0], 1e-9) * (WIDTH - LEFT - 16), 1)

    def y(value: float) -> float:
        return round(24 + (high - value) / span * (HEIGHT - BELOW - 32), 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(0)}" y2="{y(0)}" stroke="#999"/>',
        f'<text x="{LEFT}" y="14">{title}</text>',
        f'<text x="{WIDTH - 16}" y="{HEIGHT - 8}" text-anchor="end">{last}</text>',
    ]
    labels = sorted({low, 0.0, high})
    lines += [f'<text x="{LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:+.1%}</text>' for value in labels]
    for at, (name, some) in enumerate(curves.items()):
        colour = COLOURS[at % len(COLOURS)]
        for number, curve in enumerate(some):
            points, dashed = " ".join(f"{x(place)},{y(value)}" for place, value in curve), ' stroke-dasharray="5 3"'
            line = f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"'
            lines.append(f"{line}{dashed if number else ''}/>")
        label = f'<text x="{LEFT + 110 * at}" y="{HEIGHT - 8}" fill="{colour}">{escape(name)}</text>'
        lines.append(label)
    return "\n".join([*lines, "</svg>", ""])
