"""The report in a browser without network: every section, on a wide screen and on a phone, light and dark."""

import re
import struct
import subprocess
import sys
from dataclasses import fields as dataclass_fields
from pathlib import Path

import builders
import pytest
from checkpoints import ESTONIAN
from hostile import MODEL

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.measure.compare import built_in_texts
from tokengraft.measure.scores import Score

SCORE = {field.name: None for field in dataclass_fields(Score)} | {"documents": 3, "bytes": 900, "tokens": 300}


def with_bits(*models, text="et", **more):
    """An evaluation of models, the first of which is the base."""
    scores = [
        Score(**SCORE | {"tokenizer": model, "text": text, "bits_per_byte": 2.5 - at / 100} | more)
        for at, model in enumerate(models)
    ]
    return tg.Evaluation(tuple(scores), models[0])


def test_the_page_names_nothing_outside_and_leaves_no_placeholder(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("{{DATA}}") == 2  # the name of the model, in the title and in the heading
    assert "{{STYLE}}" not in text
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)=|@import|url\(", markup)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_section_is_shown_and_nothing_is_wider_than_the_screen(opened, page, scheme, width):
    shown = opened(page, scheme, width)
    sections = shown.locator("section:visible")
    names = [sections.nth(at).get_attribute("id") for at in range(sections.count())]
    parts = ["overview", "curve", "support", "losses", "removed", "sample-texts", "reader", "explorer", "checks"]
    assert names == parts
    assert shown.locator("nav a").count() == len(names)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        shown.evaluate("getComputedStyle(document.body).backgroundColor")
        == {
            "light": "rgb(251, 250, 248)",
            "dark": "rgb(21, 23, 26)",
        }[scheme]
    )


ATTACK = "</script><img src=x onerror=\"document.title='broken'\"><!--<script>{{STYLE}}"


def test_names_records_and_models_that_look_like_markup_are_shown_as_text(opened, adapted, tmp_path):
    record = {
        ATTACK: ATTACK,
        "inputs": [{"role": ATTACK, "name": ATTACK, "path": [ATTACK]}],
        "options": {ATTACK: [ATTACK]},
    }
    tg.report(
        adapted / MODEL,
        adapted / "out",
        {ATTACK: adapted / "et.txt", "en": adapted / "en.txt"},
        out=tmp_path / "page.html",
        title=ATTACK,
        record=record,
        bits=with_bits("<b>base" + ATTACK, "new" + ATTACK, text=ATTACK),
    )
    shown = opened(tmp_path / "page.html")
    assert shown.title() == shown.locator("h1").inner_text() == ATTACK
    assert shown.evaluate("document.querySelectorAll('img, h1 *, dd *').length") == 0
    assert shown.locator("#record").text_content().count(ATTACK) == 4
    assert ATTACK in shown.locator("#bits-chart .legend").inner_text()
    assert ATTACK in shown.locator("#scores").inner_text()


def test_the_page_allows_no_request(browser, page):
    script = """() => new Promise(done => {
        document.addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
        fetch("data:text/plain,a").then(() => done("loaded"), () => {}); })"""
    shown = browser.new_page()
    shown.goto(page.as_uri())
    assert shown.evaluate(script) == "connect-src"
    shown.close()


def test_the_overview_says_what_was_asked_and_what_came_out(opened, page):
    shown = opened(page)
    lead = shown.locator("#lead").inner_text()
    assert "40 tokens added" in lead
    assert "(weight 2)" in lead
    assert re.fullmatch(r"et: \d+\.\d % fewer tokens", shown.locator("#headline").inner_text())
    assert "A context of 8,192 tokens holds" in shown.locator("#headline-note").inner_text()
    vocabulary = shown.locator(".card").first.inner_text()
    assert "embedding rows" in vocabulary
    assert "parameters" in vocabulary
    assert "checks passed" in vocabulary
    assert not shown.locator("#record").is_visible()
    assert "tokengraft:" in shown.locator("#record").text_content()
    assert shown.locator("#inputs tbody tr").count() == 4  # the model, two targets, the text to keep


@pytest.mark.parametrize("width", [1280, 390])
def test_the_table_is_first_and_its_change_is_in_the_first_screen(opened, page, width):
    shown = opened(page, width=width)
    parts = shown.evaluate("[...document.querySelectorAll('#overview [id]')].map(part => part.id)")
    assert parts[:3] == ["headline", "headline-note", "scores"]
    assert not shown.locator("#asked").get_attribute("open")
    rows = shown.locator("#scores tbody tr")
    assert rows.count() == 3
    for at in range(rows.count()):
        cell = rows.nth(at).locator("td").nth(2)
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900
        assert cell.inner_text().endswith("%")


