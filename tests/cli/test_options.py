"""No option is dropped or ignored, and no input is an output."""

import argparse

import builders
import pytest
from checkpoints import checkpoint
from outputs import content

import tokengraft as tg
from tokengraft import cli
from tokengraft.learn.include import WordList
from tokengraft.options.table import TABLE, options_of
from tokengraft.options.values import named
from tokengraft.pipeline.options import AdaptOptions


def commands(parser=None, name=""):
    """Every command of the command line, by its name."""
    parser = parser or cli.build_parser()
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        return {name.strip(): parser}
    return {
        full: found
        for action in inner
        for part, command in action.choices.items()
        for full, found in commands(command, f"{name} {part}").items()
    }


OPTIONS = [
    pytest.param(command, action, id=f"{name} {action.option_strings[-1]}")
    for name, command in commands().items()
    for action in command._actions
    if action.option_strings and action.nargs != 0
]


@pytest.mark.parametrize(("command", "action"), OPTIONS)
def test_an_option_given_twice_adds_up_or_is_refused(command, action):
    found, flag = argparse.Namespace(), action.option_strings[-1]
    several = action.nargs is not None
    action(command, found, ["first"] if several else "first", flag)
    if several or isinstance(action, argparse._AppendAction):
        action(command, found, ["second"] if several else "second", flag)
        # --target keeps apart what each use of the option has: files of one use can share a name.
        assert getattr(found, action.dest) in (["first", "second"], [["first"], ["second"]])
    else:
        with pytest.raises(argparse.ArgumentError, match="given twice"):
            action(command, found, "second", flag)


@pytest.fixture
def model(tmp_path):
    return builders.write(tmp_path / "model", builders.byte_level())


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "et.txt"
    path.write_text("põdrad põõsas õunad õues " * 50, encoding="utf-8")
    return path


@pytest.fixture
def counts(model, text, tmp_path):
    return tg.count(tg.load(model), text).save(tmp_path / "et.parquet")


def test_a_repeated_option_refused_by_the_parser_says_which(model, tokengraft):
    shown = tokengraft("transplant", model, model, "--init", "fvt", "--init", "mean", code=2).err
    assert "argument --init: given twice" in shown


def test_texts_of_repeated_options_are_all_measured(model, text, tmp_path, tokengraft):
    (tmp_path / "en.txt").write_text("the cat\n")
    found = tokengraft("evaluate", model, "--text", f"et={text}", "--text", f"en={tmp_path / 'en.txt'}", "--json").json
    assert {score["text"] for score in found["scores"]} == {"et", "en"}


def test_counts_of_repeated_options_are_all_learned_from(model, counts, tmp_path, tokengraft):
    (tmp_path / "zz.txt").write_text("zzqqzz " * 50)
    more = tg.count(tg.load(model), tmp_path / "zz.txt").save(tmp_path / "zz.parquet")
    tokengraft("extend", model, "--counts", counts, "--counts", more, "--add", 12, "--out", tmp_path / "out")
    learned = tg.load(tmp_path / "out").vocab
    assert any("zz" in token for token in learned)
    assert any("Ãµ" in token and len(token) > 2 for token in learned)


@pytest.mark.parametrize(
    "option",
    [
        ["--text-field", "text"],
        ["--documents", "files"],
        ["--format", "text"],
        ["--skip-bad"],
        ["--max-bytes", "1GB"],
    ],
)
def test_with_counts_every_reading_option_is_refused_even_with_its_default(model, counts, tmp_path, tokengraft, option):
    extend = ["extend", model, "--add", 5, "--counts", counts]
    for command in (
        *([extend] if option[0] in {each.flag for each in options_of("extend")} else []),
        ["prune", model, "--remove", 5, "--counts", counts],
        ["prune", model, "--remove", 5, "--method", "last-id-leaf"],
    ):
        said = tokengraft(*command, "--out", tmp_path / "out", *option, code=2).err
        assert f"{option[0]} has no effect without --corpus" in said


def test_every_need_names_options_of_the_same_commands_or_a_fact():
    facts = {"weights", "two tokenizers", "a random initialiser", "a tokenizer that is not byte-level", "BPE"}
    for command in ("recipe", *{name for option in TABLE for name in option.commands.split()}):
        known = {option.flag for option in options_of(command)}
        for option in options_of(command):
            for need in filter(None, option.needs.split("; ")):
                ways = need.split(" or ")
                assert facts & {*ways} or known & {way.split()[0] for way in ways} or command == "count", option
            assert {way.split()[0] for way in option.excludes.split("; ") if way} <= known | {
                "--balance",
                "--swap",
                "--as-adapter",
                "--weight",
            }


