"""`train`: the mix, passes, faster rows against an optimizer with two groups, blending, resuming, several processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN

import tokengraft as tg
from tokengraft import errors
from tokengraft.training.options import TrainingSettings, TrainOptions
from tokengraft.training.text import mix, old_tokens, packed, sample, training_text

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("accelerate")
import tiny_models  # noqa: E402

from tokengraft.training import HeldOutBits  # noqa: E402
from tokengraft.training.plan import TrainingPlan  # noqa: E402
from tokengraft.training.result import chosen_share  # noqa: E402
from tokengraft.training.trainer import Sequences  # noqa: E402

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
SHORT = TrainOptions(max_bytes=4000, length=64, step_bytes=1000, blend=0.2, trainer={"bf16": False})


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with an adapted model, and texts."""
    folder = tiny_models.texts(tmp_path_factory.mktemp("train"))
    tiny_models.tiny_llama(folder / "model", tied=True)
    options = tg.AdaptOptions(report=False)
    texts = {"target": folder / "et.txt", "keep": folder / "en.txt"}
    tg.adapt(folder / "model", **texts, add=30, out=folder / "adapted", options=options)
    (folder / "en-test.txt").write_text("\n".join(f"another cat {n} on a mat" for n in range(40)), encoding="utf-8")
    return folder