def test_the_change_is_visible_on_a_phone_beside_a_long_name(opened, adapted, tmp_path):
    name = "a-corpus-with-a-very-long-name-2026-11-17.et.parquet"
    tg.report(adapted / MODEL, adapted / "out", {name: adapted / "et.txt"}, out=tmp_path / "page.html")
    shown = opened(tmp_path / "page.html", width=390)
    box = shown.locator("#scores tbody td").nth(2).bounding_box()
    assert box["x"] + box["width"] <= 390
    assert shown.locator("#scores tbody td").first.bounding_box()["width"] > 60


def test_a_loss_is_red_and_a_note_is_no_pass(opened, adapted, tmp_path):
    base = tg.load(adapted / MODEL)
    order = tg.prune_order(base, tg.count(base, iter(ESTONIAN)))
    tg.report(base, order[:60].apply(base), {"en": adapted / "en.txt"}, out=tmp_path / "page.html")
    shown = opened(tmp_path / "page.html")
    change = shown.locator("#scores tbody td").nth(2)
    assert "bad" in change.get_attribute("class").split()
    assert change.inner_text().startswith("+")
    assert not shown.locator("#curve").is_visible()  # nothing was learned
    assert not shown.locator("#support").is_visible()
    assert shown.locator("#status").input_value() == "removed"
    facts = shown.evaluate("checkFacts([{name: 'a', outcome: 'pass'}, {name: 'b', outcome: 'note'}]).map(f => f.text)")
    assert facts == ["1 check passed", "1 with a note: b"]


def test_a_tiny_loss_has_no_minus_zero(opened, page):
    shown = opened(page)
    assert shown.evaluate("change(tokensChange({base: {tokens: 9999}, new: {tokens: 10000}}))") == "0.0 %"
    assert shown.evaluate("change(-0.0004)") == "0.0 %"


def test_charts_have_values_to_point_at_and_words_for_screen_readers(opened, page):
    shown = opened(page)
    for chart in ("curve-chart", "support-chart"):
        assert len(shown.locator(f"#{chart} > svg").get_attribute("aria-label")) > 40
        marks = shown.locator(f"#{chart} .mark")
        marks.first.hover(force=True)
        assert shown.locator(".tip").inner_text() == marks.first.get_attribute("data-tip")
    assert shown.locator("#curve-chart .legend li").all_inner_texts() == ["et", "lv", "keep"]


def test_the_curve_shows_tokens_saved_against_rows_that_are_rare_in_the_training_text(opened, adapted, tmp_path):
    model, text = str(adapted / MODEL), str(adapted / "et.txt")
    base = tg.load(model)
    counts = tg.count(base, text, read_options=tg.ReadOptions(documents="lines"))
    extension = tg.extend(base, counts, 16)
    before, n_bytes = sum(counts.tokens(base).values()), counts.totals.bytes
    for number, more in enumerate(([], ["--training-text", f"{n_bytes // 2}"])):
        page, out = tmp_path / f"{number}.html", str(tmp_path / f"{number}")
        command = ["extend", model, "--corpus", text, "--documents", "lines", "--add", "16", "--report", str(page)]
        assert cli.main([*command, "--out", out, *more]) == 0
        shown = opened(page)
        heads, *rows = (row.split("\t") for row in shown.locator("#curve-table tr").all_inner_texts())
        assert heads == ["new tokens", "tokens saved, text", "rare rows"]
        for size, row in zip((1, 2, 4, 8, 16), rows, strict=True):
            new = extension[:size].apply(base)
            seen = counts.tokens(new)
            rare = sum(seen.get(new.ids[token], 0) < 100 * (1 + number) for token in extension.tokens[:size])
            saved = 1 - sum(seen.values()) / before
            assert row == [str(size), f"{100 * saved:.1f} %", f"{100 * rare / size:.1f} %"]
        where = f"{n_bytes // 2:,} bytes of training text" if more else "the counted text"
        assert f"fewer than 100 times in {where}" in shown.locator("#curve-note").inner_text()
        assert (f"expected in {where}" in shown.locator("#support-note").inner_text()) == bool(more)
        assert f"100: {rows[-1][-1]}" in shown.locator("#support-note").inner_text()


