"""What a terminal shows: tables that fit, stages, what a stopped run keeps; and how options are written."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint

import tokengraft as tg
from tokengraft import cli, progress

COLOURS = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def place(tmp_path, monkeypatch):
    checkpoint(tmp_path / "model")
    for name, lines in (("et", ESTONIAN), ("en", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def extended(place, tokengraft):
    tokengraft("extend", "model", "--corpus", "et.txt", "--add", "16", "--out", "extended", "--quiet")
    return place / "extended"


def in_terminal(columns, *arguments, **environment):
    """What a terminal of some columns gets on stdout and stderr."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "tokengraft", *map(str, arguments)]
    with subprocess.Popen(command, stdout=far, stderr=far, env=kept | environment) as process:
        os.close(far)
        shown = b""
        while True:
            try:
                chunk = os.read(near, 4096)
            except OSError:  # Linux reports the other end's close as an error
                break
            if not chunk:
                break
            shown += chunk
    assert process.returncode == 0, shown
    return shown


def lines_of(shown):
    """The lines of a terminal, without colours and without what was overwritten."""
    return [line.rsplit("\r", 1)[-1] for line in COLOURS.sub(b"", shown).decode().replace("\r\n", "\n").split("\n")]


@pytest.mark.usefixtures("extended")
@pytest.mark.parametrize("columns", [80, 100])
def test_no_figure_of_a_table_is_cut(columns):
    texts = ["--text", "a-text-with-a-very-long-name=et.txt", "en.txt"]
    lines = lines_of(in_terminal(columns, "evaluate", "the-tokenizer-before=model", "new=extended", *texts))
    assert not any("…" in line for line in lines)
    assert all(len(line) <= columns for line in lines)
    scores = tg.evaluate({"old": "model", "new": "extended"}, {"et": "et.txt"})
    before, after = scores["old", "et"], scores["new", "et"]
    shown = " ".join("\n".join(lines).split())
    assert f"{before.bytes_per_token:.3f} → {after.bytes_per_token:.3f}" in shown
    assert f"{after.tokens / before.tokens - 1:+.1%}" in shown


@pytest.mark.usefixtures("extended")
def test_wide_shows_all_measures_and_cuts_none(capsys):
    arguments = ["evaluate", "old=model", "new=extended", "--text", "et.txt"]
    cli.main(arguments)
    heads, row, legend = capsys.readouterr().out.splitlines()
    assert heads.split() == ["text", "bytes/token", "tokens", "same", "new", "used"]
    assert row.startswith("et  ")
    for head in ("bytes/token", "tokens", "same", "new used"):
        assert f"{head}: " in legend
    cli.main([*arguments, "--wide"])
    assert {"ceiling", "rényi", "wins", "edits"} <= {*capsys.readouterr().out.split("\n")[0].split()}
    wide = "\n".join(lines_of(in_terminal(80, *arguments, "--wide")))
    assert "…" not in wide
    assert "edits" in wide


@pytest.mark.usefixtures("extended")
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_examples_mark_boundaries_with_and_without_colours(environment):
    shown = in_terminal(400, "evaluate", "model", "extended", "--text", "et.txt", "--examples", **environment)
    (before, *_) = [line for line in lines_of(shown) if line.startswith("  before")]
    document = tg.compare(tg.load("model"), tg.load("extended"), "et.txt").gained[0]
    assert before.count("|") == len(document.before) - 1
    if environment:
        assert b"\x1b[30;46m" not in shown


@pytest.mark.usefixtures("place")
def test_examples_show_control_characters_and_parts_of_characters_as_escapes(place, capsys):
    (place / "odd.txt").write_text("põdrad \x1b[31m ж põdrad\n" * 5, encoding="utf-8")
    cli.main(["extend", "model", "--corpus", "odd.txt", "--add", "4", "--out", "new", "--quiet"])
    capsys.readouterr()
    cli.main(["evaluate", "model", "new", "--text", "odd.txt", "--examples"])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b" in shown
    assert "\\xd0|\\xb6" in shown


