"""Values that cannot be changed, and how results are shown: short reprs, notebooks, tables as text, curves as SVG."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import fields, is_dataclass
from html import escape
from itertools import islice
from types import NoneType, UnionType
from typing import Any, NamedTuple, NoReturn, TypeVar

from tokengraft.errors import printable, require_list, require_type, wrong_type

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A dict that refuses to be changed.

    `types.MappingProxyType` cannot be pickled, and a `Mapping` in Python would be slow to look up in and to copy.

    Examples:
        >>> FrozenDict({"a": 1})["a"]
        1
        >>> FrozenDict({"a": 1})["b"] = 2
        Traceback (most recent call last):
        ...
        TypeError: this mapping cannot be changed; copy it with `dict(...)` first
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping cannot be changed; copy it with `dict(...)` first")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)  # by default, pickle fills a dict item by item


def frozen_strings(name: str, strings: Iterable[str]) -> tuple[str, ...]:
    """Strings of any collection as a tuple; those of a set sorted, because their order depends on chance.

    >>> frozen_strings("deny", {"b", "a"}), frozen_strings("deny", {"b": 1, "a": 2}.keys())
    (('a', 'b'), ('b', 'a'))
    """
    require_list(name, strings)
    frozen = tuple(strings)
    for item in frozen:
        if not isinstance(item, str):
            raise wrong_type(f"an item of `{name}`", item, ["a string"])
    return tuple(sorted(frozen)) if isinstance(strings, set | frozenset) else frozen


def require_fields(options: Any) -> None:
    """Refuses a dataclass with a value of another type in a field for True or False, a string, or other options."""
    for field in fields(options):
        kinds = field.type.__args__ if isinstance(field.type, UnionType) else (field.type,)
        if all(kind in (bool, str, NoneType) or is_dataclass(kind) for kind in kinds):
            require_type(field.name, getattr(options, field.name), *kinds)


def set_fields(options: object, checked: Callable[[str, Any], object], *names: str) -> None:
    """Replaces fields of a frozen dataclass by what ``checked`` gives, except for a None that is the default."""
    for name in names:
        value = getattr(options, name)
        if value is not None or getattr(type(options), name, ()) is not None:
            object.__setattr__(options, name, checked(name, value))


_Class = TypeVar("_Class", bound=type)
_CHARACTERS = 480
"""All fields of a `repr` together have about this many characters."""
_ITEMS, _DEPTH = 3, 3
_TOKEN_CHARACTERS = 24
ROWS = 20
"""Rows of a table in a notebook."""


class Table(NamedTuple):
    """A table below the fields of a value."""

    caption: str
    heads: tuple[str, ...]
    rows: Iterable[Iterable[Any]]
    total: int | None = None
    """Rows of the complete table, if ``rows`` may have fewer."""


def shown(kind: _Class) -> _Class:
    """Gives a dataclass or named tuple a short `repr`, and HTML for notebooks.

    The class may have ``_shown``, which returns what a `repr` shows in place of its fields; for notebooks ``_facts``,
    which does the same, and ``_tables``, which returns tables below them. Text is escaped: tokens may be HTML.

    Examples:
        >>> @shown
        ... class Pair(NamedTuple):
        ...     left: str
        ...     right: tuple[int, ...]
        >>> Pair("a", tuple(range(1000)))
        Pair(left='a', right=(0, 1, 2, … 1,000 in all))
        >>> Pair("<b>", ())._repr_html_()
        '<b>Pair</b><table><tr><th>left</th><td>&lt;b&gt;</td></tr><tr><th>right</th><td></td></tr></table>'
    """
    changed: Any = kind
    changed.__repr__ = short_repr
    changed._repr_html_ = notebook_html
    return kind


def short_repr(value: Any, depth: int = 0) -> str:
    """The `repr` of a dataclass or named tuple inside ``depth`` others, with a part of each long field."""
    facts = _fields(value)
    limit = max(_CHARACTERS // max(len(facts), 1), 16)
    parts = (f"{name}={short(fact, limit, depth + 1)}" for name, fact in facts.items())
    return f"{type(value).__name__}({', '.join(parts)})"


class Quoted(str):
    """Text that a `repr` shows as it is: it has quotation marks of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def quoted(text: str) -> Quoted:
    """A short text in backticks, with spaces and control characters visible. Long text is cut.

    >>> quoted(" a\\n"), [quoted("b")]
    (`␠a\\n`, [`b`])
    """
    shown = visible(text[:_TOKEN_CHARACTERS]).replace(" ", "␠")
    return Quoted(f"`{shown}{'…' if len(text) > _TOKEN_CHARACTERS else ''}`")


