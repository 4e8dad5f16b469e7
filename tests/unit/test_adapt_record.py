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
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.adapt.inputs import given_paths
from tokengraft.adapt.record import read_record, repeat_of
from tokengraft.adapt.work import is_work_file
from tokengraft.cli.adapted import _tokens
from tokengraft.cli.command_line import command_line
from tokengraft.cli.main import build_parser

PLAIN = tg.AdaptOptions(report=False)


@pytest.fixture
def place(tmp_path, monkeypatch):
    checkpoint(tmp_path / "model")
    for name, lines in (("et", ESTONIAN), ("lv", LATVIAN), ("en", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "other.txt").write_text("\n".join(text.replace("põdrad", "kassid") for text in ESTONIAN[:99]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def request_in(folder, name="adaptation.json"):
    return json.loads((folder / name).read_bytes())["request"]


FULL = [
    *(
        "adapt",
        "model",
        "--target",
        "et=et.txt:2",
        "lv=lv.txt",
        "--keep",
        "en=en.txt",
        "--swap",
        "12",
        "--test",
        "t=other.txt",
    ),
    *("--init", "random", "--seed", "7", "--protect", "keep.txt", "--deny", "deny.txt", "--max-documents", "350"),
    *("--preserve", "en.txt", "--no-report", "--quiet"),
]


@pytest.fixture
def recorded(place, capsys):
    """An adaptation with many options."""
    (place / "keep.txt").write_text("Ġcat\n", encoding="utf-8")
    (place / "deny.txt").write_text("ad\n", encoding="utf-8")
    assert cli.main([*FULL, "--out", "first"]) == 0, capsys.readouterr().err
    return place / "first"


def test_a_record_has_inputs_with_sizes_and_hashes_weights_options_and_versions(recorded, place):
    request = request_in(recorded)
    assert request == request_in(recorded, "tokengraft.json")
    inputs = {(item["role"], item["name"]): item for item in request["inputs"]}
    assert [*inputs] == (
        [
            ("model", "model"),
            ("target", "et"),
            ("target", "lv"),
            ("keep", "en"),
            ("test", "t"),
            ("preserve", "preserve"),
        ]
    )
    raw = (place / "et.txt").read_bytes()
    found = inputs["target", "et"]
    assert found == {
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
def test_a_record_repeats_the_run_to_the_byte(recorded, place, name):
    (place / "keep.txt").unlink()  # the record has what these files said
    (place / "deny.txt").unlink()
    assert cli.main(["adapt", "--from-record", str(recorded / name), "--out", "second", "--quiet"]) == 0
    assert files_of(place / "second") == files_of(recorded)


def test_a_changed_input_is_refused_before_anything_is_written(recorded, place, capsys):
    capsys.readouterr()
    text = (place / "et.txt").read_text(encoding="utf-8")
    (place / "et.txt").write_text(text.replace("kassid", "kassiv", 1), encoding="utf-8")
    repeat = ["adapt", "--from-record", str(recorded / "adaptation.json"), "--out", "second"]
    assert cli.main(repeat) == 2
    assert "the target `et` (`et.txt`) is not that of the record: it has the SHA-256 hash" in capsys.readouterr().err
    (place / "et.txt").write_text(text + "\nx", encoding="utf-8")
    assert cli.main(repeat) == 2
    assert "bytes, not" in capsys.readouterr().err
    assert not (place / "second").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--swap", "3"], "--swap was given together with --from-record"),
        (["--target", "et.txt"], "--target was given together"),
        (["model"], "MODEL was given together"),
        (["--documents", "files"], "--documents was given together"),
        (["--documents", "lines"], "--documents was given together"),
    ],
)
@pytest.mark.usefixtures("place")
def test_options_that_change_the_result_are_refused_beside_a_record(more, said, capsys):
    assert cli.main(["adapt", *more, "--from-record", "x.json", "--out", "second"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"request": 1}',
        '{"request": {}}',
        '{"request": {"step": "transplant"}}',
        '{"request": {"step": "adapt"}}',
    ],
)
def test_what_is_no_record_is_refused(place, content, capsys):
    (place / "x.json").write_text(content)
    assert cli.main(["adapt", "--from-record", "x.json", "--out", "second"]) == 2
    said = capsys.readouterr().err
    assert "record" in said
    assert "hint: pass " in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.json", "cannot read the record `missing.json`: No such file or directory"),
        ("model", "cannot read the record `model`: Is a directory"),
        ("et.txt", "the record `et.txt` is not valid JSON"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_record_that_cannot_be_read_is_named_without_an_exception(name, said, capsys):
    assert cli.main(["adapt", "--from-record", name, "--out", "second"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Error" not in shown
    assert "Errno" not in shown


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
        include=tg.WordList(("ibuprofen",), exact=True),
        stacks=("vllm",),
    )
    tg.adapt("model", target={"et": tg.Target("et.txt", 2)}, keep="en.txt", add="auto", out="out", options=options)
    again = repeat_of(read_record("out/adaptation.json"))
    assert again["options"] == options
    assert again["add"] == "auto"
    assert again["target"] == {"et": tg.Target("et.txt", "2")}
    assert again["keep"] == {"keep": "en.txt"}


def test_options_that_are_the_default_elsewhere_and_not_in_an_adaptation_are_recorded(place):
    options = tg.AdaptOptions(report=False, read_options=tg.ReadOptions(), size=tg.SizeOptions())
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
    protection = tg.Protection(tokens={"Ġcat": 1, "Ġthe": 2}.keys())
    limits = tg.Limits(deny=pandas.Series(["x y", "ad"]), scripts={"Latin", "Arabic", "Greek"})
    options = tg.AdaptOptions(
        report=False, protection=protection, limits=limits, preserve=pandas.Series(["The cat sleeps.", "Yes"])
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
def test_a_record_that_was_edited_is_an_error(place, capsys, change, said):
    tg.adapt("model", target="et.txt", add=12, out="out", options=PLAIN)
    edited = {"request": request_in(place / "out") | change}
    (place / "x.json").write_text(json.dumps(edited), encoding="utf-8")
    assert cli.main(["adapt", "--from-record", "x.json", "--out", "second"]) == 2
    assert said in capsys.readouterr().err


def test_a_record_is_not_repeated_with_another_model_of_the_same_tokenizer(place, capsys):
    tg.adapt("model", target="et.txt", add=12, out="out", options=PLAIN)
    shutil.rmtree(place / "model")
    checkpoint(place / "model", dtype="F32")
    assert cli.main(["adapt", "--from-record", "out/adaptation.json", "--out", "second"]) == 2
    assert "the model `model` (`model`) is not that of the record: it has" in capsys.readouterr().err


def test_what_a_record_cannot_compare_is_a_warning_and_the_machine_may_differ(place, capsys, monkeypatch):
    def give():
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO((place / "et.txt").read_bytes())))

    give()
    assert cli.main(["adapt", "model", "--target", "-", "--add", "12", "--no-report", "--out", "out"]) == 0
    edited = {"request": request_in(place / "out") | {"versions": {"tokengraft": "0.0.1"}}}
    (place / "x.json").write_text(json.dumps(edited), encoding="utf-8")
    give()
    capsys.readouterr()
    assert cli.main(["adapt", "--from-record", "x.json", "--out", "second", "--workers", "1", "--memory", "1GB"]) == 0
    said = capsys.readouterr().err
    assert "warning: the record has no hash of the text `target`: it may have changed" in said
    assert "warning: the record was made by tokengraft 0.0.1" in said


def test_a_glob_with_spaces_is_preserved_as_files_and_not_as_text(place, monkeypatch):
    module, read = sys.modules["tokengraft.adapt.adapt"], []
    count = module.count

    def counted(*arguments, **options):
        read.append(count(*arguments, **options))
        return read[-1]

    monkeypatch.setattr(module, "count", counted)
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
    tg.adapt("model", target="et.txt", add=12, out="out", options=PLAIN)
    assert "date" not in request_in(place / "out")
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
    done = tg.adapt(
        "model",
        target="et.txt",
        keep="en.txt",
        swap=20,
        out="out",
        options=tg.AdaptOptions(keep_work="work", report=False),
    )
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
        patched.setattr(sys.modules["tokengraft.adapt.adapt"], "write_result", interrupted)
        assert cli.main([*command, "--out", "out", "--quiet"]) == 130
    assert cli.main([*command, "--out", "out", "--quiet"]) == 0
    assert (place / "steps" / "order.json").exists()


def test_prune_reads_back_the_order_that_it_wrote(place, capsys):
    write = ["prune", "model", "--corpus", "en.txt", "--remove", "16", "--order", "order.json", "--quiet"]
    assert cli.main([*write, "--out", "first"]) == 0
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "16", "--out", "second", "--quiet"]) == 0
    assert files_of(place / "first") == files_of(place / "second")
    before = (place / "order.json").read_bytes()
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "4", "--out", "less", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["removed"] == 4
    assert (place / "order.json").read_bytes() == before


