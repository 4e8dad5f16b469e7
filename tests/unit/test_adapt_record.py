"""What an adaptation records and repeats, what it keeps of its steps, and what it is measured on."""

import io
import json
import shutil
import sys
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import builders
import pytest
from checkpoints import ESTONIAN, checkpoint, write_texts

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.cli.adapt import _tokens
from tokengraft.cli.main import build_parser
from tokengraft.cli.options import command_line
from tokengraft.pipeline import record as inputs
from tokengraft.pipeline.cache import is_work_file
from tokengraft.pipeline.record import given_paths, read_record, repeat_of

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
    """Repeats a record into `second`, and returns what is printed to stderr."""

    def run(record="plain/adaptation.json", *more, code=2):
        capsys.readouterr()
        assert cli.main(["adapt", "--from-record", record, "--out", "second", *more]) == code
        assert (place / "second").exists() == (code == 0)
        return capsys.readouterr().err

    return run


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def request_in(folder, name="adaptation.json"):
    return json.loads((folder / name).read_bytes())["request"]


FULL = ["adapt", "model", "--target", "et=et.txt:2", "lv=lv.txt", "--keep", "en=en.txt", "--swap", "12"]
FULL += ["--test", "t=other.txt", "--init", "random", "--seed", "7", "--protect", "keep.txt", "--deny", "deny.txt"]
FULL += ["--max-documents", "350", "--preserve", "en.txt", "--no-report", "--quiet"]


def test_a_record_has_inputs_with_sizes_and_hashes_weights_options_and_versions(place):
    request = request_in(place / "first")
    assert request == request_in(place / "first", "tokengraft.json")
    inputs = {(item["role"], item["name"]): item for item in request["inputs"]}
    roles = [("model", "model"), ("target", "et"), ("target", "lv"), ("keep", "en"), ("test", "t")]
    assert [*inputs] == [*roles, ("preserve", "preserve")]
    raw = (place / "et.txt").read_bytes()
    assert inputs["target", "et"] == {
        "role": "target",
        "name": "et",
        "path": "et.txt",
        "bytes": len(raw),
        "sha256": sha256(raw).hexdigest(),
        "documents": 350,
    }
    assert inputs["model", "model"]["sha256"] == tg.load("model").content_hash
    assert inputs["model", "model"]["bytes"] == (place / "model" / "model.safetensors").stat().st_size
    assert request["targets"]["et"] == {"corpus": ["et.txt"], "weight": "2"}
    assert request["sizes"] == {"swap": 12}
    assert request["options"]["seed"] == 7
    assert request["options"]["limits"] == {"deny": ["ad"]}
    assert request["versions"]["tokengraft"] == tg.__version__
    assert request["command"].startswith("tokengraft adapt model --target et=et.txt:2 lv=lv.txt --keep en=en.txt ")
    assert "--out" not in request["command"]


@pytest.mark.parametrize("name", ["adaptation.json", "tokengraft.json"])
def test_a_record_repeats_the_run_to_the_byte(place, repeat, name):
    (place / "keep.txt").unlink()  # the record has what these files said
    (place / "deny.txt").unlink()
    repeat(f"first/{name}", "--quiet", code=0)
    assert files_of(place / "second") == files_of(place / "first")


def test_a_changed_input_is_refused_before_anything_is_written(place, repeat):
    text = (place / "et.txt").read_text(encoding="utf-8")
    (place / "et.txt").write_text(text.replace("kassid", "kassiv", 1), encoding="utf-8")
    assert "the target `et` (`et.txt`) is not that of the record: it has the SHA-256 hash" in repeat(
        "first/adaptation.json"
    )
    (place / "et.txt").write_text(text + "\nx", encoding="utf-8")
    assert "bytes, not" in repeat("first/adaptation.json")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (["--swap", "3"], "--swap"),
        (["--target", "et.txt"], "--target"),
        (["model"], "MODEL"),
        (["--documents", "files"], "--documents"),
        (["--documents", "lines"], "--documents"),
    ],
)
def test_options_that_change_the_result_are_refused_beside_a_record(repeat, more, name):
    assert f"{name} was given together with --from-record" in repeat("plain/adaptation.json", *more)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the record `x.json`: No such file or directory"),
        ("", "the record `x.json` is not valid JSON"),
        *((text, "record") for text in ("[]", '{"request": 1}')),
        ('{"request": {"step": "transplant"}}', "record"),
        ('{"request": {"step": "adapt"}}', "record"),
    ],
)
def test_what_is_no_record_is_refused_by_name_and_without_an_exception(place, repeat, content, said):
    if content is not None:
        (place / "x.json").write_text(content)
    shown = repeat("x.json")
    assert said in shown
    assert "hint: " in shown
    assert "Errno" not in shown