def test_a_terminal_gets_one_line_for_each_stage(place):
    arguments = ["adapt", "model", "--target", "et=et.txt", "--keep", "en.txt", "--swap", "12", "--out", "out"]
    shown = in_terminal(80, *arguments, "--no-report")
    last = [line for line in lines_of(shown) if "━" in line]
    stages = [line.split("━")[0].strip() for line in last]
    for stage in ("counting et", "counting keep", "choosing tokens to prune", "learning 12 tokens", "writing"):
        assert stage in stages
    assert "12 tokens" in next(line for line in last[::-1] if line.startswith("learning"))
    assert all(len(line) <= 80 for line in last)
    assert (place / "out").exists()


@pytest.mark.usefixtures("place")
def test_without_a_terminal_a_stage_is_one_plain_line_and_quiet_shows_none(capsys):
    arguments = ["adapt", "model", "--target", "et=et.txt", "--swap", "12", "--no-report"]
    status, err = cli.main([*arguments, "--out", "out"]), capsys.readouterr().err
    assert status == 0, err
    assert err.splitlines()[:2] == ["counting et", "choosing tokens to prune"]
    assert "load it: `AutoModelForCausalLM.from_pretrained('out')`" in err
    status, (out, err) = cli.main([*arguments, "--out", "quiet", "--quiet", "--json"]), capsys.readouterr()
    assert status == 0, err
    assert json.loads(out)["plan"]["added"] == 12
    assert all(line.startswith("warning: ") for line in err.splitlines())


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("size", [["--add", "4"], ["--remove", "8"], ["--swap", "4", "--as-adapter"]])
def test_what_to_do_next_is_in_lines_of_at_most_100_characters(tokengraft, size):
    for name in ("et", "en"):
        Path(f"{name}.txt").rename(f"{name}{'x' * 90}.txt")
    texts = ["--target", f"et=et{'x' * 90}.txt", "--keep", f"en{'x' * 90}.txt"]
    err = tokengraft("adapt", "model", *texts, *size, "--out", "out").err
    hints = err[err.index("wrote `out`") :].splitlines()
    assert len(hints) in (4, 5)  # of an adapter, the report has the command
    assert all(len(line) <= 100 for line in hints), hints


def test_long_stages_report_what_is_done_the_rate_and_the_time_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.one_stage("counting", quiet=False) as update:
        for _ in range(4):
            now[0] += 4.0
            update("et.txt", 8_000_000, 64_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "counting",
        "counting: 16.0/64.0 MB, 2.0 MB/s, 24 s left, et.txt",
        "counting: 32.0/64.0 MB, 2.0 MB/s, 16 s left, et.txt",
    ]


def test_nothing_is_estimated_from_a_slow_start(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.one_stage("counting", quiet=False) as update:
        for seconds, more in ((9, 50_000), (6, 50_000), (6, 5_900_000)):
            now[0] += seconds
            update("et.txt", more, 12_000_000)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "counting: 0.1/12.0 MB, et.txt",
        "counting: 0.1/12.0 MB, et.txt",
        "counting: 6.0/12.0 MB, 0.5 MB/s, 12 s left, et.txt",
    ]


def test_learned_tokens_are_reported_and_add_up(place):
    tokenizer = tg.load("model")
    reported = []
    extension = tg.extend(
        tokenizer, tg.count(tokenizer, place / "et.txt"), 120, progress=lambda *now: reported.append(now)
    )
    assert sum(more for _, more, _ in reported) == len(extension)
    assert {total for *_, total in reported} == {120}


