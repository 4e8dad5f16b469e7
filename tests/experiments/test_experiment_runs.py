"""Every experiment runs from end to end on a small folder, and a rerun keeps what is finished."""

import ast
import csv
import functools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import tokengraft as tg
from lab.experiments import cli, guarantees, plots, registry
from lab.experiments.data import open_data
from lab.experiments.results import FinishedCells

pytestmark = pytest.mark.usefixtures("plotting")
ROOT = Path(__file__).parents[2]
RUNS = {
    "extension": ["--models", "tiny", "skipping", "--languages", "et", "de", "ar", "--sizes", "4", "16"],
    "english-effect": ["--models", "tiny", "--languages", "et", "de", "--sizes", "4", "16"],
    "prune": ["--models", "skipping", "--languages", "et", "--sizes", "10", "40"],
    "prune-extend": ["--models", "tiny", "--sizes", "8", "32"],
    "order": ["--models", "tiny", "--sizes", "8", "32"],
    "naive-methods": ["--models", "tiny", "--sizes", "8"],
    "budget": ["--models", "tiny", "--sizes", "8"],
    "histogram": ["--models", "tiny", "--sizes", "16"],
    "domain": ["--models", "tiny", "--languages", "et", "--sizes", "4", "16"],
    "pieces": ["--models", "pieces", "--languages", "et", "hi", "--sizes", "8"],
    "guarantees": ["--models", "tiny", "--languages", "et", "--sizes", "16"],  # each language starts a process
}
"""Small options for each experiment that needs neither a model nor a hub."""


def run(data_folder, out, name, *options):
    assert cli.main([name, "--data", str(data_folder), "--out", str(out), *options]) == 0
    return out / name


