"""The report: everything in one file, and what a browser makes of it."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint

import tokengraft as tg
from tokengraft.report import data as report_data
from tokengraft.report.data import page_data
from tokengraft.report.page import embedded_json, filled

pytest.importorskip("plotly", reason="plotly is not installed: the report is optional")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PIECES = ("<!--<script>", "</script>", "{{PLOTLY}}", "{{TITLE}}", "\u2028", "&lt;", "<img src=x onerror=alert(1)>")
MODEL = "model <b>&amp; {{DATA}}"
HOSTILE = [f"{piece} {n} põdrad põõsas õunad õues ja kassid koerad" for n in range(60) for piece in PIECES]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    checkpoint(folder / MODEL)
    texts = {"et": [*HOSTILE, *ESTONIAN], "lv": LATVIAN, "en": ENGLISH}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    targets = {"et": tg.Target(folder / "et.txt", 2), "lv": tg.Target(folder / "lv.txt")}
    tg.adapt(folder / MODEL, target=targets, keep=folder / "en.txt", swap=40, out=folder / "out")
    return folder / "out" / "report.html"


class Scripts(HTMLParser):
    """The content of every script of a page, as a parser of HTML sees it."""

    def __init__(self):
        super().__init__()
        self.found, self.inside = [], False

    def handle_starttag(self, tag, _):
        self.inside = tag == "script"
        if self.inside:
            self.found.append("")

    def handle_endtag(self, _):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.found[-1] += data


def data_of(text):
    parser = Scripts()
    parser.feed(text)
    assert len(parser.found) == 3
    return json.loads(parser.found[1])


@pytest.mark.parametrize("piece", PIECES)
def test_text_that_looks_like_markup_reaches_the_page_as_text(piece):
    template = '<h1>{{TITLE}}</h1><script>{{PLOTLY}}</script><script>{{DATA}}</script><script>"last"</script>'
    data = {"text": piece, piece: [piece]}
    parts = {"TITLE": "t", "PLOTLY": "p", "DATA": embedded_json(data)}
    assert data_of(filled(template, parts)) == data
    assert "<" not in parts["DATA"]


def test_no_placeholder_is_left_and_none_is_filled_twice(page):
    text = page.read_text(encoding="utf-8")
    samples = "".join("".join(sample["before"]) for sample in data_of(text)["samples"])
    assert any(piece in samples for piece in PIECES)
    assert text.count("plotly.js v") == 1
    assert text.count("{{DATA}}") == 2  # the name of the model, in the title and in the heading


def test_the_page_has_everything_and_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    data = data_of(text)
    assert data["summary"]["added"] == 40
    assert len(data["added"]) == 40
    assert data["removed"]
    assert {score["text"] for score in data["scores"]} == {"et", "lv", "keep"}
    for sample in data["samples"]:
        assert "".join(sample["before"]) == "".join(sample["after"]) or "\ufffd" in "".join(sample["before"])
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)=|@import|url\(", markup)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """An adaptation of a model whose embedding has more rows than its tokenizer needs."""
    folder = tmp_path_factory.mktemp("padded")
    base = checkpoint(folder / "model", rows=448)
    assert base.n_rows < 448 - 40
    return tg.adapt(folder / "model", target=iter(ESTONIAN), remove=60, add=20, out=folder / "out")


def test_the_page_gives_the_rows_of_the_embedding_and_not_those_that_the_tokenizer_needs(padded):
    rows = page_data(padded, {})["rows"]
    assert rows == [padded.transplant.rows_before, padded.transplant.rows_after]
    assert rows != [padded.plan.rows_before, padded.plan.rows_after]


def test_the_page_knows_all_tokens_also_where_it_lists_fewer(padded, monkeypatch):
    monkeypatch.setattr(report_data, "MOST_TOKENS", 10)
    found = page_data(padded, {})
    assert (len(found["added"]), len(found["removed"])) == (10, 10)
    assert found["totals"] == {"added": 20, "removed": padded.plan.summary.removed}
    assert len(found["frequencies"]) == 20


def test_the_page_has_the_warnings(padded):
    warned = replace(padded, warnings=("the text was <odd>",))
    assert page_data(warned, {})["warnings"] == ["the text was <odd>"]


def test_a_browser_without_network_shows_it_searches_and_reads(page):
    if not CHROMIUM:
        pytest.skip("no chromium: `apt install chromium` to run this")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        problems = []
        for scheme, width in (("light", 1280), ("dark", 390)):
            context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": width, "height": 900})
            opened = context.new_page()
            opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            opened.on("pageerror", lambda error: problems.append(str(error)))
            opened.goto(Path(page).as_uri())
            assert opened.locator(".card").count() >= 6
            assert opened.locator("#curve svg").count() > 0
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
            _search(opened)
            _read(opened)
        assert problems == []
        browser.close()


def _search(opened):
    rows = opened.locator("#tokens tr")
    everything = rows.count()
    opened.fill("#search", "põ")
    assert 1 < rows.count() < everything
    opened.fill("#search", "")
    opened.select_option("#which", "removed")
    assert "old id" in rows.first.inner_text()


def _read(opened):
    before = opened.locator("#before").inner_text()
    assert opened.locator("#before span").count() > opened.locator("#after span").count()
    opened.click("#next")
    assert opened.locator("#before").inner_text() != before