def test_prune_removes_the_whole_order_only_if_asked(place, capsys):
    tokenizer = tg.load("model")
    order = tg.prune_order(tokenizer, tg.count(tokenizer, "en.txt"))
    order.save("order.json")
    assert cli.main(["prune", "model", "--order", "order.json", "--out", "out"]) == 2
    assert f"the order in `order.json` has {len(order):,} tokens\nhint: pass --remove N" in capsys.readouterr().err
    assert not (place / "out").exists()
    with pytest.raises(SystemExit):
        cli.main(["prune", "model", "--order", "order.json", "--remove", "every", "--out", "out"])
    assert "'every' is not a whole number; pass one like 16000 or 16k, or `all`" in capsys.readouterr().err
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "all", "--out", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == len(order)
    assert cli.main(["prune", "model", "--corpus", "en.txt", "--remove", "all", "--out", "same", "--quiet"]) == 0
    assert files_of(place / "out") == files_of(place / "same")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--protect-pattern", "x"], "--protect-pattern decides an order"),
        (["--protect-defaults"], "--protect-defaults decides an order"),
        (["--by-merges"], "--by-merges decides an order"),
        (["--documents", "lines"], "--documents is for reading a corpus"),
        (["--remove", "100000"], "tokens are to be removed"),
        (["--remove", "0"], "--remove is 0"),
    ],
)
def test_an_order_that_is_read_takes_no_options_that_decide_one(place, capsys, more, said):
    tokenizer = tg.load("model")
    tg.prune_order(tokenizer, tg.count(tokenizer, "en.txt")).save("order.json")
    assert cli.main(["prune", "model", "--order", "order.json", *more, "--out", "out"]) == 2
    assert said in capsys.readouterr().err
    assert not (place / "out").exists()


