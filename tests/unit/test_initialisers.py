"""The definitions of all initialisers, on a small table; and what they need of a plan."""

from dataclasses import replace
from functools import partial

import builders
import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint, tables

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.rows import INITIALISERS, NewTokens, TableInfo
from tokengraft.token_facts import TokenFacts

OLD, WIDTH = 50, 6
PIECES = {0: (1, 2, 3), 1: (4,), 2: (), 3: (40, 41)}
FACTS = TokenFacts(
    lengths=tuple(4 + 4 * (i % 3) for i in range(OLD)),
    # three tokens of one script, which are too few, none for the first and the last, which are not typical
    scripts=(None, *["Latin"] * 40, *["Cyrillic"] * 3, *["Common"] * 5, None),
    new_scripts=("Latin", "Cyrillic", None, "Latin"),
    similar={3: 7},
)
PLAN = tg.VocabPlan(OLD, (*PIECES.values(), *range(45)), (45, 46, 47, 48, 49), partial(replace, FACTS))


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(3)
    return (generator.normal(size=(OLD, WIDTH)) * [1, 2, 3, 1, 1, 1] + 1).astype(np.float32)


def info(table, name="input"):
    return TableInfo(np.arange(OLD), lambda ids: table[ids], WIDTH, seed=5, table=name, plan=PLAN)


def tokens(table, pieces=None):
    """New tokens by id, with the rows of their pieces."""
    pieces = PIECES if pieces is None else pieces
    old = np.array([row for rows in pieces.values() for row in rows], np.int64)
    return NewTokens([*pieces], np.array([len(rows) for rows in pieces.values()]), np.arange(len(old)), table[old], old)


def made(table, init, name="input"):
    return INITIALISERS[init](tokens(table), info(table, name))


def norms(rows):
    return np.linalg.norm(rows.astype(np.float64), axis=1)


def test_fvt_is_the_mean_of_the_pieces_and_without_pieces_that_of_the_table(table):
    expected = [table[1:4].mean(0), table[4], table.mean(0), table[40:42].mean(0)]
    assert np.allclose(made(table, "fvt"), expected, atol=1e-6)


def test_fvt_norm_has_the_direction_of_fvt_and_the_median_length_of_all_rows(table):
    rows, plain = made(table, "fvt-norm"), made(table, "fvt")
    assert np.allclose(norms(rows), np.median(norms(table)), rtol=1e-5)
    assert np.allclose(rows / norms(rows)[:, None], plain / norms(plain)[:, None], atol=1e-5)


def test_fvt_script_norm_has_the_median_length_of_kept_tokens_of_the_script(table):
    rows, plain = made(table, "fvt-script-norm"), made(table, "fvt")
    latin, everything = np.median(norms(table[1:41])), np.median(norms(table[1:45]))
    assert latin != everything
    # Cyrillic has too few kept tokens, the third has no script; removed tokens and those without a script do not count
    assert np.allclose(norms(rows), [latin, everything, everything, latin], rtol=1e-5)
    assert np.allclose(rows / norms(rows)[:, None], plain / norms(plain)[:, None], atol=1e-5)


def test_length_weighted_weighs_pieces_by_their_characters(table):
    rows = made(table, "length-weighted")
    weights = np.array([FACTS.lengths[i] for i in (1, 2, 3)]) / sum(FACTS.lengths[i] for i in (1, 2, 3))
    assert len({*weights}) == 3
    assert np.allclose(rows[0], weights @ table[1:4], atol=1e-6)
    assert np.allclose(rows[1:3], [table[4], table.mean(0)], atol=1e-6)


def test_first_and_last_piece_are_copies(table):
    mean = made(table, "mean")[0]
    assert np.array_equal(made(table, "first-piece"), [table[1], table[4], mean, table[40]])
    assert np.array_equal(made(table, "last-piece"), [table[3], table[4], mean, table[41]])


def test_context_is_the_row_of_the_similar_token_and_otherwise_fvt(table):
    rows = made(table, "context")
    assert np.array_equal(rows[:3], made(table, "fvt")[:3])
    assert np.array_equal(rows[3], table[7])


def test_weighted_looks_at_the_end_for_input_and_at_the_beginning_for_output(table):
    weights = np.exp(2.0 * np.arange(3)) / np.exp(2.0 * np.arange(3)).sum()
    assert np.allclose(made(table, "weighted")[0], weights @ table[1:4], atol=1e-6)
    assert np.allclose(made(table, "weighted", "output")[0], weights[::-1] @ table[1:4], atol=1e-6)


def test_random_rows_have_the_moments_that_they_should(table):
    assert np.allclose(made(table, "mean"), table.mean(0), atol=1e-6)
    without_pieces = tokens(table, dict.fromkeys(range(4000), ()))
    many = INITIALISERS["mean-cov"](without_pieces, info(table))
    assert np.allclose(many.mean(0), table.mean(0), atol=0.2)
    assert np.allclose(np.cov(many.T), np.cov(table.T), atol=1.0)
    noise = INITIALISERS["random"](without_pieces, info(table))
    assert abs(noise.std() - 0.02) < 0.001


