"""The benchmark page is made from its numbers, and the scripts that measure them do what they say."""

import json
import sys

import pytest

from lab.benchmarks import measure, page, plot, texts
from lab.page_parts import filled


def test_the_page_and_the_plot_have_the_measured_numbers():
    result = json.loads(page.RESULT.read_text(encoding="utf-8"))
    text = page.PAGE.read_text(encoding="utf-8")
    parts = page.parts(result)
    assert filled(text, parts) == text, "run `python -m lab.benchmarks.page`"
    # What is measured only with `--keep` may be missing.
    assert {heading for heading, _ in parts} >= {*page.HEADINGS.values()} - {page.HEADINGS["adapting"]}
    assert page.PLOT.read_text(encoding="utf-8") == plot.plot(result["scaling"]), "run `python -m lab.benchmarks.page`"


def test_a_command_that_fails_ends_the_benchmark_with_its_message():
    with pytest.raises(SystemExit, match="no such file"):
        measure.command(sys.executable, "-c", "raise SystemExit('no such file')")
    with pytest.raises(SystemExit, match="ZeroDivisionError"):
        measure.in_python("1 / 0")
    assert measure.in_python("print(json.dumps(fastest(lambda: None, 2)))")["wall"] >= 0
    assert measure.command(sys.executable, "-c", "bytearray(1 << 26)").peak > 1 << 26


def test_altered_copies_have_new_words_of_the_same_length():
    text = "the cat sat; õunad ja põõsas. «Где» 日本語、テキスト हिन्दी عربي 3.14 a\u00a0b\u3000c\n" * 3
    lines = text.encode().splitlines(keepends=True)
    copies = [texts.altered(text.encode(), copy) for copy in range(4)]
    assert copies[0] == text.encode()
    assert len({*copies}) == 4
    for copy in copies:
        assert len(copy) == len(text.encode())
        assert len({*copy.splitlines(keepends=True)}) == 1, "the same word is altered in the same way"
        spaces = [character.isspace() for character in copy.decode()]
        assert spaces == [character.isspace() for character in text]
    assert texts.altered(lines[0], 2) == copies[2][: len(lines[0])], "wherever it occurs"
    assert texts.altered(b"", 1) == b""