@pytest.mark.usefixtures("place")
def test_a_folder_is_no_record(repeat):
    assert "cannot read the record `model`: Is a directory" in repeat("model")


def test_a_record_of_a_text_in_memory_says_so_and_cannot_be_repeated(place):
    tg.adapt("model", target=iter(ESTONIAN), add=12, out="out", options=PLAIN)
    request = request_in(place / "out")
    assert request["targets"]["target"]["corpus"] is None
    assert request["inputs"][1]["sha256"] is None
    with pytest.raises(errors.OptionError, match="the text `target` was an object in memory"):
        repeat_of(request)


@pytest.mark.usefixtures("place")
def test_options_of_python_are_recorded_and_made_again():
    options = tg.AdaptOptions(
        report=False,
        read_options=tg.ReadOptions(documents="lines", shard=(0, 1)),
        limits=tg.Limits(min_count=3, scripts=("Latin",)),
        include=tg.learn.WordList(("ibuprofen",), exact=True),
        stacks=("vllm",),
    )
    tg.adapt("model", target={"et": tg.Target("et.txt", 2)}, keep="en.txt", add="auto", out="out", options=options)
    again = repeat_of(read_record("out/adaptation.json"))
    assert again["options"] == options
    assert again["add"] == "auto"
    assert again["target"] == {"et": tg.Target("et.txt", "2")}
    assert again["keep"] == {"keep": "en.txt"}


def test_options_that_are_the_default_elsewhere_and_not_in_an_adaptation_are_recorded(place):
    options = tg.AdaptOptions(report=False, read_options=tg.ReadOptions(), size=tg.measure.SizeOptions())
    assert options.read_options.documents == "files"
    (place / "parts").mkdir()
    for at in range(0, len(ESTONIAN), 2):
        (place / "parts" / f"{at}.txt").write_text("\n".join(ESTONIAN[at : at + 2]), encoding="utf-8")
    tg.adapt("model", target="parts", add=12, out="out", options=options)
    assert repeat_of(read_record("out/adaptation.json"))["options"] == options
    tg.adapt("model", target="et.txt", add=12, out="workers", options=replace(PLAIN, count_options=tg.CountOptions(1)))
    assert request_in(place / "workers")["options"] == {"report": False}  # the number of threads changes nothing


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
    assert recorded["protection"] == {"tokens": ["Ġcat", "Ġthe"]}
    assert recorded["limits"] == {"deny": ["x y", "ad"], "scripts": ["Arabic", "Greek", "Latin"]}
    assert recorded["preserve"] is None  # text in memory


def test_files_with_spaces_in_their_names_are_files_in_the_record_too(place):
    (place / "da ta").mkdir()
    (place / "et.txt").rename(place / "da ta" / "my corpus")
    (place / "lv.txt").rename(place / "da ta" / "b.txt")
    given = ["--target", "da?ta/my corpus", "da?ta/b.txt", "--add", "12", "--no-report", "--quiet"]
    assert cli.main(["adapt", "model", *given, "--out", "out"]) == 0
    assert request_in(place / "out")["targets"]["target"]["corpus"] == ["da?ta/b.txt", "da?ta/my corpus"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": []}, "is not that of the record"),
        ({"inputs": 5}, "this is not the record of an adaptation"),
        ({"inputs": [3]}, "it has no list of inputs"),
        ({"inputs": [{"role": "model", "name": "model"}]}, "bytes, not None"),
        ({"sizes": {"add": 12, "more": 1}}, "there is no size 'more'"),
    ],
)
def test_a_record_that_was_edited_is_an_error(place, repeat, change, said):
    changed_json(place / "plain" / "adaptation.json", request=request_in(place / "plain") | change)
    assert said in repeat()


def changed_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values), encoding="utf-8")


def swap_ids(path):
    """Gives two tokens that no text here has the id of the other."""
    document = json.loads(path.read_bytes())
    vocab = document["model"]["vocab"]
    vocab["ý"], vocab["þ"] = vocab["þ"], vocab["ý"]
    path.write_text(json.dumps(document), encoding="utf-8")


