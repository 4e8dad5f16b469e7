"""The report of an adaptation: the request, named texts, test texts, and every figure as in `adaptation.json`."""

import json
import re
import shlex
from collections import Counter

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint, tables

import tokengraft as tg
from tokengraft import cli

TEST = [text.replace("põdrad", "kassid") for text in ESTONIAN[:60]]
MEDICAL = [f"the patient {n} sat on the mat and had a cold" for n in range(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that was adapted to two targets with two texts to keep and two test texts."""
    folder = tmp_path_factory.mktemp("adaptation")
    checkpoint(folder / "model")
    texts = {"et": ESTONIAN, "lv": LATVIAN, "en": ENGLISH, "med": MEDICAL, "test": TEST}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    tests = {"et": folder / "test.txt", "counted": tg.count(tg.load(folder / "model"), iter(ENGLISH))}
    tg.adapt(
        folder / "model",
        target={"et": tg.Target(folder / "et.txt", 2), "lv": folder / "lv.txt"},
        keep={"en": folder / "en.txt", "med": folder / "med.txt"},
        swap=30,
        out=folder / "out",
        options=tg.AdaptOptions(test=tests),
    )
    return folder


def cells(shown, table):
    """The texts of the cells of a table, by row."""
    rows = shown.locator(f"#{table} tbody tr")
    return [rows.nth(at).locator("td").all_inner_texts() for at in range(rows.count())]


def require_no_leaks(shown):
    """No value that is missing is shown as a word of JavaScript or Python."""
    shown.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    leak = r".*\b(?:NaN|undefined|null|None|Infinity|∞|object Object)\b.*|.*-0 .*"
    found = re.findall(leak, shown.inner_text("body"))
    assert found == []
    charts = shown.evaluate("[...document.querySelectorAll('.chart')].map(chart => chart.innerHTML).join()")
    assert not re.search("NaN|undefined|null|Infinity", charts)


def signed(value, digits=1):
    """A change in percent as the page writes it."""
    text = f"{abs(100 * value):.{digits}f} %"
    return text if float(f"{100 * value:.{digits}f}") == 0 else ("+" if value > 0 else "−") + text


def percent(value):
    return "" if value is None else f"{100 * value:.1f} %"


def per_words(value):
    return f"{1000 * value + 1e-9:,.0f}"


def test_the_figures_of_the_score_table_are_those_of_the_json(opened, folder):
    shown = opened(folder / "out" / "report.html")
    written = json.loads((folder / "out" / "adaptation.json").read_text())
    scores = {(s["tokenizer"], s["text"]): s for s in written["evaluation"]["scores"]}
    scores |= {(s["tokenizer"], f"{s['text']} (test)"): s for s in written["test"]["scores"]}
    scores |= {(s["tokenizer"], f"{s['text']} (keep)"): s for s in written["evaluation"]["scores"]}
    rows = cells(shown, "scores")
    assert [row[0] for row in rows] == ["et (test)", "counted (test)", "et", "lv", "en (keep)", "med (keep)"]
    for name, rate, change, same, used, more, words, measured, _ in rows:
        base, new = scores["base", name], scores["new", name]
        assert measured == f"{base['bytes']:,} bytes"
        assert rate == f"{base['bytes_per_token']:.3f} → {new['bytes_per_token']:.3f}"
        assert change == signed(new["tokens"] / base["tokens"] - 1)
        pairs = [score["tokens_per_word"] for score in (base, new)]
        assert words == ("" if None in pairs else " → ".join(map(per_words, pairs)))
        assert same == percent(new["exact_match"])
        assert used == percent(new["added_used"])
        assert more == "" if name == "counted (test)" else more.endswith(f" of {base['documents']}")


def test_the_terminal_shows_the_figures_of_the_report(opened, folder, tmp_path, capsys):
    targets = ["--target", f"et={folder / 'et.txt'}", "--target", f"lv={folder / 'lv.txt'}"]
    texts = [*targets, "--keep", f"en={folder / 'en.txt'}", "--test", f"et={folder / 'test.txt'}"]
    assert cli.main(["adapt", str(folder / "model"), *texts, "--swap", "30", "--out", str(tmp_path / "out")]) == 0
    lines = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    shown = opened(tmp_path / "out" / "report.html")
    heads = shown.locator("#scores th").all_inner_texts()
    first = lines.index(heads[:5])
    rows = cells(shown, "scores")
    printed = [[cell.replace("%", " %").replace("-", "−") for cell in row] for row in lines[first + 1 : first + 5]]
    assert [row[:5] for row in rows] == printed
    own = lines.index(["target", heads[-1]])
    assert {row[0]: row[-1] for row in rows if row[-1]} == dict(lines[own + 1 : own + 3])


def test_documents_that_need_more_tokens_are_counted(opened, folder):
    base, new = tg.load(folder / "model"), tg.load(folder / "out")
    lengths = [(len(base.encode(text)), len(new.encode(text))) for text in TEST]
    row = next(row for row in cells(opened(folder / "out" / "report.html"), "scores") if row[0] == "et (test)")
    assert row[5] == f"{sum(after > before for before, after in lengths)} of {len(TEST)}"


def test_new_tokens_that_are_most_frequent_in_a_target_are_as_many_as_in_the_json_and_the_explorer(opened, folder):
    shown = opened(folder / "out" / "report.html")
    written = json.loads((folder / "out" / "adaptation.json").read_text())["targets"]
    homes = "tokengraft.table.rows.filter(r => tokengraft.table.status(r) === 'new').map(r => tokengraft.table.home(r))"
    names = shown.evaluate("tokengraft.data.texts.map(text => text.name)")
    counted = Counter(names[at] for at in shown.evaluate(homes) if at >= 0)
    column = {row[0]: row[-1] for row in cells(shown, "scores")}
    expected = {name: str(target["tokens"]) for name, target in written.items()}
    assert {name: number for name, number in column.items() if number} == expected
    assert {name: str(number) for name, number in counted.items()} == expected


def test_the_page_shows_the_request_of_the_json(opened, folder):
    shown = opened(folder / "out" / "report.html")
    request = json.loads((folder / "out" / "adaptation.json").read_text())["request"]
    rows = shown.evaluate("tokengraft.data.record.inputs")
    assert [(row["role"], row["name"], row["path"]) for row in rows] == [
        (item["role"], item["name"], item["path"]) for item in request["inputs"]
    ]
    assert [row.get("sha256") for row in rows] == [item.get("sha256") for item in request["inputs"]]
    assert [row["documents"] or 0 for row in rows] == [item["documents"] or 0 for item in request["inputs"]]
    assert [row.get("weight") for row in rows] == [None, "2", "1", None, None, None, None]
    record = shown.locator("#record").text_content()
    assert "swap: 30" in record
    require_no_leaks(shown)


def test_sizes_are_those_of_text_and_of_files(opened, folder):
    shown = opened(folder / "out" / "report.html")
    request = json.loads((folder / "out" / "adaptation.json").read_text())["request"]
    rows = shown.evaluate("tokengraft.data.record.inputs")
    assert [row["file_bytes"] for row in rows] == [item["bytes"] or None for item in request["inputs"]]
    bytes_of = {row["name"]: row.get("bytes") for row in rows if row["role"] != "test"}
    assert bytes_of["model"] is None
    whole = sum(len(text.encode()) for text in ESTONIAN)
    assert 0 < bytes_of["et"] < whole  # without the documents that are held out
    tests = {row["name"]: row for row in rows if row["role"] == "test"}
    assert tests["et"]["bytes"] == sum(len(text.encode()) for text in TEST)
    assert tests["counted"]["bytes"] == sum(len(text.encode()) for text in ENGLISH)
    assert tests["counted"]["file_bytes"] is None  # it was in memory


def test_a_warning_is_shown_once(opened, folder, tmp_path):
    (tmp_path / "broken.txt").write_bytes(b"p\xf5drad\n" * 9)
    options = tg.AdaptOptions(test={"et": tmp_path / "broken.txt"})
    tg.adapt(folder / "model", target=folder / "et.txt", add=9, out=tmp_path / "out", options=options)
    shown = opened(tmp_path / "out" / "report.html").locator("#warnings li").all_inner_texts()
    assert any("UTF-8" in warning for warning in shown)
    assert len(shown) == len(set(shown))


SHAPES = {
    "remove only": {"remove": 20, "keep": iter(ENGLISH)},
    "add only": {"add": 12},
    "one new token": {"add": 1},
    "more removed than added": {"remove": 20, "add": 5, "keep": iter(ENGLISH)},
    "automatic size": {"add": "auto"},
}


def test_what_is_saved_and_what_is_next_are_shown(opened, folder, tmp_path, capsys):
    """Rows, parameters and bytes of a smaller vocabulary are those of the tables in the files."""
    texts = ["--target", str(folder / "et.txt"), "--keep", str(folder / "en.txt")]
    assert cli.main(["adapt", str(folder / "model"), *texts, "--remove", "60", "--out", str(tmp_path / "out")]) == 0
    before, after = (tables(path) for path in (folder / "model", tmp_path / "out"))
    name = "model.embed_tokens.weight"
    rows = len(before[name]) - len(after[name])
    parameters = sum(table.size for table in before.values()) - sum(table.size for table in after.values())
    n_bytes = 2 * parameters  # bf16
    printed = capsys.readouterr()
    assert f"saved           {rows} rows, {parameters:,} parameters, {n_bytes / 1e6:,.1f} MB" in printed.out
    assert "--bits" in printed.err
    shown = opened(tmp_path / "out" / "report.html")
    headline = f"{rows} embedding rows, {parameters:,} parameters, and {n_bytes:,} bytes saved"
    assert shown.locator("#headline").inner_text() == headline
    assert "--bits" in shown.locator(".card .command").inner_text()


def test_the_command_for_training_has_the_texts_that_were_given(opened, folder):
    command = opened(folder / "out" / "report.html").locator(".card .command").inner_text()
    args = shlex.split(command.replace("\\\n", " "))
    assert args[:3] == ["tokengraft", "train", "adapted"]
    text, keep = ([f"{name}={folder / f'{name}.txt'}" for name in names] for names in (("et", "lv"), ("en", "med")))
    assert args[3:] == ["--text", *text, "--keep", *keep, "--out", "adapted-trained"]


@pytest.mark.parametrize(
    ("shape", "source"), [*((shape, "model") for shape in sorted(SHAPES)), ("add only", "tokenizer")]
)
def test_every_shape_of_an_adaptation_has_a_page_without_holes(opened, folder, tmp_path, shape, source):
    if source == "tokenizer":
        builders.write(tmp_path / "tokenizer", builders.byte_level())
    base = folder / "model" if source == "model" else tmp_path / "tokenizer"
    sizes = SHAPES[shape] | ({"keep": iter(ENGLISH)} if "keep" in SHAPES[shape] else {})
    tg.adapt(base, target={"et": iter(ESTONIAN), "lv": iter(LATVIAN)}, out=tmp_path / "out", **sizes)
    shown = opened(tmp_path / "out" / "report.html", width=375)
    require_no_leaks(shown)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 375
    for chart in shown.locator(".chart:visible").all():
        assert chart.locator(".mark").count() > 0
    assert shown.locator("#own").is_visible()
