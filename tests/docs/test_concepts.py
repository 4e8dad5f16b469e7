"""The worked examples of the concepts page run, and print what the page shows."""

import re
from pathlib import Path

import pytest

from tokengraft.checkpoint.table import padded_rows

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
QWEN_TOKENS, QWEN_ROWS = 151_665, 151_936


@pytest.mark.usefixtures("place")
def test_every_example_prints_what_the_page_shows(capsys):
    names = {"__name__": "concepts"}
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    for code, shown in examples:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out == shown
    assert sum(bool(shown) for _, shown in examples) >= 8


def test_the_padding_of_qwen_is_as_the_page_says():
    page = PAGE.read_text(encoding="utf-8").replace(",", "")
    rows = re.findall(r"^\| (none|add|remove) ?(\d*).*? \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for change, n, needed, padded in rows:
        after = QWEN_TOKENS + int(n or 0) * {"none": 0, "add": 1, "remove": -1}[change]
        assert int(needed) == after
        assert int(padded) == padded_rows(QWEN_TOKENS, after, QWEN_ROWS, "keep")