def test_every_field_of_the_table_is_one_of_the_options_of_an_adaptation():
    for option in TABLE:
        if option.field and "adapt" in option.commands:
            owner, name = (*option.field.split("."), "")[:2]
            assert hasattr(AdaptOptions(include=WordList(("a",))), owner)
            assert not name or hasattr(getattr(AdaptOptions(include=WordList(("a",))), owner), name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["extend", "--add", 5, "--counts", "C", "--character-coverage", 0.5],
            "--character-coverage has no effect without a tokenizer that is not byte-level",
        ),
        (["extend", "--add", 5, "--counts", "C", "--corpus", "T"], "--counts and --corpus do not go together"),
        (["extend", "--add", 5, "--counts", "C", "--method", "naive-regen", "--min-count", 2], "--min-count is for"),
        (["extend", "--add", 5, "--counts", "C", "--method", "naive-regen", "--deny-pattern", "x"], "--deny-pattern"),
        (["extend", "--add", 5, "--counts", "C", "--method", "naive-regen", "--extension", "E"], "--extension is for"),
        (["extend", "--add", 5, "--counts", "C", "--method", "scaffold", "--no-keep-llama-cpp-hash"], "-hash is for"),
        (["extend", "--add", 5, "--counts", "C", "--max-share", 0.5], "has no effect without --balance parity"),
        (["extend", "--add", 5, "--counts", "C", "--max-add", 9], "has no effect without --add auto"),
        (["prune", "--remove", 5, "--counts", "C", "--scripts", "Latin"], "without --method script|script-leaf"),
        (["prune", "--remove", 5, "--method", "last-id", "--weight", 2], "has no effect without --counts or --corpus"),
        (["prune", "--remove", 5, "--rows", 9, "--counts", "C"], "--rows and --remove do not go together"),
        (["prune", "--remove", 5, "--counts", "C", "--keep-coverage", 0.9], "has no effect without --remove auto"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(model, counts, text, tmp_path, tokengraft, arguments, said):
    places = {"C": counts, "T": text, "M": model, "E": tmp_path / "e.json"}
    command, *others = [places.get(argument, argument) for argument in arguments]
    assert said in tokengraft(command, model, *others, "--out", tmp_path / "out", code=2).err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("init", [[], ["--init", "fvt"], ["--output-init", "mean"]])
def test_a_seed_of_a_transplant_without_a_random_initialiser_is_refused(model, tmp_path, tokengraft, init):
    said = tokengraft("transplant", model, model, "--seed", 5, *init, "--out", tmp_path / "out", code=2).err
    assert "--seed has no effect without a random initialiser" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--init", "--output-init"])
def test_a_seed_of_a_transplant_with_a_random_initialiser_is_accepted(tmp_path, tokengraft, option):
    checkpoint(tmp_path / "untied")
    command = ["transplant", tmp_path / "untied", tmp_path / "untied", option, "random", "--seed", 5]
    tokengraft(*command, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    "arguments",
    [
        "extend M --counts C --add 5 --out M",
        "extend M --counts C --add 5 --out M/new",
        "extend M --counts C --add 5 --out O --extension C",
        "extend M --counts C --add 5 --out O --extension O/extension.json",
        "extend M --counts C --add 5 --deny T --out O --extension T",
        "prune M --counts C --remove 5 --out M",
        "prune M --counts C --remove 5 --out O --order C",
        "prune M --counts C --remove 5 --protect T --out O --order T",
        "count M T --out T",
        "count M P --out T",
        "count M F --out T",
        "count M T --out M/tokenizer.json",
        "counts merge C --out C",
        "transplant M D --out D",
    ],
)
def test_an_input_is_never_an_output_even_with_force(model, counts, text, tmp_path, tokengraft, arguments):
    donor = builders.write(tmp_path / "donor", builders.byte_level())
    (tmp_path / "link").symlink_to(text)
    places = {"M": model, "C": counts, "T": text, "O": tmp_path / "out", "D": donor, "P": tmp_path / "*.txt"}
    places["F"] = tmp_path / "link"
    before = content(tmp_path)
    parts = [part.partition("/") for part in arguments.split()]
    given = [f"{places.get(head, head)}{slash}{tail}" for head, slash, tail in parts]
    assert "output" in tokengraft(*given, "--force", code=2).err
    assert content(tmp_path) == before


def test_standard_input_is_an_input_too(model, text):
    import subprocess
    import sys

    before = text.read_bytes()
    command = [sys.executable, "-m", "tokengraft", "count", model, "-", "--out", text, "--force"]
    with text.open("rb") as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is the input" in done.stderr
    assert text.read_bytes() == before


def test_what_force_may_not_delete_is_known_before_the_text_is_read(model, tmp_path, tokengraft):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").write_text("paid for")
    missing = tmp_path / "no-such-text.txt"
    arguments = ["--corpus", missing, "--out", tmp_path / "out", "--force"]
    for command in (["extend", model, "--add", 5], ["prune", model, "--remove", 5]):
        said = tokengraft(*command, *arguments, code=2).err
        assert "model.safetensors`, which --force would delete" in said


def test_a_name_is_the_last_part_of_a_path_without_suffixes_of_text():
    assert named("Qwen/Qwen2.5-7B") == ("Qwen2.5-7B", "Qwen/Qwen2.5-7B")
    assert named("Qwen2.5-7B") == ("Qwen2.5-7B", "Qwen2.5-7B")
    assert named("data/v1.0/") == ("v1.0", "data/v1.0/")
    assert named("data/et.jsonl.zst")[0] == "et"
    assert named("x/tokenizer.json")[0] == "tokenizer"
    assert named("a=b=c.txt") == ("a", "b=c.txt")
    assert named("d/a=b.txt") == ("a=b", "d/a=b.txt")
    assert named("=x.txt") == ("=x", "=x.txt")
    with pytest.raises(tg.errors.OptionError, match="has no value after"):
        named("et=")
