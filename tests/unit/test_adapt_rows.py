"""`adapt` passes on how rows are made: initialisers of input and output, and rows without a token."""

import json

import builders
import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint, tables

import tokengraft as tg
from tokengraft import cli, errors


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("et", ESTONIAN), ("en", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def adapted(texts, model, out, **options):
    chosen = tg.AdaptOptions(report=False, **options)
    return tg.adapt(model, target=texts / "et.txt", keep=texts / "en.txt", swap=20, out=out, options=chosen)


@pytest.mark.parametrize(
    "options",
    [
        {"init": "fvt-script-norm", "output_init": "length-weighted"},
        {"init": "last-piece", "output_init": "first-piece"},
        {"output_init": "mean"},
    ],
)
def test_input_and_output_get_their_own_initialisers(texts, options):
    base = checkpoint(texts / "model")
    done = adapted(texts, texts / "model", texts / "out", **options)
    expected = {"init": "fvt"} | options
    assert done.transplant.init == (expected["init"], expected["output_init"])
    tg.transplant(texts / "model", done.tokenizer, texts / "again", **expected)
    ours, others = tables(texts / "out"), tables(texts / "again")
    assert all(np.array_equal(ours[name], others[name]) for name in ours)
    assert base.n_rows == done.transplant.rows_after


def test_context_uses_the_counts_of_all_texts(texts):
    base = checkpoint(texts / "model")
    done = adapted(texts, texts / "model", texts / "out", init="context")
    similar = done.transplant.plan.facts.similar
    assert similar is not None
    kept = {i for i, source in enumerate(done.plan.sources) if isinstance(source, int)}
    assert {*similar.values()} <= {base_id for base_id in kept if base_id in base.strings}


def test_an_output_initialiser_for_a_tied_model_is_refused_before_text_is_read(texts):
    checkpoint(texts / "model", head=False)
    (texts / "et.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(errors.OptionError, match="tied"):
        adapted(texts, texts / "model", texts / "out", output_init="length-weighted")


@pytest.mark.parametrize("options", [{"output_init": "mean"}, {"hole_rows": "zero"}])
def test_options_for_rows_without_weights_are_refused(texts, options):
    builders.write(texts / "bare", builders.byte_level())
    with pytest.raises(errors.OptionError, match="has no weights"):
        adapted(texts, texts / "bare", texts / "out", **options)


@pytest.mark.parametrize("options", [{"init": "mean"}, {"output_init": "mean"}])
def test_initialisers_without_new_tokens_are_refused(texts, options):
    checkpoint(texts / "model")
    chosen = tg.AdaptOptions(report=False, **options)
    with pytest.raises(errors.OptionError, match="none are learned"):
        tg.adapt(texts / "model", target=texts / "et.txt", remove=5, out=texts / "out", options=chosen)


def test_unknown_names_are_refused(texts):
    checkpoint(texts / "model")
    with pytest.raises(errors.OptionError, match="no initialiser 'best'"):
        adapted(texts, texts / "model", texts / "out", output_init="best")
    with pytest.raises(errors.OptionError, match="no hole rows 'best'"):
        adapted(texts, texts / "model", texts / "out", hole_rows="best")


def test_the_command_has_the_options(texts, capsys):
    base = checkpoint(texts / "model")
    small = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    tg.transplant(texts / "model", small, texts / "small", hole_rows="keep")
    arguments = ["adapt", texts / "small", "--target", texts / "et.txt", "--add", 10, "--out", texts / "out"]
    arguments += [
        "--init",
        "last-piece",
        "--output-init",
        "first-piece",
        "--hole-rows",
        "zero",
        "--no-report",
        "--quiet",
    ]
    assert cli.main([*map(str, arguments), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["transplant"]
    assert shown["init"] == {"input": "last-piece", "output": "first-piece"}
    assert (shown["hole_rows"], shown["suppressed"]) == ("zero", 20)
