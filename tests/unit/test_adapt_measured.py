"""What an adaptation is measured on: held-out documents, test texts, several texts to keep."""

import json
from dataclasses import replace

import builders
import pytest
from checkpoints import ESTONIAN, write_texts

import tokengraft as tg
from tokengraft import cli, errors

pytestmark = pytest.mark.usefixtures("transformers_running")
PLAIN = tg.AdaptOptions(report=False)


@pytest.fixture
def place(place):
    """With another text in Estonian."""
    return write_texts(place, other=[text.replace("põdrad", "kassid") for text in ESTONIAN[:99]])


def test_a_test_text_is_measured_apart_from_held_out_documents(place, capsys):
    options = replace(PLAIN, test={"et": "other.txt"})
    done = tg.adapt("model", target={"et": "et.txt"}, swap=12, out="out", options=options)
    base, new = tg.load("model"), done.tokenizer
    expected = tg.evaluate({"base": base, "new": new}, {"et": "other.txt"})["new", "et"]
    assert done.test["new", "et"] == expected
    assert done.test["new", "et"].gain != done.evaluation["new", "et"].gain
    written = json.loads((place / "out" / "adaptation.json").read_bytes())
    assert written["evaluation"]["measured_on"] == "held-out documents of the corpora that were counted"
    assert written["test"]["scores"][1]["gain"] == expected.gain
    arguments = ["adapt", "model", "--target", "et=et.txt", "--swap", "12", "--no-report", "--out"]
    status, (shown, err) = cli.main([*arguments, "without"]), capsys.readouterr()
    assert status == 0, err
    assert "held-out documents of the corpora; other text usually gains less: measure it with --test" in shown
    status, (shown, err) = cli.main([*arguments, "with", "--test", "et=other.txt"]), capsys.readouterr()
    assert status == 0, err
    assert [line.split("  ")[0] for line in table_of(shown)] == ["et (test)", "et"]
    assert "texts without (test) are held-out documents" in shown


def table_of(shown):
    """The rows of the table of scores that `adapt` prints."""
    lines = shown.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("text  "))
    last = next(at for at, line in enumerate(lines) if line.startswith("bytes/token: "))
    return lines[first + 1 : last]


@pytest.mark.parametrize(
    ("name", "said"),
    [("empty.txt", "the text `t` is empty"), ("counts", "another pipeline"), ("nothing.txt", "nothing.txt")],
)
def test_a_test_text_that_cannot_be_measured_is_known_before_the_corpora_are_counted(place, name, said):
    (place / "empty.txt").write_text("\n")
    builders.write(place / "other", builders.sentencepiece())
    other = tg.load("other")
    tg.count(other, "en.txt").save("counts")
    steps = []
    options = replace(PLAIN, test={"t": name}, on_step=steps.append)
    with pytest.raises(errors.TokengraftError, match=said):
        tg.adapt("model", target="et.txt", add=4, out="out", options=options)
    assert steps == []
    assert not (place / "out.work").exists()


def test_a_test_text_that_is_counted_too_is_a_warning(place):
    (place / "link.txt").symlink_to("et.txt")
    options = tg.AdaptOptions(test={"t": ["link.txt", "other.txt"], "other": "other.txt"}, report=False)
    done = tg.adapt("model", target="et.txt", add=12, out="out", options=options)
    (warning,) = [text for text in done.warnings if "which is counted" in text]
    assert warning.startswith("the test text t has `")


@pytest.mark.usefixtures("place")
def test_little_held_out_text_is_one_warning_for_all_texts():
    few = tg.adapt("model", target="et.txt", keep="en.txt", swap=12, out="few", options=PLAIN)
    (warning,) = [text for text in few.warnings if "are held out" in text]
    bytes_of = {name: few.evaluation["new", name].bytes for name in ("target", "keep")}
    found = f"target ({bytes_of['target']} bytes), keep ({bytes_of['keep']} bytes)"
    assert warning.startswith(f"less than 50,000 bytes are held out of {found}: ")
    assert warning.endswith("; measure on other text: --test NAME=FILES")


def test_few_long_documents_are_enough_held_out_text(place):
    (place / "code").mkdir()
    for number in range(20):
        lines = (f"    value_{number}_{line} = compute(line={line}, number={number})\n" for line in range(4000))
        (place / "code" / f"{number}.txt").write_text("".join(lines))
    options = replace(PLAIN, read_options=tg.ReadOptions(documents="files"))
    done = tg.adapt("model", target="code", add=12, out="out", options=options)
    assert done.evaluation["new", "target"].bytes > 50_000
    assert not any("are held out" in text for text in done.warnings)


def test_copies_of_held_out_documents_are_among_the_documents_of_the_record(place):
    (place / "twice.txt").write_text("\n".join([*ESTONIAN, *ESTONIAN]), encoding="utf-8")
    done = tg.adapt("model", target="twice.txt", add=12, out="out", options=PLAIN)
    (read,) = [item for item in done.request["inputs"] if item["role"] == "target"]
    assert read["documents"] == 2 * len(ESTONIAN)


def test_several_texts_to_keep_are_measured_by_name_and_share_their_weight(place, capsys):
    done = tg.adapt("model", target="et.txt", keep={"en": "en.txt", "lv": "lv.txt"}, swap=12, out="out", options=PLAIN)
    assert {score.text for score in done.evaluation.scores} == {"target", "en", "lv"}
    with pytest.raises(errors.OptionError, match="a target and a text to keep are called 'et'"):
        tg.adapt("model", target={"et": "et.txt"}, keep={"et": "en.txt"}, swap=12, out="x", options=PLAIN)
    arguments = ["adapt", "model", "--target", "et.txt", "--keep", "en=en.txt", "lv=lv.txt", "--swap", "12"]
    cli.main([*arguments, "--no-report", "--quiet", "--json", "--out", "y"])
    assert json.loads(capsys.readouterr().out)["evaluation"] == {
        "measured_on": "held-out documents of the corpora that were counted",
        **done.evaluation.as_dict(),
    }
    assert (place / "y" / "tokenizer.json").read_bytes() == (place / "out" / "tokenizer.json").read_bytes()


@pytest.mark.usefixtures("place")
def test_a_name_that_is_too_long_for_a_file_is_an_error(capsys):
    for option in ("--target", "--keep", "--preserve", "--test"):
        given = [] if option == "--target" else ["--target", "et.txt"]
        for name in ("x" * 300, "n=" + "x" * 300):
            assert cli.main(["adapt", "model", *given, option, name, "--add", "4", "--out", "out"]) == 2
            assert "error: " in capsys.readouterr().err
    text = "Kass magab. " * 50
    for texts in ({"target": text}, {"target": "et.txt", "keep": text}):
        with pytest.raises(errors.CorpusError, match="File name too long"):
            tg.adapt("model", **texts, add=4, out="out")
