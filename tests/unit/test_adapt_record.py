"""What an adaptation records and repeats, recipes, orders of `prune`, and what is measured."""

import json
import shutil
import sys
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkpoints import ESTONIAN, checkpoint, write_texts

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.cli.adapt import _tokens
from tokengraft.counts.threads import HoldOut
from tokengraft.options.option import command_line
from tokengraft.options.table import options_of
from tokengraft.pipeline.result import given_paths

pytestmark = pytest.mark.usefixtures("transformers_running")
PLAIN = tg.AdaptOptions(report=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, texts, an adaptation with many options in `first`, and a plain one in `plain`."""
    place = tmp_path_factory.mktemp("made")
    checkpoint(place / "model")
    (place / "model" / "README.md").write_text("a model")
    (place / "model" / "chat_template.jinja").write_text("{{ messages }}")
    write_texts(place, other=[text.replace("põdrad", "kassid") for text in ESTONIAN[:99]])
    (place / "keep.txt").write_text("Ġcat\n", encoding="utf-8")
    (place / "deny.txt").write_text("ad\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert cli.main([*FULL, "--out", "first"]) == 0
        tg.adapt("model", target="et.txt", add=12, out="plain", options=PLAIN)
    return place


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A copy of all that, which is the current folder."""
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture
def repeat(place, capsys):
    """Runs a recipe into `second`, and returns what is printed to stderr."""

    def run(record="plain/adaptation.json", *more, code=2):
        capsys.readouterr()
        assert cli.main(["adapt", "--recipe", record, "--out", "second", *more]) == code
        assert (place / "second").exists() or code
        return capsys.readouterr().err

    return run


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def request_in(folder, name="adaptation.json"):
    return json.loads((folder / name).read_bytes())["request"]


FULL = ["adapt", "model", "--target", "et=et.txt:2", "lv=lv.txt", "--keep", "en=en.txt", "--swap", "12"]
FULL += ["--test", "t=other.txt", "--init", "random", "--protect", "keep.txt", "--deny", "deny.txt"]
FULL += ["--preserve", "en.txt", "--no-report", "--quiet"]


def test_a_record_has_inputs_with_sizes_options_and_versions(place):
    request = request_in(place / "first")
    assert request == request_in(place / "first", "tokengraft.json")
    inputs = {(item["role"], item["name"]): item for item in request["inputs"]}
    roles = [("model", "model"), ("target", "et"), ("target", "lv"), ("keep", "en"), ("test", "t")]
    assert [*inputs] == [*roles, ("preserve", "preserve")]
    size = (place / "et.txt").stat().st_size
    documents = inputs["target", "et"].pop("documents")
    assert inputs["target", "et"] == {"role": "target", "name": "et", "path": "et.txt", "bytes": size}
    assert documents == len(ESTONIAN)
    assert inputs["model", "model"]["sha256"] == tg.load("model").content_hash
    assert inputs["model", "model"]["bytes"] == (place / "model" / "model.safetensors").stat().st_size
    options = request["options"]
    assert options["model"] == "model"
    assert options["target"] == [["et=et.txt:2", "lv=lv.txt"]]
    assert options["swap"] == 12
    assert (options["protect"], options["deny"]) == (["Ġcat"], ["ad"])
    assert request["versions"]["tokengraft"] == tg.__version__
    assert request["command"].startswith("tokengraft adapt model --target et=et.txt:2 lv=lv.txt --keep en=en.txt ")
    assert "--out" not in request["command"]


@pytest.mark.parametrize("name", ["adaptation.json", "tokengraft.json"])
def test_a_record_repeats_the_run_to_the_byte(place, repeat, name):
    (place / "keep.txt").unlink()  # the record has what these files said
    (place / "deny.txt").unlink()
    repeat(f"first/{name}", "--quiet", code=0)
    assert files_of(place / "second") == files_of(place / "first")


TOML = """
model = "model"
swap = 12
init = "random"
seed = 7
keep = "en.txt"
deny = ["ad"]
no_report = true
max_documents = 350

[target]
et = "et.txt:2"
lv = ["lv.txt"]
"""


def test_a_recipe_by_hand_is_the_same_as_its_options_and_options_that_are_given_win(place, repeat):
    (place / "recipe.toml").write_text(TOML, encoding="utf-8")
    (place / "recipe.json").write_text(json.dumps(tomllib.loads(TOML)), encoding="utf-8")
    given = ["--target", "et=et.txt:2", "lv=lv.txt", "--keep", "en.txt", "--init", "random", "--deny", "deny.txt"]
    for name in ("recipe.toml", "recipe.json"):
        repeat(name, "--quiet", "--force", code=0)
        options = request_in(place / "second")["options"]
        assert options["seed"] == 7
        assert options["max_documents"] == 350
        assert options["deny"] == ["ad"]
    repeat("recipe.toml", "--swap", "4", "--quiet", "--force", code=0)
    assert tg.load("second").n_rows == tg.load("model").n_rows
    assert request_in(place / "second")["options"]["swap"] == 4
    (place / "recipe.toml").write_text(TOML.replace("seed = 7\nkeep", "keep").replace("max_documents = 350\n", ""))
    repeat("recipe.toml", "--quiet", "--force", code=0)
    assert cli.main(["adapt", "model", *given, "--swap", "12", "--no-report", "--out", "by-options", "--quiet"]) == 0
    assert tg.load("second") == tg.load("by-options")
    weights = [(place / folder / "model.safetensors").read_bytes() for folder in ("second", "by-options")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the recipe `x.json`: No such file or directory"),
        ("", "the recipe `x.json` is not valid JSON"),
        *((text, "has no options of `tokengraft adapt`") for text in ("[]", '{"request": {"step": "adapt"}}')),
        ('{"request": {"step": "transplant"}}', "records the step 'transplant', not an adaptation"),
        ('{"request": 1}', "`request` in `x.json` is not an option of a recipe"),
        (
            '{"request": {"step": "adapt", "only_in_python": ["hold_out"], "options": {}}}',
            "options that only Python has: hold_out",
        ),
        ('{"model": "model", "min-count": 2}', "`min-count` in `x.json` is not an option of a recipe"),
        ('{"model": "model", "out": "x"}', "`out` in `x.json` belongs on the command line"),
        ('{"target": "et.txt"}', "required: MODEL"),
        ('{"model": "model", "target": "et.txt", "swap": "many"}', "`swap` is 'many': 'many' is not a whole number"),
        ('{"model": "model", "target": null, "swap": 1}', "`target` was an object in memory"),
        ('{"model": "model", "target": {"et": []}, "swap": 1}', "`et` in `x.json` is an empty list"),
        (
            '{"model": "model", "target": "et.txt", "balance": "both"}',
            "`balance` is 'both'\nhint: choose one of",
        ),
        ('{"model": "model", "target": "et.txt", "swap": 1, "seed": 3}', "--seed has no effect without a random"),
    ],
)
def test_what_is_no_recipe_is_refused_by_name_and_without_an_exception(place, capsys, content, said):
    if content is not None:
        (place / "x.json").write_text(content)
    with suppress(SystemExit):
        assert cli.main(["adapt", "--recipe", "x.json", "--out", "second"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "hint: " in shown
    assert "Errno" not in shown
    assert not (place / "second").exists()


@pytest.mark.usefixtures("place")
def test_a_folder_is_no_recipe(repeat):
    assert "cannot read the recipe `model`: Is a directory" in repeat("model")


def test_a_record_of_a_text_in_memory_says_so_and_cannot_be_repeated(place, repeat):
    tg.adapt("model", target=iter(ESTONIAN), add=12, out="out", options=PLAIN)
    assert request_in(place / "out")["options"]["target"] == {"target": None}
    assert "the text `target` was an object in memory" in repeat("out/adaptation.json")


def test_options_of_python_are_recorded_and_made_again(place, repeat):
    options = tg.AdaptOptions(
        report=False,
        read_options=tg.ReadOptions(documents="lines", shard=(0, 1)),
        limits=tg.Limits(min_count=3, scripts=("Latin",)),
        include=tg.learn.WordList(("ibuprofen",), exact=True),
        protection=tg.Protection(defaults=False),
        stacks=("vllm",),
    )
    target = {"et": tg.Target("et.txt", 2), "lv": "lv.txt"}
    tg.adapt("model", target=target, keep="en.txt", swap="auto", out="out", options=options)
    repeat("out/adaptation.json", "--quiet", code=0)
    different = {
        path for path in files_of(place / "out") if files_of(place / "out")[path] != files_of(place / "second")[path]
    }
    assert different <= {Path("adaptation.json"), Path("tokengraft.json"), Path("README.md")}  # they name the command


@pytest.mark.usefixtures("place")
def test_options_that_only_python_has_are_named(repeat):
    options = replace(PLAIN, hold_out=HoldOut(one_in=10))
    tg.adapt("model", target="et.txt", add=12, out="out", options=options)
    assert "only Python has: hold_out" in repeat("out/adaptation.json")


def test_options_that_change_no_result_are_not_recorded(place):
    tg.adapt("model", target="et.txt", add=12, out="workers", options=replace(PLAIN, count_options=tg.CountOptions(1)))
    assert {*request_in(place / "workers")["options"]} == {"model", "target", "add", "no_report"}


def test_strings_of_any_collection_are_recorded_in_a_fixed_order(place):
    pandas = pytest.importorskip("pandas")
    options = tg.AdaptOptions(
        report=False,
        protection=tg.Protection(tokens={"Ġcat": 1, "Ġthe": 2}.keys()),
        limits=tg.Limits(deny=pandas.Series(["x y", "ad"]), scripts={"Latin", "Arabic", "Greek"}),
        preserve=pandas.Series(["The cat sleeps.", "Yes"]),
    )
    tg.adapt("model", target="et.txt", swap=8, out="out", options=options)
    recorded = request_in(place / "out")["options"]
    assert recorded["protect"] == ["Ġcat", "Ġthe"]
    assert (recorded["deny"], recorded["scripts"]) == (["x y", "ad"], ["Arabic", "Greek", "Latin"])
    assert recorded["preserve"] is None  # text in memory


def test_files_with_spaces_in_their_names_are_files_in_the_record_too(place, repeat):
    (place / "da ta").mkdir()
    (place / "et.txt").rename(place / "da ta" / "my corpus")
    (place / "lv.txt").rename(place / "da ta" / "b.txt")
    given = ["--target", "da?ta/my corpus", "da?ta/b.txt", "--add", "12", "--no-report", "--quiet"]
    assert cli.main(["adapt", "model", *given, "--out", "out"]) == 0
    assert request_in(place / "out")["options"]["target"] == [["da?ta/my corpus", "da?ta/b.txt"]]
    repeat("out/adaptation.json", "--quiet", code=0)
    assert files_of(place / "out") == files_of(place / "second")


def test_a_glob_with_spaces_is_preserved_as_files_and_not_as_text(place, monkeypatch):
    module, read = sys.modules["tokengraft.pipeline.texts"], []
    counts_of = module.counts_of

    def counted(*arguments, **options):
        read.append(counts_of(*arguments, **options))
        return read[-1]

    monkeypatch.setattr(module, "counts_of", counted)
    (place / "en.txt").rename(place / "my notes")
    tg.adapt("model", target="et.txt", add=12, out="out", options=replace(PLAIN, preserve="my note*"))
    lines, whole = (part.totals for part in read)
    assert whole.documents == 1
    assert whole.bytes == (place / "my notes").stat().st_size == lines.bytes + lines.documents - 1


@pytest.mark.parametrize(
    ("url", "recorded"),
    [
        ("https://me:SECRET@host:80/a b.txt?signature=SECRET", "https://host:80/a b.txt"),
        ("https://host/a 'b'.txt?SECRET", "https://host/a 'b'.txt"),
        ("s3://key:SECRET@bucket/my file.txt", "s3://bucket/my file.txt"),
        ("s3://bucket/my file?.txt", "s3://bucket/my file?.txt"),
        ("what?key=1.txt", "what?key=1.txt"),
    ],
)
def test_a_record_has_no_credentials_of_urls(url, recorded):
    assert given_paths(url) == [recorded]
    assert "SECRET" not in command_line("adapt", ["model"], options_of("adapt"), {"target": [[f"et={url}"]]})


def test_there_is_a_date_only_if_the_environment_gives_it(place, monkeypatch):
    assert "date" not in request_in(place / "plain")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    tg.adapt("model", target="et.txt", add=12, out="dated", options=PLAIN)
    assert request_in(place / "dated")["date"] == "1970-01-02T00:00:00+00:00"


def test_a_transplant_records_its_options(place):
    tg.transplant("model", "model", "out", init="mean")
    request = request_in(place / "out", "tokengraft.json")
    assert request["step"] == "transplant"
    assert request["options"]["init"] == "mean"
    assert request["inputs"][1]["sha256"] == tg.load("model").content_hash


def test_a_run_that_is_interrupted_while_it_writes_can_go_on_with_the_same_command(place, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    command = ["adapt", "model", "--target", "et.txt", "--swap", "8", "--no-report"]
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["tokengraft.pipeline.adapt"], "write_result", interrupted)
        assert cli.main([*command, "--out", "out", "--quiet"]) == 130
    assert cli.main([*command, "--out", "out", "--quiet"]) == 0
    assert (place / "out" / "adaptation.json").exists()


def test_prune_reads_back_the_order_that_it_wrote(place, capsys):
    write = ["prune", "model", "--corpus", "en.txt", "--remove", "16", "--order", "order.json", "--quiet"]
    assert cli.main([*write, "--out", "one"]) == 0
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "16", "--out", "two", "--quiet"]) == 0
    assert files_of(place / "one") == files_of(place / "two")
    before = (place / "order.json").read_bytes()
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "4", "--out", "less", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["removed"] == 4
    assert (place / "order.json").read_bytes() == before