def visible(text: str) -> str:
    """A text in one line: spaces as they are, line breaks and control characters escaped.

    >>> visible("a b\\n\\x1b[31m")
    'a b\\\\n\\\\x1b[31m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _fields(value: Any) -> dict[str, Any]:
    """What a `repr` shows: ``_shown``, or the fields."""
    if hasattr(value, "_shown"):
        return dict(value._shown())
    names = [field.name for field in fields(value) if field.repr] if is_dataclass(value) else value._fields
    return {name: getattr(value, name) for name in names}


def short(value: Any, limit: int, depth: int = 0) -> str:
    """The `repr` of a value, or a part of it where that is longer than ``limit`` characters.

    >>> short((1, 2, 3, 4), 60), short(range(9), 60), short("a" * 99, 5), short({"a": 1}, 60)
    ('(1, 2, 3, … 4 in all)', 'range(0, 9)', "'aaaaa'…", "{'a': 1}")
    """
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= limit else f"{value[:limit]!r}…"
    if depth > _DEPTH:  # without a limit, the time would grow with the power of the depth
        return f"{type(value).__name__}(…)"
    if isinstance(value, Mapping):
        pairs = (f"{short(k, limit, depth + 1)}: {short(v, limit, depth + 1)}" for k, v in value.items())
        return _items("{}", pairs, value, limit)
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        brackets = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
        return _items(brackets, (short(item, limit, depth + 1) for item in value), value, limit)
    if isinstance(value, Sized) and type(value).__repr__ is object.__repr__:
        return f"<{type(value).__name__}: {len(value):,} in all>"
    kind: Any = type(value)
    text = short_repr(value, depth) if kind.__repr__ is short_repr else repr(value)
    return text if len(text) <= limit else f"{type(value).__name__}(…)" if "(" in text else f"{text[:limit]}…"


def _items(brackets: str, items: Iterable[str], value: Sized, limit: int) -> str:
    """The first items, as many as fit, and the number of all of them."""
    first, used = list[str](), 0
    for item in islice(items, _ITEMS):
        if first and used + len(item) > limit:
            break
        first.append(item)
        used += len(item)
    more = [f"… {len(value):,} in all"] if len(value) > len(first) else []
    end = "," if brackets == "()" and len(value) == 1 else ""
    return f"{brackets[0]}{', '.join(first + more)}{end}{brackets[1]}"


def notebook_html(value: Any) -> str:
    """A value as HTML: its name, its fields and its tables."""
    facts = value._facts() if hasattr(value, "_facts") else _fields(value)
    lines = (f"<tr><th>{_text(name)}</th><td>{_text(fact)}</td></tr>" for name, fact in facts.items())
    parts = [f"<b>{type(value).__name__}</b><table>", *lines, "</table>"]
    for table in value._tables() if hasattr(value, "_tables") else ():
        rows = [[*row] for row in islice(table.rows, ROWS)]
        total = table.total if table.total is not None else len(rows)
        caption = table.caption if total <= len(rows) else f"{table.caption} (the first {len(rows):,} of {total:,})"
        if rows:
            cells = [[f"<th>{_text(head)}</th>" for head in table.heads]]
            cells += [[f"<td>{_text(cell)}</td>" for cell in row] for row in rows]
            lines = (f"<tr>{''.join(row)}</tr>" for row in cells)
            parts += [f"<table><caption>{escape(caption)}</caption>", *lines, "</table>"]
    return "".join(parts)


def _text(value: Any) -> str:
    """A value as escaped text: numbers with commas, collections by their first items."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        text = value if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]}…"
    elif value is None or (isinstance(value, Sized) and not len(value)):
        text = ""
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:,.4g}"
    else:
        text = short(value, 120)
    return escape(printable(text))


def sentences(caption: str, texts: Iterable[str]) -> Iterator[Table]:
    """A table of warnings or notes; nothing if there are none."""
    listed = [[text] for text in texts]
    if listed:
        yield Table(caption, (), listed, len(listed))


def aligned(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A table as lines of text, in columns.

    >>> aligned(["a", "b"], [["1", "2"], ["333", "4"]])
    ['a    b', '1    2', '333  4']
    """
    lines = [heads, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return ["  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WIDTH, _HEIGHT, _LEFT, _BELOW = 640, 320, 56, 36
Points = Sequence[tuple[float, float]]


def line_plot(curves: Mapping[str, Sequence[Points]], ends: tuple[float, float], title: str, last: str) -> str:
    """Curves by name, as SVG. Each name has one colour; of its curves, all but the first are dashed.

    ``ends`` are the first and the last place of the axis, and ``last`` is the label of the last one.
    """
    values: list[float] = [0.0, *(value for some in curves.values() for curve in some for _, value in curve)]
    low, high = min(values), max(values)
    span = max(high - low, 0.01)

    def x(place: float) -> float:
        return round(_LEFT + (place - ends[0]) / max(ends[1] - ends[0], 1e-9) * (_WIDTH - _LEFT - 16), 1)

    def y(value: float) -> float:
        return round(24 + (high - value) / span * (_HEIGHT - _BELOW - 32), 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y(0)}" y2="{y(0)}" stroke="#999"/>',
        f'<text x="{_LEFT}" y="14">{title}</text>',
        f'<text x="{_WIDTH - 16}" y="{_HEIGHT - 8}" text-anchor="end">{last}</text>',
    ]
    labels = sorted({low, 0.0, high})
    lines += [f'<text x="{_LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:+.1%}</text>' for value in labels]
    for at, (name, some) in enumerate(curves.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        for number, curve in enumerate(some):
            points, dashed = " ".join(f"{x(place)},{y(value)}" for place, value in curve), ' stroke-dasharray="5 3"'
            line = f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"'
            lines.append(f"{line}{dashed if number else ''}/>")
        label = f'<text x="{_LEFT + 110 * at}" y="{_HEIGHT - 8}" fill="{colour}">{escape(name)}</text>'
        lines.append(label)
    return "\n".join([*lines, "</svg>", ""])
