"""The report: everything in one file, and what a browser makes of it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint

import tokengraft as tg

pytest.importorskip("plotly", reason="plotly is not installed: the report is optional")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    checkpoint(folder / "model")
    texts = {"et": [*ESTONIAN, *(f"</script><b>{n}</b> põdrad" for n in range(90))], "lv": LATVIAN, "en": ENGLISH}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    targets = {"et": tg.Target(folder / "et.txt", 2), "lv": tg.Target(folder / "lv.txt")}
    tg.adapt(folder / "model", target=targets, keep=folder / "en.txt", swap=40, out=folder / "out")
    return folder / "out" / "report.html"


def test_the_page_has_everything_and_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    facts = json.loads(re.search(r'<script id="facts" type="application/json">(.*?)</script>', text, re.DOTALL)[1])
    assert facts["summary"]["added"] == 40
    assert len(facts["added"]) == 40
    assert facts["removed"]
    assert {score["text"] for score in facts["scores"]} == {"et", "lv", "keep"}
    for sample in facts["samples"]:
        assert "".join(sample["before"]) == "".join(sample["after"]) or "\ufffd" in "".join(sample["before"])
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)=|@import|url\(", markup)


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