def test_the_curve_of_pruning_marks_the_chosen_size(opened, adapted, tmp_path):
    model, held_out = str(adapted / MODEL), [f"et={adapted / 'et.txt'}", str(adapted / "en.txt")]
    command = ["prune", model, "--corpus", held_out[1], "--remove", "auto", "--keep-coverage", "0.9", "--held-out"]
    page = tmp_path / "page.html"
    assert cli.main([*command, *held_out, "--out", str(tmp_path / "out"), "--report", str(page)]) == 0
    shown = opened(page)
    removed = f"{len(tg.load(model).tokens) - len(tg.load(tmp_path / 'out').tokens):,}"
    chosen = shown.locator("#prune-curve-table tbody tr", has_text="chosen")
    assert chosen.locator("td").first.inner_text() == removed
    assert shown.locator("#prune-curve-chart .legend li").all_inner_texts() == ["et", "en"]
    assert f"With {removed}: et +" in shown.locator("#prune-curve-chart > svg").get_attribute("aria-label")
    assert "at least 90 % of the tokens" in shown.locator("#prune-curve-note").inner_text()
    assert "et (held out)" in shown.locator("#scores").inner_text()


def test_bits_of_models_are_a_section_of_the_page(opened, adapted, tmp_path):
    bits = with_bits("<b>base", "new")
    tg.report(adapted / MODEL, adapted / "out", {"et": adapted / "et.txt"}, out=tmp_path / "page.html", bits=bits)
    shown = opened(tmp_path / "page.html", "dark", 390)
    assert shown.locator("#bits-table tbody tr").count() == 2
    assert shown.locator("#bits-chart rect.mark").count() == 2
    assert "<b>base" in shown.locator("#bits-chart .legend").inner_text()


def test_the_commands_write_a_report(opened, adapted, tmp_path):
    model, text = str(adapted / MODEL), str(adapted / "et.txt")
    commands = {
        "extend": ["extend", model, "--corpus", text, "--add", "10", "--out", str(tmp_path / "extended")],
        "prune": ["prune", model, "--corpus", text, "--remove", "10", "--out", str(tmp_path / "pruned")],
        "curve": ["prune", model, "--corpus", text, "--rows", "380", "--held-out", text, "--out", str(tmp_path / "4")],
        "bare": ["prune", model, "--method", "last-id-leaf", "--remove", "5", "--out", str(tmp_path / "bare")],
        "evaluate": ["evaluate", f"a={model}", f"b={adapted / 'out'}", "--text", f"et={text}"],
    }
    sections = {}
    for name, command in commands.items():
        page = tmp_path / f"{name}.html"
        assert cli.main([*command, "--report", str(page)]) == 0
        shown = opened(page)
        visible = shown.locator("section:visible")
        sections[name] = [visible.nth(at).get_attribute("id") for at in range(visible.count())]
        assert "command" in shown.locator("#record").text_content()
        shown.fill("#own", "põdrad")  # both tokenizers run also where no document is shown
        assert shown.locator("#after .token").count() > 0
    last = ["sample-texts", "reader", "explorer", "checks"]
    assert sections["extend"] == ["overview", "curve", "support", *last]
    assert sections["prune"] == sections["bare"] == ["overview", "removed", *last]
    assert sections["curve"] == ["overview", "prune-curve", "removed", *last]
    assert sections["evaluate"] == ["overview", "support", "losses", "removed", *last]


def test_removed_tokens_and_sample_texts_are_listed_as_text(opened, adapted, tmp_path):
    tok = tg.load(builders.write(tmp_path / "hostile", builders.with_tokens(builders.byte_level(), "<b>")))
    new = tg.prune_order(tok, method="last-id").apply(tok)
    shown = opened(tg.report(tok, new, {"et": adapted / "et.txt"}, out=tmp_path / "page.html"))
    rows = shown.locator("#removed-table tbody tr").all_inner_texts()
    assert any(row.startswith("kind\twords") for row in rows)
    assert any(row.startswith("script\tLatin") for row in rows)
    assert any("<b>" in row for row in rows)
    samples = shown.locator("#sample-texts-table tbody tr").all_inner_texts()
    assert len(samples) == len(built_in_texts())
    assert samples[0].split("\t")[3].startswith("+")


