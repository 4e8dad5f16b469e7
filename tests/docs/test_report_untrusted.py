"""Hostile tokens, texts and names in a report: the page runs none of them, and loads nothing."""

import json

import builders
import pytest

import tokengraft as tg

PAYLOADS = [
    "</script><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<!--<script>window.ran=1//",
    "`${window.ran=1}`",
    "\u2028window.ran=1\u2029",
    "' onmouseover='window.ran=1",
    '"><svg onload=window.ran=1>',
    "{{DATA}}{{SCRIPT}}",
    "javascript:window.ran=1",
    "\u202e<b>evil</b>\u2066",
    "<iframe src=http://evil.example/>",
]


@pytest.fixture
def hostile(tmp_path):
    document = builders.byte_level()
    start = 60 + max(document["model"]["vocab"].values())
    document["added_tokens"] += [builders.added(start + at, payload) for at, payload in enumerate(PAYLOADS)]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "".join(PAYLOADS)}
    folder = builders.write(tmp_path / "<img src=x onerror=window.ran=1>", document)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_nothing_that_a_tokenizer_or_text_holds_runs_in_the_page(hostile, tmp_path, opened):
    base = tg.load(hostile)
    text = [f"{payload} the cat {payload[:9]} zz zz qq qq" for payload in PAYLOADS * 3]
    new = tg.extend(base, tg.count(base, iter(text)), 20).apply(base)
    record = {"command": PAYLOADS[0], "date": PAYLOADS[1], "options": dict.fromkeys(PAYLOADS, PAYLOADS[2])}
    texts = {PAYLOADS[1]: iter(text), PAYLOADS[0]: iter(text)}
    page = opened(tg.report(base, new, texts, out=tmp_path / "r.html", title=PAYLOADS[0], record=record))
    for tab in page.query_selector_all("button, summary, [role=tab], a[href^='#']"):
        if tab.is_visible():
            tab.click()
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.query_selector("iframe, img[src='x'], svg[onload]") is None


def test_nothing_runs_in_what_a_notebook_shows(hostile, browser):
    base = tg.load(hostile)
    values = [base, *base.added, tg.inspect(base), tg.check(base), base.tokens[-1]]
    values.append(tg.evaluate({PAYLOADS[0]: base}, {PAYLOADS[1]: iter(PAYLOADS)}))
    values.append(tg.compare(base, base, iter(PAYLOADS)))
    page = browser.new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.set_content("".join(value._repr_html_() for value in values))
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert not [url for url in requests if url.startswith("http")]
    page.close()
