"""`adapt` on the command line, and its warning of rare tokens."""

import json
import re

import pytest
from checkpoints import ESTONIAN, adapted, changed, checkpoint

import tokengraft as tg
from tokengraft import cli
from tokengraft.corpus.options import ReadOptions

pytestmark = pytest.mark.usefixtures("transformers_running")


# Tokens that are too rare.


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("size", ["add", "swap"])
def test_a_size_that_leaves_a_third_of_the_new_tokens_rare_warns_with_the_size_of_auto(texts, size):
    def warned(n):
        done = adapted(texts, out=f"out-{n}", **{size: n})
        return done, [warning for warning in done.warnings if "hardly be trained" in warning]

    automatic, none = warned("auto")
    assert none == []
    large, (warning,) = warned(60)
    counts = tg.count(large.base, texts / "et.txt", read_options=ReadOptions(documents="lines"))
    frequency = counts.tokens(large.tokenizer)
    new = [i for string, i in large.tokenizer.ids.items() if string not in large.base.ids]
    rare = sum(frequency.get(token_id, 0) < 100 for token_id in new)
    assert rare > len(new) / 3
    assert re.match(r"\d+ of the \d+ new tokens occur fewer than 100 times in the text", warning)
    assert abs(int(warning.split()[0]) - rare) <= 5  # held-out documents are not counted
    assert abs(int(warning.split()[-1]) - automatic.choice.size) <= 3
    assert warned(4)[1] == []


@pytest.mark.usefixtures("model")
def test_a_text_that_supports_no_size_warns_without_one(texts):
    done = adapted(texts, target=(f"õde vend {n}" for n in range(90)), add=3)
    assert any(warning.endswith("hardly be trained; give more text") for warning in done.warnings)


def test_extend_warns_of_a_size_that_leaves_tokens_rare(model, texts, tokengraft):
    arguments = ["extend", str(model), "--corpus", str(texts / "et.txt"), "--documents", "lines", "--quiet"]
    assert "hardly be trained" not in tokengraft(*arguments, "--add", "4", "--out", texts / "few").err
    shown = tokengraft(*arguments, "--add", "60", "--json", "--out", texts / "many")
    (warning,) = json.loads(shown.out)["warnings"]
    assert "`--add auto --held-out TEXT` chooses a size" in warning
    assert warning in shown.err


# The command.


@pytest.fixture
def command(model, texts, tokengraft):
    """Runs `adapt` for two targets and returns what it prints."""
    arguments = ["adapt", model, "--target", f"et={texts / 'et.txt'}:2", "--target", f"lv={texts / 'lv.txt'}"]
    arguments = [*map(str, arguments), "--keep", str(texts / "en.txt"), "--out", str(texts / "out")]

    def run(*more, code=0):
        return tokengraft(*arguments, *more, code=code)

    return run


def test_the_command_adapts_and_reports(command, texts):
    shown = command("--swap", 20)
    assert "new tokens most frequent here" in shown.out
    assert "counting et" in shown.err
    assert (texts / "out" / "report.html").exists()
    shown = command("--add", 5, "--remove", 7, "--force", "--no-report", "--json", "--quiet")
    plan = json.loads(shown.out)["plan"]
    assert (plan["added"], plan["removed"]) == (5, 7)
    assert not (texts / "out" / "report.html").exists()


def test_the_command_shows_notes_apart_from_passed_checks(holey, texts, capsys):
    arguments = ["adapt", str(holey), "--target", str(texts / "et.txt"), "--out", str(texts / "out")]
    assert cli.main([*arguments, "--swap", "20", "--no-report", "--quiet"]) == 0
    checks = len(tg.check(tg.load(texts / "out"), tg.load(holey)).findings)
    assert f"{checks - 1} passed, 1 note: holes" in capsys.readouterr().out


def test_the_command_shows_the_rows_of_the_embedding_as_the_dry_run_does(texts, tokengraft):
    base = checkpoint(texts / "padded", rows=448)
    arguments = ["adapt", str(texts / "padded"), "--target", str(texts / "et.txt"), "--out", str(texts / "out")]
    arguments += ["--remove", "60", "--add", "20", "--no-report", "--quiet"]
    lines = [tokengraft(*arguments, *more).out.splitlines() for more in (["--dry-run"], [])]
    shown = [next(line for line in part if line.startswith("rows")) for part in lines]
    assert shown[0].split() == ["rows", "448", "→", "384"]
    assert shown[1].startswith(f"{shown[0]}, of which tokens need {base.n_rows} → ")


def test_the_command_has_the_options_of_rows(texts, tokengraft):
    base = checkpoint(texts / "model")
    small = changed(base, remove=30)
    tg.transplant(texts / "model", small, texts / "small", options=tg.TransplantOptions(hole_rows="keep"))
    (texts / "rows.json").write_text(json.dumps({"output_init": "mean", "hole_rows": "zero", "no_report": True}))
    arguments = ["adapt", texts / "small", "--target", texts / "et.txt", "--add", 10, "--out", texts / "out"]
    arguments += ["--init", "length-weighted", "--recipe", texts / "rows.json", "--quiet"]
    shown = tokengraft(*arguments, "--json").json["transplant"]
    assert shown["init"] == {"input": "length-weighted", "output": "mean"}
    assert (shown["hole_rows"], shown["suppressed"]) == ("zero", 20)


def test_a_dry_run_obeys_the_options_that_a_run_obeys(command, texts):
    def text_bytes(*more):
        return json.loads(command("--swap", 20, "--dry-run", "--json", *more).out)["text_bytes"]

    sizes = [(texts / f"{name}.txt").stat().st_size for name in ("et", "lv", "en")]
    assert text_bytes() == sum(sizes)
    assert text_bytes("--max-bytes", "1000") == 3000
    assert text_bytes("--keep", texts / "lv.txt") == sum(sizes) + sizes[1]
    assert text_bytes("--skip-bad", "--keep", texts / "missing.txt") == sum(sizes)
    assert not (texts / "out").exists()


def test_the_command_protects_tokens_and_prints_warnings(command, texts):
    (texts / "protect.txt").write_text(" the\n")
    more = ["--swap", 10_000, "--protect", texts / "protect.txt", "--protect-pattern", "a"]
    assert "protected" in command(*more, code=2).err
    (texts / "latin1.txt").write_bytes("\n".join(ESTONIAN).encode() + b"\n\xf5hk")
    assert "warning: old:" in command("--swap", 10, "--no-report", "--target", f"old={texts / 'latin1.txt'}").err
