"""`examples/continue_pretraining.py` on a tiny model: what each stage changes, and that a killed run can be resumed."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

import tokengraft as tg

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers")
import tiny_models  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "examples" / "continue_pretraining.py"
QUICK = ["--step-kb", "0.8", "--length", "32", "--micro-batch", "3", "--evaluate-every", "4", "--save-every", "3"]
RATES = ["--learning-rate", "1e-2", "--rows-learning-rate", "3e-2", "--device", "cpu"]


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("continue_pretraining", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def made(request, tmp_path_factory):
    """A model, texts and an adaptation of the model."""
    folder = tiny_models.texts(tmp_path_factory.mktemp("made"))
    tiny_models.tiny_llama(folder / "model", tied=request.param)
    text = {"target": folder / "et.txt", "keep": folder / "en.txt"}
    tg.adapt(folder / "model", **text, swap=30, out=folder / "adapted", options=tg.AdaptOptions(report=False))
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(script, source, out, *more):
    arguments = [source, out, "--train", "et.txt", "--held-out", "et=held-out.txt", *QUICK, *RATES, *more]
    script.main([*map(str, arguments)])


def log_of(folder):
    return json.loads(Path(folder, "training_log.json").read_text())


def weights_of(folder):
    return load_file(Path(folder, "model.safetensors"))


def test_the_script_is_short():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) < 210


def test_both_stages_lower_the_bits_per_byte_and_the_result_is_a_model_folder(script, place):
    run(script, "adapted", "trained", "--rows-share", "0.4")
    log = log_of("trained")
    stages = {entry["stage"]: entry["bits_per_byte"]["et"] for entry in log}
    assert stages["everything"] < stages["new rows"] < stages["start"]
    assert tg.load("trained") == tg.load("adapted")
    dtypes = [{w.dtype for w in weights_of(folder).values()} for folder in ("adapted", "trained")]
    assert dtypes[0] == dtypes[1]
    assert not (place / "trained.work").exists()
    with pytest.raises(SystemExit, match="exists"):
        run(script, "adapted", "trained")
    assert not {"README.md", "tokengraft.json", "training.json"} & {path.name for path in Path("trained").iterdir()}


@pytest.mark.usefixtures("place")
def test_no_text_to_train_on_is_named(script):
    Path("empty.txt").write_text("")
    with pytest.raises(SystemExit, match=r"no text in .*empty\.txt"):
        script.main(["adapted", "trained", "--train", "empty.txt", *QUICK, *RATES])


def test_a_second_pass_reads_the_same_documents_in_another_order(script, place):
    tokenizer, texts = tg.load("adapted"), Path("et.txt").read_text(encoding="utf-8").splitlines()
    once, n_bytes = script.packed(tokenizer, texts, 0, seed=5)
    twice, n_twice = script.packed(tokenizer, texts, 0, seed=5, passes=2)
    first, second = twice[: len(once) - 1], twice[len(once) - 1 :]
    assert n_twice == 2 * n_bytes
    assert first.tolist() == once[:-1].tolist()
    documents = [bytes(part.numpy().tobytes()) for part in (first, second[:-1])]
    assert documents[0] != documents[1]
    assert sorted(first.tolist()) == sorted(second[:-1].tolist())
    with pytest.raises(SystemExit, match="--passes"):
        run(script, "adapted", place / "none", "--passes", "0")


@pytest.mark.usefixtures("place")
def test_the_script_and_probe_give_the_same_bits_per_byte(script):
    run(script, "adapted", "trained")
    scored = tg.train.probe({"m": "adapted"}, {"et": "held-out.txt"})["m", "et", 0].bits_per_byte
    assert log_of("trained")[0]["bits_per_byte"]["et"] == pytest.approx(scored, rel=1e-6)


@pytest.mark.parametrize(
    ("target", "kept", "share"), [(80, 900, 0.1), (80, 900, 0.5), (400, 900, 0.1), (900, 20, None)]
)
def test_kept_text_has_the_share_of_the_mix_that_training_json_says(script, place, capsys, target, kept, share):
    """Whatever the sizes of the texts; too little of it is all used, with a warning."""
    for name, n in (("target", target), ("kept", kept)):
        (place / f"{name}.txt").write_text("".join(f"{name} {number:05}\n" for number in range(n)))
    settings = json.loads((place / "adapted" / "training.json").read_text())
    (place / "adapted" / "training.json").write_text(json.dumps(settings | {"kept_share": share or 0.1}))
    arguments = ["adapted", "out", "--train", "target.txt", "--keep", "kept.txt", *QUICK, *RATES]
    ids = script.Run(script.parse(arguments)).ids.tolist()
    text = tg.load("adapted").decode(ids)
    found = text.count("kept") * 10 / (text.count("kept") * 10 + text.count("target") * 12)
    assert text.count("target") == target
    assert found == pytest.approx(share or 200 / 11000, abs=0.02)
    assert ("too little" in capsys.readouterr().out) == (share is None)


@pytest.mark.usefixtures("place")
def test_the_first_stage_changes_only_new_rows(script):
    run(script, "adapted", "rows", "--rows-share", "1")
    before, after = weights_of("adapted"), weights_of("rows")
    new = json.loads(Path("adapted", "training.json").read_text())["new_ids"]
    kept = torch.ones(len(before["model.embed_tokens.weight"]), dtype=torch.bool)
    kept[new] = False
    for name, weight in before.items():
        if "embed_tokens" in name or "lm_head" in name:
            assert torch.equal(after[name][kept], weight[kept])
            assert not torch.equal(after[name][~kept], weight[~kept])
        else:
            assert torch.equal(after[name], weight)


class Killed(Exception):  # noqa: N818
    pass


def test_a_killed_run_goes_on_to_the_same_result(script, place, monkeypatch):
    share = ["--rows-share", "0.3"]
    run(script, "adapted", "whole", *share)
    real = script.Run.save
    for saves in (1, 2, 4):
        done, out = [], f"resumed-{saves}"

        def save_then_stop(self, *arguments, done=done, saves=saves):
            real(self, *arguments)
            done.append(self.step)
            if len(done) == saves:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(script.Run, "save", save_then_stop)
            with pytest.raises(Killed):
                run(script, "adapted", out, *share)
        assert not (place / out).exists()
        with pytest.raises(SystemExit, match="other options"):
            run(script, "adapted", out, "--rows-share", "0.2")
        run(script, "adapted", out, *share)
        whole, resumed = weights_of("whole"), weights_of(out)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
        scores = [[(e["step"], e["bits_per_byte"]) for e in log_of(folder)] for folder in ("whole", out)]
        assert scores[0] == scores[1]


@pytest.mark.usefixtures("place")
def test_the_untouched_model_is_trained_on_the_same_text_in_one_stage(script):
    run(script, "model", "trained")
    run(script, "adapted", "other")
    log, other = log_of("trained"), log_of("other")
    assert {entry["stage"] for entry in log} == {"start", "everything"}
    assert log[-1]["mb"] == pytest.approx(other[-1]["mb"], rel=0.1)
    assert log[-1]["tokens"] > 1.2 * other[-1]["tokens"]


@pytest.mark.usefixtures("place")
def test_new_rows_learn_faster_by_their_factor(script):
    one_step = ["--rows-share", "0", "--step-kb", Path("et.txt").stat().st_size * 0.9e-3]
    moved = []
    for factor in ("1", "4"):
        run(script, "adapted", f"by-{factor}", *one_step, "--new-rows-factor", factor)
        moved.append(
            {name: weight - weights_of("adapted")[name] for name, weight in weights_of(f"by-{factor}").items()}
        )
    assert log_of("by-4")[-1]["step"] == 1
    new = torch.zeros(len(moved[0]["model.embed_tokens.weight"]), 1)
    new[json.loads(Path("adapted", "training.json").read_text())["new_ids"]] = 1
    for name, change in moved[0].items():
        table = "embed_tokens" in name or "lm_head" in name
        torch.testing.assert_close(moved[1][name], change * (1 + 3 * new) if table else change, rtol=1e-3, atol=1e-5)


def test_a_run_without_a_step_or_with_a_wrong_share_writes_nothing(script, place):
    for more in (["--length", "100000"], ["--rows-share", "2"], ["--rows-share", "-0.1"]):
        with pytest.raises(SystemExit, match="no step to train"):
            run(script, "adapted", "trained", *more)
        assert not (place / "trained").exists()


@pytest.mark.usefixtures("place")
def test_a_rate_and_a_factor_of_0_are_taken_as_given(script):
    run(script, "adapted", "still", "--learning-rate", "0")
    before, after = weights_of("adapted"), weights_of("still")
    assert all(torch.equal(before[name], after[name]) for name in before)
    run(script, "adapted", "old-rows", "--new-rows-factor", "0")
    new = json.loads(Path("adapted", "training.json").read_text())["new_ids"]
    rows = [weights_of(folder)["model.embed_tokens.weight"][new] for folder in ("adapted", "old-rows")]
    assert torch.equal(rows[0], rows[1])
