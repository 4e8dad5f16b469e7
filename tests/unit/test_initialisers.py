"""The definitions of all initialisers, on a small table; and functions as initialisers."""

import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, changed, checkpoint, tables

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint import rows as checkpoint_rows
from tokengraft.checkpoint.rows import INITIALISERS, NewTokens, TableInfo

OLD, WIDTH = 50, 6
PIECES = {0: (1, 2, 3), 1: (4,), 2: (), 3: (40, 41)}
LENGTHS = tuple(4 + 4 * (i % 3) for i in range(OLD))
PLAN = tg.VocabPlan(OLD, (*PIECES.values(), *range(45)), (45, 46, 47, 48, 49), LENGTHS)


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(3)
    return (generator.normal(size=(OLD, WIDTH)) * [1, 2, 3, 1, 1, 1] + 1).astype(np.float32)


def info(table, name="input", **others):
    return TableInfo(np.arange(OLD), lambda ids: table[ids], WIDTH, seed=5, table=name, plan=PLAN, **others)


def tokens(table, pieces=None):
    """New tokens by id, with the rows of their pieces."""
    pieces = PIECES if pieces is None else pieces
    old = np.array([row for rows in pieces.values() for row in rows], np.int64)
    return NewTokens([*pieces], np.array([len(rows) for rows in pieces.values()]), np.arange(len(old)), table[old], old)


def made(table, init, name="input"):
    return INITIALISERS[init](tokens(table), info(table, name))


def test_fvt_is_the_mean_of_the_pieces_and_without_pieces_that_of_the_table(table):
    expected = [table[1:4].mean(0), table[4], table.mean(0), table[40:42].mean(0)]
    assert np.allclose(made(table, "fvt"), expected, atol=1e-6)


def test_rare_rows_have_lower_logits_by_twice_what_later_ids_have(table):
    rows = INITIALISERS["fvt-rare"](tokens(table), info(table, predicts=True))
    hidden = np.random.default_rng(1).normal(size=WIDTH)
    logits, half = table @ hidden, OLD // 2
    lower = 2 * (logits[half:].mean() - logits[:half].mean())
    expected = np.array([logits[1:4].mean(), logits[4], logits.mean(), logits[40:42].mean()]) + lower
    assert np.allclose(rows @ hidden, expected, atol=1e-5)


def test_rows_that_give_no_logits_are_those_of_fvt(table):
    assert np.array_equal(made(table, "fvt-rare"), made(table, "fvt"))