def flip_last_bit(path):
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tokenizer.json", swap_ids),
        ("config.json", lambda path: changed_json(path, rms_norm_eps=1e-4)),
        ("tokenizer_config.json", lambda path: changed_json(path, bos_token="<|end|>")),
        ("chat_template.jinja", lambda path: path.write_text("other")),
        ("chat_template.jinja", lambda path: path.unlink()),
        ("README.md", lambda path: path.write_text("other")),
        ("model.safetensors", flip_last_bit),
        ("model.safetensors", lambda path: checkpoint(path.parent, dtype="F32")),
    ],
)
def test_a_record_is_not_repeated_with_a_changed_file_of_the_model(place, repeat, name, change):
    change(place / "model" / name)
    shown = repeat()
    assert "the model `model` (`model`) is not that of the record" in shown
    assert f"`{name}`" in shown or "bytes, not" in shown


def test_files_of_the_model_folder_that_are_not_written_may_change(place, repeat):
    (place / "model" / "pytorch_model.bin").write_text("other")
    (place / "model" / ".gitattributes").write_text("new")
    repeat("plain/adaptation.json", "--quiet", code=0)


def test_a_config_beside_a_tokenizer_without_weights_is_compared(place, repeat):
    for name in ("model.safetensors", "pytorch_model.bin"):
        (place / "model" / name).unlink()
    tg.adapt("model", target="et.txt", swap=4, out="out", options=PLAIN)
    changed_json(place / "model" / "config.json", decoder_start_token_id=3)  # which must not be pruned
    assert "`config.json`" in repeat("out/adaptation.json")


def test_weights_that_are_too_large_to_be_hashed_are_named(place, repeat, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_HASHED", 100)
    tg.adapt("model", target="et.txt", add=12, out="out", options=PLAIN)
    assert request_in(place / "out")["inputs"][0]["files"]["model.safetensors"] is None
    flip_last_bit(place / "model" / "model.safetensors")
    said = repeat("out/adaptation.json", code=0)
    assert "the record has no hash of `model.safetensors` of the model: it may have changed" in said


def test_a_record_without_hashes_of_the_files_of_the_model_is_a_warning(place, repeat):
    request = request_in(place / "plain")
    del request["inputs"][0]["files"]
    changed_json(place / "plain" / "adaptation.json", request=request)
    assert "the record has no hash of the files of the model: it may have changed" in repeat(code=0)


def test_what_a_record_cannot_compare_is_a_warning_and_the_machine_may_differ(place, repeat, monkeypatch):
    def give():
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO((place / "et.txt").read_bytes())))

    give()
    assert cli.main(["adapt", "model", "--target", "-", "--add", "12", "--no-report", "--out", "out"]) == 0
    edited = request_in(place / "out") | {"versions": {"tokengraft": "0.0.1"}}
    changed_json(place / "out" / "adaptation.json", request=edited)
    give()
    said = repeat("out/adaptation.json", "--workers", "1", "--memory", "1GB", code=0)
    assert "warning: the record has no hash of the text `target`: it may have changed" in said
    assert "warning: the record was made by tokengraft 0.0.1" in said


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
    command = build_parser(["adapt"])._subparsers._group_actions[0].choices["adapt"]
    options = command.parse_args(["model", "--target", f"et={url}", "--out", "out"])
    assert "SECRET" not in command_line(command, options, ())


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


# What is kept of the steps.


def test_kept_work_makes_the_same_tokenizer_again_step_by_step(place):
    options = replace(PLAIN, keep_work="work")
    done = tg.adapt("model", target="et.txt", keep="en.txt", swap=20, out="out", options=options)
    names = {path.as_posix() for path in files_of(place / "work")}
    texts = {f"{kind}.{suffix}" for kind in ("keep", "target") for suffix in ("parquet", "jsonl")}
    assert {name.split("/")[1] for name in names if name.startswith(("counts/", "held-out/"))} == texts
    assert {"order.json", "extension.json", "pruned/tokenizer.json"} <= names
    pruned = tg.PruneOrder.load("work/order.json").apply(tg.load("model"))
    assert pruned == tg.load("work/pruned")
    assert tg.Extension.load("work/extension.json").apply(pruned) == done.tokenizer
    assert all(is_work_file(path) for path in files_of(place / "work"))
    lines = (place / "work/held-out/target.jsonl").read_text(encoding="utf-8").splitlines()
    held_out = [json.loads(line)["text"] for line in lines]
    counted = tg.PretokenCounts.load("work/counts/target.parquet").totals.documents
    assert len(held_out) + counted == len(ESTONIAN)


