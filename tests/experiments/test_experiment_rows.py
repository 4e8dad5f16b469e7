"""Initialisers that only the experiments have."""

import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, changed, checkpoint

import tokengraft as tg
from lab.experiments import rows
from tokengraft.checkpoint.rows import NewTokens, TableInfo, fvt

OLD, WIDTH = 50, 6
PIECES = {0: (1, 2, 3), 1: (4,), 2: (), 3: (40, 41)}
PLAN = tg.VocabPlan(OLD, (*PIECES.values(), *range(45)), (45, 46, 47, 48, 49))


class FixedChange:
    """Three tokens of one script, which are too few; none for the first and the last, which are not typical."""

    old_scripts = (None, *["Latin"] * 40, *["Cyrillic"] * 3, *["Common"] * 5, None)
    new_scripts = ("Latin", "Cyrillic", None, "Latin")


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(3)
    return (generator.normal(size=(OLD, WIDTH)) * [1, 2, 3, 1, 1, 1] + 1).astype(np.float32)


def info(table, name="input"):
    return TableInfo(np.arange(OLD), lambda ids: table[ids], WIDTH, seed=5, table=name, plan=PLAN)


def tokens(table, pieces):
    old = np.array([row for part in pieces.values() for row in part], np.int64)
    return NewTokens([*pieces], np.array([len(part) for part in pieces.values()]), np.arange(len(old)), table[old], old)


def made(table, init, name="input", pieces=PIECES):
    return init(tokens(table, pieces), info(table, name))


def norms(rows):
    return np.linalg.norm(rows.astype(np.float64), axis=1)


def test_rescaled_rows_have_the_direction_of_the_mean_and_a_median_length(table):
    plain, typical = made(table, fvt), [np.median(norms(table[part])) for part in (slice(1, 41), slice(1, 45))]
    by_script = made(table, lambda *given: rows.fvt_script_norm(FixedChange, *given))
    for found in (made(table, rows.fvt_norm), by_script):
        assert np.allclose(found / norms(found)[:, None], plain / norms(plain)[:, None], atol=1e-5)
    assert np.allclose(norms(made(table, rows.fvt_norm)), np.median(norms(table)), rtol=1e-5)
    # Cyrillic has too few kept tokens, the third has no script; removed tokens and those without a script do not count
    assert np.allclose(norms(by_script), [typical[0], typical[1], typical[1], typical[0]], rtol=1e-5)


def test_rows_of_single_tokens_are_copies(table):
    mean = table.mean(0)
    assert np.allclose(made(table, rows.first_piece), [table[1], table[4], mean, table[40]])
    assert np.allclose(made(table, rows.last_piece), [table[3], table[4], mean, table[41]])


def test_weighted_looks_at_the_end_for_input_and_at_the_beginning_for_output(table):
    weights = np.exp(2.0 * np.arange(3)) / np.exp(2.0 * np.arange(3)).sum()
    assert np.allclose(made(table, rows.weighted)[0], weights @ table[1:4], atol=1e-6)
    assert np.allclose(made(table, rows.weighted, "output")[0], weights[::-1] @ table[1:4], atol=1e-6)


def test_random_rows_have_the_mean_and_covariance_of_the_table(table):
    many = made(table, rows.mean_cov, pieces=dict.fromkeys(range(4000), ()))
    assert np.allclose(many.mean(0), table.mean(0), atol=0.2)
    assert np.allclose(np.cov(many.T), np.cov(table.T), atol=1.0)


@pytest.mark.parametrize("name", [*rows.SIMPLE, "fvt-script-norm", "mean"])
def test_every_name_is_an_initialiser_of_transplant(name, tmp_path):
    base = checkpoint(tmp_path / "model", dtype="F32")
    counts = tg.count(base, iter(ESTONIAN + ENGLISH))
    extended = tg.extend(base, counts, 40).apply(base)
    tg.transplant(tmp_path / "model", extended, tmp_path / "out", init=rows.Change(base, extended).init(name))


def test_bits_before_training_are_those_of_the_model_and_their_parts_add_up(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to run this")
    from tiny_models import tiny_llama

    from lab.experiments.untrained_rows import Scorer, compared, load_model

    tiny_llama(tmp_path / "model", bos_token_id=0)
    base, model = tg.load(tmp_path / "model"), load_model(tmp_path / "model", untie=False)
    new = changed(base, add=14)
    text, scorer, new_ids = [ENGLISH[0], ESTONIAN[0]], Scorer(model), [*range(base.n_rows, new.n_rows)]
    before = scorer.score(model, base, text, [])
    tg.transplant_model(model, tg.plan(base, new))
    after, again = (scorer.score(model, new, text, new_ids) for _ in range(2))
    nats = masked = 0.0
    for ids in map(new.encode, text):
        with torch.no_grad():
            logits = model(torch.tensor([[0, *ids[:-1]]])).logits[0].double()
        logs, rest = logits.log_softmax(-1), logits[:, : base.n_rows].log_softmax(-1)
        nats -= sum(float(row[i]) for row, i in zip(logs, ids, strict=True))
        masked -= sum(float(r[i] if i < base.n_rows else row[i]) for row, r, i in zip(logs, rest, ids, strict=True))
    assert after == again
    assert np.isclose(after["bits"], nats / np.log(2))
    assert np.isclose(after["bits"] - after["lost"], masked / np.log(2))
    row = compared(before, after)
    assert np.isclose(row["splits"] + row["probability"], row["change"], atol=0.002)