@pytest.mark.parametrize("damaged", [[np.nan], [np.inf], [-1e30], [0.0] * 9, [3.0] * 9])
def test_rows_that_no_text_has_trained_do_not_move_new_rows(table, damaged):
    """Reserved tokens often have zeros, or all the same row, and stand at one end of the vocabulary."""
    broken = np.concatenate([table, np.broadcast_to(np.array(damaged, np.float32)[:, None], (len(damaged), WIDTH))])
    few = TableInfo(np.arange(len(broken)), lambda ids: broken[ids], WIDTH)
    assert np.allclose(few.rarer, table[len(table) // 2 :].mean(0) - table[: len(table) // 2].mean(0), atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_a_table_of_few_rows_has_rarer_ones_if_it_has_two_halves(table, n):
    few = TableInfo(np.arange(n), lambda ids: table[ids], WIDTH)
    expected = table[n // 2 : n].mean(0) - table[: n // 2].mean(0) if n > 1 else 0
    assert np.allclose(few.rarer, expected, atol=1e-6)


def test_a_sample_of_a_large_table_has_the_difference_of_its_rows(monkeypatch, table):
    monkeypatch.setattr(checkpoint_rows, "SAMPLE", 10)
    assert np.allclose(info(table).rarer, table[25::5].mean(0) - table[:25:5].mean(0), atol=1e-6)


def test_length_weighted_weighs_pieces_by_their_characters(table):
    rows = made(table, "length-weighted")
    weights = np.array([LENGTHS[i] for i in (1, 2, 3)]) / sum(LENGTHS[i] for i in (1, 2, 3))
    assert len({*weights}) == 3
    assert np.allclose(rows[0], weights @ table[1:4], atol=1e-6)
    assert np.allclose(rows[1:3], [table[4], table.mean(0)], atol=1e-6)


def test_mean_and_random_know_nothing_of_a_token(table):
    assert np.allclose(made(table, "mean"), table.mean(0), atol=1e-6)
    noise = INITIALISERS["random"](tokens(table, dict.fromkeys(range(4000), ())), info(table))
    assert abs(noise.std() - 0.02) < 0.001


@pytest.mark.parametrize("init", INITIALISERS)
def test_rows_do_not_depend_on_the_batch(table, init):
    together = made(table, init)
    alone = [INITIALISERS[init](tokens(table, {i: rows}), info(table)) for i, rows in PIECES.items()]
    assert np.array_equal(np.concatenate(alone), together)
    assert together.dtype == np.float32


MODELS = {
    "untied": ({"bias": True}, (0, 1, 1)),
    "tied": ({"head": False}, (1,)),
    "tied, stored twice": ({"config": {"tie_word_embeddings": True}}, (1, 1)),
    "without a head": ({"head": False, "config": {"architectures": ["LlamaModel"]}}, (0,)),
}


@pytest.mark.parametrize(("options", "moved"), MODELS.values(), ids=MODELS)
def test_by_default_what_gives_logits_is_moved_and_nothing_else(options, moved, tmp_path):
    base = checkpoint(tmp_path / "model", dtype="F32", **options)
    pruned = tg.prune_order(base, tg.count(base, iter(ENGLISH)))[:20].apply(base)
    new = tg.extend(pruned, tg.count(base, iter(ESTONIAN)), 40).apply(pruned)
    plan = tg.transplant(tmp_path / "model", new, tmp_path / "out").plan
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    names = [name for name in ("model.embed_tokens.weight", "lm_head.weight", "lm_head.bias") if name in before]
    half, n = base.n_rows // 2, base.n_rows
    new_ids = [i for i, source in enumerate(plan.sources) if isinstance(source, tuple)]
    kept = [i for i, source in enumerate(plan.sources) if source == i]
    assert (len(new_ids), min(new_ids) < n, len(kept)) == (40, True, n - 20)
    for name, is_moved in zip(names, moved, strict=True):
        old = before[name].reshape(n, -1)
        shift = is_moved * 2 * (old[half:].mean(0) - old[:half].mean(0))
        expected = np.array([old[[*plan.sources[i]]].mean(0) for i in new_ids]) + shift
        found = after[name].reshape(new.n_rows, -1)
        assert np.allclose(found[new_ids], expected, atol=1e-5), name
        assert np.array_equal(found[kept], old[kept])


@pytest.fixture
def base(tmp_path):
    return checkpoint(tmp_path / "model", dtype="F32")


@pytest.fixture
def extended(base):
    return changed(base, add=40)


def test_input_and_output_have_their_own_initialisers(base, extended, tmp_path):
    options = tg.TransplantOptions(output_init="length-weighted")
    done = tg.transplant(tmp_path / "model", extended, tmp_path / "out", init="mean", options=options)
    assert done.init == ("mean", "length-weighted")
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    embedding = before["model.embed_tokens.weight"][: base.n_rows].mean(0)
    for new_id, pieces in ((i, done.plan.sources[i]) for i in range(base.n_rows, extended.n_rows)):
        weights = np.array([done.plan.lengths[i] for i in pieces], np.float64)
        expected = weights / weights.sum() @ before["lm_head.weight"][[*pieces]]
        assert np.allclose(after["lm_head.weight"][new_id], expected, atol=1e-6)
        assert np.allclose(after["model.embed_tokens.weight"][new_id], embedding, atol=1e-6)


def test_a_function_gets_the_rows_of_the_pieces_and_its_rows_are_written(extended, tmp_path):
    def first_piece(tokens, info):
        pieces = np.split(tokens.piece_ids, np.cumsum(tokens.n_pieces)[:-1])
        found[info.table] |= {i: tuple(old) for i, old in zip(tokens.ids, pieces, strict=True)}
        return [token.pieces[0] for token in tokens]

    found = {"input": {}, "output": {}}
    done = tg.transplant(tmp_path / "model", extended, tmp_path / "out", init=first_piece)
    assert done.init == ("function first_piece",) * 2
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    new = {i: source for i, source in enumerate(done.plan.sources) if isinstance(source, tuple)}
    assert len(new) == 40
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert np.array_equal(after[name][[*new]], before[name][[pieces[0] for pieces in new.values()]])
    assert found == {"input": new, "output": new}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda tokens, info: np.zeros((len(tokens), info.width + 1)), r"of the shape \(40, 17\) for 40 new tokens"),
        (lambda _, info: np.zeros((1, info.width)), r"of the shape \(1, 16\)"),
        (lambda *_: None, "must give an array of numbers"),
        (lambda *_: [[1.0], [1.0, 2.0]], "a list that numpy cannot read"),
        (lambda tokens, info: np.full((len(tokens), info.width), np.inf), "infinite numbers or NaN as F32"),
    ],
)
def test_a_function_that_gives_no_row_for_each_token_is_refused(extended, rows, message, tmp_path):
    with pytest.raises(errors.OptionError, match=message):
        tg.transplant(tmp_path / "model", extended, tmp_path / "out", init=rows)
    assert not (tmp_path / "out").exists()


def test_neither_a_name_nor_a_function_is_refused(extended, tmp_path):
    with pytest.raises(errors.OptionError, match="no initialiser 'fvt-norm'"):
        tg.transplant(tmp_path / "model", extended, tmp_path / "out", init="fvt-norm")
    with pytest.raises(errors.OptionError, match="no initialiser 3"):
        tg.transplant(tmp_path / "model", extended, tmp_path / "out", init=3)