def test_a_report_is_not_written_over_a_file_or_of_three_tokenizers(adapted, tmp_path, capsys):
    model = str(adapted / MODEL)
    evaluate = ["evaluate", "--text", str(adapted / "et.txt"), "--report", str(tmp_path / "page.html")]
    two = [f"a={model}", f"b={model}"]
    assert cli.main([evaluate[0], *two, f"c={model}", *evaluate[1:]]) == 2
    assert "--report has no effect without two tokenizers" in capsys.readouterr().err
    (tmp_path / "page.html").write_text("mine")
    assert cli.main([evaluate[0], *two, *evaluate[1:]]) == 2
    with pytest.raises(errors.OutputError):
        tg.report(model, model, {"et": adapted / "et.txt"}, out=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"
    with pytest.raises(errors.OptionError, match="no tokenizer or no text"):
        tg.report(model, model, {}, out=tmp_path / "other.html")


def test_a_page_is_the_same_for_the_same_input(adapted, tmp_path):
    pages = [
        tg.report(adapted / MODEL, adapted / "out", {"et": adapted / "et.txt"}, out=tmp_path / name) for name in "ab"
    ]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_differences_between_unrelated_tokenizers_are_notes_and_those_of_an_edit_failures(opened, adapted, tmp_path):
    other = builders.write(tmp_path / "other", builders.sentencepiece())
    tg.report(adapted / MODEL, other, {"et": adapted / "et.txt"}, out=tmp_path / "other.html")
    outcomes = "Object.fromEntries(tokengraft.data.checks.map(check => [check.name, check.outcome]))"
    assert opened(tmp_path / "other.html").evaluate(outcomes)["pipeline"] == "note"
    base = tg.load(adapted / MODEL)
    moved = base.with_tokens({s: i + 1 for s, i in base.ids.items()}, base.merge_strings())
    tg.report(base, moved, {"et": adapted / "et.txt"}, out=tmp_path / "moved.html")
    assert opened(tmp_path / "moved.html").evaluate(outcomes)["kept ids"] == "fail"


def test_the_same_tokenizer_twice_has_a_page(opened, tmp_path):
    sentencepiece = builders.write(tmp_path / "text", builders.sentencepiece())
    tg.report(sentencepiece, sentencepiece, {"et": iter(["the cat", "", "猫"])}, out=tmp_path / "page.html")
    shown = opened(tmp_path / "page.html")
    assert shown.locator("#status").input_value() == "all"
    assert "0 tokens added, 0 removed" in shown.locator("#lead").inner_text()


def test_a_model_that_diverged_and_a_record_of_any_values_are_shown(opened, adapted, tmp_path):
    record = {"path": tmp_path, "rate": float("nan"), "inputs": [None, "x", {"role": "text", "bytes": "many"}], "n": 3}
    tg.report(
        adapted / MODEL,
        adapted / "out",
        {"et": adapted / "et.txt"},
        out=tmp_path / "page.html",
        bits=with_bits("base", "diverged", bits_per_byte=float("nan"), new_bits_per_byte=float("inf")),
        record=record,
    )
    shown = opened(tmp_path / "page.html")
    assert shown.locator("#bits-table tbody tr").count() == 2
    text = shown.locator("#overview").text_content() + shown.locator("#bits").inner_text()
    assert not re.search("NaN|null|undefined|Infinity|∞", text)
    assert str(tmp_path) in text


def test_a_text_that_a_tokenizer_drops_has_no_empty_figures(opened, adapted, tmp_path):
    lacking = builders.write(tmp_path / "lacking", builders.sentencepiece(byte_fallback=False))
    tg.report(lacking, adapted / "out", {"ja": iter(["猫" * 50])}, out=tmp_path / "page.html")
    shown = opened(tmp_path / "page.html")
    assert re.fullmatch(r"0\.000 → [1-9]\.\d{3}", shown.locator("#scores tbody td").nth(1).inner_text())


@pytest.mark.usefixtures("browser")  # skipped where there is none
def test_the_screenshot_ends_with_the_chart(page, tmp_path):
    script = Path(__file__).parents[2] / "lab" / "screenshot.py"  # in a process of its own: one playwright in each
    subprocess.run([sys.executable, script, page, tmp_path / "report.png"], check=True)
    width, height = struct.unpack(">II", (tmp_path / "report.png").read_bytes()[16:24])
    assert width == 1200
    assert 1000 < height < 2000