@pytest.fixture(scope="module", autouse=True)
def _little_source_code():
    """Instead of the library of Python, which takes seconds to count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guarantees, "python_library", lambda: ["def f():\n    return 1\n"])
        yield


@pytest.fixture(scope="module")
def finished(data_folder, tmp_path_factory):
    """The folder of an experiment that has run once, with small options."""
    return functools.cache(lambda name: run(data_folder, tmp_path_factory.mktemp("run"), name, *RUNS[name]))


def rows(folder):
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", RUNS)
def test_an_experiment_writes_its_files(name, data_folder, finished):
    folder = finished(name)
    names = {"cells.jsonl", "plot.svg", "results.csv", "run.json", "table.md"}
    assert {path.name for path in folder.iterdir()} == names
    assert rows(folder)
    assert "| " in (folder / "table.md").read_text(encoding="utf-8")
    assert (folder / "plot.svg").read_bytes().startswith(b"<?xml")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert record["command"].startswith(f"python -m lab.experiments {name} --data DATA")
    assert str(data_folder) not in (folder / "run.json").read_text(encoding="utf-8")
    assert all(len(value) == 64 for value in record["data"]["tokenizers"].values())


def test_every_experiment_without_a_model_is_run_here():
    experiments = map(registry.experiment_of, registry.MODULES)
    assert {item.name for item in experiments if not (item.needs_model or item.gpu)} == set(RUNS)


def test_continued_training_has_no_unreachable_tokens_and_the_base_is_measured(finished):
    found = rows(finished("extension"))
    continued = [row for row in found if row["method"] == "continued"]
    assert continued
    assert all(float(row["unreachable_added"]) == 0 for row in continued)
    assert {row["method"] for row in found} == {"base", "continued", "naive", "scratch"}


def test_the_gain_over_naive_extension_has_an_interval_over_all_lines(finished):
    found = rows(finished("extension"))
    rates = {(row["model"], row["language"], row["size"], row["method"]): row for row in found}
    paired = {key: row for key, row in rates.items() if row["gain"]}
    assert paired
    for (*cell, method), row in paired.items():
        assert method == "continued"
        theirs = float(rates[(*cell, "naive")]["bytes_per_token"])
        assert float(row["gain"]) == pytest.approx(float(row["bytes_per_token"]) / theirs - 1, abs=1e-5)
        assert float(row["gain_low"]) <= float(row["gain"]) <= float(row["gain_high"])


@pytest.mark.parametrize(
    ("name", "gain", "rate", "same", "other"),
    [
        ("naive-methods", "target_gain", "target", ["size"], {"method": "naive-regen"}),
        ("naive-methods", "english_gain", "english", ["size"], {"method": "naive-regen"}),
        ("naive-methods", "english_change", "english", [], {"method": "base"}),
        ("budget", "gain", "target", ["size"], {"method": "naive", "characters": "most"}),
        ("order", "target_gain", "target", ["size"], {"way": "extend-prune"}),
        ("order", "english_gain", "english", ["size"], {"way": "extend-prune"}),
        ("prune-extend", "over_naive", "target", ["size", "prune"], {"method": "naive"}),
        ("prune-extend", "target_over_leaf", "target", ["size", "method"], {"prune": "leaf-frequency"}),
        ("prune-extend", "english_over_leaf", "english", ["size", "method"], {"prune": "leaf-frequency"}),
        ("prune", "over_leaf", "both", ["size"], {"method": "leaf-frequency", "counting": "default"}),
    ],
)
def test_the_gains_of_claims_have_intervals_over_all_lines(finished, name, gain, rate, same, other):
    """The gain by lines is that of the rates, which are measured by counts."""
    found = rows(finished(name))
    base = found[0]
    for row in found:
        row["both"] = 1 / sum(float(base[text]) / float(row[text]) for text in ("target", "english") if text in row)
    if name == "budget":
        other = other | {"characters": max((row["characters"] for row in found), key=int)}
    paired = [row for row in found if row[gain]]
    assert paired
    for row in paired:
        wanted = other | {key: row[key] for key in same}
        (theirs,) = [one for one in found if wanted.items() <= one.items()]
        assert float(row[gain]) == pytest.approx(float(row[rate]) / float(theirs[rate]) - 1, abs=1e-5)
        assert float(row[f"{gain}_low"]) <= float(row[gain]) <= float(row[f"{gain}_high"])


def test_text_to_learn_from_is_compared_by_source(data_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lab.experiments.domain.SMALLEST", 1)
    found = rows(run(data_folder, tmp_path, "domain", *RUNS["domain"]))
    methods = {row["method"]: row for row in found if row["size"] == "4"}
    alone = ["source gettext", "source ted"]
    assert [*methods] == ["all", *alone, "prose", "half prose", "lines", "near lines", "near documents", "share 50"]
    assert sum(int(methods[name]["bytes"]) for name in alone) == int(methods["all"]["bytes"])
    assert methods["prose"]["flores"] == methods["source ted"]["flores"]
    assert cli.main(["domain", "--data", str(data_folder), "--models", "tiny", "--languages", "ar"]) == 2
    assert "has no column `source`" in capsys.readouterr().err


def test_a_rerun_keeps_finished_cells_and_other_options_run_them_again(data_folder, finished, tmp_path, capsys):
    folder = tmp_path / "histogram"
    shutil.copytree(finished("histogram"), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    run(data_folder, tmp_path, "histogram", *RUNS["histogram"])
    assert "kept" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    run(data_folder, tmp_path, "histogram", "--models", "tiny", "--sizes", "8")
    assert "kept" not in capsys.readouterr().out
    assert {row["size"] for row in rows(folder)} == {"8"}


def test_an_interrupted_experiment_goes_on_with_the_cells_that_are_left(data_folder, tmp_path, monkeypatch, capsys):
    module = __import__("lab.experiments.english_effect", fromlist=["measure"])
    measure, measured = module.measure, []

    def stopping(setup, cell):
        if len(measured) == 1:
            raise KeyboardInterrupt
        measured.append(cell.language)
        return measure(setup, cell)

    monkeypatch.setattr(module, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(data_folder, tmp_path, "english-effect", *RUNS["english-effect"])
    assert not (tmp_path / "english-effect" / "results.csv").exists()
    monkeypatch.setattr(module, "measure", measure)
    capsys.readouterr()
    folder = run(data_folder, tmp_path, "english-effect", *RUNS["english-effect"])
    assert capsys.readouterr().out.splitlines()[0] == "english-effect tiny/et: kept"
    assert {row["language"] for row in rows(folder)} == {"et", "de"}


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    path = tmp_path / "cells.jsonl"
    path.write_text('{"key": "a", "rows": [{"x": 1}]}\n{"key": "b", "rows": [{"x"', encoding="utf-8")
    cells = FinishedCells(path)
    assert "a" in cells
    assert "b" not in cells
    assert path.read_text(encoding="utf-8") == '{"key": "a", "rows": [{"x": 1}]}\n'


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """The folder of a small model."""
    from tiny_models import tiny_llama

    folder = tmp_path_factory.mktemp("small") / "model"
    tiny_llama(folder)
    return folder


def compression_options(model):
    return ["--models", "tiny", "--sizes", "20", "--model", str(model)]


def test_bits_of_a_pruned_model(data_folder, tmp_path, small_model):
    found = rows(run(data_folder, tmp_path, "compression", *compression_options(small_model)))
    assert {row["method"] for row in found} == {*registry.experiment_of("compression").parts}
    texts = [("en", "held_out"), ("en", "flores"), ("de", "held_out"), ("de", "flores"), ("de", "flores_english")]
    assert {(row["language"], row["text"]) for row in found} == {*texts}
    for row in found:
        bits = [float(x) for x in row["units"].split()]
        assert len(bits) == 20 if row["text"] != "held_out" else len(bits) > 1
        assert sum(bits) / int(row["bytes"]) == pytest.approx(float(row["bits_per_byte"]), abs=1e-2)
    record = (tmp_path / "compression" / "run.json").read_text(encoding="utf-8")
    assert len(json.loads(record)["data"]["model"]["model.safetensors"]) == 64
    assert str(tmp_path) not in record
    table = (tmp_path / "compression" / "table.md").read_text(encoding="utf-8")
    assert "`leaf-frequency` is better than `frequency`" in table


def test_scores_are_those_of_the_transplanted_model(small_model):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from lab.experiments.model_compression import Arm, score

    base, lines = tg.load(small_model), ["the cat sat", "a", "on the mat and the hat, " * 9]
    order = tg.prune_order(base, tg.count(base, iter(lines)), "frequency", protection=tg.Protection(defaults=False))
    pruned = order[:40].apply(base)
    kept = np.array([token.id for token in pruned.tokens])
    found = score(small_model, {"arm": Arm(kept, {"text": [np.array(pruned.encode(line)) for line in lines]})})
    small, model = (
        pruned.compact(),
        transformers.AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.bfloat16),
    )
    start = tg.plan(base, small).moved[model.config.bos_token_id]
    tg.transplant_model(model, tg.plan(base, small))
    for line, bits in zip(lines, found["arm"]["text"], strict=True):
        ids = torch.tensor([[start, *small.encode(line)]])
        with torch.no_grad():
            scores = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
        assert bits == pytest.approx(-float(scores.gather(1, ids[0, 1:, None]).sum()) / math.log(2), rel=1e-3)


def test_more_text_leaves_fewer_tokens_unseen(data_folder, monkeypatch):
    from lab.experiments import unseen

    monkeypatch.setattr(unseen, "OTHERS", ("de", "ar"))
    monkeypatch.setattr(unseen, "SIZES", (10,))
    data = open_data(str(data_folder))
    base = data.tokenizer("tiny")
    found = [unseen.row(name, base, counts) for name, counts in unseen.texts(data, base)]
    numbers = [row["unseen"] for row in found]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]
    assert all(row["removed 10"] >= 0 for row in found)


def test_naive_extension_is_scored_by_the_english_in_its_text(data_folder, monkeypatch):
    from lab.experiments import naive_text
    from lab.experiments.experiment import Setup

    for name, value in {"MODEL": "tiny", "SIZE": 8, "LANGUAGES": ("et",), "ENGLISH": (0, 50)}.items():
        monkeypatch.setattr(naive_text, name, value)
    setup = Setup(open_data(str(data_folder)), (8,))
    base = setup.tokenizer("tiny")
    texts = [*naive_text.texts(setup, base)]
    assert [text[:3] for text in texts] == [("et", "all", 0), ("et", "prose", 0), ("et", "prose", 50)]
    assert texts[2][3].totals.bytes > 1.5 * texts[1][3].totals.bytes
    for language, _, _, counts in texts:
        row = naive_text.row(setup, base, language, counts)
        assert row["gain"] == row["continued"] / row["naive"] - 1
        assert 0 <= row["produced"] <= row["unreachable"] <= 1


def test_protection_keeps_tokens_that_the_text_lacks(data_folder, monkeypatch):
    from lab.experiments import protection
    from lab.experiments.experiment import Setup

    setup = Setup(open_data(str(data_folder)), (8,))
    n_tokens = len(setup.tokenizer("tiny").tokens)
    for name, value in {"MODEL": "tiny", "ROWS": (n_tokens - 2, n_tokens - 4)}.items():
        monkeypatch.setattr(protection, name, value)
    monkeypatch.setattr(protection, "python_library", lambda: ["def f():\n    return 1\n"])
    kept, free = ([row for row in protection.rows(setup) if row["protected"] == is_kept] for is_kept in (1, 0))
    assert [row["rows"] for row in free] == [n_tokens - 2, n_tokens - 4]
    assert all(one["unseen"] >= other["unseen"] for one, other in zip(kept, free, strict=False))


def test_frequency_must_be_ahead_of_every_method_at_every_size():
    from lab.experiments.prune import most_unreachable

    found = {("frequency", 8): 5, ("merge", 8): 0, ("last-id", 8): 4, ("frequency", 16): 3, ("last-id", 16): 3}
    rows = [
        {"model": "m", "language": "et", "method": method, "size": size, "unreachable": count}
        for (method, size), count in found.items()
    ]
    claim = most_unreachable(rows, "method", "unreachable")
    assert not claim.holds
    assert claim.here == "not at 16 (at 16 3, `last-id` 3)"
    assert most_unreachable(rows[:3], "method", "unreachable").holds


@pytest.mark.parametrize("name", ["extension", "prune"])
def test_sizes_that_the_text_is_too_small_for_are_left_out(name, data_folder, tmp_path, capsys):
    options = ["--models", RUNS[name][1], "--languages", "et", "--sizes", "100000", "--out", str(tmp_path)]
    status = cli.main([name, "--data", str(data_folder), *options])
    error = capsys.readouterr().err
    assert status == 0 or "too small for every size" in error


def test_the_output_must_be_a_folder(data_folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["histogram", "--data", str(data_folder), "--out", str(tmp_path / "file")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_missing_data_is_found_before_anything_is_run(data_folder, tmp_path, capsys):
    options = ["--models", "tiny", "--languages", "et", "fi", "--sizes", "8", "--out", str(tmp_path)]
    assert cli.main(["histogram", "--data", str(data_folder), *options]) == 2
    assert not (tmp_path / "histogram").exists()
    assert "rows" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nothing"], "there is no experiment 'nothing'"),
        (["extension"], "no data was given"),
        (["extension", "--data", "DATA", "--languages", "xx"], "there is no text at"),
        (["extension", "--data", "DATA", "--models", "gpt9"], "there is no tokenizer at"),
        (["histogram", "--data", "DATA", "--parts", "merge"], "histogram has no part 'merge'"),
        (["compression", "--data", "DATA"], "runs a model, and none was named"),
    ],
)
def test_a_mistake_gets_a_clear_error(options, message, data_folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [str(data_folder) if option == "DATA" else option for option in options]
    assert cli.main([*arguments, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hint:" in error


def test_all_leaves_out_what_it_cannot_run(data_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "run_experiment", lambda experiment, _: print("ran", experiment.name))
    assert cli.main(["all", "--data", str(data_folder), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines if line.startswith("ran")} == set(RUNS)
    assert "compression: left out, it needs --model FOLDER" in lines


def test_all_skips_what_has_no_data_says_so_and_goes_on(data_folder, tmp_path, capsys, monkeypatch):
    def in_this_process(folder, counts, _, n):  # the command starts processes, and another test runs it
        base = tg.load(folder)
        return guarantees._learned(base, tg.extend(base, counts, n))

    monkeypatch.setattr(guarantees, "_by_command", in_this_process)
    data = tmp_path / "data"
    (data / "corpora").mkdir(parents=True)
    for name in ("en", "et.parquet", "ar.jsonl"):
        (data / "corpora" / name).symlink_to(data_folder / "corpora" / name)
    (data / "corpora" / "medical.txt").write_text("no language of FLORES", encoding="utf-8")
    (data / "flores200").symlink_to(data_folder / "flores200")
    (data / "tokenizers").mkdir()
    (data / "tokenizers" / "llama3").symlink_to(data_folder / "tokenizers" / "tiny")
    assert cli.main(["all", "--data", str(data), "--out", str(tmp_path / "out"), "--sizes", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for start in (
        "extension llama3/medical: skipped, there is no evaluation sentences",
        "extension llama2/et: skipped, there is no tokenizer",
        "guarantees llama3/hi/sizes: skipped, there is no text",
        "guarantees llama3/et/balance: skipped, there is no text",
        "pieces: skipped, no cell could be run",
    ):
        assert any(line.startswith(start) for line in lines), start
    assert {path.name for path in (tmp_path / "out").iterdir() if (path / "table.md").exists()} == {*RUNS} - {"pieces"}
    record = json.loads((tmp_path / "out" / "guarantees" / "run.json").read_text(encoding="utf-8"))
    assert record["options"]["languages"] == ["et", "ar"]
    assert record["options"]["models"] == ["llama3"]


def test_committed_results_are_replaced_only_if_that_is_asked_for():
    options = cli.parser().parse_args(["order"]), cli.parser().parse_args(["order", "--update"])
    assert [option.out for option in options] == [cli.OUT, cli.RESULTS]


def test_the_list_names_every_experiment(capsys):
    assert cli.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*registry.MODULES]
    assert [registry.experiment_of(name).name for name in registry.MODULES] == [*registry.MODULES]


def test_the_same_values_give_the_same_plot():
    panels = [plots.Panel("a", "x", "y", [plots.Series("s", [1, 2, 3], [1.0, None, 2.0])], log_x=True)] * 3
    assert plots.to_svg(panels) == plots.to_svg(panels)
    assert b"<dc:date>" not in plots.to_svg(panels)


def test_experiments_use_the_public_api_only():
    for path in (ROOT / "lab" / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith("tokengraft.")], path.name
