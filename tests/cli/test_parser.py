"""What is typed: numbers, names, abbreviations, mistakes, and the help."""

import re
import shlex

import pytest

import tokengraft as tg
from tokengraft import cli
from tokengraft.options import values as texts
from tokengraft.options.option import command_line, given_options
from tokengraft.options.table import options_of
from tokengraft.options.values import kept_texts, number, one_text, texts_by_name, weighted_texts


@pytest.mark.parametrize(
    ("text", "value"), [("16k", 16_000), ("16K", 16_000), ("1.5M", 1_500_000), ("16_000", 16_000), ("-5", -5), ("7", 7)]
)
def test_numbers_can_be_in_thousands_and_millions(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["", "k", "1.5", "0.0001k", "16kb", "16 000", "automatic", "1e3"])
def test_what_is_not_a_whole_number_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        cli.main(["prune", "model", "--remove", text, "--out", "x"])
    assert "is not a whole number; pass one like 16000 or 16k" in capsys.readouterr().err


def test_every_size_is_a_number_like_16k():
    parser = cli.build_parser()
    actions = [a for c in parser._subparsers._group_actions[0].choices.values() for a in c._actions]
    plain = {action.option_strings[0] for action in actions if action.type is int}
    assert plain == {"--seed", "--workers"}


def test_no_option_can_be_abbreviated(tokengraft):
    said = tokengraft("adapt", "model", "--target", "et.txt", "--swa", "3", "--out", "x", code=2).err
    assert said.startswith("error: unknown: --swa 3 (did you mean --swap")
    assert said.endswith("\nhint: see `tokengraft adapt --help`\n")


@pytest.mark.parametrize("arguments", [["inspect", "m", "--what"], ["counts", "merge", "a", "--out", "b", "--what"]])
def test_a_mistake_is_one_line_and_a_pointer_to_the_help_of_its_command(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    command = "counts merge" if arguments[0] == "counts" else "inspect"
    assert capsys.readouterr().err == f"error: unknown: --what\nhint: see `tokengraft {command} --help`\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["extend", "m", "--eos=x"], "unknown: --eos=x (an option of adapt)"),
        (["extend", "m", "--format", "text"], "unknown: --format text (an option of train, count, prune, draft, "),
        (["adapt", "m", "--memory", "1GB"], "unknown: --memory 1GB (an option of recipes: write it to a file"),
    ],
)
def test_an_option_of_another_command_or_of_recipes_is_refused_with_the_place_that_has_it(arguments, said, tokengraft):
    assert tokengraft(*arguments, "--out", "x", code=2).err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["adpt"], "there is no command 'adpt' (did you mean adapt?)\nhint: see `tokengraft --help`\n"),
        (
            ["counts", "mrge"],
            "there is no command 'mrge' (did you mean merge?)\nhint: see `tokengraft counts --help`\n",
        ),
        (["zzz"], "there is no command 'zzz'\nhint: see `tokengraft --help`\n"),
    ],
)
def test_an_unknown_command_gets_the_one_that_was_meant(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"error: {said}"


def test_without_a_command_five_lines_say_what_it_is_and_three_commands_to_start_with(tokengraft):
    lines = tokengraft().out.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    commands = [line.strip().split("  ")[0] for line in lines if line.startswith("  ")]
    assert len(commands) == 3
    for command in commands:
        cli.build_parser().parse_args(shlex.split(command)[1:])


def test_every_command_has_quiet_and_json():
    commands = cli.build_parser()._subparsers._group_actions[0].choices
    merge = commands.pop("counts")._subparsers._group_actions[0].choices["merge"]
    for command in (*commands.values(), merge):
        flags = {flag for action in command._actions for flag in action.option_strings}
        assert {"--quiet", "--json"} <= flags, command.prog


def test_texts_have_the_name_that_is_given_or_that_of_their_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert texts_by_name(["et=a", "c/en.txt"], "text") == {"et": "a", "en": "c/en.txt"}
    assert one_text(["a.txt", "b.txt"], "text") == ("a", ["a.txt", "b.txt"])
    assert one_text(["et=a.txt", "b.txt"], "text") == ("et", ["a.txt", "b.txt"])
    assert kept_texts(["a", "b"], "keep") == {"keep": ["a", "b"]}
    assert kept_texts(["a", "de=b", "c"], "keep") == {"keep": "a", "de": ["b", "c"]}
    (tmp_path / "x=y.txt").write_text("a file with a strange name")
    assert texts_by_name(["x=y.txt"], "text") == {"x=y": "x=y.txt"}
    with pytest.raises(tg.errors.OptionError, match="`text` is one text, and 2 were given: 'et', 'en'"):
        one_text(["et=a", "en=b"], "text")


def test_lines_of_a_list_end_where_those_of_a_text_do(tmp_path):
    (tmp_path / "list.txt").write_bytes("\ufeffa\u2028b\r\n\x0b\x85c\nd\n".encode())
    assert texts.lines_of(tmp_path / "list.txt", "protect") == ["a\u2028b", "\x0b\x85c", "d"]
    (tmp_path / "list.txt").write_bytes(b"")
    assert texts.lines_of(tmp_path / "list.txt", "protect") == texts.lines_of(None, "protect") == []


@pytest.mark.parametrize(
    ("texts", "option"),
    [
        (lambda: texts_by_name(["et=a", "et=b"], "text"), "text"),
        (lambda: texts_by_name(["a/et.txt", "b/et.txt"], "text"), "text"),
        (lambda: texts_by_name(["et=a", "b/et.txt"], "test"), "test"),
        (lambda: one_text(["et=a", "et=b"], "held_out"), "held_out"),
        (lambda: kept_texts(["et=a", "b", "et=c"], "keep"), "keep"),
        (lambda: kept_texts(["a", "et=b"], "et"), "keep"),
        (lambda: weighted_texts([["et=a", "et=b"]]), "target"),
        (lambda: weighted_texts([["et=a"], ["et=b"]]), "target"),
    ],
)
def test_two_texts_of_one_name_are_refused_by_every_option(texts, option):
    with pytest.raises(tg.errors.OptionError, match=f"two texts of `{option}` are called 'et'"):
        texts()


def test_the_recorded_command_gives_the_same_options_again():
    texts = "--target et=a.txt:2 b.txt --target c.txt --keep d.txt"
    others = "--no-report --no-keep-llama-cpp-hash --max-bytes 1GB --preserve e.txt f.txt --scripts Latin Greek"
    given = f"tokengraft adapt model {texts} --swap 16k --for vllm --for ollama {others}".split()
    parser = cli.build_parser(["adapt"])

    def parsed(words):
        return vars(parser.parse_args([*words[1:], "--out", "x"])) | {"given": None}

    options = options_of("adapt")
    named = given_options(options, parser.parse_args([*given[1:], "--out", "x"]))
    words = shlex.split(command_line("adapt", ["model"], options, {k: v for k, v in named.items() if k != "out"}))
    assert parsed(words) == parsed(given)
    assert "--swap 16000" in " ".join(words)


@pytest.mark.parametrize("command", ["adapt", "extend", "prune"])
def test_help_shows_the_options_that_most_need_and_help_all_shows_all(command, capsys):
    shown = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as stopped:
            cli.main([command, option])
        assert stopped.value.code == 0
        shown.append({*re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE)})
    assert len(shown[0] - {"--help", "--help-all"}) <= 14
    assert shown[0] < shown[1]
    parser = cli.build_parser([command])._subparsers._group_actions[0].choices[command]
    flags = [[flag for flag in action.option_strings if flag.startswith("--")] for action in parser._actions]
    assert shown[1] == {names[0] for names in flags if names}
