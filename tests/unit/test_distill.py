"""`distill`: snippets and their alignment, what is learned, what stays, and that a stopped run goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, set_config, tables

import tokengraft as tg
from tokengraft import cli, errors

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers")
import tiny_models  # noqa: E402

from tokengraft.train import distill as module  # noqa: E402
from tokengraft.train.chunks import chunks  # noqa: E402
from tokengraft.train.learn_rows import RowAdam, RowLearner  # noqa: E402
from tokengraft.train.models import Hardware  # noqa: E402
from tokengraft.train.snippets import SnippetOptions, select_snippets  # noqa: E402


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def place(request, tmp_path, monkeypatch):
    """A model and its adaptation, in the working directory."""
    return made(tmp_path, monkeypatch, tied=request.param)


@pytest.fixture
def tied(tmp_path, monkeypatch):
    return made(tmp_path, monkeypatch, tied=True)


def made(folder, monkeypatch, *, tied, values=None):
    tiny_models.texts(folder)
    tiny_models.tiny_llama(folder / "model", tied=tied)
    if values is not None:
        model = tiny_models.model_in(folder / "model")
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight.data.fill_(values)
        model.save_pretrained(folder / "model")
    options = tg.AdaptOptions(report=False)
    text = {"target": folder / "et.txt", "keep": folder / "en.txt"}
    tg.adapt(folder / "model", **text, swap=12, out=folder / "adapted", options=options)
    monkeypatch.chdir(folder)
    return folder


def quick(**values):
    defaults = {"passes": 8, "step_snippets": 8, "snippet_bytes": 40, "learning_rate": 0.1, "device": "cpu"}
    return tg.DistillOptions(**defaults | values)


def new_ids(folder="adapted"):
    return json.loads(Path(folder, "training.json").read_text())["new_ids"]


def obvious_common_places(old, new):
    """Pairs of places after which both lists of bytes spell the same text."""
    return [
        (i, j) for i in range(len(old)) for j in range(len(new)) if b"".join(old[: i + 1]) == b"".join(new[: j + 1])
    ]


@pytest.mark.usefixtures("tied")
def test_snippets_are_aligned_where_both_have_read_the_same_bytes():
    old, new = tg.load("model"), tg.load("adapted")
    wanted = new_ids()
    found = select_snippets(iter(ESTONIAN), old, new, wanted, SnippetOptions(3, 40, 10**6))
    bytes_of = [{token.id: token.bytes for token in tokenizer.tokens} for tokenizer in (old, new)]
    assert found.snippets
    for snippet in found.snippets:
        texts = [bytes_of[0][i] for i in snippet.old], [bytes_of[1][i] for i in snippet.new]
        assert b"".join(texts[0]) == b"".join(texts[1])
        first = min(place for place, token in enumerate(snippet.new) if token in wanted)
        expected = [(i, j) for i, j in obvious_common_places(*texts) if j >= first]
        assert list(zip(snippet.old_places, snippet.new_places, strict=True)) == expected
        assert expected[-1] == (len(snippet.old) - 1, len(snippet.new) - 1)


@pytest.mark.usefixtures("tied")
def test_every_token_gets_the_snippets_that_are_wanted_if_the_text_has_them():
    old, new, wanted = tg.load("model"), tg.load("adapted"), new_ids()
    parts = [set(new.encode(part)) for part in chunks(ESTONIAN, 40)]
    in_text = {token: sum(token in part for part in parts) for token in wanted}
    found = select_snippets(iter(ESTONIAN), old, new, wanted, SnippetOptions(7, 40, 10**6))
    assert all(found.counts[token] >= min(7, in_text[token]) for token in wanted)
    assert len(found.snippets) < sum(bool(part & {*wanted}) for part in parts)
    few = select_snippets(iter(ESTONIAN), old, new, wanted, SnippetOptions(7, 40, 200))
    assert sum(few.counts.values()) < sum(found.counts.values())


def test_only_rows_of_new_tokens_change_and_both_losses_fall(place):
    done = tg.distill("model", "adapted", "et.txt", "out", options=quick())
    assert done.hidden_after < 0.9 * done.hidden_before
    assert done.next_token_after < done.next_token_before
    assert done.learned + done.rare == len(new_ids()) == 12
    before, after = tables(place / "adapted"), tables(place / "out")
    kept = np.ones(len(before["model.embed_tokens.weight"]), bool)
    kept[new_ids()] = False
    assert before.keys() == after.keys()
    for name, table in before.items():
        if "embed_tokens" in name or "lm_head" in name:
            assert np.array_equal(table[kept], after[name][kept])
            assert (table[~kept] != after[name][~kept]).any(axis=1).sum() == done.learned
        else:
            assert np.array_equal(table, after[name])
    raw = [(place / folder / "model.safetensors").read_bytes() for folder in ("adapted", "out")]
    assert len(raw[0]) == len(raw[1])
    assert tg.load("out") == tg.load("adapted")
    assert (place / "out" / "training.json").read_bytes() == (place / "adapted" / "training.json").read_bytes()
    assert not (place / "out.work").exists()
    assert tiny_models.model_in("out")


def test_the_teacher_reads_its_own_start_token_where_ids_have_moved(tmp_path, monkeypatch):
    tiny_models.texts(tmp_path)
    base = tiny_models.tiny_llama(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    small = tg.prune_order(base, tg.count(base, iter(ENGLISH)))[:30].apply(base)
    larger = tg.extend(small, tg.count(small, iter(ESTONIAN)), 20).apply(small)
    found = []
    for name, tokenizer in (("holes", larger), ("compact", larger.compact())):
        tg.transplant("model", tokenizer, name)
        found.append(tg.distill("model", name, "et.txt", f"{name}-out", options=quick(passes=1)))
    assert larger.compact().added[0].id != base.added[0].id
    assert found[0].hidden_before == pytest.approx(found[1].hidden_before, rel=1e-4)


@pytest.mark.usefixtures("tied")
def test_no_row_is_learned_whose_snippets_are_all_held_out(monkeypatch):
    monkeypatch.setattr(module, "HELD_OUT_EVERY", 2)
    pair = module._Pair.open(Path("model"), Path("adapted"))
    found = module._select(pair, "et.txt", quick(snippets=1, min_snippets=1), module.LINES)
    assert {*found.ids} <= {token for snippet in found.learned for token in snippet.new.tolist()}


def test_an_effect_that_one_row_can_have_is_learned(tmp_path, monkeypatch):
    """Without attention, the state after some tokens depends on the last one: its row is the one to find."""
    made(tmp_path, monkeypatch, tied=True, values=0.0)
    done = tg.distill("model", "adapted", "et.txt", "out", options=quick(next_token_weight=0, passes=25))
    assert done.hidden_after < 0.05 * done.hidden_before


def test_the_bits_of_held_out_text_fall(place):
    tg.distill("model", "adapted", "et.txt", "out", options=quick())
    found = tg.probe({"base": "model", "mean": "adapted", "distilled": "out"}, {"et": "held-out.txt"})
    assert found["distilled", "et", 0].bits < found["mean", "et", 0].bits
    assert place


@pytest.mark.usefixtures("tied")
def test_hidden_states_alone_come_closer_than_with_the_next_token_and_that_one_matters():
    alone = tg.distill("model", "adapted", "et.txt", "alone", options=quick(next_token_weight=0))
    both = tg.distill("model", "adapted", "et.txt", "both", options=quick())
    assert alone.hidden_after < both.hidden_after < both.hidden_before
    assert both.next_token_after < alone.next_token_after


@pytest.mark.usefixtures("place")
def test_equal_arguments_give_equal_rows_and_another_seed_others():
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        tg.distill("model", "adapted", "et.txt", name, options=quick(passes=2, seed=seed))
    one, two, three = (Path(name, "model.safetensors").read_bytes() for name in ("one", "two", "three"))
    assert one == two
    assert one != three


class Stopped(Exception):  # noqa: N818
    pass


def test_a_stopped_run_goes_on_to_the_same_rows(place, monkeypatch):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    steps = []

    def count_or_stop(stop):
        def progress(part, _, __):
            steps.append(part)
            if len(steps) == stop:
                raise Stopped

        return progress

    tg.distill("model", "adapted", "et.txt", "whole", options=quick(), progress=count_or_stop(None))
    n = len(steps)
    steps.clear()
    with pytest.raises(Stopped):
        tg.distill("model", "adapted", "et.txt", "out", options=quick(), progress=count_or_stop(n // 2))
    assert (place / "out.work").exists()
    assert not (place / "out").exists()
    steps.clear()
    tg.distill("model", "adapted", "et.txt", "out", options=quick(), progress=count_or_stop(None))
    assert steps[0] == "resumed"
    assert len(steps) == n - n // 2 + 2
    assert Path("out", "model.safetensors").read_bytes() == Path("whole", "model.safetensors").read_bytes()


def test_the_state_of_a_run_with_other_options_is_not_used(place, monkeypatch):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)

    def stop(*_):
        raise Stopped

    tg.distill("model", "adapted", "et.txt", "whole", options=quick(seed=1))
    real = RowLearner.save
    monkeypatch.setattr(RowLearner, "save", lambda *arguments: real(*arguments) or stop())
    with pytest.raises(Stopped):
        tg.distill("model", "adapted", "et.txt", "out", options=quick(seed=0))
    monkeypatch.setattr(RowLearner, "save", real)
    tg.distill("model", "adapted", "et.txt", "out", options=quick(seed=1))
    assert (place / "out" / "model.safetensors").read_bytes() == (place / "whole" / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("tied")
def test_tokens_with_few_snippets_keep_their_rows():
    done = tg.distill("model", "adapted", "et.txt", "out", options=quick(snippets=300, min_snippets=200, passes=1))
    assert done.rare > 0
    assert done.learned > 0
    before, after = tables(Path("adapted")), tables(Path("out"))
    changed = (before["model.embed_tokens.weight"] != after["model.embed_tokens.weight"]).any(axis=1)
    assert changed.sum() == done.learned
    with pytest.raises(errors.CorpusError, match="no new token has"):
        tg.distill("model", "adapted", iter(ENGLISH), "none", options=quick())


def test_rows_that_occur_move_by_the_rate_and_others_by_the_share_of_their_gradient():
    rows = torch.nn.Parameter(torch.ones(3, 2))
    adam = RowAdam(rows)
    gradient = torch.tensor([[0.01, 0.01], [1.0, 1.0], [0.0, 0.0]])
    for _ in range(2):
        adam.step(gradient, torch.tensor([1]), 0.1)
    assert torch.allclose(rows.data, torch.tensor([[0.998, 0.998], [0.8, 0.8], [1.0, 1.0]]))


@pytest.mark.usefixtures("tied")
def test_a_dry_run_says_what_would_be_done_and_writes_nothing(capsys):
    before = sorted(Path().rglob("*"))
    assert cli.main(["distill", "model", "adapted", "--corpus", "et.txt", "--dry-run", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "learned" in shown
    assert " GB" in shown
    assert sorted(Path().rglob("*")) == before


@pytest.mark.usefixtures("tied")
def test_the_command_states_memory_and_time_first_and_writes_the_result(capsys):
    arguments = ["distill", "model", "adapted", "--corpus", "et.txt", "--device", "cpu", "--passes", "1", "--json"]
    assert cli.main([*arguments, "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["hidden_after"] < json.loads(out)["hidden_before"]
    assert any(" GB" in line for line in err.splitlines()[:4])
    assert json.loads(Path("out", "tokengraft.json").read_text())["distill"]["learned"] == json.loads(out)["learned"]
    assert cli.main([*arguments, "--out", "out"]) == 2
    assert cli.main([*arguments, "--out", "out", "--force"]) == 0
    assert cli.main(arguments) == 2


@pytest.mark.usefixtures("tied")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--layer", "3"], "--layer is 3"),
        (["--layer", "0"], "--layer is 0"),
        (["--min-snippets", "30"], "--min-snippets is 30"),
        (["--passes", "0"], "--passes is 0"),
        (["--next-token-weight", "-1"], "--next-token-weight is -1"),
        (["--learning-rate", "nan"], "--learning-rate is nan"),
        (["--snippet-bytes", "3"], "--snippet-bytes is 3"),
        (["--out", "model"], "is the input"),
        (["--out", "et.txt"], "is the input"),
        (["--out", "en.txt"], "exists"),
        (["--out", "adapted/x"], "inside"),
    ],
)
def test_wrong_options_are_refused(capsys, more, message):
    arguments = ["distill", "model", "adapted", "--corpus", "et.txt", "--device", "cpu", "--quiet"]
    out = [] if "--out" in more else ["--out", "out"]
    assert cli.main([*arguments, *out, *more]) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_snippets_that_are_too_long_for_the_model_are_refused(tmp_path, monkeypatch):
    made(tmp_path, monkeypatch, tied=True)
    for folder in ("model", "adapted"):
        set_config(Path(folder), max_position_embeddings=20)
    with pytest.raises(errors.OptionError, match="reads at most 20"):
        tg.distill("model", "adapted", "et.txt", "out", options=quick())
    assert not Path("out").exists()


@pytest.mark.usefixtures("tied")
def test_models_that_differ_in_more_than_their_vocabulary_are_refused():
    with pytest.raises(errors.CheckpointError, match="has no token that"):
        tg.distill("model", "model", "et.txt", "out", options=quick())
    model = tiny_models.model_in("adapted")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] += 1
    model.save_pretrained("adapted")
    with pytest.raises(errors.CheckpointError, match=r"up_proj.weight` differs"):
        tg.distill("model", "adapted", "et.txt", "out", options=quick())


@pytest.mark.usefixtures("place")
def test_a_model_that_is_no_transplant_of_the_base_is_refused_before_text_is_read():
    adapted = Path("adapted")
    kept = next(i for i in range(tg.load(adapted).n_rows) if i not in new_ids())
    config = json.loads((adapted / "config.json").read_text())
    set_config(adapted, rms_norm_eps=0.5)
    with pytest.raises(errors.CheckpointError, match=r"`rms_norm_eps` in config.json differs"):
        tg.distill("model", adapted, "no-such-text.txt", None, options=quick())
    (adapted / "config.json").write_text(json.dumps(config | {"transformers_version": "0", "use_cache": False}))
    model = tiny_models.model_in(adapted)
    for table in (model.get_input_embeddings(), model.get_output_embeddings()):
        with torch.no_grad():
            table.weight[kept, 0] += 1
        model.save_pretrained(adapted)
        with pytest.raises(errors.CheckpointError, match=f"row {kept} of `.+`, of a kept token, differs"):
            tg.distill("model", adapted, "no-such-text.txt", None, options=quick())
        with torch.no_grad():
            table.weight[kept, 0] -= 1


@pytest.mark.usefixtures("tied")
def test_the_transplant_of_another_model_is_refused():
    tiny_models.tiny_llama(Path("other"), rope_theta=5000.0)
    tg.transplant("other", tg.load("adapted"), "moved")
    with pytest.raises(errors.CheckpointError, match=r"`rope.+` in config.json differs"):
        tg.distill("model", "moved", "et.txt", None, options=quick())


def test_adapt_distills_the_rows_of_new_tokens_after_the_transplant(tied, capsys):
    arguments = ["adapt", "model", "--target", "et.txt", "--keep", "en.txt", "--swap", "12", "--no-report", "--quiet"]
    assert cli.main([*arguments, "--init", "distill", "--out", "distilled"]) == 0, capsys.readouterr().err
    report = json.loads(Path("distilled", "tokengraft.json").read_text())
    assert report["distill"]["learned"] > 0
    assert report["request"]["options"]["init"] == "distill"
    plain, distilled = tables(tied / "adapted"), tables(tied / "distilled")
    name = "model.embed_tokens.weight"
    changed = {row for row in range(len(plain[name])) if plain[name][row].tobytes() != distilled[name][row].tobytes()}
    assert changed
    assert changed <= set(new_ids("adapted"))
    assert Path("distilled", "adaptation.json").exists()
    assert not Path("distilled.work").exists()


def test_distillation_inside_adapt_goes_on_after_a_stop(tied, monkeypatch):
    options = tg.AdaptOptions(report=False, init="distill", seed=3)
    text = {"target": "et.txt", "keep": "en.txt", "swap": 12, "options": options}
    tg.adapt("model", out="whole", **text)
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    real, resumed = RowLearner.save, []

    def save_then_stop(self, *arguments):
        real(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RowLearner, "save", save_then_stop)
        with pytest.raises(KeyboardInterrupt):
            tg.adapt("model", out="again", **text)
    assert (tied / "again.work" / "distill.pt").exists()
    assert not (tied / "again.work" / "transplanted").exists()
    load = RowLearner.resume

    def resume(self, *arguments):
        load(self, *arguments)
        resumed.append(self.done)

    monkeypatch.setattr(RowLearner, "resume", resume)
    tg.adapt("model", out="again", **text)
    assert resumed[0] > 0
    assert Path("whole", "model.safetensors").read_bytes() == Path("again", "model.safetensors").read_bytes()
    assert not Path("again.work").exists()


def test_adapt_refuses_to_distill_before_it_reads_text(tied, monkeypatch, capsys):
    tg.save(tg.load("model"), "only-tokenizer")
    arguments = ["--target", "et.txt", "--swap", "12", "--init", "distill", "--out", "out"]
    assert cli.main(["adapt", "only-tokenizer", *arguments]) == 2
    assert "--init distill was given, but `only-tokenizer` has no weights" in capsys.readouterr().err
    with pytest.raises(errors.OptionError, match="reads the text `target` a second time"):
        tg.adapt("model", target=iter(ESTONIAN), swap=12, out="out", options=tg.AdaptOptions(init="distill"))
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert cli.main(["adapt", "model", *arguments]) == 2
    assert "torch" in capsys.readouterr().err
    assert not (tied / "out").exists()


def test_the_time_on_a_gpu_is_at_least_that_of_starting_kernels():
    """SmolLM2 on an H200: 0.14 s for a step, whose products would need 0.005 s."""
    gpu, cpu = Hardware("cuda", "bfloat16"), Hardware("cpu", "float32")
    assert module._seconds(7.0, 1_498, 30, gpu) == pytest.approx(225, rel=0.1)
    assert module._seconds(1_000.0, 1_498, 30, gpu) == 1_000
    assert module._seconds(7.0, 1_498, 30, cpu) == 7
    assert module._seconds(7.0, 1_498, None, gpu) == 7