@pytest.mark.usefixtures("place")
def test_a_missing_order_cannot_be_read(capsys):
    assert cli.main(["prune", "model", "--order", "order.json", "--remove", "4", "--out", "out"]) == 2
    assert "`order.json` is not a file of a prune order" in capsys.readouterr().err


def test_prune_protects_what_adapt_protects(place, capsys):
    config = json.loads((place / "model" / "config.json").read_bytes())
    token_id = tg.load("model").ids["Ġcat"]
    (place / "model" / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": token_id}))
    prune = ["prune", "model", "--corpus", "et.txt", "--method", "leaf-frequency", "--quiet"]
    tokenizer = tg.load("model")
    most = len(tg.prune_order(tokenizer, tg.count(tokenizer, "et.txt")))
    assert cli.main([*prune, "--remove", str(most), "--out", "all"]) == 0
    assert cli.main([*prune, "--remove", str(most), "--protect-defaults", "--out", "less"]) == 2
    fewer = int(capsys.readouterr().err.split("can remove ")[1].split(";")[0].replace(",", ""))
    assert cli.main([*prune, "--remove", str(fewer), "--protect-defaults", "--out", "less"]) == 0
    assert "Ġcat" in tg.load("less").ids
    assert "Ġcat" not in tg.load("all").ids


def test_a_seed_decides_random_rows_and_is_refused_where_it_has_no_effect(place, capsys):
    for seed in ("1", "2"):
        arguments = ["adapt", "model", "--target", "et.txt", "--add", "12", "--init", "random", "--seed", seed]
        assert cli.main([*arguments, "--no-report", "--quiet", "--out", f"out-{seed}"]) == 0
    weights = [(place / f"out-{seed}" / "model.safetensors").read_bytes() for seed in (1, 2)]
    assert weights[0] != weights[1]
    capsys.readouterr()
    assert cli.main(["adapt", "model", "--target", "et.txt", "--add", "12", "--seed", "1", "--out", "x"]) == 2
    assert "--seed 1 has no effect: the initialiser fvt is not random" in capsys.readouterr().err


# What it is measured on.


def test_a_test_text_is_measured_apart_from_held_out_documents(place, capsys):
    done = tg.adapt(
        "model",
        target={"et": "et.txt"},
        swap=12,
        out="out",
        options=tg.AdaptOptions(test={"et": "other.txt"}, report=False),
    )
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
    assert "On held-out documents of the corpora; other text usually gains less" in shown
    status, (shown, err) = cli.main([*arguments, "with", "--test", "et=other.txt"]), capsys.readouterr()
    assert status == 0, err
    assert shown.index("On held-out documents of the corpora\n") < shown.index("On test text\n")


def test_a_missing_test_text_is_known_before_anything_is_read(place):
    with pytest.raises(errors.CorpusError, match=r"nothing\.txt"):
        tg.adapt("model", target="et.txt", add=12, out="out", options=tg.AdaptOptions(test={"t": "nothing.txt"}))
    assert not (place / "out.work").exists()


@pytest.mark.parametrize(("name", "said"), [("empty.txt", "the text `t` is empty"), ("counts", "another pipeline")])
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


def test_few_held_out_documents_are_a_warning(place):
    few = tg.adapt("model", target="et.txt", add=12, out="few", options=PLAIN)
    warning = next(text for text in few.warnings if "are held out" in text)
    assert warning.startswith("target: only ")
    assert warning.endswith("so its figures mean little; measure on other text: --test NAME=FILES")
    (place / "long.txt").write_text("\n".join(f"{text} {n}" for n in range(12) for text in ESTONIAN), encoding="utf-8")
    many = tg.adapt("model", target="long.txt", add=12, out="many", options=PLAIN)
    assert many.evaluation["new", "target"].bytes < 10_000 or not any("are held out" in w for w in many.warnings)


def test_several_texts_to_keep_are_measured_by_name_and_share_their_weight(place, capsys):
    done = tg.adapt("model", target="et.txt", keep={"en": "en.txt", "lv": "lv.txt"}, swap=12, out="out", options=PLAIN)
    assert {score.text for score in done.evaluation.scores} == {"target", "en", "lv"}
    with pytest.raises(errors.OptionError, match="a target and a text to keep are called 'et'"):
        tg.adapt("model", target={"et": "et.txt"}, keep={"et": "en.txt"}, swap=12, out="x", options=PLAIN)
    arguments = [
        "adapt",
        "model",
        "--target",
        "et.txt",
        "--swap",
        "12",
        "--no-report",
        "--quiet",
        "--json",
        "--out",
        "y",
    ]
    cli.main([*arguments, "--keep", "en=en.txt", "lv=lv.txt"])
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


def test_missing_arguments_show_the_usage(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["adapt", "--target", "et.txt", "model", "--swap", "3", "--out", "x"])
    assert stopped.value.code == 2
    assert "required: MODEL; MODEL is before options that take several files" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--target", "--keep", "--preserve", "--test"])
@pytest.mark.parametrize("name", ["x" * 300, "n=" + "x" * 300])
@pytest.mark.usefixtures("place")
def test_a_name_that_is_too_long_for_a_file_is_an_error(option, name, capsys):
    given = [] if option == "--target" else ["--target", "et.txt"]
    assert cli.main(["adapt", "model", *given, option, name, "--add", "4", "--out", "out"]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.usefixtures("place")
def test_a_long_text_in_place_of_a_path_is_an_error():
    text = "Kass magab. " * 50
    with pytest.raises(errors.CorpusError, match="File name too long"):
        tg.adapt("model", target=text, add=4, out="out")
    with pytest.raises(errors.CorpusError, match="File name too long"):
        tg.adapt("model", target="et.txt", keep=text, add=4, out="out")
