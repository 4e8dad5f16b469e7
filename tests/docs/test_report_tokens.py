"""The tokens and documents of the report, in a browser: the explorer with all tokens, and the reader."""

import csv
import io
from pathlib import Path

from checkpoints import ESTONIAN, changed
from hostile import MODEL

import tokengraft as tg


def test_documents_that_lost_open_in_the_reader(opened, adapted, tmp_path):
    base = tg.load(adapted / MODEL)
    pruned = tg.prune_order(base, tg.count(base, iter(ESTONIAN)))[:60].apply(base)
    tg.report(base, pruned, {"en": adapted / "en.txt"}, out=tmp_path / "page.html")
    shown = opened(tmp_path / "page.html")
    row = shown.locator("#losses-table tbody tr").nth(1)
    before, after = (int(row.locator("td.number").nth(at).inner_text()) for at in (0, 1))
    row.locator("button").click()
    counts = [shown.locator(f"#{side}-count").inner_text() for side in ("before", "after")]
    assert counts[0] == f"{before} tokens"
    assert counts[1].startswith(f"{after} tokens")


def count_of(shown):
    return int(shown.locator("#shown").inner_text().split()[0].replace(",", ""))


def test_the_explorer_has_all_tokens_and_filters_them(opened, adapted, page):
    shown = opened(page)
    base, new = tg.load(adapted / MODEL), tg.load(adapted / "out")
    plan = tg.plan(base, new)
    assert count_of(shown) == plan.summary.added
    shown.select_option("#status", "all")
    assert count_of(shown) == len(new.tokens) + plan.summary.removed
    shown.fill("#search", "PÕ")
    wanted = [token for token in new.tokens if "põ" in token.bytes.decode(errors="ignore").lower()]
    assert count_of(shown) >= len(wanted) > 0
    shown.fill("#search", str(new.tokens[300].id))
    assert count_of(shown) >= 1
    shown.fill("#search", "\\xC3")
    shown.locator(".row.body").first.click()
    assert "\\xC3" in shown.locator("#detail").inner_text()
    shown.fill("#search", "")
    shown.select_option("#script", "Latin")
    assert 0 < count_of(shown) < len(new.tokens)
    shown.select_option("#script", "")
    shown.fill("#least", "1000000")
    assert count_of(shown) == 0
    shown.fill("#least", "")
    shown.select_option("#text", label="most frequent in lv")
    assert 0 < count_of(shown) < len(new.tokens)


def test_the_explorer_sorts_and_scrolls_through_all_rows(opened, page):
    shown = opened(page)
    shown.select_option("#status", "all")
    for by, index in (("id", 1), ("frequency", 4)):
        shown.click(f"[data-sort={by}]")
        keys = f"tokengraft.explorer.found.map(row => tokengraft.table.{by}(row))"
        values = shown.evaluate(keys)
        assert values in (sorted(values), sorted(values, reverse=True))
        first = shown.locator(".row.body").first.locator("div").nth(index).inner_text().replace(",", "")
        assert int(first) == values[0]
    assert shown.locator(".row.body").count() < 60
    shown.evaluate("$('list').scrollTop = $('list').scrollHeight")
    last = shown.evaluate("String(tokengraft.explorer.found.at(-1))")
    shown.wait_for_selector(f'.row.body[data-row="{last}"]')


def test_the_last_row_of_a_list_that_is_too_tall_for_browsers_can_be_seen(opened, page):
    shown = opened(page)
    script = """() => { const {explorer, table} = tokengraft, list = $("list");
        explorer.found = Array.from({length: 600000}, (_, at) => table.rows[at % table.rows.length]);
        explorer.render();
        list.scrollTop = list.scrollHeight;
        explorer.render();
        const rows = list.querySelectorAll(".row.body");
        return [list.scrollHeight, Number(rows[rows.length - 1].dataset.row), explorer.found.at(-1),
                rows[rows.length - 1].getBoundingClientRect().bottom - list.getBoundingClientRect().bottom]; }"""
    height, shown_last, last, below = shown.evaluate(script)
    assert height < 16_000_000
    assert shown_last == last
    assert abs(below) < 80


def test_the_frequencies_and_examples_of_tokens_are_those_of_the_text(opened, adapted, tmp_path):
    base = tg.load(adapted / MODEL)
    new = changed(base, add=20)
    tg.report(base, new, {"et": adapted / "et.txt"}, out=tmp_path / "page.html")
    shown = opened(tmp_path / "page.html")
    counts = tg.count(new, adapted / "et.txt", read_options=tg.ReadOptions(documents="lines")).tokens(new)
    rows = """() => { const t = tokengraft.table;
        return t.rows.map(row => [t.id(row), t.frequency(row), t.example(row) ?? null]); }"""
    found = shown.evaluate(rows)
    assert {token_id: count for token_id, count, _ in found if count} == dict(counts)
    strings = {token.id: token.bytes.decode(errors="ignore") for token in new.tokens}
    examples = [(token_id, example) for token_id, _, example in found if example]
    assert {token_id for token_id, _ in examples} == {i for i in counts if new.strings[i] not in base.ids}
    assert len(examples) > 5
    for token_id, (snippet, start, end) in examples:
        assert snippet[start:end] == strings[token_id]


def test_a_row_shows_all_about_its_token(opened, page):
    shown = opened(page)
    shown.locator(".row.body").first.click()
    detail = shown.locator("#detail").inner_text()
    for words in ("id", "bytes", "script", "frequency", "replaces"):
        assert words in detail


def test_the_download_has_the_rows_that_are_listed(opened, page):
    shown = opened(page)
    shown.select_option("#status", "all")
    with shown.expect_download() as download:
        shown.click("#csv")
    text = Path(download.value.path()).read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == count_of(shown)
    assert {row["status"] for row in rows} == {"new", "removed", "kept"}
    data = [bytes.fromhex(row["bytes"]) for row in rows]
    assert all(one.decode() == row["token"] for one, row in zip(data, rows, strict=True) if row["token"])
    assert all(row["piece_ids"] for row in rows if row["status"] == "new")


def test_the_reader_steps_through_documents_and_splits_own_text(opened, adapted, page):
    shown = opened(page)
    assert shown.locator("#before .token").count() > shown.locator("#after .token").count()
    first = shown.locator("#before").inner_text()
    shown.click("#next")
    assert shown.locator("#before").inner_text() != first
    shown.click("#previous")
    assert shown.locator("#before").inner_text() == first
    shown.fill("#own", "põdrad 😀")
    base = tg.load(adapted / MODEL)
    tokens = shown.locator("#before .token")
    assert tokens.count() == len(base.encode("põdrad 😀"))
    shown.locator("#before .token.hex").first.hover()
    tip = shown.locator(".tip").inner_text()
    assert tip.startswith("id ")
    assert "\\xF0" in shown.locator("#before").inner_text()
    border = "getComputedStyle(document.querySelector('.token')).borderInlineStartStyle"
    assert shown.evaluate(border) == "solid"  # visible without colour


def test_a_very_long_text_is_counted_whole_and_shown_in_part(opened, page):
    shown = opened(page)
    script = "() => { $('own').value = '\\u0001'.repeat(100000); $('own').dispatchEvent(new Event('input')); }"
    shown.evaluate(script)
    assert shown.locator("#before-count").inner_text() == "100,000 tokens"
    assert shown.locator("#before .token").count() == 4000
    assert "The first 4,000 tokens are shown; all are counted." in shown.locator("#reader-note").inner_text()