def test_kept_work_replaces_nothing_and_is_no_input(place, capsys):
    (place / "work").mkdir()
    (place / "work" / "mine.txt").write_text("mine")
    arguments = ["adapt", "model", "--target", "et.txt", "--add", "12", "--no-report", "--out", "out"]
    for folder in ("work", "model/work", "out.work", "out"):
        assert cli.main([*arguments, "--keep-work", folder]) == 2, folder
        assert cli.main([*arguments, "--keep-work", folder, "--force"]) == 2, folder
    assert not (place / "out").exists()
    capsys.readouterr()
    for force in ([], ["--force"]):
        assert cli.main([*arguments, "--keep-work", "new", *force]) == 0


def test_a_run_that_is_interrupted_while_it_writes_can_go_on_with_the_same_command(place, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    command = ["adapt", "model", "--target", "et.txt", "--swap", "8", "--keep-work", "steps", "--no-report"]
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["tokengraft.pipeline.adapt"], "write_result", interrupted)
        assert cli.main([*command, "--out", "out", "--quiet"]) == 130
    assert cli.main([*command, "--out", "out", "--quiet"]) == 0
    assert (place / "steps" / "order.json").exists()


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
    assert f"the order in `order.json` has {len(order):,} tokens\nhint: pass --remove N" in capsys.readouterr().err
    assert not (place / "out").exists()
    with pytest.raises(SystemExit):
        cli.main(["prune", "model", "--order", "order.json", "--remove", "every", "--out", "out"])
    assert "'every' is not a whole number; pass one like 16000 or 16k, or `all` or `auto`" in capsys.readouterr().err
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "all", "--out", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == len(order)
    assert cli.main(["prune", "model", "--corpus", "en.txt", "--remove", "all", "--out", "same", "--quiet"]) == 0
    assert files_of(place / "out") == files_of(place / "same")


@pytest.mark.usefixtures("order")
def test_an_order_that_is_read_takes_no_options_that_decide_one(place, capsys):
    for more, said in (
        (["--protect-pattern", "x"], "--protect-pattern decides an order"),
        (["--no-protect-defaults"], "--no-protect-defaults decides an order"),
        (["--by-merges"], "--by-merges decides an order"),
        (["--documents", "lines"], "--documents is for reading a corpus"),
        (["--remove", "100000"], "tokens are to be removed"),
        (["--remove", "0"], "--remove is 0"),
    ):
        assert cli.main(["prune", "model", "--order", "order.json", *more, "--out", "out"]) == 2
        assert said in capsys.readouterr().err
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
    for seed in ("1", "2"):
        arguments = ["adapt", "model", "--target", "et.txt", "--add", "12", "--init", "random", "--seed", seed]
        assert cli.main([*arguments, "--no-report", "--quiet", "--out", f"out-{seed}"]) == 0
    weights = [(place / f"out-{seed}" / "model.safetensors").read_bytes() for seed in (1, 2)]
    assert weights[0] != weights[1]
    capsys.readouterr()
    assert cli.main(["adapt", "model", "--target", "et.txt", "--add", "12", "--seed", "1", "--out", "x"]) == 2
    assert "--seed 1 has no effect: the initialiser fvt-rare is not random" in capsys.readouterr().err


# What it is measured on.


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


def test_tokens_that_were_pruned_and_learned_again_are_explained():
    summary = SimpleNamespace(added=15_967, removed=15_967, kept=112_033, moved=0)
    result = SimpleNamespace(plan=SimpleNamespace(summary=summary), extension=range(16_000))
    assert _tokens(result) == (
        "15,967 new, 15,967 removed, 112,033 kept; 16,000 learned, of which 33 had been pruned and got their ids back"
    )
    result.extension = range(15_967)
    assert _tokens(result) == "15,967 new, 15,967 removed, 112,033 kept"


def test_missing_arguments_are_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["adapt", "--target", "et.txt", "model", "--swap", "3", "--out", "x"])
    assert stopped.value.code == 2
    assert "required: MODEL; MODEL is before options that take several files" in capsys.readouterr().err


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
