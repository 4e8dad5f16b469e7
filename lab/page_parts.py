"""Tables in Markdown; generated tables and sentences in a page of the documentation."""

import re
from collections.abc import Iterable


def markdown(heads: Iterable[object], rows: Iterable[Iterable[object]], *, right: bool = False) -> str:
    """A table in Markdown, whose columns but the first may be aligned right.

    >>> print(markdown(["", "a"], [["x", 1]], right=True))
    |  | a |
    |---|---:|
    | x | 1 |
    """
    first, *others = ([str(cell) for cell in line] for line in (heads, *rows))
    rule = "|---" + ("|---:" if right else "|---") * (len(first) - 1) + "|"
    return "\n".join([_line(first), rule, *map(_line, others)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def filled(page: str, parts: Iterable[tuple[str, str]]) -> str:
    """The page with parts replaced: each has a heading, under which the block that starts with its first word is meant.

    >>> filled("# A\\n\\n| old |\\n\\n# B\\n\\n| old |\\n", [("B", "| new |")])
    '# A\\n\\n| old |\\n\\n# B\\n\\n| new |\\n'
    """
    for heading, part in parts:
        section = page.index(f"# {heading}\n")
        block = re.compile(rf"^{re.escape(part.split()[0])} .*?(?=\n\n|\n?\Z)", re.DOTALL | re.MULTILINE)
        old = block.search(page, section)
        if old is None:
            raise ValueError(f"no block under {heading!r} starts with {part.split()[0]!r}")
        page = page[: old.start()] + part + page[old.end() :]
    return page