@pytest.fixture
def order(place):  # noqa: ARG001
    """An order to prune, in `order.json`."""
    tokenizer = tg.load("model")
    order = tg.prune_order(tokenizer, tg.count(tokenizer, "en.txt"))
    order.save("order.json")
    return order


def test_prune_removes_the_whole_order_only_if_asked(place, order, capsys):
    assert cli.main(["prune", "model", "--order", "order.json", "--out", "out"]) == 2
    assert "the number of tokens to remove was not given" in capsys.readouterr().err
    assert not (place / "out").exists()
    with pytest.raises(SystemExit):
        cli.main(["prune", "model", "--order", "order.json", "--remove", "every", "--out", "out"])
    assert "'every' is not a whole number; pass one like 16000 or 16k, or `all` or `auto`" in capsys.readouterr().err
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "all", "--out", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == len(order)
    assert cli.main(["prune", "model", "--corpus", "en.txt", "--remove", "all", "--out", "same", "--quiet"]) == 0
    assert files_of(place / "out") == files_of(place / "same")


@pytest.mark.usefixtures("order")
def test_an_order_that_is_read_takes_no_options_that_decide_one(place, tokengraft):
    for more, said in (
        (["--protect-pattern", "x"], "--protect-pattern decides an order"),
        (["--no-protect-defaults"], "--no-protect-defaults decides an order"),
        (["--by-merges"], "--by-merges decides an order"),
        (["--documents", "lines"], "--documents has no effect without --corpus or --held-out"),
        (["--remove", "100000"], "tokens are to be removed"),
        (["--remove", "0"], "--remove is 0"),
    ):
        assert said in tokengraft("prune", "model", "--order", "order.json", *more, "--out", "out", code=2).err
        assert not (place / "out").exists()


