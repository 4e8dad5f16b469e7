"""The comparison page has the measured numbers, and its scripts do what they say."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkpoints import checkpoint

import tokengraft as tg
from lab.comparison import __main__ as measuring
from lab.comparison import page, scripts, tools
from lab.page_parts import filled


def test_the_page_has_the_measured_numbers():
    text = page.PAGE.read_text(encoding="utf-8")
    assert filled(text, page.parts()) == text, "run `python -m lab.comparison.page`"


def test_every_tool_has_a_row_with_its_lines_of_code():
    rows = {row["tool"]: row for row in page.rows_of(page.RESULTS)}
    assert [*rows] == ["unchanged", *tools.TOOLS] == [*page.LABELS]
    assert tools.TOOLS.keys() == measuring.PACKAGES.keys()
    counted = {name: str(measuring.lines_of_code(name)) for name in tools.TOOLS}
    assert {name: rows[name]["lines"] for name in tools.TOOLS if rows[name]["lines"]} == counted


def test_a_tool_that_is_not_installed_has_a_row_that_says_so():
    assert page.cells({"tool": "skeletoken", "rows": ""})[0] == "not installed"


def test_the_input_is_the_first_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "TEXT_BYTES", 5)
    pq.write_table(pa.table({"source": ["a"] * 4, "text": ["õ", "bcd", "e", "f"]}), tmp_path / "all.parquet")
    measuring.first_documents(tmp_path / "all.parquet", tmp_path / "first.parquet")
    assert tools.documents(tmp_path / "first.parquet") == ["õ", "bcd"]


def test_lines_that_are_scored_are_of_other_documents_and_not_in_the_text(tmp_path):
    documents = [f"line {number}\nof all" for number in range(30)]
    pq.write_table(pa.table({"text": documents}), tmp_path / "all.parquet")
    scripts.split(tmp_path / "all.parquet", tmp_path / "text.parquet", tmp_path / "held-out.txt")
    assert len(tools.documents(tmp_path / "text.parquet")) == 27
    assert (tmp_path / "held-out.txt").read_text(encoding="utf-8").splitlines() == ["line 9", "line 19", "line 29"]


@pytest.mark.parametrize("tokens", [5, 9])
def test_our_own_lines_do_the_task(tmp_path, tokens):
    checkpoint(tmp_path / "model")
    text = pa.table({"text": ["kassid ja koerad istuvad aknal"] * 9})
    pq.write_table(text, tmp_path / "text.parquet")
    tools.tokengraft(tmp_path / "model", tmp_path / "text.parquet", tokens, tmp_path / "out")
    old, new = tg.load(tmp_path / "model"), tg.load(tmp_path / "out")
    assert len(new.tokens) - len(old.tokens) == tokens
    assert Path(tmp_path, "out", "model.safetensors").exists()