@pytest.mark.parametrize("init", INITIALISERS)
def test_rows_do_not_depend_on_the_batch(table, init):
    together = made(table, init)
    alone = [INITIALISERS[init](tokens(table, {i: rows}), info(table)) for i, rows in PIECES.items()]
    assert np.array_equal(np.concatenate(alone), together)
    assert together.dtype == np.float32


@pytest.fixture
def base(tmp_path):
    return checkpoint(tmp_path / "model", dtype="F32")


@pytest.fixture
def extended(base):
    return tg.extend(base, tg.count(base, iter(ESTONIAN)), 40).apply(base)


def test_input_and_output_have_their_own_initialisers(base, extended, tmp_path):
    options = {"init": "fvt-script-norm", "output_init": "length-weighted"}
    done = tg.transplant(tmp_path / "model", extended, tmp_path / "out", **options)
    assert done.init == ("fvt-script-norm", "length-weighted")
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    facts = done.plan.facts
    for new_id, pieces in ((i, done.plan.sources[i]) for i in range(base.n_rows, extended.n_rows)):
        weights = np.array([facts.lengths[i] for i in pieces], np.float64)
        expected = weights / weights.sum() @ before["lm_head.weight"][[*pieces]]
        assert np.allclose(after["lm_head.weight"][new_id], expected, atol=1e-6)
        plain = before["model.embed_tokens.weight"][[*pieces]].mean(0)
        row = after["model.embed_tokens.weight"][new_id]
        assert np.allclose(row / np.linalg.norm(row), plain / np.linalg.norm(plain), atol=1e-5)
    latin = [i for i, name in enumerate(facts.scripts) if name == "Latin"]
    typical = np.median(norms(before["model.embed_tokens.weight"][latin]))
    written = [i for i, name in enumerate(facts.new_scripts) if name == "Latin"]
    assert len(written) > 20
    assert np.allclose(norms(after["model.embed_tokens.weight"][written]), typical, rtol=1e-5)


def test_context_copies_the_row_of_a_kept_token(base, extended, tmp_path):
    counts = tg.count(base, iter(ESTONIAN + ENGLISH))
    done = tg.transplant(tmp_path / "model", extended, tmp_path / "out", init="context", counts=counts)
    similar = done.plan.facts.similar
    assert similar
    rows = tables(tmp_path / "out")["model.embed_tokens.weight"]
    for new_id, old_id in similar.items():
        assert isinstance(done.plan.sources[new_id], tuple)
        assert np.array_equal(rows[new_id], rows[old_id])


def test_context_and_counts_go_together(base, extended, tmp_path, capsys):
    counts = tg.count(base, iter(ESTONIAN)).save(tmp_path / "et.parquet")
    with pytest.raises(errors.OptionError, match="context needs counts"):
        tg.transplant(tmp_path / "model", extended, tmp_path / "out", init="context")
    with pytest.raises(errors.OptionError, match="only the initialiser context uses"):
        tg.transplant(tmp_path / "model", extended, tmp_path / "out", counts=counts)
    other = tg.count(tg.load(builders.write(tmp_path / "other", builders.sentencepiece())), iter(ESTONIAN))
    with pytest.raises(errors.CountsError):
        tg.transplant(tmp_path / "model", extended, tmp_path / "out", init="context", counts=other)
    new = tg.save(extended, tmp_path / "new")
    arguments = ["transplant", tmp_path / "model", new, "--out", tmp_path / "out", "--init", "context"]
    assert cli.main([*map(str, arguments), "--counts", str(counts)]) == 0
    assert "context for input" in capsys.readouterr().out


def test_a_plan_of_an_earlier_version_has_no_facts_and_says_so(base, extended):
    from tokengraft.checkpoint.rows import require_facts

    old = tg.VocabPlan(3, (0, (1, 2)), (1, 2))
    assert old.facts is None
    require_facts(old, "fvt", None)
    with pytest.raises(errors.OptionError, match="earlier version"):
        require_facts(old, "fvt", "length-weighted")
    with pytest.raises(errors.OptionError, match="made without"):
        require_facts(tg.plan(base, extended), "context")


def test_an_output_is_not_rescaled_unless_asked_for(base, extended, tmp_path):
    def run(name, folder="model", **options):
        return tg.transplant(tmp_path / folder, extended, tmp_path / name, **options)

    done = run("a", init="fvt-script-norm")
    assert done.init == ("fvt-script-norm", "fvt")
    assert done.warnings == ()
    done = run("b", output_init="fvt-norm")
    assert "fvt-norm makes new rows longer, and it was chosen for the output" in done.warnings[0]
    checkpoint(tmp_path / "tied", head=False)
    assert "tied to its input" in run("c", "tied", init="fvt-script-norm").warnings[0]
    assert run("d", "tied").warnings == ()
    assert tg.transplant(tmp_path / "tied", base, tmp_path / "e", init="fvt-norm").warnings == ()  # nothing is new
