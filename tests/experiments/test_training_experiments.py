"""The experiments that train a model, for a few steps on a CPU."""

import csv
import json

import pytest

from lab.experiments import cli, continued_pretraining, docs, initialisers

pytestmark = pytest.mark.usefixtures("plotting")


@pytest.fixture
def run(data_folder, tmp_path, monkeypatch):
    """Runs an experiment on a tiny model, and returns its rows."""
    from tiny_models import tiny_llama

    tiny_llama(tmp_path / "model")
    for module in (continued_pretraining, initialisers):
        monkeypatch.setattr(module, "RECIPE", {"lr": 1e-3, "step_bytes": 4e3})

    def run(name, parts):
        module = {"continued-pretraining": continued_pretraining, "initialisers": initialisers}[name]
        monkeypatch.setattr(
            module, "EXPERIMENT", module.EXPERIMENT.__class__(**{**vars(module.EXPERIMENT), "parts": parts})
        )
        options = ["--models", "tiny", "--languages", "et", "--sizes", "16", "--model", str(tmp_path / "model")]
        assert cli.main([name, "--data", str(data_folder), "--out", str(tmp_path), *options]) == 0
        with (tmp_path / name / "results.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    return run


def test_every_tokenizer_reads_the_same_text_and_is_scored_in_bits_per_byte(run):
    rows = run("continued-pretraining", ("unchanged-s0", "adapted-s0", "naive-s0", "adapted-twice-s0"))
    ends = {row["run"]: row for row in rows if row["kind"] == "end"}
    once = {name: row for name, row in ends.items() if "twice" not in name}
    assert len({row["read_mb"] for row in once.values()}) == 1
    assert int(ends["adapted-s0"]["tokens"]) <= int(ends["unchanged-s0"]["tokens"])
    assert float(ends["adapted-twice-s0"]["passes"]) == 2
    assert float(ends["adapted-s0"]["row_factor"]) == 4
    assert float(ends["unchanged-s0"]["row_factor"]) == 1
    assert int(ends["adapted-s0"]["new"]) == 16
    assert all(0 < float(row["held_out"]) < 100 for row in rows)
    begins = {row["run"]: float(row["held_out"]) for row in rows if row["kind"] == "way" and float(row["read_mb"]) == 0}
    assert all(float(row["held_out"]) < begins[name] for name, row in ends.items())


def test_an_initialiser_is_trained_and_probed(run):
    (row,) = run("initialisers", ("last-piece",))
    assert row["init"] == "last-piece"
    assert float(row["held_out"]) < float(row["before"])
    assert 0 < float(row["probe"]) < 100


def test_the_committed_rows_are_those_of_the_committed_runs():
    folder = cli.RESULTS / "continued-pretraining"
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in docs.rows_of(cli.RESULTS, "continued-pretraining") if row["kind"] == "end"]
    assert {row["run"]: row["held_out"] for row in rows} == {
        run["name"]: pytest.approx(run["scores"][f"{run['data']}_held"], rel=1e-5) for run in runs
    }
    assert {run["name"] for run in json.loads((folder / "runs.json").read_text())} == {run["name"] for run in runs}


def test_documents_are_separated_as_in_pre_training():
    """The committed runs of SmolLM2 have id 0 between documents; its config names 1, the begin of a turn."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("torch", reason="torch is not installed")
    from lab.experiments.training.model import separator_of

    named = tokenizers.Tokenizer(tokenizers.models.BPE({"<|endoftext|>": 0, "<|im_start|>": 1}, []))
    other = tokenizers.Tokenizer(tokenizers.models.BPE({"<s>": 0, "a": 1}, []))
    assert separator_of(named, 1) == 0
    assert separator_of(other, 0) == 0