def test_an_error_of_the_progress_callback_of_learning_is_raised(place):
    def fail(*_):
        raise ZeroDivisionError

    tokenizer = tg.load("model")
    with pytest.raises(ZeroDivisionError):
        tg.extend(tokenizer, tg.count(tokenizer, place / "et.txt"), 16, progress=fail)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_stopped_run_says_what_it_kept_and_the_next_one_that_it_resumed(place):
    os.mkfifo("pipe.txt")
    arguments = ["adapt", "model", "--target", "et=et.txt", "en=pipe.txt", "--add", "12", "--out", "out", "--no-report"]
    keep = "import_module('tokengraft.pipeline.adapt').WORTH_KEEPING = 0"  # else small texts are counted again
    start = f"from importlib import import_module; {keep}; from tokengraft.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", start, *arguments]

    def listen():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=listen) as process:
        while not [*place.glob("out.work/*.json")]:  # the first text is counted; the second is a pipe without a writer
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 128 + signal.SIGTERM
    assert "kept: counts of text that was read in" in said
    assert f"`{shlex.join(['tokengraft', *arguments])}`" in said
    os.unlink("pipe.txt")  # noqa: PTH108
    (place / "pipe.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[:2] == ["counting et: resumed, from the interrupted run", "counting en"]


@pytest.mark.usefixtures("place")
def test_weights_do_not_change_how_often_new_tokens_are_said_to_occur(place, capsys):
    (place / "other.txt").write_text("\n".join(ESTONIAN[:9]), encoding="utf-8")
    learn = ["extend", "model", "--corpus", "et.txt", "en.txt", "--add", "40", "--json", "--quiet"]
    points = []
    for weight in ("1", "1000"):
        assert cli.main([*learn, "--held-out", "other.txt", "--curve", "--weight", weight, "--weight", weight]) == 0
        points.append(json.loads(capsys.readouterr().out)["points"])
        assert cli.main([*learn, "--held-out", "other.txt", "--curve", "--weight", "1000", "--weight", "1001"]) == 0
        points.append(json.loads(capsys.readouterr().out)["points"])
    assert points[0] == points[2]
    assert [point["below_100"] for point in points[1]] == [point["below_100"] for point in points[0]]
    assert any(point["below_100"] for point in points[0])


def test_weights_do_not_hide_that_new_tokens_are_rare(place, capsys):
    (place / "few.txt").write_text("\n".join(ESTONIAN[:9]), encoding="utf-8")
    extend = ["extend", "model", "--corpus", "few.txt", "few.txt", "--weight", "1000", "--weight", "1001"]
    assert cli.main([*extend, "--add", "2", "--out", "new", "--quiet"]) == 0
    assert "2 of the 2 new tokens occur fewer than 100 times in the text" in capsys.readouterr().err


def test_counts_that_were_weighted_do_not_choose_a_size(place, capsys):
    (place / "other.txt").write_text("\n".join(ESTONIAN[:9]), encoding="utf-8")
    assert (
        cli.main(["count", "model", "et.txt", "en.txt", "--weight", "9", "--weight", "10", "--out", "c", "--quiet"])
        == 0
    )
    extend = ["extend", "model", "--counts", "c", "--out", "new", "--quiet"]
    assert cli.main([*extend, "--held-out", "other.txt", "--add", "auto"]) == 2
    assert "error: the counts were weighted" in capsys.readouterr().err
    assert cli.main([*extend, "--add", "8"]) == 0


def test_a_wrong_number_of_weights_is_refused_before_text_is_read(place, monkeypatch, capsys):
    monkeypatch.setattr("tokengraft.pipeline.texts.count", lambda *_, **__: pytest.fail("text was read"))
    command = [
        "extend",
        "model",
        "--corpus",
        str(place / "et.txt"),
        str(place / "en.txt"),
        "--weight",
        "2",
        "--add",
        "4",
    ]
    assert cli.main([*command, "--out", "new", "--quiet"]) == 2
    assert "1 weights were given for 2 texts" in capsys.readouterr().err


def test_a_limit_is_for_each_text_that_has_a_weight(place):
    tokenizer = tg.load("model")
    paths, limit = [place / "et.txt", place / "en.txt"], tg.CountOptions(max_bytes=2000)
    parts = [tg.count(tokenizer, path, count_options=limit) for path in paths]
    assert tg.count(tokenizer, paths, weights=[1, 3], count_options=limit).table == (parts[0] + parts[1].scale(3)).table


@pytest.mark.usefixtures("extended")
def test_evaluate_and_curve_read_what_count_reads(place, capsys):
    folder = place / "corpus"
    folder.mkdir()
    half = len(ESTONIAN) // 2
    for name, part in (("a", ESTONIAN[:half]), ("b", ESTONIAN[half:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in part))
    ways = (["corpus"], ["corpus/*.jsonl"], ["et=corpus/*.jsonl"])
    found = []
    for text in ways:
        cli.main(["evaluate", "model", "extended", "--text", *text, "--json"])
        found.append([score["tokens"] for score in json.loads(capsys.readouterr().out)["scores"]])
        cli.main(["evaluate", "model", "extended", "--text", *text, "--examples", "--json"])
        (compared,) = json.loads(capsys.readouterr().out)["examples"].values()
        assert [compared["tokens_before"], compared["tokens_after"]] == found[0]
        learn = ["extend", "model", "--corpus", "et.txt", "--add", "16", "--json", "--quiet"]
        cli.main([*learn, "--held-out", *text, "--curve"])
        assert json.loads(capsys.readouterr().out)["points"][-1]["tokens"] == 16
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("extended")
def test_several_files_of_counts_are_one_text_but_not_counts_and_text():
    tokenizer = tg.load("model")
    for name in ("et", "en"):
        tg.count(tokenizer, f"{name}.txt").save(f"{name}.parquet")
    one, two = (
        tg.evaluate({"t": tokenizer}, {"all": given}).scores[0].tokens
        for given in (["et.parquet", "en.parquet"], tg.count(tokenizer, ["et.txt", "en.txt"]))
    )
    assert one == two
    with pytest.raises(tg.errors.CorpusError, match=r"has counts \(`et.parquet`\) and text \(`en.txt`\)"):
        tg.evaluate({"t": tokenizer}, {"all": ["et.parquet", "en.txt"]})


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--add 4", "--curve has no effect without --held-out"),
        ("--add auto --held-out en.txt", "--curve and --add auto do not go together"),
        ("--add 4 --held-out en.txt --out x", "--curve and --out do not go together"),
        ("--add 4 --held-out en.txt --report x.html", "--curve and --report do not go together"),
        ("--add 4 --held-out en.txt --method naive-regen", "--held-out is for continued training"),
    ],
)
def test_what_has_no_effect_with_curve_is_refused(options, message, tokengraft):
    assert message in tokengraft("extend", "model", "--corpus", "et.txt", "--curve", *options.split(), code=2).err


@pytest.mark.usefixtures("extended")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("model --text et.txt --examples", "--examples has no effect without two tokenizers"),
        ("model extended --text et.txt --examples --csv", "--csv and --examples do not go together"),
        ("model extended --text et.parquet --examples", "--examples shows documents"),
    ],
)
def test_examples_that_cannot_be_shown_are_refused(arguments, message, tokengraft):
    cli.main(["count", "model", "et.txt", "--out", "et.parquet", "--quiet"])
    assert message in tokengraft("evaluate", *arguments.split(), code=2).err


@pytest.mark.usefixtures("extended")
def test_a_dry_run_of_transplant_needs_no_weights(capsys, tokengraft):
    cli.main(["transplant", "model", "extended", "--dry-run", "--json"])
    with_weights = json.loads(capsys.readouterr().out)
    alone = tokengraft("transplant", "model/tokenizer.json", "extended", "--dry-run", "--json").json
    assert alone["added"] == with_weights["added"] > 0
    assert f"{alone['added']:,} new" in tokengraft("transplant", "model/tokenizer.json", "extended", "--dry-run").out