@pytest.mark.usefixtures("place")
def test_a_missing_order_cannot_be_read(capsys):
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "4", "--out", "out"]) == 2
    assert "`order.json` is not a file of a prune order" in capsys.readouterr().err


def test_prune_protects_what_adapt_protects(place, capsys):
    config = json.loads((place / "model" / "config.json").read_bytes())
    named = tg.load("model").ids["Ġcat"]
    (place / "model" / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": named}))
    tokenizer = tg.load("model")
    most = len(tg.prune_order(tokenizer, tg.count(tokenizer, "et.txt")))
    for command in (["prune", "model", "--corpus", "et.txt"], ["adapt", "model", "--target", "et.txt", "--no-report"]):
        for more in ([], ["--no-protect-defaults"]):
            out = f"{command[0]}{len(more)}"
            size = most if more else most - 3  # all that may be removed, but for the token that the config names
            arguments = [*command, *more, "--remove", str(size), "--out", out, "--quiet"]
            assert cli.main(arguments) == 0, capsys.readouterr().err
            left = tg.load(out).ids
            assert "Ġcat" in left
            assert ("Ġ'" in left) == (not more)


def test_a_seed_decides_random_rows_and_is_refused_where_it_has_no_effect(place, capsys):
    for seed in (1, 2):
        options = replace(PLAIN, init="random", seed=seed)
        tg.adapt("model", target="et.txt", add=12, out=f"out-{seed}", options=options)
    weights = [(place / f"out-{seed}" / "model.safetensors").read_bytes() for seed in (1, 2)]
    assert weights[0] != weights[1]
    with pytest.raises(errors.OptionError, match="`seed` has no effect without a random initialiser"):
        tg.adapt("model", target="et.txt", add=12, out="x", options=replace(PLAIN, seed=1))
    with pytest.raises(SystemExit):
        cli.main(["adapt", "model", "--target", "et.txt", "--add", "12", "--seed", "1", "--out", "x"])
    assert "--seed 1 (an option of recipes: write it to a file" in capsys.readouterr().err


def test_tokens_that_were_pruned_and_learned_again_are_explained():
    summary = SimpleNamespace(added=15_967, removed=15_967, kept=112_033, moved=0)
    plan, nothing = SimpleNamespace(summary=summary), SimpleNamespace(added=(), ids={})
    result = SimpleNamespace(plan=plan, extension=range(16_000), tokenizer=nothing, base=nothing)
    assert _tokens(result) == (
        "15,967 new, 15,967 removed, 112,033 kept; 16,000 learned, of which 33 had been pruned and got their ids back"
    )
    result.extension = range(15_967)
    assert _tokens(result) == "15,967 new, 15,967 removed, 112,033 kept"


def test_missing_arguments_are_named(capsys):
    assert cli.main(["adapt", "--target", "et.txt", "model", "--swap", "3", "--out", "x"]) == 2
    assert "required: MODEL; MODEL is before options that take several files" in capsys.readouterr().err
