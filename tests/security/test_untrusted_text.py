"""Names, tokens and texts that are not trusted: what is printed and written is escaped, and has no credentials."""

import csv
import io
import json
import shlex
import sys
from contextlib import suppress

import builders
import pytest
from checkpoints import checkpoint

import tokengraft as tg
from tokengraft import cli
from tokengraft.cli import commands as display
from tokengraft.cli.main import resumable
from tokengraft.errors import CorpusError, escaped
from tokengraft.options.values import named

NASTY = "a\x1b]8;;http://evil\x07b\x1b[2J\x9b31m[red]x[/red]\u202egpj.\u2028\x00\r"
SECRET = "https://me:secret@host/a.txt?signature=secret"


def has_controls(text):
    return [character for character in text if not character.isprintable() and character != "\n"]


@pytest.fixture
def terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def shown(action, *arguments):
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setenv("COLUMNS", "400")
        action(*arguments)
        monkeypatch.undo()
        return stream.getvalue()

    return shown


def test_tables_show_control_characters_and_markup_as_text(terminal, capsys):
    rows = [("label", NASTY)]
    for shown in (terminal(display.print_table, rows), terminal(display.print_columns, ["a", NASTY], [["b", NASTY]])):
        assert "[red]x[/red]" in shown
        assert "\\x1b]8;;http://evil" in shown
        assert not has_controls(shown)
    display.print_table(rows)
    display.print_columns(["a", NASTY], [["b", NASTY]])
    display.print_warnings([NASTY])
    captured = capsys.readouterr()
    assert not has_controls(captured.out + captured.err)


def test_errors_show_control_characters_as_text():
    assert not has_controls(str(CorpusError(f"cannot read {NASTY}", hint=f"try {NASTY}")))
    assert escaped("a\nb") == "a\nb"


def nasty_tokenizer(folder):
    document = builders.byte_level()
    next_id = 1 + max(document["model"]["vocab"].values())
    document["added_tokens"].append(builders.added(next_id + 50, NASTY))
    return builders.write(folder, document)


def test_commands_print_no_control_characters_of_tokens_texts_or_names(tmp_path, capsys):
    name = NASTY.replace("\x00", "").replace("/", "")
    source = nasty_tokenizer(tmp_path / name)
    text = tmp_path / f"{name}.txt"
    text.write_text(f"the cat {NASTY} sat\nzz zz zz")
    for arguments in (
        ["inspect", str(source)],
        ["check", str(source)],
        ["count", str(source), str(text), "--out", str(tmp_path / f"{name}.parquet")],
        ["extend", str(source), "--corpus", str(text), "--add", "2", "--out", str(tmp_path / f"{name}-out")],
        ["evaluate", f"a\x1b[31m={source}", f"b={tmp_path / f'{name}-out'}", "--text", f"{name}={text}"],
        ["evaluate", str(source), str(tmp_path / f"{name}-out"), "--text", str(text), "--examples"],
        ["transplant", str(source), str(tmp_path / f"{name}-out"), "--dry-run"],
        ["inspect", str(tmp_path / f"{name}-none")],
        ["count", str(source), str(tmp_path / f"{name}-none"), "--out", str(tmp_path / "c.parquet")],
    ):
        cli.main(arguments)
        captured = capsys.readouterr()
        assert not has_controls(captured.out + captured.err), arguments


def test_json_and_csv_can_be_read_back_whatever_the_names_are(tmp_path):
    tok = tg.load(nasty_tokenizer(tmp_path / "tok"))
    names = ['=cmd|" /C calc"!A0', 'a","b', "a\nb", "</script>", NASTY]
    found = tg.evaluate(dict.fromkeys(names, tok), {name: iter(["the cat"]) for name in names})
    rows = [*csv.DictReader(io.StringIO(found.to_csv(), newline=""))]
    assert [row["tokenizer"] for row in rows] == [score.tokenizer for score in found.scores]
    assert [score["text"] for score in json.loads(found.to_json())["scores"]] == [s.text for s in found.scores]


SPACED = "https://me:secret@127.0.0.1:9/my file.txt?signature=secret"


@pytest.mark.parametrize("url", [SECRET, SPACED])
@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "{url}"],
        ["inspect", "{model}", "{url}\x1b[2J"],
        ["count", "{model}", "{url}", "--out", "c.parquet"],
        ["count", "{model}", "a.txt", "--out", "{url}"],
        ["evaluate", "{model}", "--text", "a.txt", "--base", "{url}"],
        ["evaluate", "{model}", "--text", "a.txt", "--junk", "{url}"],
        ["prune", "{model}", "--counts", "{url}", "--remove", "3", "--out", "p"],
        ["prune", "{model}", "--order", "{url}", "--remove", "3", "--out", "p"],
    ],
)
def test_messages_have_no_credentials_wherever_a_url_is_given(tmp_path, monkeypatch, capsys, url, arguments):
    monkeypatch.chdir(tmp_path)
    model = builders.write(tmp_path / "m", builders.byte_level())
    url = url.replace("host", "127.0.0.1:9")
    with suppress(SystemExit):
        assert cli.main([argument.format(url=url, model=model) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err
    assert "127.0.0.1" in captured.err
    assert not has_controls(captured.out + captured.err)


def test_names_and_errors_have_no_credentials():
    assert named(SPACED)[0] == "my file"
    error = CorpusError(f"{'x' * 980} {SECRET}", hint=f"not {SECRET}")
    assert "secret" not in repr(error) + str(error)


def test_an_interrupted_command_shows_no_credentials(tmp_path, capsys):
    (tmp_path / "kept").touch()
    arguments = ["adapt", "m", "--target", f"et={SECRET}", "--out", "a b\x1b[2J"]
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path, arguments, "counts"):
        raise KeyboardInterrupt
    shown = capsys.readouterr().err
    assert "secret" not in shown
    assert "credentials in URLs are not shown" in shown
    command = shown.split("`")[3]
    assert shlex.split(command)[:5] == ["tokengraft", "adapt", "m", "--target", "et=https://host/a.txt"]
    assert not has_controls(shown)


def test_an_interrupted_command_without_credentials_is_shown_as_given(tmp_path, capsys):
    (tmp_path / "kept").touch()
    arguments = ["adapt", "m; rm -rf x", "--target", "et=a$(x).txt", "`id`"]
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path, arguments, "counts"):
        raise KeyboardInterrupt
    command = capsys.readouterr().err.split("go on with the same command: `")[1].rstrip("\n")[:-1]
    assert shlex.split(command) == ["tokengraft", *arguments]


def test_records_and_reports_have_no_credentials():
    from tokengraft.cli import evaluate

    options = type("Options", (), {"arguments": ["report", "a", "b", "--text", f"t={SECRET}"]})
    assert "secret" not in json.dumps(evaluate._record(options))


def test_outputs_of_an_adaptation_quote_names_that_look_like_commands(tmp_path):
    model = tmp_path / "$(touch ran) `x` \"m'"
    checkpoint(model)
    text = tmp_path / "et;rm -rf x.txt"
    text.write_text("\n".join(f"põdrad põõsas {n} õunad õues" for n in range(300)))
    out = tmp_path / "out"
    arguments = ["adapt", str(model), "--target", f"et={text}", "--swap", "3", "--out", str(out), "--quiet"]
    assert cli.main(arguments) == 0
    command = json.loads((out / "adaptation.json").read_text())["request"]["command"]
    words = shlex.split(command)
    assert words[:3] == ["tokengraft", "adapt", str(model)]
    assert f"et={text}" in words
    json.loads((out / "training.json").read_text())