@pytest.fixture
def place(template, tmp_path, monkeypatch):
    """A copy of it, which is the working directory."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights(folder):
    from safetensors.torch import load_file

    return {
        name: value for path in sorted(Path(folder).glob("*.safetensors")) for name, value in load_file(path).items()
    }


def share_of_kept(documents):
    sizes = [(len(text.encode()), text.startswith("k")) for text in documents]
    return sum(n for n, kept in sizes if kept) / sum(n for n, _ in sizes)


@pytest.mark.parametrize("keep", [["k" * 50] * 3, ["k" * 50] * 5000, ["k" * 90_000]], ids=["few", "many", "one"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_kept_text_has_its_share_whatever_the_sizes(keep, share):
    text = ["t" * 40] * 1000
    for passes in (1, 2, 2.5):
        documents = [*mix(text, keep, share=share, passes=passes, seed=3)]
        assert share_of_kept(documents) == pytest.approx(share, rel=0.05)
        assert sum(text.startswith("t") for text in documents) == pytest.approx(1000 * passes, abs=1)


def test_every_pass_reads_all_text_in_another_order_and_kept_text_goes_on():
    text, keep = [f"t{n}" for n in range(100)], [f"k{n:03}" for n in range(200)]
    documents = [*mix(text, keep, share=0.2, passes=2)]
    targets = [text for text in documents if text.startswith("t")]
    assert sorted(targets[:100]) == sorted(targets[100:]) == sorted(text)
    assert targets[:100] != targets[100:]
    kept = "".join(text for text in documents if text.startswith("k"))
    assert len({*kept.split("k")}) == kept.count("k") + 1
    assert documents == [*mix(text, keep, share=0.2, passes=2)]
    assert documents != [*mix(text, keep, share=0.2, passes=2, seed=1)]
    assert [*mix(text, passes=1)] != text
    assert sorted(mix(text, share=0.5)) == sorted(text)


def test_packed_text_is_the_ids_of_the_documents_with_a_start_before_each(place):
    tokenizer = tg.load(place / "adapted")
    ids, n_bytes = packed(tokenizer, iter(ESTONIAN[:50]), [395], None)
    assert ids.tolist() == [token for text in ESTONIAN[:50] for token in (395, *tokenizer.encode(text))]
    assert n_bytes == sum(len(text.encode()) for text in ESTONIAN[:50])
    short, size = packed(tokenizer, iter(ESTONIAN[:50]), [395], 1000)
    assert size == 1000
    assert short.tolist() == ids[: len(short)].tolist()
    assert len(short) == pytest.approx(len(ids) * 1000 / n_bytes, rel=0.1)


def test_every_sequence_begins_with_the_start_as_scored_text_does():
    ids = np.arange(10, 30, dtype=np.int32)
    found = [item["input_ids"].tolist() for item in Sequences(ids, 6, 3, (1, 2))]
    assert found == [[1, 2, 10, 11, 12, 13], [1, 2, 14, 15, 16, 17], [1, 2, 18, 19, 20, 21]]


@pytest.mark.usefixtures("place")
def test_the_cost_with_the_old_tokenizer_is_that_of_the_old_tokenizer():
    recipe, base = TrainingSettings.of("adapted"), tg.load("model")
    ids, _ = packed(tg.load("adapted"), iter(ESTONIAN), [395], None)
    assert old_tokens(ids, recipe.new_ids, recipe.pieces) == sum(1 + len(base.encode(text)) for text in ESTONIAN)


@pytest.mark.parametrize(("pieces", "passes"), [(1, 1), (1.5, None), (2, None), (9, 3)])
def test_passes_cost_one_pass_with_the_old_tokenizer_and_are_at_most_3(place, pieces, passes):
    path = place / "adapted" / "training.json"
    training = json.loads(path.read_text())
    ids, _ = packed(tg.load("adapted"), iter(ESTONIAN), [395], None)
    new = float(np.isin(ids, training["new_ids"]).mean())
    n = max(1, round(1 + (pieces - 1) / new)) if pieces > 1 else 1  # old tokens for a new one, for so many passes
    path.write_text(json.dumps(training | {"pieces": [n] * len(training["new_ids"]), "kept_share": 0}))
    found = training_text(tg.load("adapted"), {"et": "et.txt"}, {}, {}, None)
    plan = TrainingPlan(place / "adapted", tg.load("adapted"), found, TrainOptions(max_bytes=800))
    assert plan.passes == (passes or pytest.approx(1 + new * (n - 1), abs=0.051))
    assert plan.ids[1] == 800


@pytest.mark.parametrize("keep", [{}, {"en": "en.txt"}], ids=["alone", "with kept text"])
def test_passes_that_are_read_are_those_of_the_text_until_max_bytes(place, keep):
    tokenizer = tg.load("adapted")
    found = training_text(tokenizer, {"et": "et.txt"}, keep, {}, None)
    size = sum(len(document.encode()) for document in found.target)

    def plan(**options):
        return TrainingPlan(place / "adapted", tokenizer, found, TrainOptions(passes=2, kept_share=0.2, **options))

    assert plan().passes_read == 2
    assert plan(max_bytes=100 * size).passes_read == 2
    wanted = 0.25 * size / (0.8 if keep else 1)
    assert plan(max_bytes=int(wanted)).passes_read == pytest.approx(0.25, abs=0.006)


BEFORE = {"en": 1.0, "et": 3.0}


@pytest.mark.parametrize(
    ("kept", "chosen"),
    [
        ([0.99, 1.0, 1.0], (0.0, True)),
        ([1.05, 1.02, 1.0099], (0.2, True)),
        ([1.05, 1.01, 1.0], (0.1, True)),
        ([1.05, 1.03, 1.02], (0.2, False)),
        ([1.05, 1.02, 1.03], (0.1, False)),
    ],
)
def test_the_smallest_share_that_is_enough_is_chosen(kept, chosen):
    shares = {0.1 * at: {"en": score, "et": 2.0} for at, score in enumerate(kept)}
    assert chosen_share(shares, BEFORE, ["en"]) == (pytest.approx(chosen[0]), chosen[1])


def test_the_result_is_the_blend_of_what_was_trained_and_other_commands_agree_on_its_figures(place, tokengraft):
    texts = ["--held-out", "et=held-out.txt", "en=en-test.txt"]
    run = ["train", "adapted", "--text", "et=et.txt", "--keep", "en=en.txt", *texts, "--max-bytes", "4KB"]
    shown = tokengraft(*run, "--length", "64", "--learning-rate", "1e-3", "--out", "first", "--blend", "0")
    assert "before training" in shown.out
    assert 0 <= shown.err.find("GB of memory") < shown.err.find("scoring before training")  # the time is said first
    tg.blend("first", "adapted", share=0.2, out="blended")
    held_out = {"et": "held-out.txt", "en": "en-test.txt"}
    options = TrainOptions(max_bytes=4000, length=64, learning_rate=1e-3)
    done = tg.train(
        "adapted", {"et": "et.txt"}, keep={"en": "en.txt"}, held_out=held_out, out="second", options=options
    )
    scores = tg.evaluate({"adapted": "adapted", "blended": "blended", "second": "second"}, held_out, bits=True)
    for name in held_out:
        assert scores["adapted", name].bits_per_byte == pytest.approx(done.before[name], rel=1e-6)
        assert scores["second", name].bits_per_byte == pytest.approx(done.after[name], rel=1e-6)
        assert scores["blended", name].bits_per_byte == pytest.approx(done.shares[0.2][name], rel=1e-4)
    assert [*done.shares] == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert done.kept == ("en",)
    assert done.text_bytes == 4000
    n_bytes = sum(len(text.encode()) for text in ESTONIAN[:300])
    assert done.passes == pytest.approx(0.9 * 4000 / n_bytes, rel=0.05)  # a tenth is kept text
    assert done.after["et"] < 0.98 * done.before["et"]
    assert "hashes" not in (place / "second" / "README.md").read_text()  # `adaptation.json` stays in the adapted folder
    files = {path.name for path in (place / "second").iterdir()}
    assert files >= {
        "README.md",
        "training_log.json",
        "training.svg",
        "training.html",
        "tokengraft.json",
        "config.json",
        "tokenizer.json",
    }
    assert "training.json" not in files
    assert weights("second").keys() == weights("adapted").keys()
    assert {value.dtype for value in weights("second").values()} == {
        value.dtype for value in weights("adapted").values()
    }
    card = (place / "second" / "README.md").read_text(encoding="utf-8")
    assert "untrained" not in card
    assert "## Training" in card
    log = json.loads((place / "second" / "training_log.json").read_text(encoding="utf-8"))
    assert any("eval_et_bits_per_byte" in entry for entry in log["history"])
    assert "<polyline" in (place / "second" / "training.svg").read_text(encoding="utf-8")
    assert not Path("second.work").exists()


def test_the_page_has_every_text_before_adapted_trained_and_blended(place):
    held_out = {"et": "held-out.txt", "en": "en-test.txt"}
    options = TrainOptions(max_bytes=4000, length=64, learning_rate=1e-3, blend=0.3)
    given = {"keep": {"en": "en.txt"}, "held_out": held_out, "options": options}
    done = tg.train("adapted", {"et": "et.txt"}, out="trained", **given)
    models = {"model": "model", "adapted": "adapted", "trained": "trained"}
    scores = tg.evaluate(models, held_out, bits=True)
    page = (place / "trained" / "training.html").read_text(encoding="utf-8")
    for name, rows in done.stages().items():
        assert [label for label, _, _ in rows] == ["before", "adapted", "trained", "blended"]
        for (_, bits, _), model in zip((rows[0], rows[1], rows[3]), models, strict=True):
            assert bits == pytest.approx(scores[model, name].bits_per_byte, rel=1e-6)
        assert rows[0][2] > rows[1][2] or name != "et"
        for _, bits, tokens in rows:
            assert f"{bits:.4f}</td>" in page
            assert f"{tokens:,}</td>" in page
    assert "<polyline" in page
    assert "before the adaptation" in (place / "trained" / "README.md").read_text(encoding="utf-8")
    record = Path("adapted", "tokengraft.json")  # as if another model were in the folder of the source
    record.write_text(record.read_text().replace('"source_config_sha256": "', '"source_config_sha256": "0'))
    done = tg.train("adapted", {"et": "et.txt"}, out="again", **given)
    assert not done.unadapted
    assert [len(rows) for rows in done.stages().values()] == [3, 3]
    assert "was not found" in (place / "again" / "training.html").read_text(encoding="utf-8")


def test_without_held_out_text_documents_are_held_out_of_both(place):
    tokenizer = tg.load("adapted")
    found = training_text(tokenizer, {"et": "et.txt"}, {"en": "en.txt"}, {}, None)
    for name, documents, lines in (("et", found.target, ESTONIAN[:300]), ("en", found.keep, ENGLISH)):
        assert 0 < len(found.held_out[name]) < len(lines) / 4
        assert {*found.held_out[name]} | {*documents} == {*lines}
        assert not {*found.held_out[name]} & {*documents}
    assert found.kept == {"en"}
    only = training_text(tokenizer, {"et": "et.txt"}, {"en": "en.txt"}, {"et": "held-out.txt"}, None)
    assert {*only.held_out} == {"et", "en"}
    assert only.kept == {"en"}
    long = " ".join(ESTONIAN)
    (place / "long.txt").write_text(long, encoding="utf-8")
    pieces = training_text(tokenizer, {"et": "long.txt"}, {}, {}, None)
    assert sum(map(len, (*pieces.target, *pieces.held_out["et"]))) <= len(long)
    assert not any(piece in document for piece in pieces.held_out["et"] for document in pieces.target)


def test_documents_that_are_scored_are_not_trained_on(place):
    (place / "mixed.txt").write_text("\n".join(ESTONIAN[200:340]), encoding="utf-8")
    found = training_text(tg.load("adapted"), {"et": "mixed.txt"}, {}, {"et": "held-out.txt"}, None)
    assert {*found.target} == {*ESTONIAN[200:300]}
    assert "40 documents are also held out" in found.warnings[0]


@pytest.mark.usefixtures("place")
def test_held_out_text_with_the_name_of_no_text_is_refused_with_the_names_that_there_are():
    given = {"hi": "et.txt"}, {"keep": "en.txt"}, {"en": "en-test.txt"}
    with errors.on_command_line(), pytest.raises(errors.OptionError) as caught:
        training_text(tg.load("adapted"), *given, None)
    assert "--held-out has a text 'en'" in str(caught.value)
    assert "are 'hi', 'keep'" in str(caught.value)
    assert "--held-out keep=FILES" in str(caught.value)
    assert "--keep en=FILES" in str(caught.value)


@pytest.mark.usefixtures("place")
def test_a_text_without_held_out_text_of_its_name_has_documents_held_out():
    texts = {"et": "et.txt", "en": "en.txt"}
    found = training_text(tg.load("adapted"), texts, {}, {"et": "held-out.txt"}, None)
    assert {*found.held_out["et"]} == {*ESTONIAN[300:340]}
    assert {*found.held_out["en"]} < {*ENGLISH}
    assert found.held_out["en"]


@pytest.mark.parametrize("which", ["text", "keep"])
def test_what_is_held_out_of_one_text_is_not_trained_on_as_part_of_another(place, which, monkeypatch):
    size = (place / "en.txt").stat().st_size  # of a larger text, other documents are held out: one in 50, not in 10
    monkeypatch.setattr("tokengraft.training.text.HELD_OUT_BYTES", (8_000, size + 1000))
    (place / "mixed.txt").write_text("\n".join([*ESTONIAN[:100], *ENGLISH]), encoding="utf-8")
    texts = {"text": {"mixed": "mixed.txt"}, "keep": {}}
    texts[which] = texts[which] | {"en": "en.txt"}
    found = training_text(tg.load("adapted"), texts["text"], texts["keep"], {}, None)
    held_out = {document for documents in found.held_out.values() for document in documents}
    assert {*found.held_out} == {"mixed", "en"}
    assert not held_out & {*found.target, *found.keep}
    assert held_out | {*found.target, *found.keep} == {*ESTONIAN[:100], *ENGLISH}
    assert any(warning.startswith("mixed: ") and "also held out" in warning for warning in found.warnings)


def test_a_piece_that_is_held_out_of_a_long_document_is_not_trained_on_as_part_of_another(place):
    long = " ".join(f"{text} {at}" for at, text in enumerate(ESTONIAN * 10))
    (place / "long.txt").write_text(long, encoding="utf-8")
    (place / "longer.txt").write_text("\n".join([f"{' '.join(ENGLISH)} {long}", *ENGLISH]), encoding="utf-8")
    found = training_text(tg.load("adapted"), {"et": "long.txt"}, {"en": "longer.txt"}, {}, None)
    assert found.held_out["et"]
    assert not any(piece in document for piece in found.held_out["et"] for document in (*found.target, *found.keep))


def test_a_sample_has_documents_of_the_whole_text():
    documents = [f"{n:04}" for n in range(1000)]
    chosen = sample(documents, 400)
    assert len(chosen) <= 100
    assert int(chosen[-1]) > 900
    assert sample(documents, 10**6) == tuple(documents)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "empty.txt"}, "empty"),
        ({"text": ["a single document"]}, "left to train on"),
        ({"held_out": {"et": "et.txt"}}, "scored on what it was trained on"),
        ({"keep": {"text": "en.txt"}}, "both have a text 'text'"),
        ({"out": "model"}, "exists"),
        ({"adapted": "et.txt"}, "not a folder"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused_before_it_starts(place, arguments, message):
    (place / "empty.txt").write_text("\n\n")
    given = {"adapted": "adapted", "text": "et.txt", "out": "out"} | arguments
    with pytest.raises(errors.TokengraftError, match=message):
        tg.train(given.pop("adapted"), given.pop("text"), **given, quiet=True)
    assert not Path("out").exists()
    assert not Path("out.work").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": 0}, "--passes is 0"),
        ({"learning_rate": float("nan")}, "--learning-rate is nan"),
        ({"blend": 1}, "--blend is 1"),
        ({"kept_share": -0.1}, "--kept-share is -0.1"),
        ({"trainer": {"seed": 3}}, "decided by other options"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, message):
    with errors.on_command_line():
        with pytest.raises(errors.OptionError) as caught:
            TrainOptions(**options)
        assert message in str(caught.value)


@pytest.mark.usefixtures("place")
def test_an_argument_that_the_trainer_does_not_know_is_refused():
    with pytest.raises(errors.OptionError, match="no_such_argument"):
        tg.train("adapted", "et.txt", out="out", options=TrainOptions(trainer={"no_such_argument": 1}), quiet=True)


def command(out, *more):
    """The arguments of a short run, in a process of its own."""
    options = ["--length", "64", "--step-bytes", "1KB", "--max-bytes", "8KB", "--blend", "0.2", "--quiet"]
    options += ["--trainer", "bf16=false"]
    texts = ["--text", "et=et.txt", "--keep", "en=en.txt", "--held-out", "et=held-out.txt", "en=en-test.txt"]
    return ["-m", "tokengraft", "train", "adapted", *texts, *options, "--out", out, *more]


@pytest.fixture(scope="module")
def whole(template):
    """The folder of a run of one process that is not interrupted."""
    arguments = [sys.executable, *command("whole")]
    subprocess.run(arguments, check=True, env=ENVIRONMENT, cwd=template, capture_output=True)
    return template / "whole"


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(whole, place):
    save = ["--trainer", "save_steps=1"]
    process = subprocess.Popen([sys.executable, *command("killed", *save)], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    while process.poll() is None and not [*Path("killed.work").glob("checkpoint-[2-9]/trainer_state.json")]:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("killed").exists()
    saved = [int(path.name.rpartition("-")[2]) for path in Path("killed.work").glob("checkpoint-*")]
    assert saved
    for number, part in ((98, '{"epoch": 0.5, "log_hist'), (99, None)):  # as if it had been killed while it saved
        (place / "killed.work" / f"checkpoint-{number}").mkdir()
        if part:
            (place / "killed.work" / f"checkpoint-{number}" / "trainer_state.json").write_text(part)
    again = subprocess.run([sys.executable, *command("killed", *save)], env=ENVIRONMENT, capture_output=True, text=True)
    assert not again.returncode, again.stderr
    first, second = weights(whole), weights("killed")
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    logs = [json.loads((place / name / "training_log.json").read_text())["history"] for name in (whole, "killed")]
    scores = [[entry for entry in log if "eval_et_bits_per_byte" in entry] for log in logs]
    assert scores[0] == scores[1]


def test_a_work_folder_of_another_run_is_refused(place):
    work = place / "out.work"
    work.mkdir()
    (work / "settings.json").write_text("{}")
    with pytest.raises(errors.OutputError, match="another model, text or other options"):
        tg.train("adapted", "et.txt", out="out", options=SHORT, quiet=True)


def test_two_processes_give_the_result_of_one(whole, place):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29512"]
    arguments = [sys.executable, *launcher, *command("two")]
    subprocess.run(arguments, check=True, env=ENVIRONMENT, capture_output=True)
    first, second, before = (weights(folder) for folder in (whole, place / "two", place / "adapted"))
    for name, value in first.items():
        assert torch.allclose(value, second[name], atol=2e-3, rtol=1e-3), name
        assert not torch.equal(value, before[name])
    runs = [json.loads((folder / "tokengraft.json").read_text()) for folder in (whole, place / "two")]
    scores = [run["train"]["after"] for run in runs]
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_a_warning_says_as_soon_as_kept_text_gets_worse(place):
    lines, warnings = [], []

    class Fake:
        args = type("Args", (), {"process_index": 0, "world_size": 1, "device": "cpu"})
        is_fsdp_enabled = is_deepspeed_enabled = False
        model = tiny_models.model_in(place / "adapted")
        accelerator = type("A", (), {"unwrap_model": staticmethod(lambda model: model)})

        def log(self, logs):
            state.log_history.append(logs)

        def is_world_process_zero(self):
            return True

    state = type("State", (), {"log_history": [], "global_step": 0, "max_steps": 4})
    texts = {"et": ESTONIAN[:5], "en": ENGLISH[:5]}
    callback = HeldOutBits(
        Fake(), place / "adapted", texts, kept=["en"], points=2, show=lines.append, warn=warnings.append
    )
    callback.on_train_begin(None, state, None)
    with torch.no_grad():
        Fake.model.model.norm.weight *= 3
    for step in range(1, 5):
        state.global_step = step
        callback.on_step_end(None, state, None)
    assert [line.split(":")[0] for line in lines] == ["step 0/4", "step 2/4", "step 4/4"]
    assert len(warnings) == 1
    assert "kept text `en`" in warnings[0]


def test_the_rate_is_that_of_the_file_for_its_steps_and_falls_with_the_root_of_smaller_ones(place):
    found = training_text(tg.load("adapted"), {"et": "et.txt"}, {"en": "en.txt"}, {}, None)
    for options, rate in (({}, None), ({"learning_rate": 0.01}, 0.01)):
        plan = TrainingPlan(place / "adapted", tg.load("adapted"), found, TrainOptions(step_bytes=890, **options))
        size = plan.steps.per_step * plan.steps.length * plan.ids[1] / len(plan.ids[0])
        assert plan.learning_rate == (rate or pytest.approx(9e-4 * (size / 89_000) ** 0.5, rel=0.05))


def test_new_rows_of_a_transplant_are_known_without_training_json(place):
    (place / "adapted" / "training.json").rename(place / "training.json")
    known = json.loads((place / "training.json").read_text())
    recipe = TrainingSettings.of(place / "adapted")
    assert [*recipe.new_ids] == known["new_ids"]
    assert recipe.new_rows_factor == known["new_rows_factor"]
    assert TrainingSettings.of(place / "model").new_ids == ()
